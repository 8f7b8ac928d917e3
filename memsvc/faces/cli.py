"""The command line: it parses, calls the service and prints. Heavy imports stay inside the commands."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from memsvc import __version__
from memsvc.faces.jobs import jobs_group
from memsvc.faces.output import as_json
from memsvc.faces.output import opened as _app
from memsvc.faces.output import print_lines as _print_lines
from memsvc.faces.output import print_result as _print
from memsvc.model.memory import KINDS, STATUSES

if TYPE_CHECKING:
    pass

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
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
        except ValueError:
            self.fail(f"{value!r} is no ISO 8601 time such as 2026-03-01 or 2026-03-01T12:00:00+01:00", param, ctx)
        except OverflowError:
            self.fail(f"{value!r} lies outside the years 1 to 9999", param, ctx)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="memsvc")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what is being done.")
def cli(verbose: bool) -> None:
    """A portable memory for coding agents, in Postgres."""
    level = logging.INFO if verbose else logging.ERROR
    # The driver sets its own level; a connection that is gone is reported as an error already.
    logging.getLogger("psycopg").setLevel(level)
    logging.basicConfig(
        level=level,
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
    """Bring the database's schema up to date, its indexes over vectors too."""
    from memsvc.service import server

    with _app() as app:
        if emit is not None:
            written = server.emit(emit)
            _print_lines({"written": written}, as_json, map(str, written))
            return
        result = server.migrate(app, dry_run=dry_run)
    done = "missing" if dry_run else "applied"
    lines = [f"{done}: {name}" for name in result.applied] or ["nothing to apply"]
    lines += [f"{done}: an index over the vectors of {model}" for model in result.indexed]
    _print_lines(result, as_json, lines)


@cli.group("import")
def import_group() -> None:
    """Bring another tool's memory in."""


@import_group.command("codex")
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--source", metavar="LABEL", help="The source's name; without it the export is matched by its threads.")
@click.option("--no-embed", is_flag=True, help="Leave embedding to the workers.")
@click.option("--dry-run", is_flag=True, help="Read and decide everything, report it, write nothing.")
@click.option("--redact-originals", is_flag=True, help="Keep no secret, not even in the original bytes.")
@as_json
def import_codex(path: Path | None, no_embed: bool, as_json: bool, **options: Any) -> None:
    """Import a Codex home, a folder of copied files or one database; without PATH, $CODEX_HOME or ~/.codex."""
    from memsvc.faces import tables
    from memsvc.faces.progress import shown
    from memsvc.service import imports, work

    home = path or Path(os.environ.get("CODEX_HOME") or "~/.codex").expanduser()
    with _app() as app:
        with shown("importing", "rows", quiet=as_json) as progress:
            report = imports.run_import(app, imports.ImportRequest("codex", home, **options), progress=progress.count)
        embedded = None
        if not (no_embed or report.dry_run):
            with shown("embedding", "memories", total=work.missing(app), quiet=as_json) as progress:
                embedded = work.embed_all(app, stop=_stop(), progress=progress.add)
    document = {
        **dataclasses.asdict(report),
        "warnings": [*report.warnings, *(embedded.notes if embedded else ())],
        "embedding_jobs": embedded.completed if embedded else 0,
        "embedding_failed": embedded.failed if embedded else 0,
    }
    _print(document, as_json, lambda out: tables.print_import(out, report, embedded))


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
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this kind; may be repeated.")
@click.option("--status", "statuses", type=click.Choice(STATUSES), multiple=True, help="Only this; may be repeated.")
@click.option("--since", type=Instant(), help="Only what was said then or later.")
@click.option("--until", type=Instant(), help="Only what was said before.")
@click.option("--include-hidden", is_flag=True, help="Also sessions that Codex does not use (deleted, polluted).")
@click.option("--max-tokens", type=int, help="Room for the answer, four characters a token.")
@click.option("--explain", is_flag=True, help="Show by what each memory was found.")
@as_json
def recall(query: Sequence[str], explain: bool, as_json: bool, **fields: Any) -> None:
    """Find what is remembered about QUERY, by meaning, by words and by how recent it is."""
    from memsvc.faces import tables
    from memsvc.service import recall as service

    request = service.RecallRequest(query=" ".join(query), folder=_here(), **fields)
    with _app() as app:
        result = service.recall(app, request)
    _print(result, as_json, lambda out: tables.print_recall(out, result, explain=explain))


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
        result = service.remember(app, service.RememberRequest(text=given, folder=_here(), **fields))
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


@cli.group("scope")
def scope_group() -> None:
    """See and name the scopes that memories lie in."""


@scope_group.command("ls")
@as_json
def scope_ls(as_json: bool) -> None:
    """List the scopes that you may read: kind, name, aliases, number of memories."""
    from memsvc.faces import tables
    from memsvc.service import scopes as service

    with _app() as app:
        result = service.ls(app)
    _print({"scopes": result}, as_json, lambda out: tables.print_scopes(out, result))


@scope_group.command("add")
@click.argument("scope", metavar="client:NAME|project:NAME")
@click.option("--client", metavar="NAME", help="The project's client.")
@as_json
def scope_add(scope: str, client: str | None, as_json: bool) -> None:
    """Add a client or a project; the name is kept exactly."""
    from memsvc.service import scopes as service

    with _app() as app:
        result = service.add(app, service.AddRequest(scope, client))
    _print_lines(result, as_json, [f"added: {result.scope}"])


