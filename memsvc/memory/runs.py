"""Import runs: how far an import came, what it could not take, and what a person should know of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.db.recordset import recordset
from memsvc.memory.digest import row_sha256
from memsvc.memory.kept import as_text, redacted
from memsvc.memory.raw import raw
from memsvc.model.export import ProgressRow, Rejected, Scalar

SQL = queries.load(__file__)


@dataclass(frozen=True)
class Run:
    """One run of an importer: running, complete, or interrupted, which is a run without an end that nobody is at."""

    id: UUID
    source: str
    path: str
    status: str
    last_watermark: str | None
    last_success_at: datetime | None
    counts: dict[str, Any]
    failures: list[Any]
    warnings: list[str]
    started_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class Earlier:
    """A complete run, and the state that it left its source in."""

    source_id: UUID
    label: str
    stores: list[str]
    counts: dict[str, dict[str, int]]
    failures: list[dict[str, str]]
    warnings: list[str]
    state_sha256: bytes


def start(conn: Conn, source_id: UUID, path: str) -> UUID:
    """A new run, running."""
    row = conn.execute(SQL["start"], {"source_id": source_id, "path": path}).fetchone()
    assert row is not None  # noqa: S101 - an insert returns its row
    return UUID(str(row[0]))


def checkpoint(conn: Conn, run_id: UUID, watermark: str, counts: Mapping[str, Any]) -> None:
    """Move the watermark; call it in the transaction that writes the batch."""
    conn.execute(SQL["checkpoint"], {"run_id": run_id, "watermark": watermark, "counts": Jsonb(dict(counts))})


def finish(
    conn: Conn, run_id: UUID, counts: Mapping[str, Any], *, failures: Sequence[object], warnings: Sequence[str]
) -> None:
    """running -> complete."""
    conn.execute(
        SQL["finish"],
        {
            "run_id": run_id,
            "counts": Jsonb(dict(counts)),
            "failures": Jsonb(list(failures)),
            "warnings": Jsonb(list(warnings)),
        },
    )


def remember_state(conn: Conn, run_id: UUID, request: bytes, state: bytes, stores: Sequence[str]) -> None:
    """What a complete run was asked to do, and the state that it leaves the source in."""
    conn.execute(SQL["remember_state"], {"run_id": run_id, "request": request, "state": state, "stores": list(stores)})


def earlier(conn: Conn, request: bytes) -> Earlier | None:
    """The last run that was asked the same."""
    with conn.cursor(row_factory=class_row(Earlier)) as cursor:
        return cursor.execute(SQL["earlier"], {"request": request}).fetchone()


def state_sha256(conn: Conn, source_id: UUID) -> bytes:
    """A hash over all that decides what an import does with its rows."""
    row = conn.execute(SQL["state"], {"source_id": source_id}).fetchone()
    return bytes(row[0]) if row else b""


def recent(conn: Conn, *, limit: int = 20) -> list[Run]:
    """The last runs, newest first."""
    with conn.cursor(row_factory=class_row(Run)) as cursor:
        return cursor.execute(SQL["recent"], {"limit": limit}).fetchall()


def reject(conn: Conn, source_id: UUID, rows: Sequence[Rejected], *, exact: bool = True) -> None:
    """
    Keep the raw values of rows that no table can take; a row that was kept before stays as it is.

    Unless `exact`, secrets are cut out of them, and out of what was kept before.
    """
    given = [
        {
            "store": row.store,
            "table_name": row.table,
            "row_key": as_text(row.key),
            "reason": as_text(row.reason),
            "row_sha256": row_sha256(row.values),
            "row_values": {name: raw(value if exact else _cut(value)) for name, value in row.values.items()},
        }
        for row in rows
    ]
    conn.execute(SQL["reject"], {"source_id": source_id, "exact": exact, "rows": recordset(given)})


def _cut(value: Scalar | bytes) -> Scalar | bytes:
    if isinstance(value, str):
        return as_text(value)
    return redacted(value) if isinstance(value, bytes) else value


def progress(conn: Conn, source_id: UUID, rows: Sequence[ProgressRow]) -> None:
    """Codex's consolidation progress of each store; like Codex's own it only grows here."""
    conn.execute(
        SQL["progress"],
        {
            "source_id": source_id,
            "rows": recordset({"store": r.store, "max_thread_count": r.max_thread_count} for r in rows),
        },
    )
