"""The embedding job: what gets vectors, of which text, how often, and what does not."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsvc.db.pool import Pool
from memsvc.embedding.builtin import BuiltinEmbedder
from memsvc.embedding.embedder import Embedder, Vector
from memsvc.embedding.hashing import HashingEmbedder
from memsvc.embedding.vectors import EmbeddedChunk, Unembedded
from memsvc.errors import LeaseLost
from memsvc.ledger import jobs
from memsvc.memory import remembered
from memsvc.memory.remembered import NewMemory
from memsvc.model.job import EMBED, JobKey
from memsvc.model.principal import DEFAULT_TENANT, GLOBAL_SCOPE, LOCAL_SOURCE, OWNER
from memsvc.pipeline import embed, worker
from memsvc.pipeline.attempt import Work
from memsvc.pipeline.embed import MAX_CHUNKS, TEXTS_AT_ONCE, memory_job, output_job, own_passages
from memsvc.pipeline.ingest import ingest
from memsvc.pipeline.worker import Done
from tests.importers.codex_home import database, output

MEMORY = Unembedded(
    id=uuid4(), scope_id=uuid4(), text="Deploys go out on Tuesdays.", context="", speaker=None, observed_at=None
)
MORNING = datetime(2026, 3, 1, 7, 30, tzinfo=UTC)
BUILTIN = BuiltinEmbedder()


class Listening(HashingEmbedder):
    """The hashing embedder, which remembers what it was given."""

    def __init__(self, dimension: int = 8) -> None:
        super().__init__(dimension)
        self.texts: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        self.texts += texts
        return super().embed_passages(texts)


class Narrow(Listening):
    """One with room for few words, so that a long text need not be very long."""

    max_tokens = 16

    def __init__(self) -> None:
        super().__init__(2)
        self.model = "narrow"

    def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        self.texts += texts
        return [[1.0, 0.0] for _ in texts]


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def rows(pool: Pool, query: str, *values: object) -> list[Any]:
    with pool.transaction(OWNER) as conn:
        return conn.execute(query.encode(), values).fetchall()


def remember(pool: Pool, text: str, **fields: Any) -> UUID:
    with pool.transaction(OWNER) as conn:
        new = NewMemory(GLOBAL_SCOPE, text, "note", "reported", "agent", **fields)
        found = remembered.remember(conn, new)
        jobs.enqueue(conn, [(memory_job(found.source_id, found.id), GLOBAL_SCOPE)])
    return found.id


def derive(pool: Pool, *texts: str, thread_id: str = "t", store: str = "v1", context: str = "") -> list[UUID]:
    """Memories as a derivation would write them, and the job of their output."""
    ids = [uuid4() for _ in texts]
    with pool.transaction(OWNER) as conn:
        for memory_id, text in zip(ids, texts, strict=True):
            conn.execute(
                "insert into memsvc.memories (tenant_id, id, scope_id, kind, status, origin, text, context,"
                " text_sha256, author_id, source_id, store, thread_id, rule_set)"
                " values (%s, %s, %s, 'note', 'reported', 'imported', %s, %s, %s, %s, %s, %s, %s, 'a test')",
                [
                    *(DEFAULT_TENANT, memory_id, GLOBAL_SCOPE, text, context, digest(text), OWNER.principal_id),
                    *(LOCAL_SOURCE, store, thread_id),
                ],
            )
    enqueue(pool, output_job(LOCAL_SOURCE, store, thread_id))
    return ids


def enqueue(pool: Pool, key: JobKey) -> None:
    with pool.transaction(OWNER) as conn:
        jobs.enqueue(conn, [(key, GLOBAL_SCOPE)])


def retire(pool: Pool, memory_id: UUID) -> None:
    rows(
        pool,
        "update memsvc.memories set retired_at = now(), retired_because = 'a test' where id = %s returning 1",
        memory_id,
    )


def embed_due(pool: Pool, embedder: Embedder) -> Done:
    task = Work(pool, OWNER, {EMBED: lambda lease, lost: embed.handle(pool, OWNER, embedder, lease)}, "the worker")
    return worker.run(task, once=True, stop=Event())


def embedded(embedder: Embedder, memory: Unembedded, *, limit: int) -> list[EmbeddedChunk]:
    return embed.embedded(embedder, own_passages(embedder, memory, limit=limit))


def chunks(pool: Pool, memory_id: UUID, model: str = "hash:8") -> list[Any]:
    return rows(
        pool,
        "select c.starts_at, c.ends_at, c.text_sha256 from memsvc.chunks c join memsvc.chunk_embeddings e"
        " using (tenant_id, scope_id, memory_id, view, starts_at, ends_at)"
        " where c.memory_id = %s and e.model = %s order by c.starts_at",
        memory_id,
        model,
    )


def words(count: int, *, start: int = 0) -> str:
    return " ".join(f"w{number}" for number in range(start, start + count))


# The job in the database.


@pytest.mark.parametrize(("embedder", "dimension"), [(HashingEmbedder(64), 64), (BUILTIN, 384)])
def test_the_memories_of_one_output_get_vectors(pool: Pool, tmp_path: Path, embedder: Embedder, dimension: int) -> None:
    lines = "- the vault opens with a brass key\n- run the tests before each commit\n"
    database(
        tmp_path / "memories_1.sqlite",
        outputs=[output("one", raw_memory=lines), output("two", raw_memory="- the moon is a lamp\n")],
    )
    ingest(pool, OWNER, "codex", tmp_path, host="here")

    assert embed_due(pool, embedder) == Done(completed=2)

    memories = rows(pool, "select id, text from memsvc.memories where retired_at is null")
    assert {"the vault opens with a brass key", "the moon is a lamp"} <= {text for _, text in memories}
    found = rows(
        pool,
        "select memory_id, model, dimension, extensions.vector_dims(embedding), starts_at, ends_at,"
        " round((extensions.l2_norm(embedding))::numeric, 2)::float from memsvc.chunk_embeddings where view = 'own'",
    )
    assert {row[0]: row[1:] for row in found} == {
        memory_id: (embedder.model, dimension, dimension, 0, len(text), 1.0) for memory_id, text in memories
    }


def test_the_stored_vector_is_that_of_heading_and_text(pool: Pool) -> None:
    memory_id = remember(pool, "ship on Tuesdays", context="releases", speaker="Ada", observed_at=MORNING)
    embedder = HashingEmbedder(8)

    assert embed_due(pool, embedder) == Done(completed=1)

    whole = "Ada, 01 March 2026: releases: ship on Tuesdays"
    assert chunks(pool, memory_id) == [(0, len("ship on Tuesdays"), digest(whole))]
    ((similarity,),) = rows(
        pool,
        "select 1 - (embedding operator(extensions.<=>) %s::extensions.halfvec) from memsvc.chunk_embeddings",
        str(embedder.embed_query(whole)),
    )
    assert similarity == pytest.approx(1, abs=1e-3)


def test_a_second_run_embeds_nothing(pool: Pool) -> None:
    derive(pool, "one line", "another line")
    memory_id = remember(pool, "a third")
    first, second = Listening(), Listening()
    embed_due(pool, first)
    before = rows(pool, "select * from memsvc.chunk_embeddings order by memory_id")
    enqueue(pool, output_job(LOCAL_SOURCE, "v1", "t"))
    enqueue(pool, memory_job(LOCAL_SOURCE, memory_id))

    assert embed_due(pool, second) == Done(completed=2)

    assert (sorted(first.texts), second.texts) == (["a third", "another line", "one line"], [])
    assert rows(pool, "select * from memsvc.chunk_embeddings order by memory_id") == before


def test_only_what_is_new_of_an_output_is_embedded(pool: Pool) -> None:
    derive(pool, "one line")
    embed_due(pool, Listening())
    derive(pool, "another line")
    later = Listening()

    embed_due(pool, later)

    assert later.texts == ["another line"]


def test_a_job_embeds_its_own_output_alone(pool: Pool) -> None:
    derive(pool, "mine", thread_id="a/b")
    derive(pool, "of another store", thread_id="a/b", store="v2")
    derive(pool, "of another thread", thread_id="a")
    rows(pool, "update memsvc.jobs set status = 'done' where job_key <> 'v1/a/b' returning 1")
    embedder = Listening()

    assert embed_due(pool, embedder) == Done(completed=1)

    assert embedder.texts == ["mine"]


def test_a_retired_memory_is_not_embedded(pool: Pool) -> None:
    gone, _ = derive(pool, "gone", "still here")
    retire(pool, gone)
    retire(pool, remember(pool, "forgotten"))
    embedder = Listening()

    assert embed_due(pool, embedder) == Done(completed=2)

    assert embedder.texts == ["still here"]
    assert rows(pool, "select count(*) from memsvc.chunks") == [(1,)]


def test_two_models_stand_side_by_side(pool: Pool) -> None:
    memory_id = remember(pool, "ship on Tuesdays")
    embed_due(pool, HashingEmbedder(8))
    enqueue(pool, memory_job(LOCAL_SOURCE, memory_id))

    assert embed_due(pool, HashingEmbedder(64)) == Done(completed=1)

    assert rows(pool, "select name, dimension, max_tokens from memsvc.embedding_models order by name") == [
        ("hash:64", 64, 256),
        ("hash:8", 8, 256),
    ]
    assert chunks(pool, memory_id, "hash:8") == chunks(pool, memory_id, "hash:64") != []
    assert rows(pool, "select count(*) from memsvc.chunks") == [(1,)]


def test_a_model_with_another_dimension_under_the_same_name_is_refused(pool: Pool) -> None:
    remember(pool, "first")
    embed_due(pool, HashingEmbedder(8))
    remember(pool, "second")
    changed = HashingEmbedder(9)
    changed.model = "hash:8"

    assert embed_due(pool, changed) == Done(failed=1)

    ((error,),) = rows(pool, "select last_error from memsvc.jobs where status = 'error'")
    assert error == "conflict: the model 'hash:8' is recorded with 8 dimensions and gives 9"


def test_long_text_gets_chunks_that_cover_it(pool: Pool) -> None:
    text = words(1000)
    memory_id = remember(pool, text)

    embed_due(pool, HashingEmbedder(8))

    found = chunks(pool, memory_id)
    assert len(found) == 4
    assert " ".join(text[start:end] for start, end, _ in found) == text
    assert [sha256 for _, _, sha256 in found] == [digest(text[start:end]) for start, end, _ in found]


def test_an_output_gets_at_most_two_thousand_chunks_however_often_it_is_embedded(pool: Pool) -> None:
    derive(pool, words(16 * 1500), words(16 * 1500, start=50_000))
    first, second = Narrow(), Narrow()

    assert embed_due(pool, first) == Done(completed=1)
    assert (MAX_CHUNKS, len(first.texts)) == (2000, 2000)
    assert rows(pool, "select count(*) from memsvc.chunk_embeddings group by memory_id order by 1") == [(500,), (1500,)]

    derive(pool, "a line that came later")
    assert embed_due(pool, second) == Done(completed=1)
    assert second.texts == []
    remember(pool, "of no output")
    embed_due(pool, second)
    assert second.texts == ["of no output"]


def test_what_is_retired_makes_room_for_what_is_new(pool: Pool) -> None:
    (old,) = derive(pool, words(16 * 2100))
    embed_due(pool, Narrow())
    retire(pool, old)
    derive(pool, "a line that came later")
    later = Narrow()

    embed_due(pool, later)

    assert later.texts == ["a line that came later"]


class Breaking(Listening):
    """One that breaks off after so many calls."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        if not self.calls:
            raise KeyboardInterrupt
        self.calls -= 1
        return super().embed_passages(texts)


