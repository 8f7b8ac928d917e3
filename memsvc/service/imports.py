"""Import: another tool's memory comes in; and what earlier imports came to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from memsvc.memory import runs
from memsvc.memory.runs import Run
from memsvc.model.report import IngestReport
from memsvc.pipeline.ingest import Progress, ingest
from memsvc.service.app import App


@dataclass(frozen=True)
class ImportRequest:
    """
    Which importer reads which path; `source` names the source, None to match it with those that are known.

    A dry run only says what would come in. `redact_originals` keeps no secret, not even in the original bytes.
    """

    importer: str
    path: Path
    source: str | None = None
    dry_run: bool = False
    redact_originals: bool = False


def run_import(app: App, request: ImportRequest, *, progress: Progress | None = None) -> IngestReport:
    """
    Import an export; embedding is a separate matter.

    Raises:
        BadExport, UnknownImporter: there is nothing to read.
        AmbiguousSource, Conflict: the export fits several sources, or the label belongs to another importer.
    """
    return ingest(
        app.pool,
        app.actor,
        request.importer,
        request.path,
        host=app.host,
        label=request.source,
        dry_run=request.dry_run,
        redact_originals=request.redact_originals,
        progress=progress,
    )


def import_status(app: App) -> list[Run]:
    """The last runs, newest first."""
    with app.pool.transaction(app.actor) as conn:
        return runs.recent(conn)
