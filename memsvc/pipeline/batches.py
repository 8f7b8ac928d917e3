"""Rows of an export in batches: one type each, small enough that a transaction stays short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from memsvc.model.export import FileRow, JobRow, OutputRow, ProgressRow, Rejected, Row, ThreadRow

ROWS = 200
BYTES = 8 * 1024 * 1024


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows in their order, never two types together, at most 200 rows and about 8 MiB of text at a time."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        if batch and (type(row) is not type(batch[0]) or len(batch) >= ROWS or size >= BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += _size(row)
    if batch:
        yield batch


def watermark(row: Row) -> str:
    """Where in an export a row stands, as a person can read it."""
    match row:
        case ThreadRow():
            return f"threads/{row.thread_id}"
        case OutputRow():
            return f"{row.store}/stage1_outputs/{row.thread_id}"
        case JobRow():
            return f"{row.store}/jobs/{row.kind}/{row.job_key}"
        case ProgressRow():
            return f"{row.store}/consolidation_progress"
        case FileRow():
            return f"files/{row.path}"
        case Rejected():
            return f"{row.store}/{row.table}/{row.key}"


def _size(row: Row) -> int:
    match row:
        case OutputRow() | JobRow():
            return _texts(vars(row)) + _texts(row.extra)
        case FileRow():
            return len(row.content)
        case ThreadRow():
            return _texts(row.columns) + _texts(row.extra)
        case Rejected():
            return _texts(row.values)
        case ProgressRow():
            return 0


def _texts(values: Mapping[str, object]) -> int:
    return sum(len(value) for value in values.values() if isinstance(value, str | bytes))
