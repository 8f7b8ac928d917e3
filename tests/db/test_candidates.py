"""Candidate search runs as the owner, whom no policy binds: it must find what the policies would have shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.types.json import Jsonb

from memsvc.db.pool import Conn, Pool
from memsvc.model.principal import DEFAULT_TENANT, Actor
from tests.db.world import (
    EMBEDDER,
    INSERTS,
    SCOPES,
    TENANTS,
    actor,
    add_grant,
    add_principal,
    as_admin,
    fixed,
    memory_id,
    row,
    written,
)

ALL = list(SCOPES.values())
WORDS = ("red", "green", "the", "running", "parseURL", "/etc/hosts")
TIMES = ("current", "current", "current", "retired", "future", "past")
# A drawn number makes the whole world: drawn piece by piece, most worlds would hold nothing worth asking for.
seeds = st.integers(0, 2**32)

# Every function that searches as the owner is called with what it has a name for.
DEFINERS = """
select proname, proargnames[1:pronargs]
from pg_proc
where pronamespace = 'memsvc'::regnamespace and prosecdef and 'searched' = any (proargnames)
"""
# The same questions, asked plainly: only the policies keep apart what may be read.
BY_TEXT: LiteralString = """
with readable as (
    select m.id, m.lexemes
    from memsvc.memories m
    where m.scope_id = any (%(searched)s)
      and m.retired_at is null
      and coalesce(m.valid_from <= now(), true)
      and coalesce(m.valid_until > now(), true)
),
found as (
    select r.id, q.lexeme
    from readable r
    join memsvc.query_lexemes(%(query)s) q on r.lexemes @@ memsvc.one_lexeme(q.lexeme)
),
frequency as (select lexeme, count(*)::double precision as df from found group by lexeme)
select f.id, sum(ln(1 + (size.n - df + 0.5) / (df + 0.5)))
from found f
join frequency using (lexeme)
cross join (
    select count(*) as n from memsvc.memories m where m.scope_id = any (%(searched)s) and m.retired_at is null
) size
group by f.id
"""
BY_VECTOR: LiteralString = """
select m.id, max(1 - (e.embedding <=> %(query_embedding)s::halfvec))
from memsvc.memories m
join memsvc.chunk_embeddings e
    on e.tenant_id = m.tenant_id and e.scope_id = m.scope_id and e.memory_id = m.id and e.model = %(model_name)s
where m.scope_id = any (%(searched)s)
  and m.retired_at is null
  and coalesce(m.valid_from <= now(), true)
  and coalesce(m.valid_until > now(), true)
