"""
Live jobs: enqueue, claim, heartbeat, complete, fail, release.

Functions of a connection: the caller owns the transaction. Whoever claims a job gets a Lease, and every later call
takes it: a call without proof cannot be written. The database's clock decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from uuid import UUID

from psycopg.rows import class_row

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.db.recordset import recordset
from memsvc.errors import LeaseLost
from memsvc.model.job import JobKey, Lease

SQL = queries.load(__file__)

RETRIES = 3
LONGEST_ERROR = 2000


def enqueue(conn: Conn, keys: Iterable[tuple[JobKey, UUID | None]], *, priority: int = 0) -> int:
    """
    Say that there is new input: absent, done or error -> pending with all retries, due at once; pending and running
    stay.

    Each key comes with the scope that the work is in, None for work of a whole tenant. The input watermark goes up by
    one, so that a worker that is busy with the old input finds out when it completes. Returns how many jobs there are
    of the keys.
    """
    rows = recordset(
        {"source_id": key.source_id, "kind": key.kind, "job_key": key.job_key, "scope_id": scope_id}
        for key, scope_id in dict(keys).items()
    )
    return conn.execute(SQL["enqueue"], {"rows": rows, "priority": priority, "retries": RETRIES}).rowcount


def claim(conn: Conn, kinds: Sequence[str], *, worker_id: str, lease_for: timedelta, limit: int = 1) -> list[Lease]:
    """
    Take the most urgent due jobs: pending, error whose time has come, or running with an expired lease -> running.

    The kinds are asked in their order; of each, a higher priority comes first, then what has been due for longest. A
    lease that expired is written to the history as lost. Nothing due gives an empty list.
    """
    leases: list[Lease] = []
    with conn.cursor(row_factory=class_row(Lease)) as cursor:
        for kind in kinds:
            if len(leases) < limit:
                values = {"kind": kind, "worker_id": worker_id, "lease_for": lease_for, "limit": limit - len(leases)}
                leases += cursor.execute(SQL["claim"], values).fetchall()
    return leases


def heartbeat(conn: Conn, lease: Lease, *, lease_for: timedelta) -> None:
    """
    running -> running, with the lease counted anew from now.

    Raises:
        LeaseLost: somebody else owns the job now.
    """
    _owned(conn, "heartbeat", lease, lease_for=lease_for)


def complete(conn: Conn, lease: Lease) -> None:
    """
    running -> done, or back to pending if newer input arrived meanwhile.

    Call it in the transaction that writes the result, so that both happen or neither does.

    Raises:
        LeaseLost: somebody else owns the job now; roll back.
    """
    _owned(conn, "complete", lease, input_watermark=lease.input_watermark)


def fail(conn: Conn, lease: Lease, error: str, *, retry_in: timedelta) -> None:
    """
    running -> error, to be tried again after `retry_in`; with no retry left it stops as exhausted. If newer input
    arrived meanwhile, back to pending instead.

    `error` is for people to read and holds no text of a memory; what Postgres cannot store of it is replaced.

    Raises:
        LeaseLost: somebody else owns the job now.
    """
    storable = error.replace("\x00", "\ufffd").encode(errors="replace").decode()[:LONGEST_ERROR]
    _owned(conn, "fail", lease, input_watermark=lease.input_watermark, error=storable, retry_in=retry_in)


def release(conn: Conn, lease: Lease) -> None:
    """
    running -> pending, due at once: the worker stops and gives back what it has not finished.

    Raises:
        LeaseLost: somebody else owns the job now.
    """
    _owned(conn, "release", lease)


def runnable(conn: Conn, kinds: Sequence[str]) -> int:
    """How many jobs of these kinds are due now."""
    row = conn.execute(SQL["runnable"], {"kinds": list(kinds)}).fetchone()
    return int(row[0]) if row else 0


def _owned(conn: Conn, query: str, lease: Lease, **values: object) -> None:
    key = {
        "source_id": lease.source_id,
        "kind": lease.kind,
        "job_key": lease.job_key,
        "ownership_token": lease.ownership_token,
    }
    if conn.execute(SQL[query], {**key, **values}).rowcount != 1:
        raise LeaseLost(f"the lease on {lease.kind} {lease.job_key} is lost")
