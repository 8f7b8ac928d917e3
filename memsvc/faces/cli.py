"""The command line: it parses, calls the service and prints. Heavy imports stay inside the commands."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from memsvc import __version__
from memsvc.model.memory import KINDS, STATUSES

if TYPE_CHECKING:
    from rich.console import Console

    from memsvc.service.app import App

Command = TypeVar("Command", bound=Callable[..., Any])

SCOPE_HELP = "all, global, client:NAME, project:IDENTITY or a folder; without it the project of the current folder."


class Instant(click.ParamType[datetime]):
    """An ISO 8601 date or time; without an offset it is in UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no ISO 8601 time such as 2026-03-01 or 2026-03-01T12:00:00+01:00", param, ctx)
        return found if found.tzinfo else found.replace(tzinfo=UTC)


def as_json(command: Command) -> Command:
    """Every command prints either for people or one JSON document."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="memsvc")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what is being done.")
def cli(verbose: bool) -> None:
    """A portable memory for coding agents, in Postgres."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.ERROR,
        format="%(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )


@cli.command()
@as_json
def up(as_json: bool) -> None:
    """Start the embedded database; other processes share it until `memsvc down`."""
    from memsvc.service import server

    with _app() as app:
        result = server.up(app)
    _print_lines(result, as_json, [f"up: {result.database_url}"])


@cli.command()
@as_json
def down(as_json: bool) -> None:
    """Stop the embedded database and wait until it is gone."""
    from memsvc.service import server

    with _app() as app:
        result = server.down(app)
    _print_lines(result, as_json, ["stopped" if result.stopped else "nothing was running"])


@cli.command()
@as_json
def status(as_json: bool) -> None:
    """Show the ledger: jobs by kind and state, retries, last errors, coverage, sources."""
    from memsvc.faces import tables
    from memsvc.service import status as service

    with _app() as app:
        result = service.status(app)
    _print(result, as_json, lambda out: tables.print_status(out, result))


@cli.command()
@as_json
def doctor(as_json: bool) -> None:
    """Check everything; each line that is wrong names the command that mends it."""
    from memsvc.faces import tables
    from memsvc.service import doctor as service

    with _app() as app:
        checks = service.doctor(app)
    healthy = all(check.ok for check in checks)
    _print({"ok": healthy, "checks": checks}, as_json, lambda out: tables.print_checks(out, checks))
    if not healthy:
        sys.exit(1)


@cli.command()
@click.option("--dry-run", is_flag=True, help="Name what is missing, apply nothing.")
@click.option("--emit", type=click.Path(path_type=Path, file_okay=False), help="Write the files there instead.")
@as_json
def migrate(dry_run: bool, emit: Path | None, as_json: bool) -> None:
    """Bring the database's schema up to date."""
    from memsvc.service import server

    with _app() as app:
        if emit is not None:
            written = server.emit(emit)
            _print_lines({"written": written}, as_json, map(str, written))
            return
        result = server.migrate(app, dry_run=dry_run)
    done = "missing" if dry_run else "applied"
    lines = [f"{done}: {name}" for name in result.applied] or ["nothing to apply"]
    _print_lines(result, as_json, lines)


@cli.group("import")
def import_group() -> None:
    """Bring another tool's memory in."""


@import_group.command("codex")
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--source", metavar="LABEL", help="The source's name; without it the export is matched by its threads.")
@click.option("--no-embed", is_flag=True, help="Leave embedding to the workers.")
@as_json
def import_codex(path: Path | None, source: str | None, no_embed: bool, as_json: bool) -> None:
    """Import a Codex home, a folder of copied files or one database; without PATH, $CODEX_HOME or ~/.codex."""
    from memsvc.faces import tables
    from memsvc.faces.progress import shown
    from memsvc.service import imports, work

    home = path or Path(os.environ.get("CODEX_HOME") or "~/.codex").expanduser()
    with _app() as app:
        with shown("importing") as progress:
            report = imports.run_import(app, imports.ImportRequest("codex", home, source), progress=progress.count)
        embedded = 0
        if not no_embed:
            with shown("embedding", total=work.due(app)) as progress:
                embedded = work.work(app, once=True, stop=_stop(), after_each=progress.done).completed
    document = {**dataclasses.asdict(report), "embedding_jobs": embedded}
    _print(document, as_json, lambda out: tables.print_import(out, report))


@import_group.command("status")
@as_json
def import_status(as_json: bool) -> None:
    """Show the imports that were run."""
    from memsvc.faces import tables
    from memsvc.service import imports

    with _app() as app:
        runs = imports.import_status(app)
    _print({"runs": runs}, as_json, lambda out: tables.print_runs(out, runs))


