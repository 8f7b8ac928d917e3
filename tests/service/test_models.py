"""Another model: it gets what it lacks and nothing twice, two models leave each other alone, and an old one can go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from memsvc.embedding.embedder import Vector
from memsvc.embedding.hashing import HashingEmbedder
from memsvc.embedding.vectors import drop_some
from memsvc.errors import NotFound, WrongUse
from memsvc.model.job import EMBED
from memsvc.model.principal import OWNER
from memsvc.pipeline import embed
from memsvc.pipeline.worker import Done
from memsvc.service import doctor, imports, models, status, work
from memsvc.service.app import App
from memsvc.service.models import Model
from memsvc.service.recall import RecallRequest, recall
from memsvc.service.remember import RememberRequest, remember
from memsvc.settings import Settings
from tests.importers.codex_home import database, output
from tests.snapshots import snapshot

Open = Callable[[str], App]


class Counting(HashingEmbedder):
    """The hashing embedder, which counts what it is given."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self.texts: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        self.texts += texts
        return super().embed_passages(texts)


@pytest.fixture
def using(dsn: str, tmp_path: Path) -> Iterator[Open]:
    """The service on one database with the model of that name."""
    opened: list[App] = []

    def open_with(embedder: str) -> App:
        app = App(Settings(data_dir=tmp_path, database_url=dsn, embedder=embedder), host="here")
        opened.append(app)
        return app

    yield open_with
    for app in opened:
        app.__exit__(None, None, None)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return snapshot("0.135.0", "04-killed", tmp_path / "exports")


def rows(app: App, query: str) -> list[Any]:
    with app.pool.transaction(OWNER) as conn:
        return conn.execute(query.encode()).fetchall()


def embed_due(app: App) -> Done:
    return work.work(app, once=True, stop=Event())


def counted(app: App, dimension: int) -> list[str]:
    """What a worker with a model of that dimension embeds."""
    app.embedder = Counting(dimension)
    embed_due(app)
    return app.embedder.texts


def filled(app: App, home: Path) -> int:
    """A home imported and embedded, one thing remembered; how many memories there are."""
    imports.run_import(app, imports.ImportRequest("codex", home))
    remember(app, RememberRequest("the kiln ramps at three degrees a minute", scope="global"))
    embed_due(app)
    return int(rows(app, "select count(*) from memsvc.memories where retired_at is null")[0][0])


def test_a_worker_embeds_what_a_new_model_lacks_and_the_old_vectors_stay(using: Open, home: Path) -> None:
    old, new = using("hash:64"), using("hash:32")
    total = filled(old, home)
    before = rows(old, "select * from memsvc.chunk_embeddings order by 4, 5, 6, 3")
    assert recall(new, RecallRequest("kiln", scope="all")).coverage.embedded == 0

    done = embed_due(new)

    assert (done.failed, done.lost) == (0, 0)
    covered = recall(new, RecallRequest("kiln", scope="all"))
    assert covered.coverage.embedded == covered.coverage.total
    assert covered.hits[0].ranks.vector is not None
    assert covered.notes == ()
    kept = rows(old, "select * from memsvc.chunk_embeddings where model = 'hash:64' order by 4, 5, 6, 3")
    assert kept == before
    per_model = rows(
        old, "select model, view, count(distinct memory_id) from memsvc.chunk_embeddings group by 1, 2 order by 1, 2"
    )
    assert {row[2] for row in per_model if row[1] == "own"} == {total}
    assert [row[2] for row in per_model if row[1] == "window" and row[0] == "hash:32"] == [
        row[2] for row in per_model if row[1] == "window" and row[0] == "hash:64"
    ]


def test_nothing_unchanged_is_embedded_twice_by_any_model(using: Open, home: Path) -> None:
    old, new = using("hash:64"), using("hash:32")
    filled(old, home)

    first = counted(new, 32)

    made = rows(new, "select count(*) from memsvc.chunk_embeddings where model = 'hash:32'")
    assert (len(first),) == made[0] > (60,)
    assert counted(new, 32) == []
    assert counted(old, 64) == []