group by m.id
"""


@pytest.fixture(scope="module")
def pool(world: str) -> Iterator[Pool]:
    opened = Pool(world)
    yield opened
    opened.close()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=seeds)
def test_owner_finds_what_the_caller_would_find_under_the_policies(pool: Pool, seed: int) -> None:
    with random_world(pool, Random(seed)) as (conn, asked):
        as_owner = {name: scores(conn, call, asked) for name, call in definers(conn).items()}
        lay_the_owner_down(conn, list(as_owner))
        assert definers(conn) == {}
        assert as_owner == {name: scores(conn, call, asked) for name, call in calls(conn, list(as_owner)).items()}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=seeds)
def test_owner_finds_what_a_plain_query_finds(pool: Pool, seed: int) -> None:
    with random_world(pool, Random(seed)) as (conn, asked):
        everything = asked | {"also": [], "candidates": 99}
        call = definers(conn)
        by_text = {found: own for found, (own, _) in scores(conn, call["text_scores"], everything).items() if own}
        assert by_text == {found: score for found, (score,) in scores(conn, BY_TEXT, asked).items()}
        by_vector = {found: own for found, (own, _) in scores(conn, call["vector_candidates"], everything).items()}
        assert by_vector == {found: score for found, (score,) in scores(conn, BY_VECTOR, asked).items()}


def test_scopes_that_one_may_not_read_are_not_searched(pool: Pool) -> None:
    everything = [memory_id(scope) for scope in SCOPES]
    with pool.transaction(actor("reads anvil")) as conn:
        for searched, found in (([SCOPES["garden"]], set()), (ALL, {memory_id("anvil")}), ([], set()), (None, set())):
            asked = question("shared", searched) | {"also": everything} | SEEDED
            for name, call in definers(conn).items():
                assert scores(conn, call, asked).keys() == found, name


def test_how_rare_a_word_is_elsewhere_does_not_show(pool: Pool) -> None:
    """The score depends on how many memories have the word: of the readable ones, and of no others."""
    with pool.transaction(actor("reads anvil")) as conn:
        call = definers(conn)["text_scores"]
        narrow, wide = (scores(conn, call, question("shared", searched)) for searched in ([SCOPES["anvil"]], ALL))
    assert narrow == wide != {}


def test_better_fitting_operators_of_others_are_not_run_as_the_owner(pool: Pool) -> None:
    """Where everybody may create in schema public, an operator there could fit better than the built-in one."""
    asked = (
        question("shared", [SCOPES["anvil"]]) | SEEDED | {"wanted": Jsonb({"kinds": ["note"], "since": "2000-01-01"})}
    )
    with pool.transaction(actor("reads anvil")) as conn:
        before = {name: scores(conn, call, asked) for name, call in definers(conn).items()}
        as_admin(conn)
        conn.execute(TRAPS)
        conn.execute("set local role memsvc_service")
        with pytest.raises(psycopg.errors.RaiseException, match="trapped"), conn.transaction():
            conn.execute("select 1 + 1::float8")
        assert before == {name: scores(conn, call, asked) for name, call in definers(conn).items()}
        assert {} not in before.values()
        raise psycopg.Rollback


# What the tests above stand on

# A vector and a model of the world's own rows.
SEEDED = {"query_embedding": "[1,2]", "model_name": "model 1"}
# An operator in schema public for each two types that a built-in one fits less than exactly.
TRAPS: LiteralString = """
do $$
declare
    types text[] := '{integer,bigint,float8,numeric,text,name,jsonb,json,uuid,uuid[],text[],boolean,timestamptz}';
    l text;
    r text;
    operator text;
begin
    foreach l in array types loop
        foreach r in array types loop
            execute format('create function public.trap(%s, %s) returns boolean language plpgsql as %L',
                l, r, 'begin raise exception ''trapped as %'', current_user; end');
            foreach operator in array '{+,-,*,/,=,<>,<,>,<=,>=,||,->,->>,@@,&&,@>,?}'::text[] loop
                execute format('create operator public.%s (function = public.trap, leftarg = %s, rightarg = %s)',
                    operator, l, r);
            end loop;
        end loop;
    end loop;