@cli.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--scope", help=SCOPE_HELP)
@click.option("--limit", default=8, show_default=True, type=int, help="At most so many memories.")
@as_json
def recall(query: Sequence[str], scope: str | None, limit: int, as_json: bool) -> None:
    """Find what is remembered about QUERY, by meaning, by words and by how recent it is."""
    from memsvc.faces import tables
    from memsvc.service import recall as service

    request = service.RecallRequest(query=" ".join(query), scope=scope, folder=Path.cwd(), limit=limit)
    with _app() as app:
        result = service.recall(app, request)
    _print(result, as_json, lambda out: tables.print_recall(out, result))


@cli.command()
@click.argument("text")
@click.option("--scope", help=SCOPE_HELP)
@click.option("--kind", type=click.Choice(KINDS), default="note", show_default=True)
@click.option("--status", type=click.Choice(STATUSES), help="Default: a person's word is a fact.")
@click.option("--session", help="The conversation that it was said in.")
@click.option("--ordinal", type=int, help="Its place in that conversation.")
@click.option("--speaker", help="Who said it.")
@click.option("--observed-at", type=Instant(), help="When it was said.")
@click.option("--valid-from", type=Instant(), help="From when it is true.")
@click.option("--valid-until", type=Instant(), help="Until when it is true.")
@click.option("--idempotency-key", help="A second call with the same key remembers nothing new.")
@as_json
def remember(text: str, as_json: bool, **fields: Any) -> None:
    """Remember TEXT; `-` reads it from standard input."""
    from memsvc.service import remember as service

    given = sys.stdin.read() if text == "-" else text
    with _app() as app:
        result = service.remember(app, service.RememberRequest(text=given, folder=Path.cwd(), **fields))
    said = f"{'remembered' if result.created else 'known already'}: {result.id} ({result.status}, {result.scope})"
    lines = [said, *(f"note: {note}" for note in result.notes)]
    _print_lines(result, as_json, lines)


@cli.command()
@click.argument("memory_id", metavar="ID")
@as_json
def show(memory_id: str, as_json: bool) -> None:
    """Show one memory and what supports it."""
    from memsvc.faces import tables
    from memsvc.service import show as service

    with _app() as app:
        result = service.show(app, memory_id)
    _print(result, as_json, lambda out: tables.print_show(out, result))


@cli.command()
@click.option("--once", is_flag=True, help="Work until nothing is due, then end.")
@as_json
def worker(once: bool, as_json: bool) -> None:
    """Do the ledger's jobs: embed what is not embedded yet."""
    from memsvc.service import work

    with _app() as app:
        done = work.work(app, once=once, stop=_stop())
    _print_lines(done, as_json, [f"{done.completed} done, {done.failed} failed, {done.lost} lost"])


def main() -> NoReturn:
    """The entry point: exit status 0 done, 1 failed, 2 wrong use, 3 not found, 4 refused, 5 conflict."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as exc:
        sys.exit(exc.exit_code)
    except click.ClickException as exc:
        _report("wrong-use", exc.format_message(), None)
        sys.exit(exc.exit_code)
    except click.Abort:
        sys.exit(1)
    except BrokenPipeError:
        # The reader went away; nothing more can be said on that pipe, not even at the interpreter's exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as exc:
        _exit_with(exc)
    sys.exit(0)


def _exit_with(exc: Exception) -> NoReturn:
    from memsvc.faces.translate import EXIT_STATUS, known_error

    known = known_error(exc)
    if known is None:
        raise exc
    _report(known.code, str(known), known.mend)
    sys.exit(EXIT_STATUS.get(known.code, 1))


def _report(code: str, message: str, mend: str | None) -> None:
    from memsvc.faces.printable import printable

    if "--json" in sys.argv[1:]:
        click.echo(json.dumps({"error": {"code": code, "message": message, "mend": mend}}, ensure_ascii=False))
    click.echo(f"error: {printable(message)}", err=True)
    if mend:
        click.echo(f"mend: {printable(mend)}", err=True)


def _app() -> App:
    from memsvc import settings
    from memsvc.service.app import App

    return App(settings.load())


def _stop() -> Any:
    from memsvc.faces.signals import stop_on_signal

    return stop_on_signal()


def _print(result: object, as_json: bool, for_people: Callable[[Console], None]) -> None:
    if as_json:
        click.echo(json.dumps(_plain(result), default=_text, ensure_ascii=False, indent=2))
        return
    from memsvc.faces.tables import console

    for_people(console())


def _print_lines(result: object, as_json: bool, lines: Iterable[str]) -> None:
    from memsvc.faces.tables import print_lines

    _print(result, as_json, lambda out: print_lines(out, lines))


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
