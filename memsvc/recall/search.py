"""One recall: a single statement from query and vector to ranked memories and the coverage they were found with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pgvector import HalfVector
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.model.memory import Kind, Status

SQL = queries.load(__file__)


@dataclass(frozen=True)
class Ranks:
    """The place of a hit in each arm, from 1; None where the arm did not find it among its candidates."""

    vector: int | None
    text: int | None
    recency: int | None


@dataclass(frozen=True)
class Parts:
    """What a hit was found by: the cosine of its own vector, None without one, and the weight of its own words."""

    vector: float | None
    text: float


@dataclass(frozen=True)
class Wanted:
    """
    Which memories a question asks for; None and empty ask for any.

    `since` and `until` compare with when a memory was said, until excluded. `hidden` asks also for sessions that Codex
    itself does not use: deleted, disabled or polluted ones.
    """

    kinds: tuple[Kind, ...] = ()
    statuses: tuple[Status, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    hidden: bool = False


@dataclass(frozen=True)
class Origin:
    """
    Where a hit was said: enough to look again.

    `path` is the session's log as its tool names it, None when unknown; `lines` says which lines of which column of the
    session output, or of which file of the home, hold the statement.
    """

    importer: str
    label: str
    thread_id: str | None
    path: str | None
    lines: str | None


@dataclass(frozen=True)
class Hit:
    """One recalled memory. `score` is the fused score, comparable inside one answer only."""

    id: UUID
    text: str
    context: str
    kind: str
    status: str
    scope: str
    score: float
    ranks: Ranks
    parts: Parts
    source: Origin
    author: str | None
    recorded_at: datetime
    source_updated_at: datetime | None


@dataclass(frozen=True)
class Coverage:
    """
    Of the current memories in the searched scopes: how many have vectors, how many there are.

    Hidden ones count where the question asked for them.
    """

    embedded: int
    total: int


def nearest(
    conn: Conn,
    query: str,
    vector: Sequence[float] | None,
    *,
    model: str,
    scopes: Sequence[UUID],
    limit: int,
    wanted: Wanted = Wanted(),
) -> tuple[list[Hit], Coverage]:
    """
    The best memories of these scopes, best first.

    `vector` is the embedded query, None to go by text and recency alone. Only what the caller may read is found,
    whatever `scopes` says.
    """
    values = {
        "query": query,
        "vector": None if vector is None else HalfVector(list(vector)).to_text(),
        "model": model,
        "scopes": list(scopes),
        "limit": limit,
        "wanted": Jsonb(_asked(wanted)),
        "hidden": wanted.hidden,
    }
    with conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(SQL["nearest"], values).fetchall()
    coverage = Coverage(rows[0]["embedded"], rows[0]["total"]) if rows else Coverage(0, 0)
    return [_hit(row) for row in rows if row["id"] is not None], coverage


def _asked(wanted: Wanted) -> dict[str, object]:
    """As memsvc.asks_for reads it: what is absent asks for anything."""
    asked: dict[str, object] = {
        "kinds": list(wanted.kinds),
        "statuses": list(wanted.statuses),
        "since": wanted.since and wanted.since.isoformat(),
        "until": wanted.until and wanted.until.isoformat(),
        "hidden": wanted.hidden,
    }
    return {name: value for name, value in asked.items() if value}


def _hit(row: dict[str, Any]) -> Hit:
    return Hit(
        id=row["id"],
        text=row["text"],
        context=row["context"],
        kind=row["kind"],
        status=row["status"],
        scope=row["scope"],
        score=row["score"],
        ranks=Ranks(row["vector_rank"], row["text_rank"], row["recency_rank"]),
        parts=Parts(row["vector_score"], row["text_score"]),
        source=Origin(row["importer"], row["label"], row["thread_id"], row["rollout_path"], _lines(row["locator"])),
        author=row["author"],
        recorded_at=row["recorded_at"],
        source_updated_at=row["source_updated_at"],
    )


def _lines(locator: dict[str, Any] | None) -> str | None:
    if not locator or "lines" not in locator:
        return None
    where, (first, last) = locator.get("path") or locator["column"], locator["lines"]
    return f"{where} {first}" if first == last else f"{where} {first}-{last}"


def coverage(conn: Conn, *, model: str, scopes: Sequence[UUID]) -> Coverage:
    """How much of these scopes can be found by meaning."""
    row = conn.execute(SQL["coverage"], {"model": model, "scopes": list(scopes)}).fetchone()
    return Coverage(*row) if row else Coverage(0, 0)
