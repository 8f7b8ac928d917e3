"""Chunks of memories and their vectors, several models side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pgvector import HalfVector
from psycopg.rows import class_row

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.db.recordset import recordsets
from memsvc.embedding.embedder import Embedder, Vector
from memsvc.errors import Conflict

SQL = queries.load(__file__)

# Few enough that a statement stays small, whatever the model's dimension.
VECTORS_AT_ONCE = 200


@dataclass(frozen=True)
class Unembedded:
    """A memory that has no vectors of a model yet, with what goes into its embedding."""

    id: UUID
    scope_id: UUID
    text: str
    context: str
    speaker: str | None
    observed_at: datetime | None


@dataclass(frozen=True)
class Turn:
    """What a neighbour in a conversation says; `speaker` is None for a line of a session output."""

    id: UUID
    speaker: str | None
    text: str


@dataclass(frozen=True)
class Window:
    """A memory between its neighbours; `known_sha256` is of the window that has a vector of the model, None without."""

    id: UUID
    scope_id: UUID
    text: str
    context: str
    speaker: str | None
    observed_at: datetime | None
    before: Turn | None
    after: Turn | None
    known_sha256: bytes | None


@dataclass(frozen=True)
class EmbeddedChunk:
    """
    One chunk with its vector; offsets count characters, end excluded.

    Of the view `own` they count in the memory's text, of `window` in the text of it and its neighbours, the `members`.
    """

    memory_id: UUID
    scope_id: UUID
    starts_at: int
    ends_at: int
    text_sha256: bytes
    vector: Vector
    view: Literal["own", "window"] = "own"
    members: tuple[UUID, ...] = ()


@dataclass(frozen=True)
class ModelCoverage:
    """A model that has or had vectors here: of `total` memories that recall searches, `embedded` have some."""

    name: str
    dimension: int
    embedded: int
    total: int


@dataclass(frozen=True)
class Beyond:
    """What has no vectors because its output has as many chunks as one may have."""

    outputs: int
    memories: int


def register(conn: Conn, embedder: Embedder) -> None:
    """
    Make the model known to the tenant.

    Raises:
        Conflict: a model of that name has another dimension.
    """
    values = {"name": embedder.model, "dimension": embedder.dimension, "max_tokens": embedder.max_tokens}
    row = conn.execute(SQL["dimension_of"], values).fetchone()
    if row is None:
        conn.execute(SQL["register"], values)
    elif row[0] != embedder.dimension:
        raise Conflict(
            f"the model {embedder.model!r} is recorded with {row[0]} dimensions and gives {embedder.dimension}",
            mend="name the model differently, or use the one that was recorded",
        )


def is_known(conn: Conn, model: str) -> bool:
    """Has the tenant heard of a model of that name?"""
    return conn.execute(SQL["dimension_of"], {"name": model}).fetchone() is not None


def unembedded_of_output(conn: Conn, model: str, source_id: UUID, store: str, document: str) -> list[Unembedded]:
    """Current memories of one session output that have no vectors of the model."""
    values = {"model": model, "source_id": source_id, "store": store, "document": document}
    with conn.cursor(row_factory=class_row(Unembedded)) as cursor:
        return cursor.execute(SQL["unembedded_of_output"], values).fetchall()


def count_of_output(conn: Conn, model: str, source_id: UUID, store: str, document: str) -> int:
    """How many chunks the current memories of one session output have vectors of the model for."""
    values = {"model": model, "source_id": source_id, "store": store, "document": document}
    row = conn.execute(SQL["count_of_output"], values).fetchone()
    return int(row[0]) if row else 0


def unembedded_memory(conn: Conn, model: str, memory_id: UUID) -> list[Unembedded]:
    """The memory of this id, if it is current and has no vectors of the model."""
    with conn.cursor(row_factory=class_row(Unembedded)) as cursor:
        return cursor.execute(SQL["unembedded_memory"], {"model": model, "memory_id": memory_id}).fetchall()


def write(conn: Conn, model: str, chunks: Sequence[EmbeddedChunk]) -> None:
    """
    Store chunks with their vectors; those that are there already stay.

    A window that says something else now takes the old one's place; one of whose members was retired meanwhile is left
    out.
    """
    members = sorted({member for chunk in chunks for member in chunk.members})
    standing = {row[0] for row in conn.execute(SQL["standing"], {"ids": members})} if members else set()
    kept = [chunk for chunk in chunks if standing.issuperset(chunk.members)]
    windows = [_place(chunk) for chunk in kept if chunk.view == "window"]
    for some in recordsets(windows):
        values = {"model": model, "windows": some}
        conn.execute(SQL["drop_window_vectors"], values)
        conn.execute(SQL["drop_windows"], values)
    for some in recordsets(map(_with_vector, kept), at_once=VECTORS_AT_ONCE):
        conn.execute(SQL["add"], {"model": model, "rows": some})


def _place(chunk: EmbeddedChunk) -> dict[str, object]:
    return {
        "scope_id": chunk.scope_id,
        "memory_id": chunk.memory_id,
        "view": chunk.view,
        "starts_at": chunk.starts_at,
        "ends_at": chunk.ends_at,
        "text_sha256": chunk.text_sha256,
    }


def _with_vector(chunk: EmbeddedChunk) -> dict[str, object]:
    return {**_place(chunk), "dimension": len(chunk.vector), "embedding": HalfVector(chunk.vector).to_text()}


def windows_of_output(conn: Conn, model: str, source_id: UUID, store: str, document: str) -> list[Window]:
    """The current memories of one session output, each between its neighbours."""
    return _windows(conn, model, source_id=source_id, store=store, document=document)


def windows_at_memory(conn: Conn, model: str, memory_id: UUID) -> list[Window]:
    """A memory of a conversation and its neighbours, each between its own neighbours."""
    return _windows(conn, model, memory_id=memory_id)


def _windows(
    conn: Conn,
    model: str,
    *,
    source_id: UUID | None = None,
    store: str | None = None,
    document: str | None = None,
    memory_id: UUID | None = None,
) -> list[Window]:
    values = {"model": model, "source_id": source_id, "store": store, "document": document, "memory_id": memory_id}
    found = conn.execute(SQL["windows"], values).fetchall()
    return [_window(*row) for row in found]


def _window(*row: Any) -> Window:
    memory_id, scope_id, text, context, speaker, observed_at, *around, known_sha256 = row
    before, after = _turn(*around[:3]), _turn(*around[3:])
    return Window(memory_id, scope_id, text, context, speaker, observed_at, before, after, known_sha256)


def _turn(memory_id: UUID | None, speaker: str | None, text: str | None) -> Turn | None:
    return None if memory_id is None or text is None else Turn(memory_id, speaker, text)


def missing(conn: Conn, model: str) -> int:
    """How many current memories have no vectors of the model."""
    row = conn.execute(SQL["missing"], {"model": model}).fetchone()
    return int(row[0]) if row else 0


def lacking(conn: Conn, model: str, *, any_model: str, this_model: str, limit: int) -> list[tuple[UUID, str, UUID]]:
    """
    Source, key and scope of embedding jobs that would bring the model vectors that it lacks, at most `limit`.

    `any_model` and `this_model` are kinds of jobs: what is done with whichever model is at hand, and with this one.
    """
    values = {"model": model, "any_model": any_model, "this_model": this_model, "limit": limit}
    return conn.execute(SQL["lacking"], values).fetchall()


def beyond(conn: Conn, model: str, *, most: int) -> Beyond:
    """What is found by its words only because its output has `most` chunks already."""
    row = conn.execute(SQL["beyond"], {"model": model, "most": most}).fetchone()
    return Beyond(*row) if row else Beyond(0, 0)


def models(conn: Conn, scopes: Sequence[UUID]) -> list[ModelCoverage]:
    """Every model that is known, with its coverage of these scopes."""
    with conn.cursor(row_factory=class_row(ModelCoverage)) as cursor:
        return cursor.execute(SQL["models"], {"scopes": list(scopes)}).fetchall()


def count(conn: Conn, model: str) -> int:
    """How many vectors of the model there are."""
    row = conn.execute(SQL["count_vectors"], {"model": model}).fetchone()
    return int(row[0]) if row else 0


def drop_some(conn: Conn, model: str, *, most: int) -> int:
    """Delete at most so many vectors of the model and say how many; with the last call, which says 0, it is unknown."""
    row = conn.execute(SQL["drop_some"], {"model": model, "most": most}).fetchone()
    return int(row[0]) if row else 0
