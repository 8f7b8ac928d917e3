"""The embedding job: the memories of one session output, or one remembered memory, get their vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from uuid import UUID

from memsvc.db.pool import Conn, Pool
from memsvc.embedding import vectors
from memsvc.embedding.embedder import Embedder
from memsvc.embedding.vectors import EmbeddedChunk, Unembedded, Window
from memsvc.model.job import EMBED, JobKey, Lease
from memsvc.model.principal import Actor
from memsvc.pipeline import passages

# A session output beyond this many chunks is found by its words; what is cut is far from what anybody asks for.
MAX_CHUNKS = 2000


def output_job(source_id: UUID, store: str, document: str) -> JobKey:
    """The job that embeds the memories of one session output, by its thread, or of one file, by its path."""
    return JobKey(source_id, EMBED, f"{store}/{document}")


def memory_job(source_id: UUID, memory_id: UUID) -> JobKey:
    """The job that embeds one remembered memory."""
    return JobKey(source_id, EMBED, str(memory_id))


def handle(pool: Pool, actor: Actor, embedder: Embedder, lease: Lease) -> Callable[[Conn], None]:
    """
    Embed what the lease's job names, with no transaction open; the result writes the vectors.

    What has vectors of the model already is left alone, and so is a window that says what it said: a job that is run
    twice does its work once.
    """
    embedder.dimension  # noqa: B018 - may have to be asked of the model: not while a transaction is open
    with pool.transaction(actor) as conn:
        vectors.register(conn, embedder)
        memories, around, limit = _given(conn, embedder.model, lease)
    chunks: list[EmbeddedChunk] = []
    for memory in memories:
        if len(chunks) < limit:
            chunks += embedded(embedder, memory, limit=limit - len(chunks))
    chunks += embedded_windows(embedder, around[:MAX_CHUNKS])
    return lambda conn: vectors.write(conn, embedder.model, chunks)


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


def embedded(embedder: Embedder, memory: Unembedded, *, limit: int) -> list[EmbeddedChunk]:
    """The chunks of one memory with their vectors, at most `limit`; each begins with what the memory is about."""
    heading = passages.heading(embedder, memory)
    spans = embedder.spans(memory.text, room=embedder.count_tokens(heading), limit=limit)
    texts = [f"{heading}{memory.text[start:end]}" for start, end in spans]
    made = embedder.embed_passages(texts)
    return [
        EmbeddedChunk(memory.id, memory.scope_id, start, end, hashlib.sha256(text.encode()).digest(), vector)
        for (start, end), text, vector in zip(spans, texts, made, strict=True)
    ]


def embedded_windows(embedder: Embedder, around: Sequence[Window]) -> list[EmbeddedChunk]:
    """The windows that say something else than when they were last embedded, with their vectors."""
    texts = [(found, passages.window(embedder, found)) for found in around]
    changed = [
        (found, text, digest)
        for found, text in texts
        if text is not None and (digest := hashlib.sha256(text.encode()).digest()) != found.known_sha256
    ]
    made = embedder.embed_passages([text for _, text, _ in changed])
    return [
        EmbeddedChunk(found.id, found.scope_id, 0, len(text), digest, vector, "window")
        for (found, text, digest), vector in zip(changed, made, strict=True)
    ]
