"""Windows: a memory between its neighbours, and what becomes of it when they change or are retired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import pytest

from memsvc.db.pool import Pool
from memsvc.embedding.embedder import Vector
from memsvc.embedding.hashing import HashingEmbedder
from memsvc.embedding.vectors import Turn, Window
from memsvc.ledger import jobs
from memsvc.memory import remembered
from memsvc.memory.remembered import NewMemory
from memsvc.model.job import EMBED, Lease
from memsvc.model.principal import GLOBAL_SCOPE, OWNER
from memsvc.pipeline import embed, worker
from memsvc.pipeline.attempt import Handler, Work
from memsvc.pipeline.embed import memory_job, window_passages
from memsvc.pipeline.worker import Done
from memsvc.service.app import App
from memsvc.service.recall import RecallRequest, recall


class Listening(HashingEmbedder):
    """The hashing embedder, which remembers what it was given."""

    def __init__(self, dimension: int = 8) -> None:
        super().__init__(dimension)
        self.texts: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        self.texts += texts
        return super().embed_passages(texts)


def rows(pool: Pool, query: str, *values: object) -> list[Any]:
    with pool.transaction(OWNER) as conn:
        return conn.execute(query.encode(), values).fetchall()


def say(pool: Pool, text: str, ordinal: int, *, session: str = "s") -> UUID:
    with pool.transaction(OWNER) as conn:
        new = NewMemory(GLOBAL_SCOPE, text, "note", "reported", "agent", session=session, ordinal=ordinal)
        found = remembered.remember(conn, new)
        jobs.enqueue(conn, [(memory_job(found.source_id, found.id), GLOBAL_SCOPE)])
    return found.id


def retire(pool: Pool, memory_id: UUID) -> None:
    rows(
        pool,
        "update memsvc.memories set retired_at = now(), retired_because = 'a test' where id = %s returning 1",
        memory_id,
    )


def handled(pool: Pool, embedder: HashingEmbedder) -> Handler:
    return lambda lease, lost: embed.handle(pool, OWNER, embedder, lease)


def embed_due(pool: Pool, embedder: HashingEmbedder) -> Done:
    task = Work(pool, OWNER, {EMBED: handled(pool, embedder)}, "the worker")
    return worker.run(task, once=True, stop=Event())


def windows(pool: Pool, model: str = "hash:8") -> list[UUID]:
    """The memories that have a window with a vector of the model, as they follow each other."""
    found = rows(
        pool,
        "select m.id from memsvc.memories m join memsvc.chunk_embeddings e on e.memory_id = m.id"
        " where e.view = 'window' and e.model = %s and m.retired_at is null order by m.ordinal",
        model,
    )
    return [memory_id for (memory_id,) in found]


def test_a_memory_is_embedded_once_more_with_its_neighbours(pool: Pool) -> None:
    first, second, third = (say(pool, text, place) for place, text in enumerate(("one", "two", "three")))
    say(pool, "alone", 0, session="another")
    embedder = Listening()

    embed_due(pool, embedder)

    assert windows(pool) == [first, second, third]
    assert {"one\ntwo", "one\ntwo\nthree", "two\nthree"} <= set(embedder.texts)


def test_the_windows_of_what_is_retired_are_gone_at_once(pool: Pool) -> None:
    ids = [say(pool, f"line {place}", place) for place in range(5)]
    for dimension in (8, 16):
        embed_due(pool, HashingEmbedder(dimension))
        rows(pool, "update memsvc.jobs set status = 'pending', not_before = now() returning 1")

    retire(pool, ids[1])

    for model in ("hash:8", "hash:16"):
        assert windows(pool, model) == [ids[3], ids[4]]
    assert rows(pool, "select count(*) from memsvc.chunks where view = 'own'") == [(5,)]


def test_the_last_neighbour_leaves_a_memory_alone(pool: Pool) -> None:
    stays, goes = say(pool, "ferries sail at dawn", 0), say(pool, "the walrus is called Bertha", 1)
    embed_due(pool, HashingEmbedder(8))
    retire(pool, goes)
    embedder = Listening()
    rows(pool, "update memsvc.jobs set status = 'pending', not_before = now() returning 1")

    embed_due(pool, embedder)

    assert windows(pool) == []
    assert embedder.texts == []
    assert rows(pool, "select memory_id, view from memsvc.chunk_embeddings where memory_id = %s", stays) == [
        (stays, "own")
    ]


def test_recall_ranks_nothing_by_what_was_retired(app: App) -> None:
    stays = say(app.pool, "ferries sail at dawn", 0)
    goes = say(app.pool, "the walrus is called Bertha", 1)
    other = say(app.pool, "the harbour is shallow", 0, session="another")
    embed_due(app.pool, HashingEmbedder(64))

    def meaning() -> dict[UUID, float]:
        with app.pool.transaction(OWNER) as conn:
            found = conn.execute(
                "select memory_id, around"
                " from memsvc.vector_candidates(%s::extensions.halfvec, 'hash:64', %s, 9, '{}')",
                [str(HashingEmbedder(64).embed_query("the walrus is called Bertha")), [GLOBAL_SCOPE]],
            ).fetchall()
        return dict(found)

    assert meaning()[stays] > 0.5

    retire(app.pool, goes)

    assert meaning() == {stays: None, other: None}
    result = recall(app, RecallRequest("the walrus is called Bertha", scope="global"))
    assert {hit.id for hit in result.hits} == {stays, other}


def test_a_line_that_was_classified_anew_leaves_its_neighbours_windows(pool: Pool) -> None:
    ids = [say(pool, f"line {place}", place) for place in range(3)]
    embed_due(pool, HashingEmbedder(8))

    with pool.transaction(OWNER) as conn:
        conn.execute(
            "update memsvc.memories set retired_at = now(), retired_because = 'a test' where id = %s", [ids[1]]
        )
        again = remembered.remember(
            conn, NewMemory(GLOBAL_SCOPE, "line 1", "task", "reported", "agent", session="s", ordinal=1)
        )
        jobs.enqueue(conn, [(memory_job(again.source_id, again.id), GLOBAL_SCOPE)])

    assert windows(pool) == [ids[0], ids[2]]
    embedder = Listening()
    embed_due(pool, embedder)
    assert sorted(embedder.texts) == ["line 0\nline 1\nline 2", "line 1"]
    assert windows(pool) == [ids[0], again.id, ids[2]]


def test_a_window_whose_neighbour_is_retired_meanwhile_is_not_written(pool: Pool) -> None:
    ids = [say(pool, f"line {place}", place) for place in range(4)]
    embed_due(pool, HashingEmbedder(8))
    rows(
        pool,
        "update memsvc.jobs set status = 'pending', not_before = now() where job_key = %s returning 1",
        str(ids[1]),
    )
    embedder = HashingEmbedder(16)

    def slowly(lease: Lease, lost: Event) -> Any:
        write = embed.handle(pool, OWNER, embedder, lease)
        retire(pool, ids[0])
        return write

    assert worker.run(Work(pool, OWNER, {EMBED: slowly}, "the worker"), once=True, stop=Event()) == Done(completed=1)

    assert windows(pool, "hash:16") == [ids[2]]


def test_while_a_neighbour_is_being_retired_nothing_waits_and_no_window_is_written(pool: Pool) -> None:
    ids = [say(pool, f"line {place}", place) for place in range(3)]

    with pool.transaction(OWNER) as conn:
        conn.execute(
            "update memsvc.memories set retired_at = now(), retired_because = 'a test' where id = %s", [ids[0]]
        )
        assert embed_due(pool, HashingEmbedder(8)) == Done(completed=3)

    assert windows(pool) == [ids[2]]


def test_two_models_with_windows_of_their_own_do_not_take_each_others_place(pool: Pool) -> None:
    class Wide(Listening):
        max_tokens = 600

        def __init__(self) -> None:
            super().__init__(16)

    about = " ".join(f"word{number}" for number in range(200))
    with pool.transaction(OWNER) as conn:
        for place in range(3):
            new = NewMemory(
                GLOBAL_SCOPE, f"line {place}", "note", "reported", "agent", context=about, session="s", ordinal=place
            )
            found = remembered.remember(conn, new)
            jobs.enqueue(conn, [(memory_job(found.source_id, found.id), GLOBAL_SCOPE)])
    narrow, wide = Listening(), Wide()
    embed_due(pool, narrow)
    rows(pool, "update memsvc.jobs set status = 'pending', not_before = now() returning 1")
    embed_due(pool, wide)
    assert set(narrow.texts).isdisjoint(wide.texts)

    for embedder in (narrow, wide):
        embedder.texts.clear()
        rows(pool, "update memsvc.jobs set status = 'pending', not_before = now() returning 1")
        embed_due(pool, embedder)
        assert embedder.texts == []

    assert len(windows(pool, "hash:8")) == len(windows(pool, "hash:16")) == 3


@pytest.mark.parametrize("known", [True, False])
def test_a_window_is_embedded_where_it_says_something_new(known: bool) -> None:
    before = Turn(uuid4(), "Ada", "where does it live")
    around = Window(uuid4(), uuid4(), "in the harbour", "", "Bob", None, before, None, None)
    (passage,) = window_passages(HashingEmbedder(8), around)
    assert (passage.text, passage.members) == ("Ada: where does it live\nBob: in the harbour", (before.id, around.id))

    again = window_passages(HashingEmbedder(8), replace(around, known_sha256=passage.text_sha256 if known else b"old"))

    assert again == ([] if known else [passage])