def test_a_job_that_is_cut_short_has_written_all_but_one_part_and_goes_on_from_there(pool: Pool) -> None:
    lines = [f"line {number}" for number in range(3 * TEXTS_AT_ONCE)]
    derive(pool, *lines)
    first, second = Breaking(2), Listening()

    with pytest.raises(KeyboardInterrupt):
        embed_due(pool, first)

    assert len(first.texts) == 2 * TEXTS_AT_ONCE
    assert rows(pool, "select count(*) from memsvc.chunk_embeddings") == [(2 * TEXTS_AT_ONCE,)]
    assert embed_due(pool, second) == Done(completed=1)
    assert sorted(first.texts + second.texts) == sorted(lines)
    assert rows(pool, "select count(*) from memsvc.chunk_embeddings") == [(3 * TEXTS_AT_ONCE,)]


def test_the_chunks_of_one_memory_are_written_together(pool: Pool) -> None:
    long = derive(pool, *(words(16 * 40, start=1000 * number) for number in range(3)))
    embedder = Breaking(1)
    embedder.max_tokens = 16

    with pytest.raises(KeyboardInterrupt):
        embed_due(pool, embedder)

    assert sorted(len(chunks(pool, memory_id)) for memory_id in long) == [0, 0, len(embedder.texts)]
    assert len(embedder.texts) >= 40


