"""The embedding job: the memories of one session output, or one remembered memory, get their vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC
from uuid import UUID

from memsvc.db.pool import Conn, Pool
from memsvc.embedding import vectors
from memsvc.embedding.embedder import Embedder
from memsvc.embedding.vectors import EmbeddedChunk, Unembedded
from memsvc.model.job import EMBED, JobKey, Lease
from memsvc.model.principal import Actor

# A session output beyond this many chunks is found by its words; what is cut is far from what anybody asks for.
MAX_CHUNKS = 2000


def output_job(source_id: UUID, store: str, thread_id: str) -> JobKey:
    """The job that embeds the memories of one session output."""
    return JobKey(source_id, EMBED, f"{store}/{thread_id}")


def memory_job(source_id: UUID, memory_id: UUID) -> JobKey:
    """The job that embeds one remembered memory."""
    return JobKey(source_id, EMBED, str(memory_id))


def handle(pool: Pool, actor: Actor, embedder: Embedder, lease: Lease) -> Callable[[Conn], None]:
    """
    Embed what the lease's job names, with no transaction open; the result writes the vectors.

    What has vectors of the model already is left alone, so a job that is run twice does its work once.
    """
    with pool.transaction(actor) as conn:
        vectors.register(conn, embedder)
        memories, limit = _given(conn, embedder.model, lease)
    chunks: list[EmbeddedChunk] = []
    for memory in memories:
        if len(chunks) < limit:
            chunks += embedded(embedder, memory, limit=limit - len(chunks))
    return lambda conn: vectors.write(conn, embedder.model, chunks)


def _given(conn: Conn, model: str, lease: Lease) -> tuple[list[Unembedded], int]:
    """What has no vectors yet, and how many chunks of it may have them."""
    store, slash, thread_id = lease.job_key.partition("/")
    if not slash:
        return vectors.unembedded_memory(conn, model, UUID(lease.job_key)), MAX_CHUNKS
    output = (lease.source_id, store, thread_id)
    done = vectors.count_of_output(conn, model, *output)
    return vectors.unembedded_of_output(conn, model, *output), MAX_CHUNKS - done


def embedded(embedder: Embedder, memory: Unembedded, *, limit: int) -> list[EmbeddedChunk]:
    """The chunks of one memory with their vectors, at most `limit`; each begins with what the memory is about."""
    heading = _heading(embedder, memory)
    spans = embedder.spans(memory.text, room=embedder.count_tokens(heading), limit=limit)
    texts = [f"{heading}{memory.text[start:end]}" for start, end in spans]
    made = embedder.embed_passages(texts)
    return [
        EmbeddedChunk(memory.id, memory.scope_id, start, end, hashlib.sha256(text.encode()).digest(), vector)
        for (start, end), text, vector in zip(spans, texts, made, strict=True)
    ]


def _heading(embedder: Embedder, memory: Unembedded) -> str:
    """Speaker and date (UTC) where known, then what the memory is about; at most half of the model's window."""
    day = f"{memory.observed_at.astimezone(UTC):%d %B %Y}" if memory.observed_at else None
    whole = ": ".join(filter(None, (", ".join(filter(None, (memory.speaker, day))), memory.context)))
    spans = embedder.spans(whole, room=embedder.max_tokens // 2, limit=1)
    return f"{whole[spans[0][0] : spans[0][1]]}: " if spans else ""
