"""Signals that ask a process to end."""

from __future__ import annotations

import signal
from threading import Event, Thread
from types import FrameType


def stop_on_signal() -> Event:
    """
    An event that SIGINT and SIGTERM set: what is under way is finished, nothing new is begun. A second one ends at
    once.
    """
    stop = Event()

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature is the system's
        signal.signal(number, signal.SIG_DFL)
        # The main thread may be inside stop.wait() and hold its lock: another thread must set it.
        Thread(target=stop.set, name="stop", daemon=True).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    return stop
