"""An opened Codex export: its identity, and its rows in the order in which they are handed out."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter

from memsvc.model.export import Identity, JobRow, OutputRow, ProgressRow, Rejected, Row
from memsvc_importers import codex_early, codex_threads
from memsvc_importers.codex_database import Database
from memsvc_importers.codex_early_tables import MEMORIES
from memsvc_importers.codex_files import Files
from memsvc_importers.codex_survey import Survey
from memsvc_importers.codex_tables import JOBS, OUTPUTS, PROGRESS

_Age = tuple[datetime, datetime, str]

_EARLIEST = datetime.min.replace(tzinfo=UTC)


class CodexExport:
    """
    The private copy of one Codex export.

    `memory` are the databases with memory tables, `state` the one with the threads; `warnings` keeps its keys only, and
    is filled further while rows are read.
    """

    def __init__(
        self,
        memory: Sequence[Database],
        state: Database | None,
        found: Survey,
        files: Files,
        warnings: Mapping[str, None],
    ) -> None:
        self._memory = memory
        self._state = state
        self._files = files
        self._warnings = warnings
        self._headers = files.headers()
        self._found = found

    @property
    def identity(self) -> Identity:
        """The sessions, the home that their rollouts lie in, and the newest instant of all rows."""
        headers = [header for name, header in self._headers.items() if name in self._found.without_thread]
        traces = [header.columns.get("rollout_path") for header in headers]
        return Identity(
            thread_ids=self._found.sessions | self._found.in_state,
            home=codex_threads.home([*self._found.rollout_paths, *traces]),
            exported_at=self._found.newest,
        )

    @property
    def warnings(self) -> Sequence[str]:
        """What is odd about the export, each once, in the order in which it was met."""
        return tuple(self._warnings)

    @property
    def stores(self) -> Sequence[str]:
        """`v1`, `v2`, `state_5`, or the name of another file; of an early table the file's and its own."""
        current = [database.store for database in self._memory if database.has(OUTPUTS) or database.has(JOBS)]
        return (*current, *self._found.early)

    def rows(self) -> Iterator[Row]:
        """Threads, outputs of all stores oldest first, jobs, progress, files; rejected rows where they are met."""
        yield from codex_threads.in_state(self._state)
        # Whether rows cannot be read is known only once all have been.
        deleted = codex_threads.deleted(self._state, self._found)
        yield from codex_threads.elsewhere(
            self._found.without_thread, self._headers, self._memory, self._found.folders, deleted=deleted
        )
        by_age = [_by_age(rows) for database in self._memory for rows in _outputs(database)]
        for _, output in heapq.merge(*by_age, key=itemgetter(0)):
            yield output
        for database in self._memory:
            yield from _jobs(database)
            yield from codex_early.jobs(database)
            yield from codex_early.locks(database)
        for database in self._memory:
            yield from _progress(database)
        yield from self._files.rows()


def _by_age(rows: Iterable[OutputRow | Rejected]) -> Iterator[tuple[_Age, OutputRow | Rejected]]:
    """A rejected row is as old as the one before it: it may have no time of its own."""
    age: _Age = (_EARLIEST, _EARLIEST, "")
    for row in rows:
        if isinstance(row, OutputRow):
            age = (row.source_updated_at, row.generated_at, row.thread_id)
        yield age, row


def _outputs(database: Database) -> Iterator[Iterator[OutputRow | Rejected]]:
    """The outputs of every table that has some, each oldest first."""
    yield _present_outputs(database)
    for table in MEMORIES:
        yield codex_early.outputs(database, table)


def _present_outputs(database: Database) -> Iterator[OutputRow | Rejected]:
    for row in database.read(OUTPUTS):
        yield row if isinstance(row, Rejected) else OutputRow(store=database.store, extra=row.extra, **row.values)


def _jobs(database: Database) -> Iterator[JobRow | Rejected]:
    for row in database.read(JOBS):
        yield row if isinstance(row, Rejected) else JobRow(store=database.store, extra=row.extra, **row.values)


def _progress(database: Database) -> Iterator[ProgressRow | Rejected]:
    for row in database.read(PROGRESS):
        yield row if isinstance(row, Rejected) else ProgressRow(database.store, row.values["max_thread_count"])
