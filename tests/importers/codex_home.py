"""Codex homes made by a test, and what the importer reads from them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from memsvc.model.export import Identity, OutputRow, Row
from memsvc_importers.codex import CodexImporter

RowType = TypeVar("RowType", bound=Row)

OUTPUTS = """
create table stage1_outputs (
    thread_id TEXT PRIMARY KEY, source_updated_at INTEGER NOT NULL, raw_memory TEXT NOT NULL,
    rollout_summary TEXT NOT NULL, rollout_slug TEXT, generated_at INTEGER NOT NULL, usage_count INTEGER,
    last_usage INTEGER, selected_for_phase2 INTEGER NOT NULL DEFAULT 0, selected_for_phase2_source_updated_at INTEGER)
"""
JOBS = """
create table jobs (
    kind TEXT NOT NULL, job_key TEXT NOT NULL, status TEXT NOT NULL, worker_id TEXT, ownership_token TEXT,
    started_at INTEGER, finished_at INTEGER, lease_until INTEGER, retry_at INTEGER, retry_remaining INTEGER NOT NULL,
    last_error TEXT, input_watermark INTEGER, last_success_watermark INTEGER, PRIMARY KEY (kind, job_key))
"""
THREADS = """
create table threads (
    id TEXT PRIMARY KEY, rollout_path TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
    cwd TEXT NOT NULL, archived INTEGER NOT NULL DEFAULT 0, archived_at INTEGER, updated_at_ms INTEGER)
"""

Value = str | bytes | int | float | None


def output(thread_id: Value = "t", **columns: Value) -> dict[str, Value]:
    """The columns of an ordinary output, some of them replaced."""
    ordinary: dict[str, Value] = {
        "thread_id": thread_id,
        "source_updated_at": 1_796_072_247,
        "raw_memory": "memory",
        "rollout_summary": "summary",
        "generated_at": 1_796_075_958,
    }
    return ordinary | columns


def job(job_key: Value = "t", **columns: Value) -> dict[str, Value]:
    """The columns of an ordinary stage-1 job, some of them replaced."""
    ordinary: dict[str, Value] = {"kind": "memory_stage1", "job_key": job_key, "status": "done", "retry_remaining": 3}
    return ordinary | columns


def thread(thread_id: Value = "t", **columns: Value) -> dict[str, Value]:
    """The columns of an ordinary thread, some of them replaced."""
    ordinary: dict[str, Value] = {
        "id": thread_id,
        "rollout_path": f"/home/ada/.codex/sessions/2026/11/30/rollout-{thread_id!s}.jsonl",
        "created_at": 1_796_072_240,
        "updated_at": 1_796_072_247,
        "cwd": "/src/orchard",
    }
    return ordinary | columns


def database(
    file: Path,
    *schema: str,
    outputs: Iterable[Mapping[str, Value]] = (),
    jobs: Iterable[Mapping[str, Value]] = (),
    threads: Iterable[Mapping[str, Value]] = (),
) -> Path:
    """Make a SQLite file with the tables (both memory tables unless others are given) and the rows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as conn:
        for statement in schema or (OUTPUTS, JOBS):
            conn.execute(statement)
        for table, rows in (("stage1_outputs", outputs), ("jobs", jobs), ("threads", threads)):
            for row in rows:
                insert(conn, table, row)
        conn.commit()
    return file


def insert(conn: sqlite3.Connection, table: str, row: Mapping[str, Value]) -> None:
    """Insert one row by column names."""
    marks = ", ".join("?" for _ in row)
    conn.execute(f"insert into {table} ({', '.join(row)}) values ({marks})", tuple(row.values()))


@dataclass(frozen=True)
class Reading:
    """All that the importer says of one path."""

    rows: Sequence[Row]
    warnings: Sequence[str]
    stores: Sequence[str]
    identity: Identity

    def of(self, kind: type[RowType]) -> list[RowType]:
        """The rows of one kind, in their order."""
        return [row for row in self.rows if isinstance(row, kind)]

    @property
    def outputs(self) -> dict[str, OutputRow]:
        """The outputs by thread id, for exports in which no two stores share one."""
        return {row.thread_id: row for row in self.of(OutputRow)}


def read(path: Path) -> Reading:
    """Open a path and read it to the end."""
    with CodexImporter().open(path) as export:
        rows = list(export.rows())
        return Reading(rows, export.warnings, export.stores, export.identity)
