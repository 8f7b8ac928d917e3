"""A value that is dear to make: made at its first use."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """A value made at its first use, once even if several threads ask for it; again if making it failed."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = Lock()
        self._made: list[T] = []

    def get(self) -> T:
        """The value, made if it has not been."""
        with self._lock:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]
