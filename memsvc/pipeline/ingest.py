"""
Import: an export goes in, batch by batch, each batch with its memories, its embedding jobs and its checkpoint in one
transaction. Importing the same export again changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from psycopg import Rollback

from memsvc import importer
from memsvc.db.pool import Conn, Pool
from memsvc.derivation import handbook
from memsvc.ledger import jobs
from memsvc.memory import files, handbooks, history, originals, outputs, runs, scopes, sources, statements, threads
from memsvc.memory.handbooks import StoredFile
from memsvc.memory.kept import as_text, keep, secrets
from memsvc.memory.outputs import StoredOutput
from memsvc.memory.sources import Source
from memsvc.model.export import FileRow, Identity, JobRow, OutputRow, ProgressRow, Rejected, Row, ThreadRow
from memsvc.model.principal import Actor
from memsvc.model.report import IngestReport, Outcome, RejectedRow, Tally, Upserted
from memsvc.model.scope import ProjectIdentity, identity
from memsvc.pipeline import unchanged
from memsvc.pipeline.batches import batches, watermark
from memsvc.pipeline.embed import output_job

logger = logging.getLogger(__name__)

BATCH_WITHIN = timedelta(seconds=60)
# Deriving from a huge text takes long between two statements.
IDLE_WITHIN = timedelta(minutes=10)

Begin = Callable[[], AbstractContextManager[Conn]]
Progress = Callable[[int], None]


@dataclass
class Ingest:
    """One import under way: for whom, into which source, and what it has counted so far."""

    actor: Actor
    host: str
    source: Source
    identity: Identity
    run_id: UUID
    report: IngestReport
    exact: bool = True
    request: bytes | None = None
    from_newest: bool = False
    projects: dict[ProjectIdentity, UUID] = field(default_factory=dict)
    handbooks: dict[str, bytes] = field(default_factory=dict)


def ingest(
    pool: Pool,
    actor: Actor,
    importer_name: str,
    path: Path,
    *,
    host: str,
    label: str | None = None,
    dry_run: bool = False,
    redact_originals: bool = False,
    progress: Progress | None = None,
) -> IngestReport:
    """
    Import an export.

    `label` names the source; without it the export is matched with the sources that are known. `host` is the machine
    that the export's folders are on. A dry run does all of it and leaves nothing behind. `redact_originals` cuts
    secrets out of the original bytes as well. `progress` is called with the number of rows done so far.

    Raises:
        UnknownImporter, BadExport: there is nothing to read.
        AmbiguousSource: the export fits several sources.
    """
    reader = importer.find(importer_name)
    digest = reader.digest(path)
    request = unchanged.request_sha256(importer_name, path, digest, host=host, label=label)
    # Cutting secrets out of the originals looks at more than what an import brings.
    if request is not None and not redact_originals and (same := _same(pool, actor, request, path, dry_run=dry_run)):
        return same
    with reader.open(path) as export:
        if not export.identity.thread_ids and label is None:
            return _nothing(export, dry_run=dry_run)
        with _transactions(pool, actor, dry_run=dry_run) as begin:
            with begin() as conn:
                work = _start(conn, actor, importer_name, path, export, label=label, host=host)
            work.report.dry_run, work.exact = dry_run, not redact_originals
            # Somebody may have written to it before it was copied.
            work.request = request if work.exact and reader.digest(path) == digest else None
            _write_all(begin, work, export, progress)
            work.report.warnings.extend(export.warnings)
            with begin() as conn:
                _finish(conn, work)
        return work.report


def _same(pool: Pool, actor: Actor, request: bytes, path: Path, *, dry_run: bool) -> IngestReport | None:
    """The report of an import that changes nothing because it has been done."""
    with _transactions(pool, actor, dry_run=dry_run) as begin, begin() as conn:
        earlier = unchanged.find(conn, request)
        if earlier is None:
            return None
        report = unchanged.report(conn, earlier)
        report.dry_run = dry_run
        run_id = runs.start(conn, earlier.source_id, as_text(str(path.absolute())))
        runs.finish(conn, run_id, _counts(report), failures=earlier.failures, warnings=report.warnings)
        runs.remember_state(conn, run_id, request, earlier.state_sha256, earlier.stores)
    return report


@contextmanager
def _transactions(pool: Pool, actor: Actor, *, dry_run: bool) -> Iterator[Begin]:
    """How each step gets its transaction; the steps of a dry run share one, which is rolled back."""
    begin = partial(
        pool.transaction, actor, statement_within=BATCH_WITHIN, lock_within=BATCH_WITHIN, idle_within=IDLE_WITHIN
    )
    if not dry_run:
        yield begin
        return
    with begin() as conn:
        yield lambda: nullcontext(conn)
        raise Rollback


def _write_all(begin: Begin, work: Ingest, export: importer.Export, progress: Progress | None) -> None:
    done = 0
    for batch in batches(export.rows()):
        with begin() as conn:
            sources.lock(conn, work.source)
            # A newer export may have come in between two batches; an older one must see that this one has.
            work.from_newest = sources.is_newest(conn, work.source, work.identity)
            _write(conn, work, batch)
            # Until it has a session the source is found by being new, so its first batches do not say otherwise.
            if isinstance(batch[0], ThreadRow | OutputRow):
                sources.saw_export(conn, work.source, work.identity)
            runs.checkpoint(conn, work.run_id, watermark(batch[-1]), _counts(work.report))
        done += len(batch)
        if progress is not None:
            progress(done)


def _nothing(export: importer.Export, *, dry_run: bool) -> IngestReport:
    report = IngestReport(dry_run=dry_run, stores=tuple(export.stores))
    for row in export.rows():
        if isinstance(row, Rejected):
            _count_rejected(report, row)
    report.warnings = [*export.warnings, "the export holds no session: nothing was imported"]
    return report


def _start(
    conn: Conn, actor: Actor, importer_name: str, path: Path, export: importer.Export, *, label: str | None, host: str
) -> Ingest:
    whole = as_text(str(path.absolute()))
    home = export.identity
    source = sources.identify(conn, importer_name, home, label=label, host=host, path=whole)
    run_id = runs.start(conn, source.id, whole)
    report = IngestReport(source=source.label, stores=tuple(export.stores))
    return Ingest(actor, host, source, home, run_id, report)


def _finish(conn: Conn, work: Ingest) -> None:
    sources.lock(conn, work.source)  # before its row, as each batch takes them
    if work.report.redacted:
        work.report.warnings.append(f"{unchanged.CUT_OUT}{work.report.redacted}")
    if not work.exact:
        originals.cut_secrets(conn, work.source.id)
    sources.saw_export(conn, work.source, work.identity)
    _derive_handbooks(conn, work)
    memories = work.report.memories
    memories.unchanged = statements.count_current(conn, work.source.id) - memories.inserted
    runs.finish(
        conn,
        work.run_id,
        _counts(work.report),
        failures=[asdict(row) for row in work.report.rejected],
        warnings=work.report.warnings,
    )
    if work.request is not None:
        state = runs.state_sha256(conn, work.source.id)
        runs.remember_state(conn, work.run_id, work.request, state, work.report.stores)
    logger.info("import of %s complete: %s", work.source.label, _counts(work.report))


def _counts(report: IngestReport) -> dict[str, Any]:
    return {name: asdict(getattr(report, name)) for name in ("outputs", "jobs", "threads", "files", "memories")}


def _write(conn: Conn, work: Ingest, batch: Sequence[Row]) -> None:
    """Write one batch, whose rows are of one type."""
    report, source_id = work.report, work.source.id
    how = {"from_newest": work.from_newest, "exact": work.exact}
    match batch[0]:
        case ThreadRow():
            _write_threads(conn, work, cast(Sequence[ThreadRow], batch))
        case OutputRow():
            _write_outputs(conn, work, cast(Sequence[OutputRow], batch))
        case JobRow():
            given = cast(Sequence[JobRow], batch)
            _count_all(report, report.jobs, history.upsert(conn, source_id, given, **how))
        case FileRow():
            _write_files(conn, work, cast(Sequence[FileRow], batch))
        case ProgressRow():
            runs.progress(conn, source_id, cast(Sequence[ProgressRow], batch))
        case Rejected():
            refused = cast(Sequence[Rejected], batch)
            runs.reject(conn, source_id, refused, exact=work.exact)
            for row in refused:
                _count_rejected(report, row)


def _count(tally: Tally, outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        tally.count(outcome)


def _count_all(report: IngestReport, tally: Tally, written: Upserted) -> None:
    _count(tally, written.outcomes)
    report.found(written.secrets)


def _count_rejected(report: IngestReport, row: Rejected) -> None:
    report.rejected.append(RejectedRow(row.table, as_text(row.key), as_text(row.reason)))
    tally = {"stage1_outputs": report.outputs, "jobs": report.jobs, "threads": report.threads}.get(row.table)
    if tally is not None:
        tally.rejected += 1


def _write_threads(conn: Conn, work: Ingest, rows: Sequence[ThreadRow]) -> None:
    source_id = work.source.id
    found = {row.thread_id: _project_of(conn, work, row) for row in rows}
    written = threads.upsert(conn, source_id, rows, scopes=found, from_newest=work.from_newest, exact=work.exact)
    _count_all(work.report, work.report.threads, written)
    # A thread whose project is known better now takes its outputs and their memories along.
    changed = [row.thread_id for row, outcome in zip(rows, written.outcomes, strict=True) if outcome == "updated"]
    _derive(conn, work, outputs.move(conn, source_id, threads.scopes_of(conn, source_id, changed)))


def _write_outputs(conn: Conn, work: Ingest, rows: Sequence[OutputRow]) -> None:
    known = threads.scopes_of(conn, work.source.id, [row.thread_id for row in rows])
    for row in rows:
        if row.thread_id not in known:
            known[row.thread_id] = _project(conn, work, identity(host=work.host))
    results = outputs.upsert(conn, work.source.id, rows, scopes=known, from_newest=work.from_newest, exact=work.exact)
    for result in results:
        work.report.outputs.count(result.outcome)
        work.report.found(result.secrets)
    _derive(conn, work, [result.output for result in results if result.output is not None])


def _write_files(conn: Conn, work: Ingest, rows: Sequence[FileRow]) -> None:
    outcomes = files.upsert(conn, work.source.id, rows, from_newest=work.from_newest, exact=work.exact)
    _count(work.report.files, outcomes)
    for row, outcome in zip(rows, outcomes, strict=True):
        if outcome == "older" or handbook.store_of(row.path) is None:
            continue
        work.handbooks[row.path] = row.content
        if outcome != "unchanged":
            work.report.found(secrets("source_files", row.path, {"content": keep(row.content)}))


def _derive_handbooks(conn: Conn, work: Ingest) -> None:
    """Last of all, for they name sessions and summaries that have to be there."""

    def scope_of(cwd: str | None) -> UUID:
        return _project(conn, work, identity(host=work.host, cwd=cwd))

    for path, content in work.handbooks.items():
        found = handbooks.read(conn, work.source.id, path, keep(content), scope_of=scope_of)
        if found is not None:
            _derive(conn, work, [found])


def _project_of(conn: Conn, work: Ingest, row: ThreadRow) -> UUID:
    """The scope of a thread: its git origin's project, else its folder's on this host, else the source's own."""
    origin, cwd = threads.text_of(row, "git_origin_url"), threads.text_of(row, "cwd")
    return _project(conn, work, identity(host=work.host, git_origin=origin, cwd=cwd))


def _project(conn: Conn, work: Ingest, known: ProjectIdentity) -> UUID:
    if known not in work.projects:
        name = known.name or f"source:{work.source.label}"
        alternative = f"{work.host}:{name}"
        work.projects[known] = scopes.ensure_project(conn, known, name=name, alternative=alternative).id
    return work.projects[known]


def _derive(conn: Conn, work: Ingest, changed: Sequence[StoredOutput | StoredFile]) -> None:
    if not changed:
        return
    changes = statements.reconcile(conn, work.actor, work.source.id, changed)
    work.report.memories.inserted += len(changes.added)
    work.report.memories.retired += len(changes.retired)
    if changes.added or changes.retired:  # what goes away changes the windows of its neighbours
        keys = [
            (output_job(work.source.id, output.store, statements.document(output)), output.scope_id)
            for output in changed
        ]
        jobs.enqueue(conn, keys)
