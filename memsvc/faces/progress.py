"""A progress bar on stderr, for people only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from memsvc.pipeline.worker import Done


@dataclass(frozen=True)
class Bar:
    """One task's bar."""

    progress: Progress
    task: TaskID

    def count(self, done: int) -> None:
        """So many are done in all."""
        self.progress.update(self.task, completed=done)

    def done(self, done: Done) -> None:
        """So many jobs have ended."""
        self.count(done.jobs)


@contextmanager
def shown(what: str, *, total: int | None = None) -> Iterator[Bar]:
    """Show how far something is; nothing appears where stderr is no terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bar(progress, progress.add_task(what, total=total))