def test_a_job_whose_lease_is_lost_writes_no_further_part(pool: Pool) -> None:
    derive(pool, *(f"line {number}" for number in range(3 * TEXTS_AT_ONCE)))

    class Robbed(Listening):
        def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
            if self.texts:
                rows(pool, "update memsvc.jobs set ownership_token = gen_random_uuid()::text returning 1")
            return super().embed_passages(texts)

    with pool.transaction(OWNER) as conn:
        (lease,) = jobs.claim(conn, [EMBED], worker_id="the worker", lease_for=timedelta(minutes=1))
    embedder = Robbed()

    with pytest.raises(LeaseLost):
        embed.handle(pool, OWNER, embedder, lease)

    assert len(embedder.texts) == 2 * TEXTS_AT_ONCE
    assert rows(pool, "select count(*) from memsvc.chunk_embeddings") == [(TEXTS_AT_ONCE,)]


# One memory, and no database.


@pytest.mark.parametrize(
    ("known", "whole"),
    [
        ({}, "Deploys go out on Tuesdays."),
        ({"speaker": "Ada"}, "Ada: Deploys go out on Tuesdays."),
        ({"observed_at": MORNING}, "01 March 2026: Deploys go out on Tuesdays."),
        ({"context": "releases"}, "releases: Deploys go out on Tuesdays."),
        ({"speaker": "Ada", "context": "releases"}, "Ada: releases: Deploys go out on Tuesdays."),
        ({"observed_at": MORNING, "context": "x: y"}, "01 March 2026: x: y: Deploys go out on Tuesdays."),
        (
            {"speaker": "Ada", "observed_at": MORNING, "context": "releases"},
            "Ada, 01 March 2026: releases: Deploys go out on Tuesdays.",
        ),
    ],
)
def test_the_heading_is_what_is_known_speaker_and_date_first(known: dict[str, Any], whole: str) -> None:
    embedder = Listening()

    (chunk,) = embedded(embedder, replace(MEMORY, **known), limit=10)

    assert embedder.texts == [whole]
    assert chunk == EmbeddedChunk(
        MEMORY.id, MEMORY.scope_id, 0, len(MEMORY.text), digest(whole), embedder.embed_query(whole)
    )


