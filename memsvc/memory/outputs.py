"""Session outputs: Codex's stage1_outputs, row for row, merged over many exports of one home."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import class_row

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.db.recordset import recordset
from memsvc.memory import originals
from memsvc.memory.digest import row_sha256
from memsvc.memory.kept import NOTHING, Kept, keep, secrets
from memsvc.memory.merge import OutputVersion, compare_outputs
from memsvc.memory.originals import KeptColumn
from memsvc.memory.raw import extra
from memsvc.model.export import OutputRow
from memsvc.model.report import Outcome, SecretPlace

SQL = queries.load(__file__)

TABLE = "stage1_outputs"


@dataclass(frozen=True)
class StoredOutput:
    """A session output as it stands in the table: what memories are derived from."""

    store: str
    thread_id: str
    scope_id: UUID
    raw_memory: str
    rollout_summary: str


@dataclass(frozen=True)
class Imported:
    """
    What became of one row.

    `output` is what to derive from, None where the stored text stays what it was. `secrets` are those cut out of a text
    that is new.
    """

    outcome: Outcome
    output: StoredOutput | None
    secrets: Sequence[SecretPlace] = ()


def upsert(
    conn: Conn,
    source_id: UUID,
    rows: Sequence[OutputRow],
    *,
    scopes: Mapping[str, UUID],
    from_newest: bool,
    exact: bool = True,
) -> list[Imported]:
    """
    Write what is new or newer: absent or older -> the given row; counters never fall, flags follow the newest export.

    `scopes` gives the scope of each thread. Unless `exact`, secrets are cut out of the originals too.
    The result is in the order of the rows.
    """
    stored = _versions(conn, source_id, rows)
    written: list[tuple[OutputRow, dict[str, Kept], bytes]] = []
    older: list[OutputRow] = []
    results: list[Imported] = []
    for row in rows:
        digest = row_sha256(vars(row))
        given = OutputVersion(row.source_updated_at, row.generated_at, _content_sha256(row), digest)
        before = stored.get((row.store, row.thread_id))
        outcome = compare_outputs(before, given, from_newest=from_newest)
        changed = outcome == "inserted" or (
            outcome == "updated" and before is not None and before.content_sha256 != given.content_sha256
        )
        if outcome in ("unchanged", "older"):
            results.append(Imported(outcome, None))
            older += [row] if outcome == "older" else []
            continue
        texts = _texts(row)
        written.append((row, texts, digest))
        output = StoredOutput(
            row.store, row.thread_id, scopes[row.thread_id], texts["raw_memory"].text, texts["rollout_summary"].text
        )
        found = secrets(TABLE, row.thread_id, texts)
        results.append(Imported(outcome, output if changed else None, found if changed else ()))
    _write(conn, source_id, written, scopes, from_newest, exact)
    _raise_counters(conn, source_id, older)
    return results


def _raise_counters(conn: Conn, source_id: UUID, older: Sequence[OutputRow]) -> None:
    """An older row may come from a home where the output was used more often; that much of it holds."""
    rows = [{name: getattr(row, name) for name in ("store", "thread_id", "usage_count", "last_usage")} for row in older]
    if rows:
        conn.execute(SQL["raise_counters"], {"source_id": source_id, "rows": recordset(rows)})


def _write(
    conn: Conn,
    source_id: UUID,
    written: Sequence[tuple[OutputRow, dict[str, Kept], bytes]],
    scopes: Mapping[str, UUID],
    from_newest: bool,
    exact: bool,
) -> None:
    if not written:
        return
    conn.execute(
        SQL["upsert"],
        {
            "source_id": source_id,
            "from_newest": from_newest,
            "rows": recordset(_columns(row, texts, digest, scopes[row.thread_id]) for row, texts, digest in written),
        },
    )
    originals.replace(
        conn,
        source_id,
        (
            KeptColumn(row.store, TABLE, row.thread_id, column, kept)
            for row, texts, _ in written
            for column, kept in {"rollout_slug": NOTHING, **texts}.items()
        ),
        exact=exact,
    )


def _columns(row: OutputRow, texts: Mapping[str, Kept], digest: bytes, scope_id: UUID) -> dict[str, object]:
    return {
        **vars(row),
        **{column: kept.text for column, kept in texts.items()},
        "scope_id": scope_id,
        "extra": extra(row.extra),
        "raw_memory_sha256": texts["raw_memory"].sha256,
        "rollout_summary_sha256": texts["rollout_summary"].sha256,
        "row_sha256": digest,
    }


def _texts(row: OutputRow) -> dict[str, Kept]:
    texts = {"raw_memory": keep(row.raw_memory), "rollout_summary": keep(row.rollout_summary)}
    if row.rollout_slug is not None:
        texts["rollout_slug"] = keep(row.rollout_slug)
    return texts


def _content_sha256(row: OutputRow) -> bytes:
    """Over the two texts as `versions` computes it from the stored hashes."""
    return hashlib.sha256(
        hashlib.sha256(row.raw_memory).digest() + hashlib.sha256(row.rollout_summary).digest()
    ).digest()


def _versions(conn: Conn, source_id: UUID, rows: Sequence[OutputRow]) -> dict[tuple[str, str], OutputVersion]:
    keys = recordset({"store": row.store, "thread_id": row.thread_id} for row in rows)
    found = conn.execute(SQL["versions"], {"source_id": source_id, "keys": keys}).fetchall()
    return {(store, thread_id): OutputVersion(*version) for store, thread_id, *version in found}


def move(conn: Conn, source_id: UUID, scopes: Mapping[str, UUID]) -> list[StoredOutput]:
    """Put the outputs of threads whose project turned out to be another one there; returns those that moved."""
    rows = recordset({"thread_id": thread_id, "scope_id": scope_id} for thread_id, scope_id in scopes.items())
    with conn.cursor(row_factory=class_row(StoredOutput)) as cursor:
        return cursor.execute(SQL["move"], {"source_id": source_id, "rows": rows}).fetchall()
