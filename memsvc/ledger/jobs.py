"""
Live jobs: enqueue, claim, heartbeat, complete, fail, release.

Functions of a connection: the caller owns the transaction. Whoever claims a job gets a Lease, and every later call
takes it: a call without proof cannot be written. The database's clock decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from psycopg import sql
from psycopg.rows import class_row

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.db.recordset import recordset
from memsvc.errors import LeaseLost
from memsvc.ledger import kinds as settings
from memsvc.model.job import POLICIES, RETRIES, JobKey, Lease, Policy, policy

SQL = queries.load(__file__)

CHANNEL = "memsvc_jobs"  # where enqueue says which kinds have work
LONGEST_ERROR = 2000
DATED = [kind for kind, known in POLICIES.items() if known.dated]


def enqueue(
    conn: Conn,
    keys: Iterable[tuple[JobKey, UUID | None]],
    *,
    priority: int = 0,
    watermarks: Mapping[JobKey, int] | None = None,
) -> int:
    """
    Say that there is input: absent, done or error -> pending with all retries, due at once; pending and running stay.

    Each key comes with the scope that the work is in, None for work of a whole tenant. The input watermark goes up by
    one, or to the key's in `watermarks` if that is more, so that a worker that is busy with the old input finds out
    when it completes. Of a job that rests after a success, the rest goes on first.

    Where a kind is dated, the key's watermark is taken as it is. What was done up to there, and older or equal input of
    a job that runs, waits after a failure or was stopped, changes nothing.

    Returns how many jobs of the keys were written.

    Raises:
        ValueError: a key of a dated kind comes without its watermark.
    """
    given, marks = dict(keys), watermarks or {}
    for key in given:
        if key.kind in DATED and key not in marks:
            raise ValueError(f"{key.kind} {key.job_key} comes without its watermark")
    rows = recordset(
        {
            "source_id": key.source_id,
            "kind": key.kind,
            "job_key": key.job_key,
            "scope_id": scope_id,
            "watermark": marks.get(key, 1),
        }
        for key, scope_id in given.items()
    )
    values = {"rows": rows, "priority": priority, "retries": RETRIES, "dated": DATED}
    return _number(conn, "enqueue", values)


def claim(conn: Conn, kinds: Sequence[str], *, worker_id: str, lease_for: timedelta, limit: int = 1) -> list[Lease]:
    """
    Take the most urgent due jobs: pending, error whose time has come, or running with an expired lease -> running.

    The kinds are asked in their order, those that are switched off left out, and each for no more than its cap leaves;
    of each, a higher priority comes first, then what has been due for longest. A lease that expired is written to the
    history as lost. A job that has used up its attempts stops as poison. Nothing due gives an empty list.
    """
    enabled = {kind: found for kind, found in settings.policies(conn, kinds).items() if found.enabled}
    _hold_caps(conn, enabled)
    leases: list[Lease] = []
    for kind, found in enabled.items():
        if len(leases) < limit:
            wanted = min(limit - len(leases), _places(conn, kind, found))
            leases += _claim(conn, kind, found, worker_id, lease_for, wanted)
    return leases


def _hold_caps(conn: Conn, policies: Mapping[str, Policy]) -> None:
    capped = [kind for kind, found in policies.items() if found.max_running is not None]
    if capped:
        conn.execute(SQL["hold_caps"], {"kinds": capped})


def _places(conn: Conn, kind: str, found: Policy) -> int:
    if found.max_running is None:
        return 2**31 - 1
    return found.max_running - _number(conn, "running", {"kind": kind})


def _claim(conn: Conn, kind: str, found: Policy, worker_id: str, lease_for: timedelta, wanted: int) -> list[Lease]:
    """At most `wanted` leases; what has used up its attempts is stopped on the way, and the next one taken instead."""
    values = {
        "kind": kind,
        "worker_id": worker_id,
        "lease_for": lease_for,
        "longest_lease": found.longest_lease,
    }
    leases: list[Lease] = []
    while len(leases) < wanted:
        with conn.cursor(row_factory=class_row(Lease)) as cursor:
            limited = sql.SQL(SQL["claim"]).format(limit=wanted - len(leases))
            taken = cursor.execute(limited, values, prepare=True).fetchall()
        allowed = [lease for lease in taken if lease.attempts <= found.max_attempts]
        for lease in taken:
            if lease.attempts > found.max_attempts:
                fail(conn, lease, f"{found.max_attempts} attempts at this input came to no end", retry_in=None)
        leases += allowed
        if len(allowed) == len(taken):
            break
    return leases


def heartbeat(conn: Conn, lease: Lease, *, lease_for: timedelta) -> None:
    """
    running -> running, with the lease counted anew from now, as far as one lease may last in all.

    Raises:
        LeaseLost: somebody else owns the job now, the lease has lasted as long as it may, or it expired and its kind is
            capped, so that its place may be another's.
    """
    policies = settings.policies(conn, [lease.kind])
    _hold_caps(conn, policies)
    found = policies[lease.kind]
    capped = found.max_running is not None
    _owned(conn, "heartbeat", lease, lease_for=lease_for, longest_lease=found.longest_lease, capped=capped)


def complete(conn: Conn, *leases: Lease, watermark: int | None = None) -> None:
    """
    running -> done, or back to pending if newer input arrived meanwhile.

    Call it in the transaction that writes the result, so that both happen or neither does. `watermark` is how far the
    input really went, where that is more than what the leases say. A kind that rests is not due before it has.

    Raises:
        LeaseLost: somebody else owns one of the jobs now; roll back.
    """
    rows = recordset(
        {
            "source_id": lease.source_id,
            "kind": lease.kind,
            "job_key": lease.job_key,
            "ownership_token": lease.ownership_token,
            "input_watermark": lease.input_watermark,
            "rests_for": f"{policy(lease.kind).rests_for.total_seconds()} seconds",
        }
        for lease in leases
    )
    values = {"leases": rows, "watermark": watermark}
    ended = {token for (token,) in conn.execute(SQL["complete"], values, prepare=True)}
    for lease in leases:
        if lease.ownership_token not in ended:
            raise _lost(lease)


def fail(conn: Conn, lease: Lease, error: str, *, retry_in: timedelta | None) -> None:
    """
    running -> error, to be tried again after `retry_in`; None, when nothing can ever come of this input, stops it as
    poison. With no retry left it stops as exhausted, unless its kind never gives up. If newer input arrived
    meanwhile, back to pending instead.

    `error` is for people to read and holds no text of a memory; what Postgres cannot store of it is replaced.

    Raises:
        LeaseLost: somebody else owns the job now.
    """
    storable = error.replace("\x00", "\ufffd").encode(errors="replace").decode()[:LONGEST_ERROR]
    gives_up = policy(lease.kind).gives_up
    values = {"input_watermark": lease.input_watermark, "error": storable, "retry_in": retry_in, "gives_up": gives_up}
    _owned(conn, "fail", lease, **values)


def release(conn: Conn, lease: Lease) -> None:
    """
    running -> pending, due at once: the worker stops and gives back what it has not finished, at no cost.

    Raises:
        LeaseLost: somebody else owns the job now.
    """
    _owned(conn, "release", lease)


def runnable(conn: Conn, kinds: Sequence[str]) -> int:
    """How many jobs of these kinds are due now."""
    return _number(conn, "runnable", {"kinds": list(kinds)})


def _number(conn: Conn, query: str, values: Mapping[str, object]) -> int:
    row = conn.execute(SQL[query], values).fetchone()
    return int(row[0]) if row else 0


def _owned(conn: Conn, query: str, lease: Lease, **values: object) -> None:
    key = {
        "source_id": lease.source_id,
        "kind": lease.kind,
        "job_key": lease.job_key,
        "ownership_token": lease.ownership_token,
    }
    if conn.execute(SQL[query], {**key, **values}).rowcount != 1:
        raise _lost(lease)


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"the lease on {lease.kind} {lease.job_key} is lost")
