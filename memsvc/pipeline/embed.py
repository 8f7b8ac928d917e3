"""The embedding job: the memories of one session output, or one remembered memory, get their vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal
from uuid import UUID

from memsvc.db.pool import Conn, Pool
from memsvc.embedding import vectors
from memsvc.embedding.embedder import Embedder
from memsvc.embedding.vectors import EmbeddedChunk, Unembedded, Window
from memsvc.ledger import jobs
from memsvc.model.job import EMBED, JobKey, Lease, embed_with
from memsvc.model.principal import Actor
from memsvc.pipeline import passages
from memsvc.pipeline.attempt import LEASE_FOR

# A session output beyond this many chunks is found by its words; what is cut is far from what anybody asks for.
MAX_CHUNKS = 2000
# Texts that are embedded and written at once, but for a memory that has more: what is lost when a worker dies.
TEXTS_AT_ONCE = 64
# Jobs that are enqueued at once for a model that is new here: few enough for a short transaction.
REFILL = 500


@dataclass(frozen=True)
class Passage:
    """A text to embed, and which part of which memory it stands for, as in EmbeddedChunk."""

    memory_id: UUID
    scope_id: UUID
    starts_at: int
    ends_at: int
    text: str
    text_sha256: bytes
    view: Literal["own", "window"] = "own"
    members: tuple[UUID, ...] = ()


def output_job(source_id: UUID, store: str, document: str) -> JobKey:
    """The job that embeds the memories of one session output, by its thread, or of one file, by its path."""
    return JobKey(source_id, EMBED, f"{store}/{document}")


def memory_job(source_id: UUID, memory_id: UUID) -> JobKey:
    """The job that embeds one remembered memory."""
    return JobKey(source_id, EMBED, str(memory_id))


def refill(pool: Pool, actor: Actor, embedder: Embedder) -> int:
    """
    Enqueue jobs for what the model lacks and no job will bring it, at most 500; returns how many.

    New input makes one job, done with whichever model is at hand. What other models lack then they find out here, each
    for itself: the kind of these jobs names the model, so that no other takes them.
    """
    kind = embed_with(embedder.model)
    with pool.transaction(actor) as conn:
        known = vectors.is_known(conn, embedder.model)
    if not known:
        embedder.dimension  # noqa: B018 - may have to be asked of the model: not while a transaction is open
    with pool.transaction(actor) as conn:
        if not known:
            vectors.register(conn, embedder)
        found = vectors.lacking(conn, embedder.model, any_model=EMBED, this_model=kind, limit=REFILL)
        return jobs.enqueue(conn, [(JobKey(source_id, kind, key), scope_id) for source_id, key, scope_id in found])


def handle(
    pool: Pool,
    actor: Actor,
    embedder: Embedder,
    lease: Lease,
    *,
    lease_for: timedelta = LEASE_FOR,
    progress: Callable[[int], None] = lambda _: None,
) -> Callable[[Conn], None]:
    """
    Embed what the lease's job names, 64 texts at a time, with no transaction open; the result writes the last of them.

    The others are written on the way, each part while the lease still holds, so that a job cut short loses one part.
    What has vectors of the model already is left alone, and so is a window that says what it said: a job that is run
    again does only what is left. `progress` is told now and then how many more memories have been embedded.

    Raises:
        LeaseLost: somebody else owns the job now; what was written before that stays.
    """
    embedder.dimension  # noqa: B018 - may have to be asked of the model: not while a transaction is open
    with pool.transaction(actor) as conn:
        vectors.register(conn, embedder)
        memories, around, limit = _given(conn, embedder.model, lease)
    *parts, last = _parts(_passages(embedder, memories, around[:MAX_CHUNKS], limit)) or [[]]
    for part in parts:
        chunks = _embedded_part(embedder, part, progress)
        with pool.transaction(actor) as conn:
            jobs.heartbeat(conn, lease, lease_for=lease_for)
            vectors.write(conn, embedder.model, chunks)
    chunks = _embedded_part(embedder, last, progress)
    return lambda conn: vectors.write(conn, embedder.model, chunks)


def _parts(groups: Iterable[list[Passage]]) -> list[list[Passage]]:
    """What is embedded and written at once: whole groups, about as long as each other, so that little is padding."""
    parts: list[list[Passage]] = []
    for group in sorted(groups, key=lambda group: max(len(passage.text) for passage in group)):
        if not parts or len(parts[-1]) + len(group) > TEXTS_AT_ONCE:
            parts.append([])
        parts[-1] += group
    return parts


def _embedded_part(embedder: Embedder, part: Sequence[Passage], progress: Callable[[int], None]) -> list[EmbeddedChunk]:
    chunks = embedded(embedder, part)
    progress(len({passage.memory_id for passage in part if passage.view == "own"}))
    return chunks


def _given(conn: Conn, model: str, lease: Lease) -> tuple[list[Unembedded], list[Window], int]:
    """What has no vectors yet, what may have new neighbours, and how many chunks may be added."""
    store, slash, document = lease.job_key.partition("/")
    if not slash:
        memory_id = UUID(lease.job_key)
        around = vectors.windows_at_memory(conn, model, memory_id)
        return vectors.unembedded_memory(conn, model, memory_id), around, MAX_CHUNKS
    output = (lease.source_id, store, document)
    done = vectors.count_of_output(conn, model, *output)
    around = vectors.windows_of_output(conn, model, *output)
    return vectors.unembedded_of_output(conn, model, *output), around, MAX_CHUNKS - done


def _passages(
    embedder: Embedder, memories: Sequence[Unembedded], around: Sequence[Window], limit: int
) -> Iterator[list[Passage]]:
    """
    What is to be embedded, in groups that are written together: a memory's own chunks, of which there are at most
    `limit` in all, since one that has some counts as embedded; and each window.
    """
    for memory in memories:
        own = own_passages(embedder, memory, limit=max(0, limit))
        limit -= len(own)
        if own:
            yield own
    for found in around:
        window = window_passages(embedder, found)
        if window:
            yield window


def own_passages(embedder: Embedder, memory: Unembedded, *, limit: int) -> list[Passage]:
    """The chunks of one memory, at most `limit`; each begins with what the memory is about."""
    if not limit:
        return []
    heading = passages.heading(embedder, memory)
    spans = embedder.spans(memory.text, room=embedder.count_tokens(heading), limit=limit)
    texts = [f"{heading}{memory.text[start:end]}" for start, end in spans]
    return [
        Passage(memory.id, memory.scope_id, start, end, text, _digest(text))
        for (start, end), text in zip(spans, texts, strict=True)
    ]


def window_passages(embedder: Embedder, around: Window | None) -> list[Passage]:
    """The window, if there is one and it says something else than when it was last embedded."""
    text = passages.window(embedder, around) if around else None
    if around is None or text is None or _digest(text) == around.known_sha256:
        return []
    members = tuple(turn.id for turn in (around.before, around, around.after) if turn)
    return [Passage(around.id, around.scope_id, 0, len(text), text, _digest(text), "window", members)]


def embedded(embedder: Embedder, given: Sequence[Passage]) -> list[EmbeddedChunk]:
    """The passages with their vectors."""
    made = embedder.embed_passages([passage.text for passage in given])
    return [
        EmbeddedChunk(p.memory_id, p.scope_id, p.starts_at, p.ends_at, p.text_sha256, vector, p.view, p.members)
        for p, vector in zip(given, made, strict=True)
    ]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
