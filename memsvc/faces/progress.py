"""How far something is, on stderr: a bar on a terminal, elsewhere a plain line now and then."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

# Seconds that a rate looks back: long enough to be steady, short enough to follow a machine that slows down.
LOOKS_BACK = 30.0
LINE_EVERY = 10.0


@dataclass
class Pace:
    """
    How fast something goes; times are seconds of any clock that only grows.

    `total` is None where nobody knows it. The rate is that of the last half minute, so that the start, in which a model
    is loaded, does not weigh for ever.
    """

    total: int | None
    started_at: float
    done: int = 0
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._seen.append((self.started_at, 0))

    def count(self, done: int, now: float) -> None:
        """So many are done in all."""
        self.done = done
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now - LOOKS_BACK:
            self._seen.popleft()

    def rate(self) -> float | None:
        """How many a second; None as long as that cannot be told."""
        (first_at, first), (last_at, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_at - first_at) if last > first and last_at > first_at else None

    def left(self) -> float | None:
        """Seconds until all are done if it goes on like this; None where that cannot be told."""
        rate = self.rate()
        return None if rate is None or self.total is None else max(0, self.total - self.done) / rate

    def __str__(self) -> str:
        """As a person reads it, such as `120 of 480, 9.5 a second, 0:00:38 left`."""
        rate, left = self.rate(), self.left()
        parts = (
            f"{self.done}" if self.total is None else f"{self.done} of {self.total}",
            f"{rate:.1f} a second" if rate is not None else "",
            f"{clock(left)} left" if left is not None else "",
        )
        return ", ".join(filter(None, parts))


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class Shown:
    """One thing whose progress is shown; `show` is told whenever it has changed."""

    def __init__(self, pace: Pace, show: Callable[[Pace], None]) -> None:
        self._pace = pace
        self._show = show

    def count(self, done: int) -> None:
        """So many are done in all."""
        self._pace.count(done, time.monotonic())
        self._show(self._pace)

    def add(self, more: int) -> None:
        """So many more are done."""
        self.count(self._pace.done + more)


@contextmanager
def shown(what: str, unit: str, *, total: int | None = None, quiet: bool = False) -> Iterator[Shown]:
    """
    Show how far something is, how fast it goes and how long it will take.

    On a terminal that is a bar, which is gone afterwards. Elsewhere it is a line every ten seconds, without any control
    character; with `quiet` there is none.
    """
    console = Console(stderr=True)
    pace = Pace(total, time.monotonic())
    if console.is_terminal:
        with _bar(console, what, unit, pace) as show:
            yield Shown(pace, show)
    else:
        yield Shown(pace, (lambda _: None) if quiet else lines(what, unit, time.monotonic))


def lines(what: str, unit: str, now: Callable[[], float]) -> Callable[[Pace], None]:
    """Prints a line on stderr when the last one, or the beginning, is ten seconds ago."""
    last = now()

    def show(pace: Pace) -> None:
        nonlocal last
        if now() - last >= LINE_EVERY:
            last = now()
            click.echo(f"{what} {unit}: {pace}", err=True)

    return show


@contextmanager
def _bar(console: Console, what: str, unit: str, pace: Pace) -> Iterator[Callable[[Pace], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"{what} {unit}", total=pace.total, said=str(pace))
        yield lambda now: progress.update(task, completed=now.done, said=str(now))
