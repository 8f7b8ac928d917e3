"""The index over a model's vectors: when it is wanted, that it is used, and that it finds what comparing all finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Event
from uuid import UUID

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import Jsonb

from memsvc.db import migrate
from memsvc.db.pool import Conn
from memsvc.embedding import indexes, vectors
from memsvc.errors import DatabaseUnavailable
from memsvc.service import doctor, server, work
from memsvc.service.app import App
from memsvc.service.remember import RememberRequest, remember
from memsvc.settings import Settings
from tests.conftest import copied
from tests.db.world import written

MODEL = indexes.Model("hash:64", 64)
ASK = """
select memory_id, own from memsvc.vector_candidates(%(vector)s::halfvec, %(model)s, %(scopes)s, %(limit)s, %(wanted)s)
order by own desc, memory_id"""
SCAN = """
select e.memory_id, 1 - min(e.embedding <=> %(vector)s::halfvec) as own
from memsvc.chunk_embeddings e join memsvc.recallable m on m.id = e.memory_id
where e.scope_id = any (%(scopes)s) and e.model = %(model)s
  and memsvc.asks_for(%(wanted)s, m.kind, m.status, m.said_at, m.hidden_because)
group by e.memory_id order by own desc, e.memory_id limit %(limit)s"""
# Every vector points at random, every tenth memory is a preference.
FILL = """
with added as (
    insert into memsvc.memories (
        tenant_id, scope_id, kind, status, origin, text, text_sha256, author_id, source_id)
    select m.tenant_id, m.scope_id, case when n %% 10 = 0 then 'preference' else 'note' end, 'reported', 'human',
        'row ' || n, sha256(int8send(n)), m.author_id, m.source_id
    from memsvc.memories m, generate_series(1::bigint, %(rows)s) n
    where m.id = %(like)s
    returning tenant_id, scope_id, id
),
cut as (
    insert into memsvc.chunks (tenant_id, scope_id, memory_id, view, starts_at, ends_at, text_sha256)
    select tenant_id, scope_id, id, 'own', 0, 1, '' from added
)
insert into memsvc.chunk_embeddings (
    tenant_id, scope_id, model, memory_id, view, starts_at, ends_at, dimension, embedding)
select a.tenant_id, a.scope_id, 'hash:64', a.id, 'own', 0, 1, 64, r.vector
from added a
cross join lateral (
    select array_agg(random() - 0.5)::real[]::vector(64)::halfvec(64) as vector
    from generate_series(1, 64)
    where a.id is not null
) r
"""


@pytest.fixture(scope="module")
def full(server: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a database with more vectors than are compared one by one, to copy."""
    with copied(server, template) as dsn:
        with opened(dsn, tmp_path_factory.mktemp("full")) as app:
            like = remember(app, RememberRequest("the first", scope="global"))
            with app.pool.transaction(app.actor) as conn:
                vectors.register(conn, app.embedder)
        with migrate.connect(dsn) as admin:
            admin.execute("set search_path = memsvc, extensions, public")
            # The keys are right by construction; checking each would take the longest.
            admin.execute("set session_replication_role = replica")
            admin.execute(FILL, {"rows": indexes.THRESHOLD + 500, "like": like.id})
            admin.execute("analyze memsvc.memories, memsvc.chunks, memsvc.chunk_embeddings")
        yield str(conninfo_to_dict(dsn)["dbname"])


@pytest.fixture
def large(server: str, full: str, tmp_path: Path) -> Iterator[App]:
    """The service on a copy of it."""
    with copied(server, full) as dsn, opened(dsn, tmp_path) as app:
        yield app


@pytest.fixture
def scope(large: App) -> UUID:
    """The scope that all is in."""
    with large.pool.transaction(large.actor) as conn:
        row = conn.execute("select distinct scope_id from memsvc.memories").fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


def opened(dsn: str, folder: Path) -> App:
    return App(Settings(data_dir=folder, database_url=dsn, embedder="hash:64"), host="here")


def asked(scope: UUID, chance: Random, **wanted: object) -> dict[str, object]:
    vector = [chance.uniform(-1, 1) for _ in range(64)]
    return {
        "vector": written(vector),
        "model": MODEL.name,
        "scopes": [scope],
        "limit": 20,
        "wanted": Jsonb(wanted),
    }


def test_a_small_store_wants_no_index(app: App) -> None:
    remember(app, RememberRequest("the only one", scope="global"))

    assert server.migrate(app).indexed == ()
    assert has_index(app) is None


