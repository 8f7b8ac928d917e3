"""
Memories derived from session outputs and from files of consolidated memory: what the derivation finds now, set against
what it found before.

A derived row's id is made of what it says and where it was said, so that deriving again gives the same rows.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from uuid import UUID, uuid5

from psycopg.rows import class_row

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.db.recordset import recordset, recordsets
from memsvc.derivation import handbook
from memsvc.derivation.derive import RULES, derive
from memsvc.memory.handbooks import StoredFile
from memsvc.memory.outputs import StoredOutput
from memsvc.model.memory import Statement, text_hash
from memsvc.model.principal import Actor

SQL = queries.load(__file__)

# RFC 9562 version 5 under a namespace of our own.
NAMESPACE = UUID("6f1d1f0a-9c1e-5b52-8f0e-6d656d737663")


@dataclass(frozen=True)
class KnownMemory:
    """A derived memory as it stands: enough to say whether a line of today is the same one."""

    id: UUID
    store: str
    document: str
    thread_id: str | None
    text_sha256: bytes
    occurrence: int
    life: int
    kind: str
    status: str
    context: str
    scope_id: UUID
    is_retired: bool
    was_decided: bool


@dataclass(frozen=True)
class FoundMemory:
    """
    A line that the derivation finds, with the life it is in and its place among the lines, from 1.

    `thread_id` is the session that said it; None where a file names none or several.
    """

    id: UUID
    output: StoredOutput | StoredFile
    statement: Statement
    scope_id: UUID
    thread_id: str | None
    text_sha256: bytes
    occurrence: int
    life: int
    ordinal: int


@dataclass(frozen=True)
class Changes:
    """What has to be written so that the memories of the outputs are those found now."""

    added: list[FoundMemory]
    stayed: list[FoundMemory]
    retired: list[tuple[UUID, UUID | None]]


def document(given: StoredOutput | StoredFile) -> str:
    """What a line was found in, inside its store: an output's thread or a file's path."""
    return given.path if isinstance(given, StoredFile) else given.thread_id


def reconcile(conn: Conn, actor: Actor, source_id: UUID, given: Sequence[StoredOutput | StoredFile]) -> Changes:
    """
    Make the derived memories of these outputs and files what `derive` finds in them now.

    A line that stays keeps its row, only its place is brought up to date; one that is gone is retired; one that comes
    back or is classified anew starts its next life, which supersedes the last. What a person retired stays retired.
    """
    known = _known(conn, source_id, given)
    projects = _projects(conn, source_id, given)
    added: list[FoundMemory] = []
    stayed: list[FoundMemory] = []
    retired: list[tuple[UUID, UUID | None]] = []
    for output in given:
        changes = compare(
            actor.tenant_id,
            source_id,
            output,
            known[output.store, document(output)],
            project=projects.get(document(output), ""),
        )
        added += changes.added
        stayed += changes.stayed
        retired += changes.retired
    changes = Changes(added, stayed, retired)
    _write(conn, actor, source_id, changes)
    return changes


def count_current(conn: Conn, source_id: UUID) -> int:
    """How many derived memories of the source are not retired."""
    row = conn.execute(SQL["count_current"], {"source_id": source_id}).fetchone()
    return int(row[0]) if row else 0


def compare(
    tenant_id: UUID,
    source_id: UUID,
    output: StoredOutput | StoredFile,
    known: Iterable[KnownMemory],
    *,
    project: str = "",
) -> Changes:
    """Pure: what the derivation finds in one output or file against the rows that are known of it."""
    lives: dict[tuple[bytes, int], list[KnownMemory]] = defaultdict(list)
    for memory in sorted(known, key=lambda m: m.life):
        lives[memory.text_sha256, memory.occurrence].append(memory)
    changes = Changes([], [], [])
    seen: dict[bytes, int] = defaultdict(int)
    for ordinal, (statement, scope_id, thread_id) in enumerate(_lines(output, project), start=1):
        digest = text_hash(statement.text)
        occurrence = seen[digest]
        seen[digest] += 1
        past = lives.pop((digest, occurrence), [])
        found = FoundMemory(UUID(int=0), output, statement, scope_id, thread_id, digest, occurrence, 0, ordinal)
        _place(changes, tenant_id, source_id, found, past)
    changes.retired.extend((past[-1].id, None) for past in lives.values() if not past[-1].is_retired)
    return changes


def _lines(output: StoredOutput | StoredFile, project: str) -> Iterator[tuple[Statement, UUID, str | None]]:
    """Each statement with its scope and the session that said it."""
    if isinstance(output, StoredFile):
        for line in output.lines:
            yield line.statement, line.scope_id, line.threads[0] if len(line.threads) == 1 else None
        return
    for statement in derive(output.raw_memory, output.rollout_summary, project=project):
        yield statement, output.scope_id, output.thread_id


def _place(changes: Changes, tenant_id: UUID, source_id: UUID, found: FoundMemory, past: Sequence[KnownMemory]) -> None:
    last = past[-1] if past else None
    if last is not None and last.was_decided:
        return
    if last is not None and not last.is_retired and _says_the_same(last, found):
        changes.stayed.append(replace(found, id=last.id, life=last.life))
        return
    life = 0 if last is None else last.life + 1
    where = f"{source_id}/{found.output.store}/{document(found.output)}"
    name = f"{tenant_id}/{where}/{found.text_sha256.hex()}/{found.occurrence}/{life}"
    new = replace(found, id=uuid5(NAMESPACE, name), life=life)
    changes.added.append(new)
    if last is not None:
        changes.retired.append((last.id, new.id))


def _says_the_same(known: KnownMemory, found: FoundMemory) -> bool:
    said = found.statement
    return (known.kind, known.status, known.context, known.scope_id, known.thread_id) == (
        said.kind,
        said.status,
        said.context,
        found.scope_id,
        found.thread_id,
    )


def _projects(conn: Conn, source_id: UUID, given: Sequence[StoredOutput | StoredFile]) -> dict[str, str]:
    """The last part of each session's working folder, which is what people call their project."""
    ids = [output.thread_id for output in given if isinstance(output, StoredOutput)]
    folders = conn.execute(SQL["folders"], {"source_id": source_id, "thread_ids": ids}).fetchall()
    return {thread_id: PurePosixPath(cwd.replace("\\", "/")).name for thread_id, cwd in folders}


