"""How jobs look to a person."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from memsvc.faces.printable import printable
from memsvc.faces.tables import console, new_table, shown
from memsvc.ledger.explain import Explanation
from memsvc.ledger.listing import Job
from memsvc.service.jobs import LsResult, ShowResult, Snapshot
from memsvc.service.status import STATUSES

STYLES = {"pending": "cyan", "running": "yellow", "done": "green", "error": "red"}


def print_jobs(out: Console, result: LsResult) -> None:
    """One line a job, and how to see the next page."""
    table = new_table("kind", "job", "source", "", "status", "due", "retries", "last error")
    for job in result.jobs:
        live = "live" if job.live else f"imported, {job.store}"
        error = " ".join((job.last_error or "").split())
        error = error if len(error) <= 60 else f"{error[:57]}..."
        cells = (
            job.kind,
            job.job_key,
            job.source,
            live,
            _status(job),
            shown(job.due_at),
            str(job.retry_remaining),
            error,
        )
        table.add_row(*(Text(printable(cell), style=STYLES.get(cell, "")) for cell in cells))
    out.print(table if result.jobs else "no jobs")
    if result.cursor:
        out.print(Text(f"more: --cursor {result.cursor}", style="dim"))


def print_job(out: Console, result: ShowResult) -> None:
    """One job field by field, then what was tried, then why it is not running."""
    table = Table.grid("", "", padding=(0, 2))
    for name, value in vars(result.job).items():
        if value is not None and name != "source_id":
            table.add_row(Text(name, style="dim"), Text(printable(shown(value))))
    out.print(table)
    if result.attempts:
        tried = new_table("began", "ended", "outcome", "worker", "error")
        for one in result.attempts:
            cells = (shown(one.started_at), shown(one.ended_at), one.outcome, one.worker_id or "", one.error or "")
            tried.add_row(*(Text(printable(cell)) for cell in cells))
        out.print(tried)
    print_explanation(out, result.explanation)


def print_explanation(out: Console, found: Explanation) -> None:
    """Why, and the command that mends it."""
    out.print(Text(printable(f"{found.code}: {found.why}"), style="bold"))
    for holder in found.holders:
        until = shown(holder.lease_until)
        out.print(Text(printable(f"  held: {holder.kind} {holder.job_key} by {holder.worker_id} until {until}")))
    if found.mend:
        out.print(Text(printable(f"moves it on: {found.mend}")))


def _status(job: Job) -> str:
    return f"{job.status}: {job.stop_reason}" if job.stop_reason else job.status


@dataclass(frozen=True)
class Screen:
    """Where a watch is shown: a table that changes on a terminal, one after the other elsewhere."""

    live: Live | None
    out: Console | None

    @property
    def is_live(self) -> bool:
        """Does it change in place?"""
        return self.live is not None

    def show(self, seen: Snapshot) -> None:
        """This is how it is now."""
        if self.live is not None:
            self.live.update(_snapshot(seen), refresh=True)
        elif self.out is not None:
            self.out.print(_snapshot(seen))


@contextmanager
def watching(*, quiet: bool) -> Iterator[Screen]:
    """A screen for as long as somebody watches; a `quiet` one shows nothing."""
    out = console()
    if quiet or not out.is_terminal:
        yield Screen(None, None if quiet else out)
        return
    with Live(console=out, auto_refresh=False) as live:
        yield Screen(live, out)


def _snapshot(seen: Snapshot) -> Group:
    workers = f"{seen.workers} workers seen" if seen.workers else "no worker is seen"
    counts = new_table(f"{seen.at:%H:%M:%S}", *STATUSES)
    for kind, row in seen.live_jobs.items():
        counts.add_row(Text(printable(kind)), *(str(row.get(name, 0)) for name in STATUSES))
    held = new_table("running", "job", "worker", "lease until")
    for holder in seen.running:
        cells = (holder.kind, holder.job_key, str(holder.worker_id), shown(holder.lease_until))
        held.add_row(*(Text(printable(cell)) for cell in cells))
    parts = [counts if seen.live_jobs else Text("no live jobs"), Text(workers, style="dim")]
    return Group(*parts, *([held] if seen.running else []))
