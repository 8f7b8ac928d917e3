"""How results look to a person: tables, colours only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memsvc.faces.printable import printable
from memsvc.ledger.overview import Trouble
from memsvc.memory.runs import Run
from memsvc.model.report import IngestReport
from memsvc.model.scope import Alias
from memsvc.recall.search import Hit
from memsvc.service.doctor import Check
from memsvc.service.models import Model, ModelsResult
from memsvc.service.recall import RecallResult
from memsvc.service.scopes import ListedScope, Mark, ResolveResult
from memsvc.service.show import ShowResult
from memsvc.service.status import STATUSES, StatusResult
from memsvc.service.work import Embedded

STYLES = {"fact": "green", "reported": "cyan", "inference": "yellow", "assumption": "magenta", "question": "blue"}


def console() -> Console:
    """Standard output: as wide as the terminal, and wide enough for a line where there is none."""
    terminal = sys.stdout.isatty()
    return Console(width=None if terminal else 200, highlight=False, markup=False, soft_wrap=not terminal)


def print_lines(out: Console, lines: Iterable[str]) -> None:
    """Plain lines, as they are but for what could steer a terminal."""
    for line in lines:
        out.out(printable(line), highlight=False)


def print_recall(out: Console, result: RecallResult, *, explain: bool = False) -> None:
    """The hits, each with what it is, where it lies and where it was said."""
    for place, hit in enumerate(result.hits, start=1):
        line = Text(f"{place}. ", style="bold")
        line.append(printable(hit.text).replace("\n", "\n   "))
        out.print(line)
        out.print(_about(hit))
        if explain:
            out.print(Text(f"   found by: {_found_by(hit)}", style="dim"))
    if not result.hits:
        out.print("nothing found")
    out.print(Text(f"searched: {', '.join(map(printable, result.scopes)) or 'nothing'}", style="dim"))
    _notes(out, result.notes)


def _about(hit: Hit) -> Text:
    line = Text("   ")
    line.append(hit.status, style=STYLES.get(hit.status, ""))
    said = _said(hit)
    rest = [hit.kind, hit.scope, f"score {hit.score:.3f}", *([said] if said else []), str(hit.id)]
    line.append(f" · {' · '.join(printable(part) for part in rest)}", style="dim")
    if hit.context:
        line.append(f"\n   about: {printable(hit.context)}", style="dim")
    return line


def _found_by(hit: Hit) -> str:
    cosine = "no vector" if hit.parts.vector is None else f"meaning {hit.parts.vector:.3f}"
    arms = (
        f"{cosine}{_place(hit.ranks.vector)}",
        f"words {hit.parts.text:.2f}{_place(hit.ranks.text)}",
        f"recency{_place(hit.ranks.recency)}" if hit.ranks.recency else "",
    )
    return ", ".join(filter(None, arms))


def _place(rank: int | None) -> str:
    return f" (place {rank})" if rank else ""


def _said(hit: Hit) -> str:
    where = ", ".join(filter(None, (hit.source.thread_id, hit.source.lines)))
    if where:
        return f"{hit.source.importer} {where}"
    return f"by {hit.author}" if hit.author else ""


def print_show(out: Console, result: ShowResult) -> None:
    """One memory, field by field, then its evidence."""
    memory = result.memory
    out.print(Text(printable(memory.text), style="bold"))
    fields = {name: value for name, value in vars(memory).items() if name != "text" and value not in (None, "")}
    table = Table.grid("", "", padding=(0, 2))
    for name, value in fields.items():
        table.add_row(Text(name, style="dim"), Text(printable(shown(value))))
    for evidence in result.evidence:
        where = ", ".join(f"{name} {shown(value)}" for name, value in evidence.locator.items() if value is not None)
        quote = f' "{evidence.quote}"' if evidence.quote else ""
        table.add_row(Text("evidence", style="dim"), Text(printable(f"{evidence.kind}: {where}{quote}")))
    out.print(table)


def print_import(out: Console, report: IngestReport, embedded: Embedded | None) -> None:
    """What came in, by table, and what did not; then what embedding it came to, unless it was left out."""
    if report.dry_run:
        out.print("dry run: nothing was written")
    out.print(f"source: {report.source or 'none'}   stores: {', '.join(report.stores) or 'none'}")
    table = new_table("", "inserted", "updated", "unchanged", "older", "rejected")
    for name in ("outputs", "jobs", "threads", "files"):
        tally = getattr(report, name)
        table.add_row(name, *(str(getattr(tally, column)) for column in table_columns(tally)))
    out.print(table)
    memories = report.memories
    out.print(f"memories: {memories.inserted} new, {memories.unchanged} unchanged, {memories.retired} retired")
    for row in report.rejected[:20]:
        out.print(Text(f"rejected: {row.table} {printable(row.key)}: {printable(row.reason)}", style="yellow"))
    if len(report.rejected) > 20:
        out.print(f"... and {len(report.rejected) - 20} more; all are in memsvc.import_rejects")
    _print_secrets(out, report)
    _notes(out, report.warnings)
    _notes(out, embedded.notes if embedded else ())


def _print_secrets(out: Console, report: IngestReport) -> None:
    for place in report.secrets[:20]:
        where = f"{place.table} {place.key}, {place.column}, line {place.line}"
        out.print(Text(f"secret cut out: {printable(where)} ({place.rule})", style="yellow"))
    if report.redacted > 20:
        out.print(f"... and {report.redacted - 20} more")


def table_columns(tally: object) -> Sequence[str]:
    """The columns of a tally, in their order."""
    return list(vars(tally))


def print_runs(out: Console, runs: Sequence[Run]) -> None:
    """The imports that were run, newest first."""
    table = new_table("source", "status", "started", "outputs new/updated", "rejected", "last watermark", "path")
    for run in runs:
        outputs = run.counts.get("outputs", {})
        came = f"{outputs.get('inserted', 0)}/{outputs.get('updated', 0)}"
        table.add_row(
            *map(
                printable,
                (
                    run.source,
                    run.status,
                    shown(run.started_at),
                    came,
                    str(len(run.failures)),
                    run.last_watermark or "",
                    run.path,
                ),
            )
        )
    out.print(table if runs else "nothing was imported yet")


def print_scopes(out: Console, scopes: Iterable[ListedScope]) -> None:
    """The scopes that may be read, each with what names it."""
    table = new_table("scope", "client", "memories", "aliases")
    for scope in scopes:
        aliases = "\n".join(_alias(alias) for alias in scope.aliases)
        cells = (scope.scope, scope.client or "", str(scope.memories), aliases)
        table.add_row(*(Text(printable(cell)) for cell in cells))  # a name may look like markup
    out.print(table)


def print_resolve(out: Console, result: ResolveResult) -> None:
    """The marks of a folder, strongest first, and what came of them."""
    facts = [("folder", result.folder), ("host", result.host)]
    if result.git is not None:
        url = f"{result.git.url} ({result.git.remote})" if result.git.url else "none"
        facts += [("git remote", url), ("git origin", result.git.origin or "none"), ("git root", result.git.root)]
    for name, value in facts:
        out.print(Text(f"{name + ':':<12}{printable(value)}"))
    table = new_table("mark", "value", "outcome")
    for mark in result.marks:
        table.add_row(mark.kind, Text(printable(mark.value)), Text(printable(_outcome(mark))))
    out.print(table)
    out.print(Text(printable(_conclusion(result)), style="bold"))
    _notes(out, result.notes)


def _alias(alias: Alias) -> str:
    return f"{alias.kind} {alias.value}{f' on {alias.host}' if alias.host else ''}"


def _outcome(mark: Mark) -> str:
    if mark.scope is None:
        return "names no known project"
    known = f"{mark.scope}{' (as explicit alias)' if mark.matched == 'explicit' else ''}"
    return {
        "decides": f"decides: {known}",
        "weaker": f"weaker: {known}",
        "another-origin": f"not enough: {known} has another git origin",
    }[mark.outcome]


def _conclusion(result: ResolveResult) -> str:
    if result.scope is not None:
        return f"scope: {result.scope}"
    new = result.would_create
    if new is None:
        return "scope: none, and none can be made here"
    by = "remember would make" if new.allowed else "you may not make"
    return f"scope: none known; {by} {new.scope}"


def print_status(out: Console, result: StatusResult) -> None:
    """The ledger as a table, then what is wrong with it."""
    out.print(Text(f"database: {printable(result.database_url)}{' (embedded)' if result.embedded else ''}"))
    table = new_table("jobs", "", *STATUSES)
    for kind, row in result.jobs.items():
        live = result.live_jobs.get(kind)
        history = {name: count - (live or {}).get(name, 0) for name, count in row.items()}
        if any(history.values()):
            table.add_row(printable(kind), "imported", *(str(history.get(name, 0)) for name in STATUSES))
        if live:
            table.add_row(printable(kind), "live", *(str(live.get(name, 0)) for name in STATUSES))
    out.print(table if result.jobs else "no jobs yet")
    out.print(f"expired leases: {result.expired_leases}")
    covered = result.coverage
    out.print(f"found by meaning: {covered.embedded} of {covered.total} memories ({result.model or 'no model'})")
    if result.beyond:
        out.print(f"too large to embed whole: {result.beyond} memories of very long outputs are found by words only")
    _print_model_trouble(out, result.model_trouble, result.model_mend)
    if any(not model.current for model in result.models):
        out.print(_models_table(result.models))
    _print_sources(out, result)
    _print_troubles(out, result)


def print_models(out: Console, result: ModelsResult) -> None:
    """The models with their coverage, and what is wrong with the one in use."""
    out.print(_models_table(result.models) if result.models else "no model has vectors yet")
    _print_model_trouble(out, result.trouble, result.mend)


def _models_table(models: Iterable[Model]) -> Table:
    listed = new_table("model", "dimension", "memories", "")
    for model in models:
        covered = f"{model.embedded} of {model.total}"
        cells = (model.name, str(model.dimension or ""), covered, "in use" if model.current else "")
        listed.add_row(*(Text(printable(cell)) for cell in cells))
    return listed


def _print_model_trouble(out: Console, trouble: str | None, mend: str | None) -> None:
    if trouble:
        out.print(Text(f"model: {printable(trouble)}", style="red"))
        out.print(Text(f"mend: {printable(mend or '')}", style="bold"))


def _print_sources(out: Console, result: StatusResult) -> None:
    table = new_table("source", "importer", "outputs", "memories", "newest", "home")
    for source in result.sources:
        cells = (source.label, source.importer, str(source.outputs), str(source.memories))
        table.add_row(*map(printable, (*cells, shown(source.exported_at), source.home or "")))
    out.print(table)


def _print_troubles(out: Console, result: StatusResult) -> None:
    if result.troubles:
        out.print(Text("not done:", style="bold"))
    for job in result.troubles:
        of = "live" if job.live else f"{job.source}, {job.store}"
        out.print(Text(printable(f"  {job.kind} {job.job_key} ({of}): {job.status}, {_what_next(job)}")))
        if job.last_error:
            out.print(Text(f"      {printable(job.last_error)}", style="yellow"))


def _what_next(job: Trouble) -> str:
    left = f"{job.retry_remaining} retries left"
    if not job.live:
        return f"{left} when it was exported" if job.status == "error" else "its worker was at it when it was exported"
    if job.stop_reason:
        return f"stopped: {job.stop_reason}"
    return f"{left}, tried again {shown(job.retry_at)}" if job.retry_at else "left behind by its worker"


def print_checks(out: Console, checks: Iterable[Check]) -> None:
    """One line a check, with the command that mends it."""
    for check in checks:
        line = Text("ok    " if check.ok else "wrong ", style="green" if check.ok else "red")
        line.append(f"{check.name}: {printable(check.detail)}", style="default")
        if check.mend:
            line.append(f"\n      mend: {check.mend}", style="bold")
        out.print(line)


def _notes(out: Console, notes: Iterable[str]) -> None:
    for note in notes:
        out.print(Text(f"note: {printable(note)}", style="yellow"))


def new_table(*columns: str) -> Table:
    """An empty table, as all of ours look."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def shown(value: object) -> str:
    """A value in words; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S %Z}"
    return str(value)
