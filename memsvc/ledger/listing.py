"""The rows of the ledger as a person sees them, live and history, and what was tried of one."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.errors import WrongUse
from memsvc.ledger.control import Row

SQL = queries.load(__file__)


@dataclass(frozen=True)
class Job:
    """
    One row of the ledger; `live` tells memsvc's own from the history of an import.

    `due_at` is when it may be claimed, None for history and for what is done or stopped. The watermarks are counters or
    seconds, whatever the kind counts.
    """

    source_id: UUID
    source: str
    store: str
    kind: str
    job_key: str
    live: bool
    status: str
    stop_reason: str | None
    priority: int
    attempts: int
    retry_remaining: int
    input_watermark: int | None
    last_success_watermark: int | None
    worker_id: str | None
    started_at: datetime | None
    finished_at: datetime | None
    lease_until: datetime | None
    retry_at: datetime | None
    not_before: datetime | None
    due_at: datetime | None
    last_error: str | None

    @property
    def row(self) -> Row:
        """What names it."""
        return Row(self.source_id, self.store, self.kind, self.job_key)


@dataclass(frozen=True)
class Attempt:
    """One lease that has ended: `outcome` is done, error, released, lost or cancelled."""

    started_at: datetime
    ended_at: datetime
    outcome: str
    worker_id: str | None
    error: str | None


@dataclass(frozen=True)
class Filter:
    """Which jobs; None lets everything through. `source` is a label."""

    kind: str | None = None
    job_key: str | None = None
    status: str | None = None
    source: str | None = None
    store: str | None = None
    live: bool | None = None


def jobs(conn: Conn, wanted: Filter, *, limit: int, cursor: str | None = None) -> tuple[list[Job], str | None]:
    """
    At most `limit` jobs in the order of their keys, and the cursor of the next page, None after the last.

    Raises:
        WrongUse: the cursor is none that was given out.
    """
    after = _place(cursor)
    with conn.cursor(row_factory=class_row(Job)) as rows:
        found = rows.execute(SQL["jobs"], {**asdict(wanted), **after, "limit": limit + 1}).fetchall()
    if len(found) <= limit:
        return found, None
    return found[:limit], _cursor(found[limit - 1].row)


def not_done(conn: Conn, wanted: Filter) -> list[Row]:
    """The rows that are not done, all of them."""
    with conn.cursor(row_factory=class_row(Row)) as cursor:
        return cursor.execute(SQL["not_done"], asdict(wanted)).fetchall()


def labels(conn: Conn) -> dict[UUID, str]:
    """What the sources are called."""
    return dict(conn.execute(SQL["labels"]).fetchall())


def attempts(conn: Conn, row: Row, *, limit: int = 100) -> list[Attempt]:
    """What was tried, newest first."""
    with conn.cursor(row_factory=class_row(Attempt)) as cursor:
        return cursor.execute(SQL["attempts"], {**asdict(row), "limit": limit}).fetchall()


def _cursor(row: Row) -> str:
    place = [str(row.source_id), row.store, row.kind, row.job_key]
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _place(cursor: str | None) -> dict[str, object]:
    if cursor is None:
        return {"after_source_id": None, "after_store": None, "after_kind": None, "after_job_key": None}
    try:
        source_id, store, kind, job_key = map(str, json.loads(base64.urlsafe_b64decode(cursor)))
        after = {"after_store": store, "after_kind": kind, "after_job_key": job_key}
        return {"after_source_id": UUID(source_id), **after}
    except ValueError:
        raise WrongUse("that is no cursor of this listing", mend="begin without --cursor") from None
