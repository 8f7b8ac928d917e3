"""The ledger at a glance: how many jobs of which kind stand where, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from memsvc.db import queries
from memsvc.db.pool import Conn

SQL = queries.load(__file__)


@dataclass(frozen=True)
class Count:
    """Jobs of one kind in one status; `live` tells memsvc's own from the history of an import."""

    kind: str
    status: str
    live: bool
    jobs: int


@dataclass(frozen=True)
class Trouble:
    """A job that ended in error, or whose worker is gone; `retry_at` is None when it is not tried again by itself."""

    kind: str
    job_key: str
    source: str
    store: str
    live: bool
    status: str
    retry_remaining: int
    retry_at: datetime | None
    stop_reason: str | None
    last_error: str | None


@dataclass(frozen=True)
class Holder:
    """A live lease: who is at which job, and until when it counts unless it is kept alive."""

    worker_id: str | None
    kind: str
    job_key: str
    lease_until: datetime


def counts(conn: Conn) -> list[Count]:
    """Every kind and status that has jobs, history and live ones apart."""
    with conn.cursor(row_factory=class_row(Count)) as cursor:
        return cursor.execute(SQL["counts"]).fetchall()


def expired_leases(conn: Conn) -> int:
    """Live jobs that a worker has left behind: they are claimed again by the next worker."""
    row = conn.execute(SQL["expired_leases"]).fetchone()
    return int(row[0]) if row else 0


def troubles(conn: Conn, *, limit: int = 20) -> list[Trouble]:
    """Jobs in error and history that was running when it was exported, live ones first, newest first."""
    with conn.cursor(row_factory=class_row(Trouble)) as cursor:
        return cursor.execute(SQL["troubles"], {"limit": limit}).fetchall()


def holders(conn: Conn, *, kind: str | None = None) -> list[Holder]:
    """The live leases, of one kind or of all, those that end first first."""
    with conn.cursor(row_factory=class_row(Holder)) as cursor:
        return cursor.execute(SQL["holders"], {"kind": kind}).fetchall()
