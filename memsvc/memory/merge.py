"""Which of two versions of an imported row holds: the order of imports must not matter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from memsvc.model.report import Outcome

LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class OutputVersion:
    """What decides between two versions of one session output."""

    source_updated_at: datetime
    generated_at: datetime
    content_sha256: bytes
    row_sha256: bytes


def compare_outputs(stored: OutputVersion | None, given: OutputVersion, *, from_newest: bool) -> Outcome:
    """
    A larger source_updated_at holds, ties by generated_at; equal times with other texts by hash, so that two machines
    agree.

    The same version with other counters or flags is `updated` by a newer export: the store merges them column by
    column.
    """
    if stored is None:
        return "inserted"
    if stored.row_sha256 == given.row_sha256:
        return "unchanged"
    mine, theirs = _output_rank(given), _output_rank(stored)
    return "updated" if mine > theirs or (mine == theirs and from_newest) else "older"


def _output_rank(version: OutputVersion) -> tuple[datetime, datetime, bytes]:
    return version.source_updated_at, version.generated_at, version.content_sha256


@dataclass(frozen=True)
class JobVersion:
    """What decides between two versions of one job of an export."""

    started_at: datetime | None
    finished_at: datetime | None
    input_watermark: int | None
    row_sha256: bytes


def compare_jobs(stored: JobVersion | None, given: JobVersion, *, from_newest: bool) -> Outcome:
    """A later start or finish holds, then the larger input watermark, then the newer export."""
    if stored is None:
        return "inserted"
    if stored.row_sha256 == given.row_sha256:
        return "unchanged"
    mine, theirs = _job_rank(given), _job_rank(stored)
    return "updated" if mine > theirs or (mine == theirs and from_newest) else "older"


def _job_rank(version: JobVersion) -> tuple[datetime, int]:
    at = max(version.started_at or LONG_AGO, version.finished_at or LONG_AGO)
    return at, -1 if version.input_watermark is None else version.input_watermark


@dataclass(frozen=True)
class ThreadVersion:
    """What decides between two versions of one thread."""

    found_in: Literal["state", "summary", "front_matter"]
    updated_at: datetime | None
    row_sha256: bytes


def compare_threads(stored: ThreadVersion | None, given: ThreadVersion, *, from_newest: bool) -> Outcome:
    """
    A row of Codex's own table outranks a trace of the thread; then a later updated_at holds, then the newer export.
    """
    if stored is None:
        return "inserted"
    if stored.row_sha256 == given.row_sha256:
        return "unchanged"
    mine, theirs = _thread_rank(given), _thread_rank(stored)
    return "updated" if mine > theirs or (mine == theirs and from_newest) else "older"


def _thread_rank(version: ThreadVersion) -> tuple[int, datetime]:
    return ("front_matter", "summary", "state").index(version.found_in), version.updated_at or LONG_AGO
