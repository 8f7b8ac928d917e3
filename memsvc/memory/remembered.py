"""Memories that somebody said to remember, and single memories read back."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import class_row

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.errors import Conflict
from memsvc.model.memory import Kind, Origin, Status, text_hash

SQL = queries.load(__file__)


@dataclass(frozen=True)
class NewMemory:
    """
    What is to be remembered; text and context are redacted already.

    `status` is what the author may claim: the caller has decided that. A fact gets the author's word as its evidence.
    """

    scope_id: UUID
    text: str
    kind: Kind
    status: Status
    origin: Origin
    context: str = ""
    session: str | None = None
    ordinal: int | None = None
    speaker: str | None = None
    observed_at: datetime | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True)
class Remembered:
    """The memory that stands for what was said; `created` is False when it was there already."""

    id: UUID
    created: bool
    source_id: UUID
    scope_id: UUID
    text_sha256: bytes


@dataclass(frozen=True)
class Evidence:
    """One thing that supports a memory."""

    id: UUID
    kind: str
    locator: dict[str, Any]
    sha256: bytes
    quote: str | None
    added_at: datetime


@dataclass(frozen=True)
class StoredMemory:
    """One memory as it stands, with its scope's and source's names."""

    id: UUID
    text: str
    context: str
    kind: Kind
    status: Status
    origin: Origin
    scope: str
    author: str | None
    importer: str
    source: str
    store: str | None
    thread_id: str | None
    rollout_path: str | None
    source_updated_at: datetime | None
    rule_set: str | None
    session: str | None
    ordinal: int | None
    speaker: str | None
    observed_at: datetime | None
    valid_from: datetime | None
    valid_until: datetime | None
    recorded_at: datetime
    retired_at: datetime | None
    retired_because: str | None
    superseded_by: UUID | None


def remember(conn: Conn, new: NewMemory) -> Remembered:
    """
    absent -> current. The same text, in the same place of a conversation and the same scope, is one memory.

    Raises:
        Conflict: the idempotency key was used for another memory.
    """
    digest = text_hash(new.text)
    if new.idempotency_key is not None:
        before = _one(conn, "by_idempotency_key", {"idempotency_key": new.idempotency_key})
        if before is not None:
            return _same(before, new, digest)
    values = {**asdict(new), "text_sha256": digest, "evidence_sha256": hashlib.sha256(new.text.encode()).digest()}
    try:
        with conn.transaction():
            added = _one(conn, "remember", values)
    except psycopg.errors.UniqueViolation as exc:
        # Another connection used the key between the question and the insert.
        before = _one(conn, "by_idempotency_key", {"idempotency_key": new.idempotency_key})
        if before is None:
            raise Conflict("the memory exists and you may not see it", mend="choose another idempotency key") from exc
        return _same(before, new, digest)
    if added is not None:
        conn.execute(SQL["add_word"], {**values, "memory_id": added.id})
        return added
    found = _one(conn, "said_before", values)
    if found is None:
        raise Conflict("the memory was retired while it was being remembered again", mend="try again")
    return found


def _same(before: Remembered, new: NewMemory, digest: bytes) -> Remembered:
    if (before.text_sha256, before.scope_id) != (digest, new.scope_id):
        raise Conflict(
            f"the idempotency key {new.idempotency_key!r} was used for another memory ({before.id})",
            mend="use a new key for a new memory",
        )
    return before


def _one(conn: Conn, query: str, values: dict[str, Any]) -> Remembered | None:
    with conn.cursor(row_factory=class_row(Remembered)) as cursor:
        return cursor.execute(SQL[query], values).fetchone()


def get(conn: Conn, memory_id: UUID) -> StoredMemory | None:
    """One memory, current or not; None when there is none that the caller may read."""
    with conn.cursor(row_factory=class_row(StoredMemory)) as cursor:
        return cursor.execute(SQL["get"], {"id": memory_id}).fetchone()


def evidence(conn: Conn, memory_id: UUID) -> list[Evidence]:
    """What supports a memory, oldest first."""
    with conn.cursor(row_factory=class_row(Evidence)) as cursor:
        return cursor.execute(SQL["evidence"], {"id": memory_id}).fetchall()