def test_the_date_does_not_depend_on_the_time_zone_of_the_session() -> None:
    abroad = MORNING.astimezone(timezone(timedelta(hours=-11)))
    assert abroad.day != MORNING.day
    embedder = Listening()

    for moment in (MORNING, abroad):
        embedded(embedder, replace(MEMORY, observed_at=moment), limit=1)

    assert embedder.texts == ["01 March 2026: Deploys go out on Tuesdays."] * 2


def test_every_chunk_begins_with_the_heading() -> None:
    embedder = Listening()
    memory = replace(MEMORY, text=words(600), context="a long story")

    made = embedded(embedder, memory, limit=10)

    assert [text.removeprefix("a long story: ") for text in embedder.texts] == [
        memory.text[chunk.starts_at : chunk.ends_at] for chunk in made
    ]
    assert all(text.startswith("a long story: w") for text in embedder.texts)
    assert len(made) == 3


@pytest.mark.parametrize("embedder", [HashingEmbedder(8), BUILTIN], ids=lambda given: str(given.model))
def test_a_long_context_leaves_half_of_the_window_to_the_text(embedder: Embedder) -> None:
    context = " ".join(f"chapter {number}," for number in range(400))
    memory = replace(MEMORY, text="\n".join(f"Line {n} says what line {n} says." for n in range(120)), context=context)

    made = embedded(embedder, memory, limit=100)

    heading = longest_heading(context, memory, made)
    assert embedder.max_tokens // 4 < embedder.count_tokens(heading) <= embedder.max_tokens // 2
    pieces = [memory.text[chunk.starts_at : chunk.ends_at] for chunk in made]
    assert len(pieces) > 1
    assert "\n".join(pieces) == memory.text
    longest = max(embedder.count_tokens(heading + piece) for piece in pieces)
    assert embedder.max_tokens // 2 < longest <= embedder.max_tokens
    assert all(embedder.count_tokens(piece) >= 20 for piece in pieces[:-1])


def longest_heading(context: str, memory: Unembedded, made: Sequence[EmbeddedChunk]) -> str:
    """The part of the context that was embedded, found by the hash of the first chunk's whole text."""
    piece = memory.text[made[0].starts_at : made[0].ends_at]
    for end in range(len(context), 0, -1):
        heading = f"{context[:end]}: "
        if digest(heading + piece) == made[0].text_sha256:
            return heading
    pytest.fail("the chunk does not begin with the context")


def test_limit_cuts_the_end_off() -> None:
    embedder = Listening()
    memory = replace(MEMORY, text=words(1000))

    whole = embedded(embedder, memory, limit=10)

    assert embedded(embedder, memory, limit=2) == whole[:2]
    assert embedded(embedder, memory, limit=0) == []
    assert len(whole) == 4


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30), min_size=1, max_size=60),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
)
def test_offsets_point_at_the_text_and_leave_out_only_white_space(
    parts: list[str], context: str, speaker: str | None
) -> None:
    embedder = Narrow()
    text = " ".join(parts)

    made = embedded(embedder, replace(MEMORY, text=text, context=context, speaker=speaker), limit=1000)

    assert len(embedder.texts) == len(made)
    at = 0
    for chunk, whole in zip(made, embedder.texts, strict=True):
        assert not text[at : chunk.starts_at].strip()
        assert whole.endswith(text[chunk.starts_at : chunk.ends_at])
        assert chunk.text_sha256 == digest(whole)
        assert chunk.ends_at > chunk.starts_at >= at
        at = chunk.ends_at
    assert not text[at:].strip()
    assert all(embedder.count_tokens(whole) <= embedder.max_tokens for whole in embedder.texts)
