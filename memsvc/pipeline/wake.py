"""Waiting for work: the ledger says when there is some; where that cannot be heard, the wait just ends."""

from __future__ import annotations

import logging
from datetime import timedelta
from threading import Condition, Event, Thread
from types import TracebackType

import psycopg

from memsvc.db.pool import Pool
from memsvc.errors import MemsvcError

logger = logging.getLogger(__name__)

LOOK_UP_EVERY = timedelta(seconds=0.5)
LISTEN_AGAIN_IN = timedelta(seconds=30)


class Wake:
    """
    A thread that listens on a connection of its own and wakes whoever waits. A context manager.

    Nothing depends on it: without a connection, or behind a pooler that passes nothing on, a wait lasts as long as it
    was asked to. `name` is how the server knows the connection.
    """

    def __init__(self, pool: Pool, channel: str, *, name: str) -> None:
        self._pool, self._channel, self._name = pool, channel, name
        self._called = Condition()
        self._calls = 0
        self._left = Event()
        self._thread = Thread(target=self._listen, name="wake", daemon=True)

    def __enter__(self) -> Wake:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join(4 * LOOK_UP_EVERY.total_seconds())

    @property
    def calls(self) -> int:
        """How many calls there were. Read it before looking for work, and no call can be missed."""
        return self._calls

    def call(self) -> None:
        """Wake everybody."""
        with self._called:
            self._calls += 1
            self._called.notify_all()

    def wait(self, span: timedelta, *, since: int) -> None:
        """Until there was a call after the first `since`, at most so long."""
        with self._called:
            self._called.wait_for(lambda: self._calls > since, span.total_seconds())

    def _listen(self) -> None:
        while not self._left.is_set():
            try:
                with self._pool.listening(self._channel, name=self._name) as conn:
                    self._pass_on(conn)
            except (MemsvcError, psycopg.Error) as exc:
                logger.info("work is looked for, not listened for: %s", type(exc).__name__)
                self._left.wait(LISTEN_AGAIN_IN.total_seconds())

    def _pass_on(self, conn: psycopg.Connection[tuple[object, ...]]) -> None:
        while not self._left.is_set():
            if list(conn.notifies(timeout=LOOK_UP_EVERY.total_seconds(), stop_after=1)):
                self.call()
