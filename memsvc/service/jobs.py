"""Jobs: see them, learn why one does not run, try again, stop."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from memsvc.db import migrate
from memsvc.db.pool import Conn
from memsvc.errors import Conflict, NotFound, WrongUse
from memsvc.ledger import control, explain, listing, overview
from memsvc.ledger.control import Row
from memsvc.ledger.explain import Explanation
from memsvc.ledger.listing import Attempt, Filter, Job
from memsvc.ledger.overview import Holder
from memsvc.service import work
from memsvc.service.app import App
from memsvc.service.status import table

MOST = 1000


@dataclass(frozen=True)
class LsRequest:
    """Which jobs, None for any; at most `limit` of them, from `cursor` on."""

    kind: str | None = None
    status: str | None = None
    source: str | None = None
    live: bool | None = None
    limit: int = 50
    cursor: str | None = None


@dataclass(frozen=True)
class LsResult:
    """Jobs in the order of their keys; `cursor` is where the next page begins, None after the last."""

    jobs: tuple[Job, ...]
    cursor: str | None


@dataclass(frozen=True)
class Named:
    """
    One job. `source` is a label and `store` where the row lies, both needed only to tell rows of one key apart; without
    a store the live one is meant, if there is one.
    """

    kind: str
    job_key: str
    source: str | None = None
    store: str | None = None


@dataclass(frozen=True)
class ShowResult:
    """A job, what was tried of it, newest first, and why it does not run now."""

    job: Job
    attempts: tuple[Attempt, ...]
    explanation: Explanation


@dataclass(frozen=True)
class ExplainResult:
    """Why a job does not run now."""

    job: Job
    explanation: Explanation


@dataclass(frozen=True)
class ChangeRequest:
    """
    One job of a kind, or with no `job_key` all of them, of one source or of all: live ones, or with `imported` those of
    imports. `store` is for one row of an import. With `dry_run` nothing is written.
    """

    kind: str
    job_key: str | None = None
    source: str | None = None
    store: str | None = None
    imported: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Changed:
    """One live job that was moved or made."""

    source: str
    kind: str
    job_key: str


@dataclass(frozen=True)
class ChangeResult:
    """What was changed, or with a dry run what would be."""

    jobs: tuple[Changed, ...]
    dry_run: bool


@dataclass(frozen=True)
class Snapshot:
    """The live ledger at one moment: jobs by kind and status, and who holds what."""

    at: datetime
    live_jobs: dict[str, dict[str, int]]
    running: tuple[Holder, ...]
    workers: int


def ls(app: App, request: LsRequest) -> LsResult:
    """
    List jobs.

    Raises:
        WrongUse: the limit or the cursor cannot be.
    """
    if not 1 <= request.limit <= MOST:
        raise WrongUse(f"the limit is {request.limit}", mend=f"choose from 1 to {MOST}")
    wanted = Filter(kind=request.kind, status=request.status, source=request.source, live=request.live)
    with app.pool.transaction(app.actor) as conn:
        found, cursor = listing.jobs(conn, wanted, limit=request.limit, cursor=request.cursor)
    return LsResult(tuple(found), cursor)


def show(app: App, request: Named) -> ShowResult:
    """
    One job and its attempts.

    Raises:
        NotFound, Conflict: there is none of that name, or there are several.
    """
    workers = _workers(app, request.kind)
    with app.pool.transaction(app.actor) as conn:
        job = _one(conn, request)
        tried = listing.attempts(conn, job.row)
        return ShowResult(job, tuple(tried), explain.explain(conn, job, workers=workers))


def why(app: App, request: Named) -> ExplainResult:
    """
    Why one job does not run now, and what moves it on.

    Raises:
        NotFound, Conflict: there is none of that name, or there are several.
    """
    workers = _workers(app, request.kind)
    with app.pool.transaction(app.actor) as conn:
        job = _one(conn, request)
        return ExplainResult(job, explain.explain(conn, job, workers=workers))


def retry(app: App, request: ChangeRequest) -> ChangeResult:
    """
    Let jobs be due at once with all their retries; of imported ones, make live twins.

    Raises:
        NotFound: there is no job of that name.
        Conflict: that one job has nothing to try again, or its name means several.
    """
    workers = _workers(app, request.kind)
    with app.pool.transaction(app.actor) as conn:
        rows = _chosen(conn, request)
        moved = _tried(conn, request, rows)
        if request.job_key is not None and not moved:
            _nothing_to_do(conn, request, rows, workers)
    return ChangeResult(moved, request.dry_run)


def cancel(app: App, request: ChangeRequest) -> ChangeResult:
    """
    Stop jobs until they are tried again or have newer input.

    Raises:
        NotFound: there is no job of that name.
        Conflict: that one job has ended already, or its name means several.
    """
    workers = _workers(app, request.kind)
    with app.pool.transaction(app.actor) as conn:
        rows = _chosen(conn, request)
        with conn.transaction(force_rollback=request.dry_run):
            stopped = _labelled(conn, control.cancel(conn, rows))
        if request.job_key is not None and not stopped:
            _nothing_to_do(conn, request, rows, workers)
    return ChangeResult(stopped, request.dry_run)


def snapshot(app: App) -> Snapshot:
    """The live ledger now."""
    workers = _seen(app)
    with app.pool.transaction(app.actor) as conn:
        counts = table([count for count in overview.counts(conn) if count.live])
        running = overview.holders(conn)
    return Snapshot(datetime.now(UTC), counts, tuple(running), workers)


def _workers(app: App, kind: str) -> int | None:
    return _seen(app) if kind in work.KINDS else None


def _seen(app: App) -> int:
    with migrate.connect(app.database_url) as conn:
        return explain.workers(conn)


def _tried(conn: Conn, request: ChangeRequest, rows: list[Row]) -> tuple[Changed, ...]:
    with conn.transaction(force_rollback=request.dry_run):
        return _labelled(conn, control.retry(conn, rows))


def _chosen(conn: Conn, request: ChangeRequest) -> list[Row]:
    if request.job_key is not None:
        named = Named(request.kind, request.job_key, request.source, request.store)
        return [_one(conn, named, live=False if request.imported else None).row]
    wanted = Filter(kind=request.kind, source=request.source, store=request.store, live=not request.imported)
    return listing.not_done(conn, wanted)


def _nothing_to_do(conn: Conn, request: ChangeRequest, rows: list[Row], workers: int | None) -> None:
    (row,) = rows
    job = _one(conn, Named(row.kind, row.job_key, request.source, row.store))
    found = explain.explain(conn, job, workers=workers)
    raise Conflict(f"{row.kind} {row.job_key} stays as it is: {found.why}", mend=found.mend)


def _labelled(conn: Conn, rows: list[Row]) -> tuple[Changed, ...]:
    labels = listing.labels(conn)
    return tuple(Changed(labels[row.source_id], row.kind, row.job_key) for row in rows)


def _one(conn: Conn, named: Named, *, live: bool | None = None) -> Job:
    wanted = Filter(kind=named.kind, job_key=named.job_key, source=named.source, store=named.store, live=live)
    found, _ = listing.jobs(conn, wanted, limit=10)
    if named.store is None and live is None:
        found = [job for job in found if job.live] or found
    if not found:
        raise NotFound(f"there is no job {named.kind} {named.job_key}", mend=f"memsvc jobs ls --kind {named.kind}")
    if len(found) > 1:
        places = "; ".join(f"--source {job.source} --store {job.store}" for job in found)
        raise Conflict(f"{named.kind} {named.job_key} is in several places", mend=f"add one of: {places}")
    return found[0]
