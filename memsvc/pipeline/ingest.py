"""
Import: an export goes in, batch by batch, each batch with its memories, its embedding jobs and its checkpoint in one
transaction. Importing the same export again changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from memsvc import importer
from memsvc.db.pool import Conn, Pool
from memsvc.ledger import jobs
from memsvc.memory import files, history, outputs, runs, scopes, sources, statements, threads
from memsvc.memory.outputs import StoredOutput
from memsvc.memory.sources import Source
from memsvc.model.export import FileRow, JobRow, OutputRow, ProgressRow, Rejected, Row, ThreadRow
from memsvc.model.principal import Actor
from memsvc.model.report import IngestReport, Outcome, RejectedRow, Tally
from memsvc.model.scope import ProjectIdentity, identity
from memsvc.pipeline.batches import batches, watermark
from memsvc.pipeline.embed import output_job

logger = logging.getLogger(__name__)

BATCH_WITHIN = timedelta(seconds=60)

Progress = Callable[[int], None]


@dataclass
class Ingest:
    """One import under way: for whom, into which source, and what it has counted so far."""

    actor: Actor
    host: str
    source: Source
    from_newest: bool
    run_id: UUID
    report: IngestReport
    projects: dict[ProjectIdentity, UUID] = field(default_factory=dict)


def ingest(
    pool: Pool,
    actor: Actor,
    importer_name: str,
    path: Path,
    *,
    host: str,
    label: str | None = None,
    progress: Progress | None = None,
) -> IngestReport:
    """
    Import an export.

    `label` names the source; without it the export is matched with the sources that are known. `host` is the machine
    that the export's folders are on. `progress` is called with the number of rows done so far.

    Raises:
        UnknownImporter, BadExport: there is nothing to read.
        AmbiguousSource: the export fits several sources.
    """
    with importer.find(importer_name).open(path) as export:
        if not export.identity.thread_ids and label is None:
            return _nothing(export)
        work = _start(pool, actor, importer_name, path, export, label=label, host=host)
        done = 0
        for batch in batches(export.rows()):
            with pool.transaction(actor, statement_within=BATCH_WITHIN, lock_within=BATCH_WITHIN) as conn:
                sources.lock(conn, work.source)
                _write(conn, work, batch)
                runs.checkpoint(conn, work.run_id, watermark(batch[-1]), _counts(work.report))
            done += len(batch)
            if progress is not None:
                progress(done)
        work.report.warnings.extend(export.warnings)
        _finish(pool, work, export)
        return work.report


def _nothing(export: importer.Export) -> IngestReport:
    report = IngestReport(stores=tuple(export.stores))
    for row in export.rows():
        if isinstance(row, Rejected):
            _count_rejected(report, row)
    report.warnings = [*export.warnings, "the export holds no session: nothing was imported"]
    return report


def _start(
    pool: Pool, actor: Actor, importer_name: str, path: Path, export: importer.Export, *, label: str | None, host: str
) -> Ingest:
    with pool.transaction(actor) as conn:
        source = sources.identify(conn, importer_name, export.identity, label=label, host=host)
        newest = sources.is_newest(conn, source, export.identity)
        run_id = runs.start(conn, source.id, str(path.absolute()))
    report = IngestReport(source=source.label, stores=tuple(export.stores))
    return Ingest(actor, host, source, newest, run_id, report)


def _finish(pool: Pool, work: Ingest, export: importer.Export) -> None:
    if work.report.redacted:
        work.report.warnings.append(f"secrets cut out: {work.report.redacted}")
    with pool.transaction(work.actor) as conn:
        sources.saw_export(conn, work.source, export.identity)
        runs.finish(
            conn,
            work.run_id,
            _counts(work.report),
            failures=[asdict(row) for row in work.report.rejected],
            warnings=work.report.warnings,
        )
    logger.info("import of %s complete: %s", work.source.label, _counts(work.report))


def _counts(report: IngestReport) -> dict[str, Any]:
    return {name: asdict(getattr(report, name)) for name in ("outputs", "jobs", "threads", "files", "memories")}


def _write(conn: Conn, work: Ingest, batch: Sequence[Row]) -> None:
    """Write one batch, whose rows are of one type."""
    report, source_id, newest = work.report, work.source.id, work.from_newest
    match batch[0]:
        case ThreadRow():
            _count(report.threads, _write_threads(conn, work, cast(Sequence[ThreadRow], batch)))
        case OutputRow():
            _write_outputs(conn, work, cast(Sequence[OutputRow], batch))
        case JobRow():
            given = cast(Sequence[JobRow], batch)
            _count(report.jobs, history.upsert(conn, source_id, given, from_newest=newest))
        case FileRow():
            _count(report.files, files.upsert(conn, source_id, cast(Sequence[FileRow], batch), from_newest=newest))
        case ProgressRow():
            runs.progress(conn, source_id, cast(Sequence[ProgressRow], batch))
        case Rejected():
            refused = cast(Sequence[Rejected], batch)
            runs.reject(conn, source_id, refused)
            for row in refused:
                _count_rejected(report, row)


def _count(tally: Tally, outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        tally.count(outcome)


def _count_rejected(report: IngestReport, row: Rejected) -> None:
    report.rejected.append(RejectedRow(row.table, row.key, row.reason))
    tally = {"stage1_outputs": report.outputs, "jobs": report.jobs, "threads": report.threads}.get(row.table)
    if tally is not None:
        tally.rejected += 1


def _write_threads(conn: Conn, work: Ingest, rows: Sequence[ThreadRow]) -> Sequence[Outcome]:
    found = {row.thread_id: _project_of(conn, work, row) for row in rows}
    outcomes = threads.upsert(conn, work.source.id, rows, scopes=found, from_newest=work.from_newest)
    # A thread whose project is known better now takes its outputs and their memories along.
    changed = [row.thread_id for row, outcome in zip(rows, outcomes, strict=True) if outcome == "updated"]
    _derive(conn, work, outputs.move(conn, work.source.id, {thread_id: found[thread_id] for thread_id in changed}))
    return outcomes


def _write_outputs(conn: Conn, work: Ingest, rows: Sequence[OutputRow]) -> None:
    known = threads.scopes_of(conn, work.source.id, [row.thread_id for row in rows])
    for row in rows:
        if row.thread_id not in known:
            known[row.thread_id] = _project(conn, work, identity(host=work.host))
    results = outputs.upsert(conn, work.source.id, rows, scopes=known, from_newest=work.from_newest)
    _count(work.report.outputs, [result.outcome for result in results])
    work.report.redacted += sum(result.redactions for result in results)
    _derive(conn, work, [result.output for result in results if result.output is not None])


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


def _derive(conn: Conn, work: Ingest, changed: Sequence[StoredOutput]) -> None:
    if not changed:
        return
    changes = statements.reconcile(conn, work.actor, work.source.id, changed)
    tally = work.report.memories
    tally.inserted += len(changes.added)
    tally.unchanged += len(changes.stayed)
    tally.retired += len(changes.retired)
    found = {
        (output_job(work.source.id, added.output.store, added.output.thread_id), added.output.scope_id)
        for added in changes.added
    }
    jobs.enqueue(conn, found)
