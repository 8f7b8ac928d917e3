"""
The worker: claim, do the slow part with no transaction open, then write the result and complete the job together.

A lease is kept alive by a thread of its own for as long as the work takes.
"""

from __future__ import annotations

import logging
import os
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import psycopg

from memsvc.db.pool import Conn, Pool
from memsvc.errors import DatabaseUnavailable, EmbedderUnavailable, LeaseLost, MemsvcError
from memsvc.ledger import jobs
from memsvc.ledger.backoff import backoff
from memsvc.model.job import Lease
from memsvc.model.principal import Actor

logger = logging.getLogger(__name__)

LEASE_FOR = timedelta(minutes=5)
POLL_EVERY = timedelta(seconds=2)
LONGEST_PAUSE = timedelta(minutes=1)
CLAIM_WITHIN = timedelta(seconds=2)
REFILL_EVERY = timedelta(minutes=5)

# Classes of SQLSTATE that say that the server cannot, not that it will not: connection, resources, operator, system.
AWAY = ("08", "53", "57P", "58")

Handler = Callable[[Lease], Callable[[Conn], None]]


@dataclass(frozen=True)
class Work:
    """
    What a worker needs: where, for whom, and what it can do.

    `handlers` are asked for before each job, and may say that the model cannot be had. `refill` is called when nothing
    is due: it may enqueue more, and returns how many jobs.
    """

    pool: Pool
    actor: Actor
    handlers: Callable[[], Mapping[str, Handler]]
    worker_id: str
    lease_for: timedelta = LEASE_FOR
    refill: Callable[[], int] = lambda: 0


@dataclass
class Done:
    """What a run of the worker came to."""

    completed: int = 0
    failed: int = 0
    lost: int = 0


def worker_id() -> str:
    """A name for this process that a person can find: host and pid."""
    return f"{socket.gethostname()}:{os.getpid()}"


def run(work: Work, *, once: bool, stop: Event) -> Done:
    """
    Work until told to stop; with `once`, until nothing is due.

    A job that is under way when `stop` is set is finished first. A database or a model that cannot be reached is waited
    for, unless `once`.

    Raises:
        DatabaseUnavailable, EmbedderUnavailable, psycopg.OperationalError: with `once`, one of them cannot be reached.
    """
    done, pause, refill_at = Done(), POLL_EVERY, monotonic()
    while not stop.is_set():
        try:
            idle = not work_one(work, done)
            if idle and monotonic() >= refill_at:
                idle = work.refill() == 0
                refill_at = monotonic() + (REFILL_EVERY.total_seconds() if idle else 0)
        except (DatabaseUnavailable, EmbedderUnavailable, psycopg.OperationalError) as exc:
            if once:
                raise
            logger.error("no work for %d seconds: %s", pause.total_seconds(), account(exc))  # noqa: TRY400
            stop.wait(pause.total_seconds())
            pause = min(2 * pause, LONGEST_PAUSE)
            continue
        pause = POLL_EVERY
        if idle and once:
            break
        if idle:
            stop.wait(POLL_EVERY.total_seconds())
    return done


def work_one(work: Work, done: Done) -> bool:
    """
    Claim one job and see it through; False when nothing is due.

    Raises:
        DatabaseUnavailable, psycopg.OperationalError: the database went away; the job comes back when its lease ends.
        EmbedderUnavailable: the model cannot be had now; no job is held.
    """
    handlers = work.handlers()
    with work.pool.transaction(work.actor, statement_within=CLAIM_WITHIN) as conn:
        leases = jobs.claim(conn, list(handlers), worker_id=work.worker_id, lease_for=work.lease_for)
    if not leases:
        return False
    (lease,) = leases
    try:
        completed = _see_through(work, lease, handlers[lease.kind])
    except LeaseLost:
        logger.warning("lease lost: %s %s", lease.kind, lease.job_key)
        done.lost += 1
    else:
        done.completed += completed
        done.failed += not completed
    return True


def _see_through(work: Work, lease: Lease, handler: Handler) -> bool:
    """Do what the lease is for; False when that failed, which the ledger then knows."""
    try:
        with _kept_alive(work, lease):
            write = handler(lease)  # the slow part, no transaction open
        with work.pool.transaction(work.actor) as conn:  # the result and the completion, together
            write(conn)
            jobs.complete(conn, lease)
    except LeaseLost:
        raise
    except EmbedderUnavailable:
        with work.pool.transaction(work.actor) as conn:
            jobs.release(conn, lease)
        raise
    except Exception as exc:
        if _is_away(exc):
            raise  # not the job's fault: the lease runs out and the job comes back
        _fail(work, lease, exc)
        return False
    return True


def _is_away(exc: Exception) -> bool:
    """Did the database go away? A statement that it cut short, or a deadlock, is the doing of the job."""
    if isinstance(exc, psycopg.OperationalError):
        return exc.sqlstate is None or exc.sqlstate.startswith(AWAY)
    return isinstance(exc, DatabaseUnavailable)


def _fail(work: Work, lease: Lease, exc: Exception) -> None:
    error = account(exc)
    steps = "".join(traceback.format_tb(exc.__traceback__))
    logger.error("job failed: %s %s: %s\n%s", lease.kind, lease.job_key, error, steps)
    with work.pool.transaction(work.actor) as conn:
        jobs.fail(conn, lease, error, retry_in=backoff(lease.attempts))


def account(exc: Exception) -> str:
    """What failed and where. What is not ours may quote a memory or a statement in its message: that stays out."""
    if isinstance(exc, MemsvcError):
        return f"{exc.code}: {exc}"
    if isinstance(exc, psycopg.Error):
        return " ".join(filter(None, (type(exc).__name__, exc.sqlstate, exc.diag.constraint_name)))
    place = traceback.extract_tb(exc.__traceback__)[-1]
    return f"{type(exc).__name__} in {place.name}, {Path(place.filename).name}:{place.lineno}"


@contextmanager
def _kept_alive(work: Work, lease: Lease) -> Iterator[None]:
    """Count the lease anew at every third of its time, from a thread that slow work does not hold up."""
    ended = Event()

    def beat() -> None:
        while not ended.wait(work.lease_for.total_seconds() / 3):
            try:
                with work.pool.transaction(work.actor) as conn:
                    jobs.heartbeat(conn, lease, lease_for=work.lease_for)
            except LeaseLost:
                return  # the completion will find out too, and roll back
            except (MemsvcError, psycopg.Error) as exc:
                logger.warning("no heartbeat for %s %s: %s", lease.kind, lease.job_key, account(exc))

    thread = Thread(target=beat, name=f"heartbeat {lease.job_key}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
