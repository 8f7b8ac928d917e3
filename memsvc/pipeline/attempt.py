"""
One attempt at one job: claim it, do the slow part with no transaction open, then write the result and complete the job
together.

A lease is kept alive by a thread of its own for as long as the work takes.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Literal

import psycopg

from memsvc.db.pool import Conn, Pool
from memsvc.errors import DatabaseUnavailable, EmbedderUnavailable, LeaseLost, MemsvcError
from memsvc.ledger import jobs
from memsvc.ledger.backoff import backoff
from memsvc.model.job import Lease, policy
from memsvc.model.principal import Actor

logger = logging.getLogger(__name__)

LEASE_FOR = timedelta(minutes=5)
CLAIM_WITHIN = timedelta(seconds=2)

# Classes of SQLSTATE that say that the server cannot, not that it will not: connection, resources, operator, system.
AWAY = ("08", "53", "57P", "58")

Outcome = Literal["completed", "failed", "lost", "released"]

# The slow part. It returns what writes the result, and looks at the event now and then: when that is set the job is
# another's, and whatever comes of it is thrown away.
Handler = Callable[[Lease, Event], Callable[[Conn], None]]


@dataclass(frozen=True)
class Work:
    """
    What an attempt needs: where, for whom, and what can be done, by kind of job.

    `claims` names the ledger's kinds that a kind stands for; it is asked before each claim and may say that the model
    cannot be had. `refill` is called when nothing of a kind is due: it may enqueue more, and returns how many jobs.
    """

    pool: Pool
    actor: Actor
    handlers: Mapping[str, Handler]
    worker_id: str
    lease_for: timedelta = LEASE_FOR
    claims: Callable[[str], Sequence[str]] = lambda kind: (kind,)
    refill: Callable[[str], int] = lambda kind: 0  # noqa: ARG005


@dataclass(eq=False)
class Held:
    """A lease that is being worked on; `lost` is set when it is no longer ours, `given_back` when we let it go."""

    work: Work
    lease: Lease
    handler: Handler
    lost: Event = field(default_factory=Event)
    given_back: bool = False

    def give_back(self) -> bool:
        """Let others have the job now, whatever its handler is doing; False when it was lost anyway."""
        self.given_back = True
        self.lost.set()
        try:
            with self.work.pool.transaction(self.work.actor) as conn:
                jobs.release(conn, self.lease)
        except LeaseLost:
            return False
        return True


def take(work: Work, kind: str) -> Held | None:
    """
    Claim one job of the kind; None when nothing is due.

    Raises:
        DatabaseUnavailable, psycopg.OperationalError: the database went away.
        EmbedderUnavailable: the model cannot be had now; no job is held.
    """
    kinds = work.claims(kind)
    # A claim that a crash takes away leaves the job due, and its lease can complete nothing.
    with work.pool.transaction(work.actor, statement_within=CLAIM_WITHIN, durable=False) as conn:
        leases = jobs.claim(conn, kinds, worker_id=work.worker_id, lease_for=work.lease_for)
    return Held(work, leases[0], work.handlers[kind]) if leases else None


def see_through(held: Held) -> Outcome:
    """
    Do what the lease is for, and tell the ledger how it ended.

    Raises:
        DatabaseUnavailable, psycopg.OperationalError: the database went away; the job comes back when its lease ends.
        EmbedderUnavailable: the model cannot be had now; the job was given back.
    """
    try:
        return "completed" if _done(held) else "failed"
    except LeaseLost:
        if held.given_back:
            return "released"
        logger.warning("lease lost: %s %s", held.lease.kind, held.lease.job_key)
        return "lost"


def _done(held: Held) -> bool:
    work, lease = held.work, held.lease
    try:
        with _kept_alive(held):
            write = held.handler(lease, held.lost)  # the slow part, no transaction open
        with work.pool.transaction(work.actor) as conn:  # the result and the completion, together
            write(conn)
            jobs.complete(conn, lease)
    except LeaseLost:
        raise
    except (EmbedderUnavailable, KeyboardInterrupt, SystemExit):
        with suppress(MemsvcError, psycopg.Error):  # why it ends is told, whatever becomes of the job
            held.give_back()
        raise
    except Exception as exc:
        if _is_away(exc):
            raise  # not the job's fault: the lease runs out and the job comes back
        _fail(held, exc)
        return False
    return True


def _is_away(exc: Exception) -> bool:
    """Did the database go away? A statement that it cut short, or a deadlock, is the doing of the job."""
    if isinstance(exc, psycopg.OperationalError):
        return exc.sqlstate is None or exc.sqlstate.startswith(AWAY)
    return isinstance(exc, DatabaseUnavailable)


def _fail(held: Held, exc: Exception) -> None:
    work, lease, error = held.work, held.lease, account(exc)
    with work.pool.transaction(work.actor) as conn:
        jobs.fail(conn, lease, error, retry_in=policy(lease.kind).retry_in or backoff(lease.attempts))
    steps = "".join(traceback.format_tb(exc.__traceback__))
    logger.error("job failed: %s %s: %s\n%s", lease.kind, lease.job_key, error, steps)


def account(exc: Exception) -> str:
    """What failed and where. What is not ours may quote a memory or a statement in its message: that stays out."""
    if isinstance(exc, MemsvcError):
        return f"{exc.code}: {exc}"
    if isinstance(exc, psycopg.Error):
        return " ".join(filter(None, (type(exc).__name__, exc.sqlstate, exc.diag.constraint_name)))
    place = traceback.extract_tb(exc.__traceback__)[-1]
    return f"{type(exc).__name__} in {place.name}, {Path(place.filename).name}:{place.lineno}"


@contextmanager
def _kept_alive(held: Held) -> Iterator[None]:
    """Count the lease anew at every third of its time, from a thread that slow work does not hold up."""
    work, lease, ended = held.work, held.lease, Event()

    def beat() -> None:
        while not ended.wait(work.lease_for.total_seconds() / 3):
            try:
                with work.pool.transaction(work.actor) as conn:
                    jobs.heartbeat(conn, lease, lease_for=work.lease_for)
            except LeaseLost:
                held.lost.set()  # the completion would find out too, and roll back
                return
            except (MemsvcError, psycopg.Error) as exc:
                logger.warning("no heartbeat for %s %s: %s", lease.kind, lease.job_key, account(exc))

    thread = Thread(target=beat, name=f"heartbeat {lease.job_key}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
