"""Files of a home that have no table of their own, kept byte for byte. Admins only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from uuid import UUID

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.memory.kept import redacted
from memsvc.model.export import FileRow
from memsvc.model.report import Outcome

SQL = queries.load(__file__)


def upsert(
    conn: Conn, source_id: UUID, rows: Sequence[FileRow], *, from_newest: bool, exact: bool = True
) -> list[Outcome]:
    """
    Write files that are new or changed; an older export changes none. The result is in the order of the rows.

    Unless `exact`, secrets are cut out of them first.
    """
    paths = [row.path for row in rows]
    known: dict[str, bytes] = dict(conn.execute(SQL["hashes"], {"source_id": source_id, "paths": paths}).fetchall())
    outcomes: list[Outcome] = []
    written: list[dict[str, object]] = []
    for row in rows:
        content = row.content if exact else redacted(row.content)
        digest = hashlib.sha256(content).digest()
        outcome = _outcome(known.get(row.path), digest, from_newest)
        outcomes.append(outcome)
        if outcome in ("inserted", "updated"):
            written.append({"source_id": source_id, "path": row.path, "sha256": digest, "content": content})
    with conn.cursor() as cursor:
        cursor.executemany(SQL["upsert"], written)
    return outcomes


def heads(conn: Conn, source_id: UUID, paths: Sequence[str]) -> dict[str, bytes]:
    """The first 4096 bytes of the files that there are, by path."""
    return dict(conn.execute(SQL["heads"], {"source_id": source_id, "paths": list(paths)}).fetchall())


def _outcome(stored: bytes | None, given: bytes, from_newest: bool) -> Outcome:
    if stored is None:
        return "inserted"
    if stored == given:
        return "unchanged"
    return "updated" if from_newest else "older"