def _known(
    conn: Conn, source_id: UUID, given: Sequence[StoredOutput | StoredFile]
) -> dict[tuple[str, str], list[KnownMemory]]:
    keys = recordset({"store": output.store, "document": document(output)} for output in given)
    with conn.cursor(row_factory=class_row(KnownMemory)) as cursor:
        rows = cursor.execute(SQL["known"], {"source_id": source_id, "keys": keys}).fetchall()
    found: dict[tuple[str, str], list[KnownMemory]] = defaultdict(list)
    for row in rows:
        found[row.store, row.document].append(row)
    return found


def _write(conn: Conn, actor: Actor, source_id: UUID, changes: Changes) -> None:
    values = {"source_id": source_id, "principal_id": actor.principal_id}
    for rows in recordsets({"id": old, "superseded_by": new} for old, new in changes.retired):
        conn.execute(SQL["retire"], {"rows": rows})
    for rows in recordsets(map(_memory_columns, changes.added)):
        conn.execute(SQL["add"], {**values, "rows": rows})
    for rows in recordsets(map(_evidence_columns, [*changes.added, *changes.stayed])):
        conn.execute(SQL["place"], {**values, "rows": rows})


def _memory_columns(found: FoundMemory) -> dict[str, object]:
    is_file = isinstance(found.output, StoredFile)
    return {
        "id": found.id,
        "scope_id": found.scope_id,
        "kind": found.statement.kind,
        "status": found.statement.status,
        "text": found.statement.text,
        "context": found.statement.context,
        "text_sha256": found.text_sha256,
        "store": found.output.store,
        "thread_id": found.thread_id,
        "path": document(found.output) if is_file else None,
        "rule_set": handbook.RULES if is_file else RULES,
        "occurrence": found.occurrence,
        "life": found.life,
        "session": f"{found.output.store}/{document(found.output)}",
        "ordinal": found.ordinal,
    }


def _evidence_columns(found: FoundMemory) -> dict[str, object]:
    place = found.statement.place
    kind = "memory_file" if isinstance(found.output, StoredFile) else "session_output"
    whole, where = _text_and_locator(found)
    return {
        "memory_id": found.id,
        "id": uuid5(found.id, kind),
        "scope_id": found.scope_id,
        "kind": kind,
        "locator": {
            **where,
            "block": place.block,
            "lines": [place.first_line, place.last_line],
            "characters": [place.starts_at, place.ends_at],
        },
        "sha256": hashlib.sha256(whole[place.starts_at : place.ends_at].encode()).digest(),
        "quote": found.statement.quote,
    }


def _text_and_locator(found: FoundMemory) -> tuple[str, dict[str, object]]:
    output, column = found.output, found.statement.place.column
    if isinstance(output, StoredFile):
        threads = output.lines[found.ordinal - 1].threads
        return output.text, {"path": output.path, "sha256": output.sha256.hex(), "threads": threads}
    where: dict[str, object] = {"store": output.store, "thread_id": output.thread_id, "column": column}
    return output.raw_memory if column == "raw_memory" else output.rollout_summary, where
