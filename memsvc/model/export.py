"""
Rows of another tool's memory, as read and before anything is decided about them.

Texts are the bytes that the export holds: what Postgres can keep of them is the store's business. Instants are
timezone-aware; watermarks are plain numbers, since Codex's global one is a counter and not a date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class ThreadRow:
    """
    One session's metadata.

    `found_in` says how it is known: `state` (a row of Codex's threads table), `summary` (the header of a file in
    rollout_summaries/) or `front_matter` (at most the cwd, from raw_memory). `columns` holds the exported columns by
    their own names, times in seconds turned into datetimes, `*_ms` left as numbers; `extra` holds those not known.
    `deleted`: the export holds the whole threads table, and this session is not in it.
    """

    thread_id: str
    found_in: Literal["state", "summary", "front_matter"]
    columns: Mapping[str, bytes | int | datetime | None]
    extra: Mapping[str, Scalar | bytes] = field(default_factory=dict)
    deleted: bool = False


@dataclass(frozen=True)
class OutputRow:
    """
    One row of Codex's stage1_outputs, column for column.

    `store` is the database it came from: `state_5`, `v1` (memories_1) or `v2` (memories_v2_1), where raw_memory is
    empty. A None usage_count means never cited. `selected_for_phase2` keeps the exported number.
    """

    store: str
    thread_id: str
    source_updated_at: datetime
    raw_memory: bytes
    rollout_summary: bytes
    rollout_slug: bytes | None
    generated_at: datetime
    usage_count: int | None
    last_usage: datetime | None
    selected_for_phase2: int
    selected_for_phase2_source_updated_at: datetime | None
    extra: Mapping[str, Scalar | bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class JobRow:
    """One row of Codex's jobs, column for column: history, never work."""

    store: str
    kind: str
    job_key: str
    status: str
    worker_id: str | None
    ownership_token: str | None
    started_at: datetime | None
    finished_at: datetime | None
    lease_until: datetime | None
    retry_at: datetime | None
    retry_remaining: int
    last_error: bytes | None
    input_watermark: int | None
    last_success_watermark: int | None
    extra: Mapping[str, Scalar | bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class ProgressRow:
    """Codex's singleton consolidation_progress of one store."""

    store: str
    max_thread_count: int


@dataclass(frozen=True)
class FileRow:
    """A file that has no table of its own (Markdown, skills, notes); `path` is relative to the home, with slashes."""

    path: str
    content: bytes


@dataclass(frozen=True)
class Rejected:
    """A row that no table can take: its key where it has one, the values as exported, and why."""

    store: str
    table: str
    key: str
    reason: str
    values: Mapping[str, Scalar | bytes]


Row = ThreadRow | OutputRow | JobRow | ProgressRow | FileRow | Rejected


@dataclass(frozen=True)
class Identity:
    """
    What tells one home from another: the thread ids it holds and the folder that its rollout paths lie in.

    `home` is None where no rollout path is known. `exported_at` is the newest instant found in the export, None when it
    is empty: of two exports of one home, the one with the later instant is the newer.
    """

    thread_ids: frozenset[str]
    home: str | None
    exported_at: datetime | None
