"""
The tables in which Codex kept memory before stage1_outputs and jobs, until 10 February 2026.

Columns go by the names of their successors. What those lack (the scope of a memory, the attempts of a job) is kept as
extra columns.
"""

from __future__ import annotations

from typing import NoReturn

from memsvc_importers.codex_columns import Column, Raw, Table, Unfit, instant, text, whole, word
from memsvc_importers.codex_tables import JOBS


def _set_aside(raw: Raw) -> NoReturn:
    raise Unfit(f"is {raw!r}: Codex had set this memory aside")


# First one row a session, then, for some hours, one a session and scope.
THREAD_MEMORY = Table(
    name="thread_memory",
    columns=(
        Column("thread_id", word),
        Column("source_updated_at", instant),
        Column("raw_memory", text),
        Column("rollout_summary", text),
        Column("usage_count", whole, null=True),
        Column("last_usage", instant, null=True),
        Column("invalidated_at", _set_aside, null=True),
    ),
    key=("thread_id",),
    required=("thread_id", "source_updated_at", "raw_memory", "rollout_summary"),
    order=("source_updated_at", "thread_id", "scope_kind", "scope_key"),
    absent={"usage_count": None, "last_usage": None},
    renamed={
        "trace_summary": "raw_memory",
        "memory_summary": "rollout_summary",
        "updated_at": "source_updated_at",
        "used_count": "usage_count",
        "last_used_at": "last_usage",
    },
    repeats=True,
)

# Of a version that was never released.
MEMORY_SUMMARIES = Table(
    name="memory_summaries",
    columns=(Column("thread_id", word), Column("source_updated_at", instant), Column("rollout_summary", text)),
    key=("thread_id",),
    required=("thread_id", "source_updated_at", "rollout_summary"),
    order=("source_updated_at", "thread_id"),
    absent={"raw_memory": b"", "usage_count": None, "last_usage": None},
    renamed={"summary": "rollout_summary", "updated_at": "source_updated_at"},
)

MEMORIES = (THREAD_MEMORY, MEMORY_SUMMARIES)

_STATE_OF_A_JOB = tuple(column for column in JOBS.columns if column.name not in JOBS.key)
_RENAMED = {
    "owner_session_id": "worker_id",
    "failure_reason": "last_error",
    "source_updated_at": "input_watermark",
}

PHASE1 = Table(
    name="memory_phase1_jobs",
    columns=(Column("thread_id", word), Column("scope_kind", word), Column("scope_key", word), *_STATE_OF_A_JOB),
    key=("thread_id", "scope_kind", "scope_key"),
    required=("thread_id", "scope_kind", "scope_key", "status"),
    order=("thread_id", "scope_kind", "scope_key"),
    absent={**JOBS.absent, "retry_remaining": 0},
    renamed=_RENAMED,
)

PHASE2 = Table(
    name="memory_phase2_jobs",
    columns=(Column("scope_kind", word), Column("scope_key", word), *_STATE_OF_A_JOB),
    key=("scope_kind", "scope_key"),
    required=("scope_kind", "scope_key", "status"),
    order=("scope_kind", "scope_key"),
    absent={**JOBS.absent, "retry_remaining": 0},
    renamed=_RENAMED,
)

LEDGERS = (PHASE1, PHASE2)


def _state_of_the_moment(name: str, *key: str) -> Table:
    return Table(name=name, columns=(), key=key, required=(), order=key)


# Who was at work when, and on what: nothing here takes their place.
LOCKS = (
    _state_of_the_moment("memory_summary_locks", "cwd"),
    _state_of_the_moment("memory_consolidation_locks", "cwd"),
    _state_of_the_moment("memory_scope_dirty", "scope_kind", "scope_key"),
)

EARLY = (*MEMORIES, *LEDGERS, *LOCKS)
