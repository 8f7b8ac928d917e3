"""Session metadata: Codex's threads, row for row, each in the scope of its project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.db.recordset import recordset
from memsvc.memory import originals
from memsvc.memory.digest import row_sha256
from memsvc.memory.kept import Kept, keep, secrets
from memsvc.memory.merge import ThreadVersion, compare_threads
from memsvc.memory.originals import KeptColumn
from memsvc.memory.raw import extra
from memsvc.model.export import ThreadRow
from memsvc.model.report import Outcome, Upserted

SQL = queries.load(__file__)

STORE = "state"
TABLE = "threads"


def text_of(row: ThreadRow, column: str) -> str | None:
    """One text column of an exported row, as Postgres can hold it; None where the row has none."""
    value = row.columns.get(column)
    return keep(value).text if isinstance(value, bytes) else None


def upsert(
    conn: Conn,
    source_id: UUID,
    rows: Sequence[ThreadRow],
    *,
    scopes: Mapping[str, UUID],
    from_newest: bool,
    exact: bool = True,
) -> Upserted:
    """
    Write what is new or newer: absent or older -> the given row. The result is in the order of the rows.

    Unless `exact`, secrets are cut out of the originals too.
    """
    stored = _versions(conn, source_id, rows)
    outcomes: list[Outcome] = []
    written: list[tuple[ThreadRow, dict[str, Kept], bytes]] = []
    for row in rows:
        digest = row_sha256({"found_in": row.found_in, "extra": row.extra, **row.columns})
        outcome = compare_threads(
            stored.get(row.thread_id), ThreadVersion(row.found_in, _updated_at(row), digest), from_newest=from_newest
        )
        outcomes.append(outcome)
        if outcome in ("inserted", "updated"):
            texts = {name: keep(value) for name, value in row.columns.items() if isinstance(value, bytes)}
            written.append((row, texts, digest))
    if written:
        _write(conn, source_id, written, scopes, exact)
    outcomes = _mark_deleted(conn, source_id, rows, outcomes, from_newest)
    found = [place for row, texts, _ in written for place in secrets(TABLE, row.thread_id, texts)]
    return Upserted(outcomes, found)


def _mark_deleted(
    conn: Conn, source_id: UUID, rows: Sequence[ThreadRow], outcomes: Sequence[Outcome], from_newest: bool
) -> list[Outcome]:
    """The newest export tells which sessions are deleted, also where it has no newer row of them."""
    # Without a row in the threads table, an export that does not say `deleted` says nothing.
    tells = [
        {"id": row.thread_id, "deleted": row.deleted}
        for row, outcome in zip(rows, outcomes, strict=True)
        if (row.deleted or row.found_in == "state") and (from_newest or outcome == "inserted")
    ]
    if not tells:
        return list(outcomes)
    marked = {row[0] for row in conn.execute(SQL["mark"], {"source_id": source_id, "rows": recordset(tells)})}
    return [
        "updated" if row.thread_id in marked and outcome != "inserted" else outcome
        for row, outcome in zip(rows, outcomes, strict=True)
    ]


def scopes_of(conn: Conn, source_id: UUID, thread_ids: Sequence[str]) -> dict[str, UUID]:
    """The scope of each thread that is known."""
    found = conn.execute(SQL["scopes_of"], {"source_id": source_id, "thread_ids": list(thread_ids)}).fetchall()
    return dict(found)


def _write(
    conn: Conn,
    source_id: UUID,
    written: Sequence[tuple[ThreadRow, dict[str, Kept], bytes]],
    scopes: Mapping[str, UUID],
    exact: bool,
) -> None:
    rows = [
        {
            **row.columns,
            **{name: kept.text for name, kept in texts.items()},
            "id": row.thread_id,
            "scope_id": scopes[row.thread_id],
            "found_in": row.found_in,
            "extra": extra(row.extra),
            "row_sha256": digest,
        }
        for row, texts, digest in written
    ]
    conn.execute(SQL["upsert"], {"source_id": source_id, "rows": recordset(rows)})
    originals.replace(
        conn,
        source_id,
        (
            KeptColumn(STORE, TABLE, row.thread_id, name, kept)
            for row, texts, _ in written
            for name, kept in texts.items()
        ),
        exact=exact,
    )


def _versions(conn: Conn, source_id: UUID, rows: Sequence[ThreadRow]) -> dict[str, ThreadVersion]:
    ids = [row.thread_id for row in rows]
    found = conn.execute(SQL["versions"], {"source_id": source_id, "thread_ids": ids}).fetchall()
    return {thread_id: ThreadVersion(*version) for thread_id, *version in found}


def _updated_at(row: ThreadRow) -> datetime | None:
    value = row.columns.get("updated_at")
    return value if isinstance(value, datetime) else None
