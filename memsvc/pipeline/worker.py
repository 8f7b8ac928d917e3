"""
The worker: claim, do the slow part with no transaction open, then write the result and complete the job together.

A lease is kept alive by a thread of its own for as long as the work takes.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from threading import Event, Thread

import psycopg

from memsvc.db.pool import Conn, Pool
from memsvc.errors import DatabaseUnavailable, LeaseLost
from memsvc.ledger import jobs
from memsvc.ledger.backoff import backoff
from memsvc.model.job import Lease
from memsvc.model.principal import Actor

logger = logging.getLogger(__name__)

LEASE_FOR = timedelta(minutes=5)
POLL_EVERY = timedelta(seconds=2)
CLAIM_WITHIN = timedelta(seconds=2)

Handler = Callable[[Lease], Callable[[Conn], None]]


@dataclass(frozen=True)
class Work:
    """What a worker needs: where, for whom, and what it can do."""

    pool: Pool
    actor: Actor
    handlers: Mapping[str, Handler]
    worker_id: str
    lease_for: timedelta = LEASE_FOR


@dataclass
class Done:
    """What a run of the worker came to."""

    completed: int = 0
    failed: int = 0
    lost: int = 0


def worker_id() -> str:
    """A name for this process that a person can find: host and pid."""
    return f"{socket.gethostname()}:{os.getpid()}"


def run(work: Work, *, once: bool, stop: Event, after_each: Callable[[Done], None] | None = None) -> Done:
    """
    Work until told to stop; with `once`, until nothing is due.

    A job that is under way when `stop` is set is finished first. A database that goes away is waited for, unless
    `once`.
    """
    done = Done()
    while not stop.is_set():
        try:
            worked = work_one(work, done)
        except (DatabaseUnavailable, psycopg.OperationalError):
            if once:
                raise
            logger.warning("the database is away; trying again")
            worked = False
        if worked and after_each is not None:
            after_each(done)
        if not worked:
            if once:
                break
            stop.wait(POLL_EVERY.total_seconds())
    return done


def work_one(work: Work, done: Done) -> bool:
    """Claim one job and see it through; False when nothing is due."""
    with work.pool.transaction(work.actor, statement_within=CLAIM_WITHIN) as conn:
        leases = jobs.claim(conn, list(work.handlers), worker_id=work.worker_id, lease_for=work.lease_for)
    if not leases:
        return False
    (lease,) = leases
    try:
        with _kept_alive(work, lease):
            write = work.handlers[lease.kind](lease)  # the slow part, no transaction open
        with work.pool.transaction(work.actor) as conn:  # the result and the completion, together
            write(conn)
            jobs.complete(conn, lease)
        done.completed += 1
    except LeaseLost:
        logger.warning("lease lost: %s %s", lease.kind, lease.job_key)
        done.lost += 1
    except (DatabaseUnavailable, psycopg.OperationalError):
        # Not the job's fault: the lease runs out and the job comes back.
        raise
    except Exception as exc:
        logger.exception("job failed: %s %s", lease.kind, lease.job_key)
        _fail(work, lease, exc)
        done.failed += 1
    return True


def _fail(work: Work, lease: Lease, exc: Exception) -> None:
    try:
        with work.pool.transaction(work.actor) as conn:
            jobs.fail(conn, lease, f"{type(exc).__name__}: {exc}", retry_in=backoff(lease.attempts))
    except LeaseLost:
        logger.warning("lease lost: %s %s", lease.kind, lease.job_key)


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
            except (DatabaseUnavailable, psycopg.OperationalError):
                logger.warning("no heartbeat for %s %s: the database is away", lease.kind, lease.job_key)

    thread = Thread(target=beat, name=f"heartbeat {lease.job_key}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
