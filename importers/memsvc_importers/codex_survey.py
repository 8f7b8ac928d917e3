"""One look over all rows of an export before any is handed out: which sessions there are, and how recent they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from memsvc.model.export import Rejected
from memsvc_importers import codex_early
from memsvc_importers.codex_columns import Fitted, Table
from memsvc_importers.codex_database import Database
from memsvc_importers.codex_early_tables import LEDGERS, MEMORIES, PHASE1
from memsvc_importers.codex_tables import JOBS, OUTPUTS, STAGE1, THREADS

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_INSTANTS = {
    OUTPUTS.name: ("source_updated_at", "generated_at", "last_usage"),
    JOBS.name: ("started_at", "finished_at"),
    THREADS.name: ("updated_at",),
    **{table.name: ("source_updated_at", "last_usage") for table in MEMORIES},
    **{table.name: ("started_at", "finished_at") for table in LEDGERS},
}


@dataclass(frozen=True)
class Survey:
    """
    `sessions` have an output or a stage-1 job, `in_state` a row in the threads table, `refused` one that was rejected.

    `rollout_paths` are those of the threads table; `newest` is the latest instant of all accepted rows, `newest_thread`
    that of the threads table. `updated_at` is when the sessions with an output were last written to. `early` counts the
    rows of the early tables by store, `folders` has the working folders that they name, by session.
    """

    sessions: frozenset[str]
    in_state: frozenset[str]
    refused: frozenset[str]
    rollout_paths: tuple[bytes, ...]
    newest: datetime | None
    newest_thread: datetime | None
    updated_at: Mapping[str, datetime]
    early: Mapping[str, int]
    folders: Mapping[str, bytes]

    @property
    def without_thread(self) -> frozenset[str]:
        """
        Sessions that the threads table does not know.

        A row that was rejected is known: taking its session for one without a row would make it look deleted.
        """
        return self.sessions - self.in_state - self.refused

    @property
    def surely_deleted(self) -> frozenset[str]:
        """
        Sessions without a row that must have been deleted, even if the newest threads are not in the file.

        Without its WAL a database is as it was at some moment: what is older than its newest thread would be in it.
        """
        newest = self.newest_thread
        return frozenset(
            name
            for name in self.without_thread
            if newest and name in self.updated_at and self.updated_at[name] < newest
        )


def survey(databases: Sequence[Database], state: Database | None) -> Survey:
    """Look over the memory tables of the databases, without their texts, and over the threads of the state."""
    latest = _Latest()
    updated_at: dict[str, datetime] = {}
    sessions: set[str] = set()
    early: Counter[str] = Counter()
    folders: dict[str, bytes] = {}
    for database in databases:
        for table in (OUTPUTS, *MEMORIES):
            for row in _accepted(database, table, latest):
                thread_id: str = row.values["thread_id"]
                sessions.add(thread_id)
                updated_at[thread_id] = max(row.values["source_updated_at"], updated_at.get(thread_id, _EARLIEST))
                if table in MEMORIES:
                    early[codex_early.store(database, table)] += 1
                    if folder := codex_early.folder(row.extra):
                        folders[thread_id] = folder
        stage1 = (row.values for row in _accepted(database, JOBS, latest) if row.values["kind"] == STAGE1)
        sessions.update(values["job_key"] for values in stage1)
        for table in LEDGERS:
            sessions.update(row.values["thread_id"] for row in _accepted(database, table, latest) if table is PHASE1)
    rollout_paths: dict[str, bytes | None] = {}
    refused: set[str] = set()
    latest_thread = _Latest()
    for thread in state.read(THREADS) if state else ():
        if isinstance(thread, Rejected):
            refused.add(thread.key)
        else:
            latest.see(thread, THREADS)
            latest_thread.see(thread, THREADS)
            rollout_paths[thread.values["id"]] = thread.values.get("rollout_path")
    paths = tuple(path for path in rollout_paths.values() if path is not None)
    return Survey(
        frozenset(sessions),
        frozenset(rollout_paths),
        frozenset(refused),
        paths,
        latest.instant,
        latest_thread.instant,
        updated_at,
        early,
        folders,
    )


class _Latest:
    """The latest instant of the rows seen so far."""

    def __init__(self) -> None:
        self.instant: datetime | None = None

    def see(self, row: Fitted, table: Table) -> None:
        for name in _INSTANTS[table.name]:
            found = row.values.get(name)
            if found is not None and (self.instant is None or found > self.instant):
                self.instant = found


def _accepted(database: Database, table: Table, latest: _Latest) -> Iterator[Fitted]:
    for row in database.read(table, texts=False):
        if not isinstance(row, Rejected):
            latest.see(row, table)
            yield row