def test_two_models_in_turn_come_to_rest(using: Open, home: Path) -> None:
    one, two = using("hash:64"), using("hash:32")
    filled(one, home)
    embed_due(two)
    remember(one, RememberRequest("said while both are in use", scope="global"))

    assert embed_due(one) == Done(completed=1)
    assert embed_due(two) == Done(completed=1)
    assert [embed_due(app) for app in (one, two, one, two)] == [Done()] * 4

    assert all(model.embedded == model.total for model in models.ls(one).models)


def test_a_worker_leaves_the_jobs_of_another_model_alone(using: Open, home: Path) -> None:
    old, new, third = using("hash:64"), using("hash:32"), using("hash:16")
    filled(old, home)
    assert embed.refill(new.pool, OWNER, new.embedder) == 14

    embed_due(third)

    assert rows(old, "select status, count(*) from memsvc.jobs where kind = 'memory_embed:hash:32' group by 1") == [
        ("pending", 14)
    ]
    assert rows(old, "select status, count(*) from memsvc.jobs where kind = 'memory_embed:hash:16' group by 1") == [
        ("done", 14)
    ]
    assert embed_due(new) == Done(completed=14)


def test_what_waits_for_any_model_is_not_enqueued_for_one(using: Open, home: Path) -> None:
    app = using("hash:64")
    imports.run_import(app, imports.ImportRequest("codex", home))

    assert embed.refill(app.pool, OWNER, app.embedder) == 0


def test_a_worker_that_was_stopped_goes_on_where_it_was(using: Open, home: Path) -> None:
    old, new = using("hash:64"), using("hash:32")
    filled(old, home)
    stop = Event()

    half = work.work(new, once=True, stop=stop, progress=lambda _: stop.set())
    rest = embed_due(new)

    assert half.completed == 1
    assert half.completed + rest.completed == 14


def test_a_failed_job_of_a_model_is_not_enqueued_again(using: Open, home: Path) -> None:
    old, new = using("hash:64"), using("hash:32")
    filled(old, home)
    rows(
        old,
        "insert into memsvc.embedding_models (tenant_id, name, dimension, max_tokens)"
        " values (memsvc.current_tenant(), 'hash:32', 9, 256) returning 1",
    )

    assert embed_due(new) == Done(failed=14)
    assert embed_due(new) == Done()

    assert "recorded with 9 dimensions and gives 32" in str(
        rows(old, "select distinct last_error from memsvc.jobs where kind = 'memory_embed:hash:32'")
    )


def test_what_stopped_with_one_model_is_tried_with_another(using: Open) -> None:
    old, new = using("hash:64"), using("hash:32")
    remember(old, RememberRequest("one", scope="global"))
    rows(
        old,
        "update memsvc.jobs set status = 'error', stop_reason = 'exhausted', finished_at = now(), retry_remaining = 0"
        " returning 1",
    )

    assert embed_due(new) == Done(completed=1)
    assert embed_due(new) == Done()


def test_windows_that_another_model_made_since_are_made_too(using: Open, tmp_path: Path) -> None:
    one, two = using("hash:64"), using("hash:32")
    ids = [
        remember(one, RememberRequest(text, scope="global", session="s", ordinal=place)).id
        for place, text in enumerate(["alpha is first", "beta is second", "gamma is third", "delta is last"])
    ]
    embed_due(one)
    embed_due(two)
    with one.pool.transaction(OWNER) as conn:
        conn.execute(
            "update memsvc.memories set retired_at = now(), retired_because = 'a test' where id = %s", [ids[3]]
        )
        conn.execute("update memsvc.jobs set status = 'pending' where job_key = %s and kind = %s", [str(ids[2]), EMBED])

    embed_due(one)
    embed_due(two)

    windows = rows(
        one,
        "select model, count(*) from memsvc.chunk_embeddings e join memsvc.memories m on m.id = e.memory_id"
        " where e.view = 'window' and m.retired_at is null group by 1 order by 1",
    )
    assert windows == [("hash:32", 3), ("hash:64", 3)]
    assert [embed_due(app) for app in (one, two)] == [Done()] * 2


# What is too large.