def test_a_large_store_gets_an_index_that_finds_what_comparing_all_finds(large: App, scope: UUID) -> None:
    chance = Random(1)
    questions = [asked(scope, chance) for _ in range(10)] + [asked(scope, chance, kinds=["preference"])]
    with large.pool.transaction(large.actor) as conn:
        before = [conn.execute(ASK, values).fetchall() for values in questions]
        assert before == [conn.execute(SCAN, values).fetchall() for values in questions]
    assert [check.mend for check in doctor.doctor(large) if check.name == "vector indexes"] == ["memsvc migrate"]

    assert server.migrate(large, dry_run=True).indexed == (MODEL.name,)
    assert has_index(large) is None
    assert server.migrate(large).indexed == (MODEL.name,)

    assert server.migrate(large).indexed == ()
    assert [check.ok for check in doctor.doctor(large) if check.name == "vector indexes"] == [True]
    with large.pool.transaction(large.actor) as conn:
        after = [conn.execute(ASK, values).fetchall() for values in questions]
    same = [len({*a} & {*b}) for a, b in zip(after, before, strict=True)]
    assert all(len(rows) == 20 for rows in after)
    assert sum(same) >= 0.95 * 20 * len(questions)
    assert is_used(large, questions[0])


def test_a_worker_builds_what_is_due_where_it_may(large: App, scope: UUID) -> None:
    assert has_index(large) is None

    work.work(large, once=True, stop=Event())

    assert has_index(large) is not None


def test_a_worker_that_may_not_build_goes_on(
    large: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(indexes.BUILDING, "role", "nobody_of_that_name")

    done = work.work(large, once=True, stop=Event())

    assert (done.failed, has_index(large)) == (0, None)
    assert "no index over vectors" in caplog.text


def test_what_the_index_cannot_answer_in_full_is_compared_one_by_one(large: App, scope: UUID) -> None:
    server.migrate(large)
    with migrate.connect(large.database_url) as admin:
        admin.execute("update memsvc.memories set kind = 'failure' where text in ('row 17', 'row 8000', 'row 10400')")
    values = asked(scope, Random(2), kinds=["failure"])
    with large.pool.transaction(large.actor) as conn:
        found = conn.execute(ASK, values).fetchall()
        assert found == conn.execute(SCAN, values).fetchall()
    assert len(found) == 3


def test_an_index_whose_building_was_cut_short_is_built_anew(large: App, scope: UUID) -> None:
    server.migrate(large)
    with migrate.connect(large.database_url) as admin:
        admin.execute(
            "update pg_index set indisvalid = false where indexrelid = %s::regclass", [f"memsvc.{has_index(large)}"]
        )
    assert has_index(large) is None

    assert server.migrate(large).indexed == (MODEL.name,)
    assert has_index(large) is not None


def test_a_login_that_may_not_build_says_so(large: App, scope: UUID) -> None:
    with migrate.connect(large.database_url) as admin:
        admin.execute("create role reader login")
        try:
            with pytest.raises(DatabaseUnavailable, match="memsvc_owner"):
                indexes.build(make_conninfo(large.database_url, user="reader"), MODEL)
        finally:
            admin.execute("drop role reader")


def test_questions_leave_the_planner_as_it_was(large: App, scope: UUID) -> None:
    server.migrate(large)
    with large.pool.transaction(large.actor) as conn:
        conn.execute(ASK, asked(scope, Random(3)))
        assert conn.execute("show enable_sort").fetchone() == ("on",)


def has_index(app: App) -> str | None:
    with app.pool.transaction(app.actor) as conn:
        row = conn.execute("select name from memsvc.vector_index(%s)", [MODEL.name]).fetchone()
    return str(row[0]) if row else None


def is_used(app: App, values: dict[str, object]) -> bool:
    """Statistics are told after a transaction: a session of its own, closed, has told them."""
    name = has_index(app)
    with migrate.connect(app.database_url) as admin:
        before = scans(admin, name)
    with App(app.settings, host="here") as other, other.pool.transaction(other.actor) as conn:
        conn.execute(ASK, values)
    with migrate.connect(app.database_url) as admin:
        return scans(admin, name) > before


def scans(admin: Conn, name: str | None) -> int:
    row = admin.execute("select idx_scan from pg_stat_user_indexes where indexrelname = %s", [name]).fetchone()
    return int(row[0]) if row else 0
