"""One look over all rows of an export before any is handed out: which sessions there are, and how recent they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memsvc.model.export import Rejected
from memsvc_importers.codex_columns import Fitted, Table
from memsvc_importers.codex_database import Database
from memsvc_importers.codex_tables import JOBS, OUTPUTS, STAGE1, THREADS

_INSTANTS = {
    OUTPUTS.name: ("source_updated_at", "generated_at", "last_usage"),
    JOBS.name: ("started_at", "finished_at"),
    THREADS.name: ("updated_at",),
}


@dataclass(frozen=True)
class Survey:
    """
    `sessions` have an output or a stage-1 job, `in_state` a row in the threads table, `refused` one that was rejected.

    `rollout_paths` are those of the threads table; `newest` is the latest instant of all accepted rows.
    """

    sessions: frozenset[str]
    in_state: frozenset[str]
    refused: frozenset[str]
    rollout_paths: tuple[bytes, ...]
    newest: datetime | None

    @property
    def without_thread(self) -> frozenset[str]:
        """
        Sessions that the threads table does not know.

        A row that was rejected is known: taking its session for one without a row would make it look deleted.
        """
        return self.sessions - self.in_state - self.refused


def survey(databases: Sequence[Database], state: Database | None) -> Survey:
    """Look over the memory tables of the databases, without their texts, and over the threads of the state."""
    latest = _Latest()
    sessions: set[str] = set()
    for database in databases:
        sessions.update(row["thread_id"] for row in _accepted(database, OUTPUTS, latest))
        sessions.update(row["job_key"] for row in _accepted(database, JOBS, latest) if row["kind"] == STAGE1)
    rollout_paths: dict[str, bytes | None] = {}
    refused: set[str] = set()
    for thread in state.read(THREADS) if state else ():
        if isinstance(thread, Rejected):
            refused.add(thread.key)
        else:
            latest.see(thread, THREADS)
            rollout_paths[thread.values["id"]] = thread.values.get("rollout_path")
    paths = tuple(path for path in rollout_paths.values() if path is not None)
    return Survey(frozenset(sessions), frozenset(rollout_paths), frozenset(refused), paths, latest.instant)


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