def test_of_a_very_long_output_two_thousand_chunks_are_embedded_and_everybody_says_so(
    using: Open, tmp_path: Path
) -> None:
    text = "".join(f"- line {number} says what it says\n" for number in range(2100))
    database(tmp_path / "memories_1.sqlite", outputs=[output("long", raw_memory=text), output("short")])
    app = using("hash:64")
    imports.run_import(app, imports.ImportRequest("codex", tmp_path))

    result = work.embed_all(app, stop=Event())

    total = recall(app, RecallRequest("line", scope="all")).coverage.total
    beyond = total - rows(app, "select count(distinct memory_id) from memsvc.chunk_embeddings where view = 'own'")[0][0]
    assert beyond >= 100
    where = "beyond the first 2000 chunks of their session output (1 outputs)"
    assert result.notes == (f"{beyond} memories lie {where} and are found by words only",)
    assert status.status(app).beyond == beyond
    (coverage,) = [check for check in doctor.doctor(app) if check.name == "coverage"]
    assert coverage.ok
    assert f"{beyond} lie beyond the size" in coverage.detail
    last = recall(app, RecallRequest("what does line 2099 say", scope="all"))
    assert last.hits[0].text == "line 2099 says what it says"
    # A new model looks at it once, and then leaves it alone as well.
    new = using("hash:32")
    assert embed_due(new) == Done(completed=2)
    assert embed_due(new) == Done(completed=0)
    assert status.status(new).beyond == beyond
    assert len(counted(app, 64)) == 0


# Listing and dropping.


def test_models_are_listed_with_their_coverage(using: Open) -> None:
    remember(using("hash:64"), RememberRequest("one", scope="global"))
    embed_due(using("hash:64"))
    remember(using("hash:64"), RememberRequest("two", scope="global"))

    assert models.ls(using("hash:32")).models == (
        Model("hash:32", None, 0, 2, True),
        Model("hash:64", 64, 1, 2, False),
    )
    seen = status.status(using("hash:32"))
    assert (seen.model, seen.coverage.embedded, seen.coverage.total) == ("hash:32", 0, 2)
    assert seen.models == models.ls(using("hash:32")).models
    (coverage,) = [check for check in doctor.doctor(using("hash:32")) if check.name == "coverage"]
    assert (coverage.ok, coverage.mend) == (False, "memsvc worker --once")
    assert coverage.detail.startswith(
        "0 of 2 memories can be found by meaning (vectors of other models: 1 with hash:64;"
    )


def test_a_dropped_model_is_gone_and_the_others_stay(using: Open, home: Path) -> None:
    old, new = using("hash:64"), using("hash:32")
    filled(old, home)
    embed_due(new)
    chunks = rows(old, "select count(*) from memsvc.chunks")
    vectors = rows(old, "select count(*) from memsvc.chunk_embeddings where model = 'hash:32'")[0][0]

    dry = models.drop(old, "hash:32", dry_run=True)
    assert rows(old, "select count(*) from memsvc.chunk_embeddings where model = 'hash:32'") == [(vectors,)]
    with old.pool.transaction(OWNER) as conn:
        assert drop_some(conn, "hash:32", most=50) == 50  # a drop that was interrupted
    wet = models.drop(old, "hash:32")

    assert (dry.vectors, wet.vectors) == (vectors, vectors - 50)
    assert rows(old, "select distinct model from memsvc.chunk_embeddings") == [("hash:64",)]
    assert rows(old, "select name from memsvc.embedding_models") == [("hash:64",)]
    assert rows(old, "select distinct kind from memsvc.jobs where store = 'memsvc'") == [(EMBED,)]
    assert rows(old, "select count(*) from memsvc.chunks") == chunks
    # One may come back to it: everything is embedded anew.
    assert embed_due(new) == Done(completed=14)
    assert recall(new, RecallRequest("kiln", scope="all")).notes == ()


def test_with_the_last_model_the_chunks_go_too(using: Open) -> None:
    remember(using("hash:64"), RememberRequest("one", scope="global"))
    embed_due(using("hash:64"))

    assert models.drop(using("hash:32"), "hash:64").vectors == 1

    assert rows(using("hash:32"), "select count(*) from memsvc.chunks") == [(0,)]


def test_the_model_in_use_and_an_unknown_one_are_not_dropped(using: Open) -> None:
    app = using("hash:64")
    remember(app, RememberRequest("one", scope="global"))
    embed_due(app)

    with pytest.raises(WrongUse, match="hash:64 is the model in use"):
        models.drop(app, "hash:64")
    with pytest.raises(NotFound, match="no model 'hash:9'"):
        models.drop(app, "hash:9")
    assert rows(app, "select count(*) from memsvc.chunk_embeddings") == [(1,)]
