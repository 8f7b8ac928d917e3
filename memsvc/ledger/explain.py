"""Why a job is not running now, and which command moves it on."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal

from psycopg.rows import dict_row

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.ledger import kinds, overview
from memsvc.ledger.listing import Job
from memsvc.ledger.overview import Holder
from memsvc.model.job import Policy

SQL = queries.load(__file__)

WORKER = "memsvc worker"  # the name that workers listen under

Code = Literal[
    "imported",
    "up-to-date",
    "exhausted",
    "poison",
    "cancelled",
    "leased",
    "switched-off",
    "rests",
    "back-off",
    "cap-reached",
    "left-behind",
    "due",
]


@dataclass(frozen=True)
class Explanation:
    """
    The first thing that keeps a job from running, in a word and in a sentence.

    `until` is when that ends by itself, None where it does not. `mend` moves the job on, None where nothing need be
    done. `holders` are the leases that are in the way.
    """

    code: Code
    why: str
    until: datetime | None
    mend: str | None
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True)
class Surroundings:
    """What an explanation needs to know besides the job: the database's clock, the kind, the leases, the workers."""

    now: datetime
    policy: Policy
    holders: tuple[Holder, ...]
    workers: int | None
    twin_status: str | None
    switch_on: str


def explain(conn: Conn, job: Job, *, workers: int | None) -> Explanation:
    """Why the job is not running now; `workers` is how many are seen to run, None where none can do its kind."""
    key = asdict(job.row)
    holders = tuple(overview.holders(conn, kind=job.kind))
    with conn.cursor(row_factory=dict_row) as cursor:
        around = cursor.execute(SQL["around"], key).fetchone() or {}
    policy = kinds.policies(conn, [job.kind])[job.kind]
    return reason(job, Surroundings(policy=policy, holders=holders, workers=workers, **around))


def workers(conn: Conn) -> int:
    """How many workers can be seen. The service's role sees none: the connection acts as the login itself."""
    row = conn.execute(SQL["workers"], {"application_name": WORKER}).fetchone()
    return int(row[0]) if row else 0


def reason(job: Job, around: Surroundings) -> Explanation:
    """The first thing that is in the way, in the order in which a claim would meet them."""
    if not job.live:
        return _of_history(job, around)
    if job.stop_reason is not None:
        return _of_stopped(job, around)
    if job.status == "done":
        return Explanation("up-to-date", "done, and nothing newer was enqueued since", None, None)
    if job.status == "running" and job.lease_until is not None and job.lease_until > around.now:
        holder = Holder(job.worker_id, job.kind, job.job_key, job.lease_until)
        why = f"{job.worker_id} is at it, and its lease ends at {_at(job.lease_until)} unless it is kept alive"
        return Explanation("leased", why, job.lease_until, _command("cancel", job), (holder,))
    if not around.policy.enabled:
        return Explanation("switched-off", f"the kind {job.kind} is switched off", None, around.switch_on)
    if job.due_at is not None and job.due_at > around.now:
        return _of_waiting(job, job.due_at)
    cap = around.policy.max_running
    if cap is not None and len(around.holders) >= cap:
        names = ", ".join(sorted({str(holder.worker_id) for holder in around.holders}))
        why = f"{len(around.holders)} of {cap} places of the kind are taken, by {names}"
        return Explanation("cap-reached", why, around.holders[0].lease_until, None, around.holders)
    return _of_due(job, around)


def _of_history(job: Job, around: Surroundings) -> Explanation:
    why = f"a row of the import {job.source} ({job.store}) is history, and never run"
    if job.status == "done":
        return Explanation("imported", f"{why}; it was done there", None, None)
    if around.twin_status is not None:
        return Explanation(
            "imported", f"{why}; its live twin is {around.twin_status}", None, _command("explain", job, live=True)
        )
    return Explanation("imported", f"{why}; a live twin can be made of it", None, _command("retry", job))


def _of_stopped(job: Job, around: Surroundings) -> Explanation:
    retry = _command("retry", job)
    if job.stop_reason == "cancelled":
        return Explanation("cancelled", "somebody cancelled it", None, retry)
    if job.stop_reason == "exhausted":
        return Explanation("exhausted", f"every retry is used up; the last error: {job.last_error}", None, retry)
    most = around.policy.max_attempts
    why = f"this input cannot succeed, or was attempted {most} times without an end: {job.last_error}"
    return Explanation("poison", why, None, retry)


def _of_waiting(job: Job, due_at: datetime) -> Explanation:
    retry = _command("retry", job)
    if job.status == "error":
        why = f"it failed and waits until {_at(due_at)}, with {job.retry_remaining} retries left: {job.last_error}"
        return Explanation("back-off", why, due_at, retry)
    return Explanation("rests", f"the last success is enough until {_at(due_at)}", due_at, retry)


def _of_due(job: Job, around: Surroundings) -> Explanation:
    mend: str | None = None
    if around.workers is None:
        why = f"it is due, but no worker of this version does jobs of the kind {job.kind}"
    elif around.workers == 0:
        why, mend = "it is due, and no worker is seen to run", f"memsvc worker --kinds {shlex.quote(job.kind)}"
    else:
        why = "it is due, and the next free worker of its kind takes it"
    if job.status == "running":
        return Explanation("left-behind", f"{job.worker_id} left it behind when its lease ended; {why}", None, mend)
    return Explanation("due", why, None, mend)


def _command(verb: str, job: Job, *, live: bool = False) -> str:
    words = ["memsvc", "jobs", verb, job.kind, job.job_key, "--source", job.source]
    if not (job.live or live):
        words += ["--store", job.store]
    if live:
        words += ["--store", "memsvc"]
    return shlex.join(words)


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S %Z}"
