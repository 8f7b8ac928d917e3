"""One look over all rows of an export before any is handed out: which sessions there are, and how recent they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from memsvc.model.export import Rejected
from memsvc_importers.codex_columns import Fitted, Table
from memsvc_importers.codex_database import Database
from memsvc_importers.codex_tables import JOBS, OUTPUTS, STAGE1, THREADS

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_INSTANTS = {
    OUTPUTS.name: ("source_updated_at", "generated_at", "last_usage"),
    JOBS.name: ("started_at", "finished_at"),
    THREADS.name: ("updated_at",),
}


@dataclass(frozen=True)
class Survey:
    """
    `sessions` have an output or a stage-1 job, `in_state` a row in the threads table, `refused` one that was rejected.

    `rollout_paths` are those of the threads table; `newest` is the latest instant of all accepted rows, `newest_thread`
    that of the threads table. `updated_at` is when the sessions with an output were last written to.
    """

    sessions: frozenset[str]
    in_state: frozenset[str]
    refused: frozenset[str]
    rollout_paths: tuple[bytes, ...]
    newest: datetime | None
    newest_thread: datetime | None
    updated_at: Mapping[str, datetime]

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
    for database in databases:
        for row in _accepted(database, OUTPUTS, latest):
            sessions.add(row["thread_id"])
            updated_at[row["thread_id"]] = max(row["source_updated_at"], updated_at.get(row["thread_id"], _EARLIEST))
        sessions.update(row["job_key"] for row in _accepted(database, JOBS, latest) if row["kind"] == STAGE1)
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


def _accepted(database: Database, table: Table, latest: _Latest) -> Iterator[Mapping[str, Any]]:
    for row in database.read(table, texts=False):
        if not isinstance(row, Rejected):
            latest.see(row, table)
            yield row.values