end
$$
"""
PLACE: LiteralString = """
    update memsvc.memories set
        session = 'talk',
        ordinal = %(n)s::integer,
        retired_at = case when %(when)s = 'retired' then now() end,
        retired_because = case when %(when)s = 'retired' then 'old' end,
        valid_from = case when %(when)s = 'future' then now() + interval '1 day' end,
        valid_until = case when %(when)s = 'past' then now() end
    where tenant_id = %(tenant)s and id = %(memory)s"""
CHUNK: LiteralString = """
    insert into memsvc.chunks (tenant_id, scope_id, memory_id, view, starts_at, ends_at, text_sha256)
    values (%(tenant)s, %(scope)s, %(memory)s, 'own', 0, %(end)s, '')"""
VECTOR: LiteralString = """
    insert into memsvc.chunk_embeddings (
        tenant_id, scope_id, model, memory_id, view, starts_at, ends_at, dimension, embedding)
    values (%(tenant)s, %(scope)s, %(model)s, %(memory)s, 'own', 0, %(end)s, 8, %(vector)s)"""


def question(query: str, searched: list[UUID] | None) -> dict[str, Any]:
    """A value for each argument that a searching function has."""
    return {
        "query": query,
        "query_embedding": written(EMBEDDER.embed_query(query)),
        "model_name": EMBEDDER.model,
        "searched": searched,
        "candidates": 99,
        "also": [],
        "wanted": Jsonb({}),
    }


def definers(conn: Conn) -> dict[str, sql.Composed]:
    """A call of each function that searches as the owner."""
    return {name: calling(name, arguments) for name, arguments in conn.execute(DEFINERS).fetchall()}


def calls(conn: Conn, names: list[str]) -> dict[str, sql.Composed]:
    rows = conn.execute(
        "select proname, proargnames[1:pronargs] from pg_proc"
        " where pronamespace = 'memsvc'::regnamespace and proname = any (%s)",
        [names],
    )
    return {name: calling(name, arguments) for name, arguments in rows.fetchall()}


def calling(name: str, arguments: list[str]) -> sql.Composed:
    given = sql.SQL(", ").join(
        sql.SQL("{} => {}").format(sql.Identifier(argument), sql.Placeholder(argument)) for argument in arguments
    )
    return sql.SQL("select * from memsvc.{}({})").format(sql.Identifier(name), given)


def scores(
    conn: Conn, query: LiteralString | sql.Composed, values: dict[str, Any]
) -> dict[UUID, tuple[float | None, ...]]:
    """The scores of each memory, as far as they do not depend on the order of adding up."""
    rows = conn.execute(query, values).fetchall()
    return {found: tuple(None if score is None else round(score, 9) for score in given) for found, *given in rows}


def lay_the_owner_down(conn: Conn, names: list[str]) -> None:
    """The same functions, run by the caller under the policies from now on."""
    as_admin(conn)
    for name in names:
        conn.execute(sql.SQL("alter function memsvc.{} security invoker").format(sql.Identifier(name)))
    conn.execute("set local role memsvc_service")


@contextmanager
def random_world(pool: Pool, chance: Random) -> Iterator[tuple[Conn, dict[str, Any]]]:
    """A transaction that acts for somebody with some grants, and a question to ask in it; nothing stays."""
    somebody = Actor(DEFAULT_TENANT, fixed("somebody"))
    with pool.transaction(somebody) as conn:
        as_admin(conn)
        add_principal(conn, somebody.tenant_id, "somebody")
        for name in chance.sample(sorted(SCOPES), chance.randint(1, 3)):
            grant = (name, chance.choice(["read", "write", "admin"]), chance.random() < 0.5)
            add_grant(conn, somebody.tenant_id, "somebody", grant)
        places = chance.sample(sorted(SCOPES), 2)  # few, so that neighbours meet
        for number in range(10, 10 + chance.randint(4, 14)):
            tenant, scope = chance.choice([*TENANTS, DEFAULT_TENANT]), chance.choice(places)
            values = row("keeps everything", scope, str(number), tenant=tenant)
            add_embedded(conn, values, sentence(chance), chance.choice(TIMES))
        conn.execute("set local role memsvc_service")
        yield conn, random_question(chance)
        raise psycopg.Rollback


def random_question(chance: Random) -> dict[str, Any]:
    searched = [*chance.sample(ALL, chance.randint(1, len(ALL))), uuid4()]
    also = [memory_id(scope, str(chance.randint(8, 20))) for scope in SCOPES]
    return question(sentence(chance), searched) | {"also": also, "candidates": chance.choice([1, 3, 99])}


def sentence(chance: Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(1, 4)))


def add_embedded(conn: Conn, values: dict[str, Any], text: str, when: str) -> None:
    values |= {"text": text, "end": len(text), "model": EMBEDDER.model, "when": when}
    values |= {"vector": written(EMBEDDER.embed_passages([text])[0])}
    for statement in (INSERTS["memories"], PLACE, CHUNK, VECTOR):
        conn.execute(statement, values)
