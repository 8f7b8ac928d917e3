"""`memsvc jobs`: the ledger for a person."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memsvc.faces.output import as_json, opened, print_lines, print_result

if TYPE_CHECKING:
    from memsvc.service.jobs import ChangeResult

Command = TypeVar("Command", bound=Callable[..., Any])


def _named(command: Command) -> Command:
    """KIND JOB_KEY, and what tells rows of one key apart."""
    command = click.option("--store", help="Where the row lies: memsvc for live jobs, else an import's store.")(command)
    command = click.option("--source", metavar="LABEL", help="The source, where several have the key.")(command)
    command = click.argument("job_key", metavar="JOB_KEY")(command)
    return click.argument("kind")(command)


def _changes(command: Command) -> Command:
    """KIND, with or without JOB_KEY."""
    command = click.option("--dry-run", is_flag=True, help="Name what would be changed, write nothing.")(command)
    command = click.option("--store", help="Where the row of an import lies.")(command)
    command = click.option("--source", metavar="LABEL", help="Only jobs of this source.")(command)
    command = click.argument("job_key", metavar="[JOB_KEY]", required=False)(command)
    return click.argument("kind")(command)


@click.group("jobs")
def jobs_group() -> None:
    """See what is to be done, why it is not done, and try it again."""


@jobs_group.command("ls")
@click.option("--kind", help="Only jobs of this kind.")
@click.option("--status", help="Only pending, running, done or error ones.")
@click.option("--source", metavar="LABEL", help="Only jobs of this source.")
@click.option("--live/--imported", default=None, help="Only memsvc's own, or only the history of imports.")
@click.option("--limit", default=50, show_default=True, type=int, help="At most so many.")
@click.option("--cursor", help="Where the last page ended.")
@as_json
def ls(as_json: bool, **fields: Any) -> None:
    """List jobs, live ones and the history of imports."""
    from memsvc.faces import job_tables
    from memsvc.service import jobs as service

    with opened() as app:
        result = service.ls(app, service.LsRequest(**fields))
    print_result(result, as_json, lambda out: job_tables.print_jobs(out, result))


@jobs_group.command("show")
@_named
@as_json
def show(as_json: bool, **fields: Any) -> None:
    """Show one job, what was tried of it, and why it is not running."""
    from memsvc.faces import job_tables
    from memsvc.service import jobs as service

    with opened() as app:
        result = service.show(app, service.Named(**fields))
    print_result(result, as_json, lambda out: job_tables.print_job(out, result))


@jobs_group.command("explain")
@_named
@as_json
def explain(as_json: bool, **fields: Any) -> None:
    """Say why one job is not running now, and which command moves it on."""
    from memsvc.faces import job_tables
    from memsvc.service import jobs as service

    with opened() as app:
        result = service.why(app, service.Named(**fields))
    print_result(result, as_json, lambda out: job_tables.print_explanation(out, result.explanation))


@jobs_group.command("retry")
@_changes
@click.option("--imported", is_flag=True, help="Make live jobs of those that imports left undone.")
@as_json
def retry(as_json: bool, **fields: Any) -> None:
    """Try a job again at once, or all of a kind that wait or were stopped."""
    from memsvc.service import jobs as service

    with opened() as app:
        result = service.retry(app, service.ChangeRequest(**fields))
    print_lines(result, as_json, _lines(result, "due now", "would be due"))


@jobs_group.command("cancel")
@_changes
@as_json
def cancel(as_json: bool, **fields: Any) -> None:
    """Stop a job, or all of a kind, until it is tried again or has newer input."""
    from memsvc.service import jobs as service

    with opened() as app:
        result = service.cancel(app, service.ChangeRequest(**fields))
    print_lines(result, as_json, _lines(result, "cancelled", "would be cancelled"))


@jobs_group.command("watch")
@click.option("--every", default=1.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds between looks.")
@click.option("--for", "seconds", type=click.FloatRange(min=0), help="Stop after so many seconds.")
@as_json
def watch(every: float, seconds: float | None, as_json: bool) -> None:
    """Watch the live jobs: until interrupted on a terminal, else one look, or --for so long."""
    from memsvc.faces import job_tables
    from memsvc.faces.signals import stop_on_signal
    from memsvc.service import jobs as service

    stop = stop_on_signal()
    with opened() as app, job_tables.watching(quiet=as_json) as screen:
        until = time.monotonic() + (seconds if seconds is not None else 0 if not screen.is_live else float("inf"))
        while True:
            seen = service.snapshot(app)
            screen.show(seen)
            left = until - time.monotonic()
            if left <= 0 or stop.wait(min(every, left)):
                break
    if as_json:
        print_result(seen, as_json, lambda out: None)  # noqa: ARG005 - the screen has shown it


def _lines(result: ChangeResult, done: str, would: str) -> Iterable[str]:
    said = would if result.dry_run else done
    yield from (f"{said}: {job.kind} {job.job_key} ({job.source})" for job in result.jobs)
    if not result.jobs:
        yield "there is nothing of that kind to change"