@scope_group.command("alias")
@click.argument("scope", metavar="project:NAME")
@click.argument("alias")
@as_json
def scope_alias(scope: str, alias: str, as_json: bool) -> None:
    """Let ALIAS name a project too: the URL of a git remote, a folder of this machine, or any other name."""
    from memsvc.service import scopes as service

    with _app() as app:
        result = service.alias(app, service.AliasRequest(scope, alias))
    said = "is named by" if result.created else "was named already by"
    _print_lines(result, as_json, [f"{result.scope} {said} {result.alias.value}"])


@scope_group.command("resolve")
@click.argument("path", required=False)
@as_json
def scope_resolve(path: str | None, as_json: bool) -> None:
    """Explain which project a folder belongs to, and why; without PATH the current folder."""
    from memsvc.faces import tables
    from memsvc.service import scopes as service

    with _app() as app:
        result = service.resolve(app, service.ResolveRequest(Path(path or ".")))
    _print(result, as_json, lambda out: tables.print_resolve(out, result))


@cli.group("models")
def models_group() -> None:
    """See the models that embed memories, and drop what is not used any more."""


@models_group.command("ls")
@as_json
def models_ls(as_json: bool) -> None:
    """List the models that have vectors: dimension, coverage, which one is in use."""
    from memsvc.faces import tables
    from memsvc.service import models as service

    with _app() as app:
        result = service.ls(app)
    _print(result, as_json, lambda out: tables.print_models(out, result))


@models_group.command("drop")
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Say how many vectors would go, delete nothing.")
@as_json
def models_drop(name: str, dry_run: bool, as_json: bool) -> None:
    """Delete the vectors of a model that is not in use."""
    from memsvc.service import models as service

    with _app() as app:
        result = service.drop(app, name, dry_run=dry_run)
    done = "would go" if dry_run else "deleted"
    _print_lines(result, as_json, [f"{result.name}: {result.vectors} vectors {done}"])


cli.add_command(jobs_group)


@cli.command()
@click.option("--once", is_flag=True, help="Work until nothing is due, then end.")
@click.option("--kinds", metavar="KIND,...", help="Only jobs of these kinds.")
@click.option("--concurrency", default=1, show_default=True, type=int, help="So many jobs of each kind at a time.")
@click.option("--grace", default=30.0, show_default=True, type=click.FloatRange(min=0), help="Seconds to finish in.")
@as_json
def worker(once: bool, kinds: str | None, concurrency: int, grace: float, as_json: bool) -> None:
    """Do the ledger's jobs: embed what is not embedded yet."""
    from memsvc.faces.progress import shown
    from memsvc.service import work

    chosen = tuple(filter(None, map(str.strip, kinds.split(",")))) if kinds else work.KINDS
    with _app() as app:
        how: dict[str, Any] = {"kinds": chosen, "concurrency": concurrency, "grace": timedelta(seconds=grace)}
        if once:
            with shown("embedding", "memories", total=work.missing(app), quiet=as_json) as progress:
                done = work.work(app, once=True, stop=_stop(), progress=progress.add, **how)
        else:
            done = work.work(app, once=False, stop=_stop(), **how)
    lines = [f"{done.completed} done, {done.failed} failed, {done.lost} lost, {done.released} given back"]
    _print_lines(done, as_json, lines)


def main() -> NoReturn:
    """The entry point: exit status 0 done, 1 failed, 2 wrong use, 3 not found, 4 refused, 5 conflict."""
    _prepare_streams()
    # Like Ctrl-C: what is open is closed, private copies are taken away.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cli.main(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as exc:
        sys.exit(exc.exit_code)
    except click.exceptions.NoArgsIsHelpError as exc:
        click.echo(exc.format_message(), err=True)
        sys.exit(exc.exit_code)
    except click.ClickException as exc:
        _report("wrong-use", exc.format_message(), "memsvc --help")
        sys.exit(exc.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _report("interrupted", "interrupted: what was committed stays", "run the command again to go on")
        sys.exit(1)
    except Exception as exc:
        _exit_with(exc)
    sys.exit(0)


def _prepare_streams() -> None:
    # A caller may have closed them.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115 - lives as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _exit_with(exc: Exception) -> NoReturn:
    if isinstance(exc, OSError) and _cannot_print():
        # The reader went away or the disk is full: nothing more can be said there, not even at the interpreter's exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(exc, BrokenPipeError):
            click.echo(f"error: the output cannot be written: {exc.strerror}", err=True)
        sys.exit(1)
    from memsvc.faces.translate import EXIT_STATUS, known_error

    known = known_error(exc)
    if known is None:
        raise exc
    _report(known.code, str(known), known.mend)
    sys.exit(EXIT_STATUS.get(known.code, 1))


def _cannot_print() -> bool:
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _report(code: str, message: str, mend: str | None) -> None:
    from memsvc.faces.printable import printable

    if "--json" in sys.argv[1:]:
        error = {"code": code, "message": message, "mend": mend}
        with suppress(OSError):  # where nothing can be written, stderr and the exit status still tell
            click.echo(json.dumps({"error": error}, ensure_ascii=False))
    click.echo(f"error: {printable(message)}", err=True)
    if mend:
        click.echo(f"mend: {printable(mend)}", err=True)


def _here() -> Path | None:
    """The current folder; None where it was removed meanwhile."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def _stop() -> Any:
    from memsvc.faces.signals import stop_on_signal

    return stop_on_signal()
