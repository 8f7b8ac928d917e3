"""The worker: threads that take one job after the other, until nothing is due or somebody says stop."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from threading import Event, Lock, Thread
from time import monotonic

import psycopg

from memsvc.errors import DatabaseUnavailable, EmbedderUnavailable, MemsvcError
from memsvc.ledger import jobs
from memsvc.ledger.explain import WORKER
from memsvc.pipeline.attempt import Held, Outcome, Work, account, see_through, take
from memsvc.pipeline.wake import Wake

logger = logging.getLogger(__name__)

POLL_EVERY = timedelta(seconds=2)
LONGEST_PAUSE = timedelta(minutes=1)
GRACE = timedelta(seconds=30)
LOOK_UP_EVERY = timedelta(seconds=0.2)
LET_GO_WITHIN = timedelta(seconds=2)
REFILL_EVERY = timedelta(minutes=5)


@dataclass
class Done:
    """What a run of the worker came to."""

    completed: int = 0
    failed: int = 0
    lost: int = 0
    released: int = 0

    @property
    def jobs(self) -> int:
        """How many leases have ended."""
        return self.completed + self.failed + self.lost + self.released


def run(
    work: Work,
    *,
    once: bool,
    stop: Event,
    concurrency: int = 1,
    grace: timedelta = GRACE,
) -> Done:
    """
    Work in threads, `concurrency` for each kind of job, so that no kind waits for another.

    With `once` until nothing is due, else until `stop` is set. Then nothing new is begun; what is under way has `grace`
    to come to its end, after which the ledger has the job back and its thread is left to itself. A database or a model
    that cannot be reached is waited for, unless `once`.

    Raises:
        DatabaseUnavailable, EmbedderUnavailable, psycopg.OperationalError: with `once`, one of them cannot be reached.
    """
    return _Crew(work, once, stop, concurrency, grace).run()


class _Crew:
    """The threads of one worker, and what they hold."""

    def __init__(self, work: Work, once: bool, stop: Event, concurrency: int, grace: timedelta) -> None:
        self.work, self.once, self.stop = work, once, stop
        self.concurrency, self.grace = concurrency, grace
        self.done = Done()
        self._turn = Lock()
        self._held: set[Held] = set()
        self._refill_at: dict[str, float] = {}
        self._over = Event()  # nothing new is begun
        self._failure: BaseException | None = None
        self._wake = Wake(work.pool, jobs.CHANNEL, name=WORKER)

    def run(self) -> Done:
        if self.once:
            while not self.stop.is_set() and self._round():  # what one kind did may be work for another
                pass
        else:
            with self._wake:
                self._round()
        return self.done

    def _round(self) -> bool:
        """Until every thread has ended; was anything done?"""
        before = self.done.jobs
        threads = [
            Thread(target=self._hand, args=(kind,), name=f"worker {kind}", daemon=True)
            for kind in self.work.handlers
            for _ in range(self.concurrency)
        ]
        for thread in threads:
            thread.start()
        self._attend(threads)
        if self._failure is not None:
            raise self._failure
        return self.done.jobs > before

    def _attend(self, threads: list[Thread]) -> None:
        told_at: float | None = None
        while living := [thread for thread in threads if thread.is_alive()]:
            living[0].join(LOOK_UP_EVERY.total_seconds())
            if not self.stop.is_set():
                continue
            told_at = told_at or monotonic()
            self._over.set()
            self._wake.call()
            if monotonic() > told_at + self.grace.total_seconds():
                self._let_go(living)
                return

    def _let_go(self, threads: list[Thread]) -> None:
        for held in list(self._held):
            lease = held.lease
            logger.warning("given back, since it took too long to finish: %s %s", lease.kind, lease.job_key)
            try:
                held.give_back()
            except (MemsvcError, psycopg.Error) as exc:
                logger.warning("%s %s comes back when its lease ends: %s", lease.kind, lease.job_key, account(exc))
        for thread in threads:
            thread.join(LET_GO_WITHIN.total_seconds() / len(threads))
        for _ in list(self._held):  # those that do not look at their event
            self._count("released")

    def _hand(self, kind: str) -> None:
        try:
            while not self._over.is_set() and not self.stop.is_set():
                calls = self._wake.calls
                if not self._patiently(kind):
                    if self.once:
                        break
                    self._wake.wait(POLL_EVERY, since=calls)
        except BaseException as exc:
            self._failure = exc
            self._over.set()
            self._wake.call()

    def _patiently(self, kind: str) -> bool:
        """One job, or more to do, or neither; what cannot be reached is waited for, longer each time."""
        pause = POLL_EVERY
        while True:
            try:
                return self._one(kind)
            except (DatabaseUnavailable, EmbedderUnavailable, psycopg.OperationalError) as exc:
                if self.once:
                    raise
                logger.error("no work for %d seconds: %s", pause.total_seconds(), account(exc))  # noqa: TRY400
                if self._over.wait(pause.total_seconds()):
                    return False
                pause = min(2 * pause, LONGEST_PAUSE)

    def _one(self, kind: str) -> bool:
        held = take(self.work, kind)
        if held is None:
            return self._refilled(kind)
        self._held.add(held)
        try:
            self._count(see_through(held))
        finally:
            self._held.discard(held)
        return True

    def _refilled(self, kind: str) -> bool:
        """Is there more to do after all? Once there is not, nobody asks again for a while."""
        if monotonic() < self._refill_at.get(kind, 0):
            return False
        found = self.work.refill(kind) > 0
        self._refill_at[kind] = monotonic() + (0 if found else REFILL_EVERY.total_seconds())
        return found

    def _count(self, outcome: Outcome) -> None:
        with self._turn:
            setattr(self.done, outcome, getattr(self.done, outcome) + 1)


def worker_id() -> str:
    """A name for this process that a person can find: host and pid."""
    return f"{socket.gethostname()}:{os.getpid()}"
