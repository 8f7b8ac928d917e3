"""Row-level security: who sees and changes which rows, whatever SQL they send; and what the tables refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from memsvc.db.pool import Conn, Pool
from memsvc.memory import scopes as scope_store
from memsvc.model.principal import DEFAULT_TENANT, LOCAL_SOURCE, OWNER, Actor
from tests.conftest import copied
from tests.db.databases import MakeLogin, as_login, logins
from tests.db.world import (
    EMBEDDER,
    EVERYWHERE,
    GRANTS,
    INSERTS,
    OF_ACME,
    OTHER_TENANT,
    PRINCIPALS,
    READS,
    SCOPES,
    TENANT_ROWS,
    TENANTS,
    actor,
    add_grant,
    add_principal,
    fill,
    fixed,
    memory_id,
    row,
    written,
)

# What may change of a row that is there. The other tables only ever grow.
UPDATES: dict[str, LiteralString] = {
    "memories": "update memsvc.memories set retired_at = now(), retired_because = 'old' where scope_id = %(scope)s",
    "evidence": "update memsvc.evidence set quote = 'mine' where scope_id = %(scope)s",
    "stage1_outputs": "update memsvc.stage1_outputs set raw_memory = 'mine' where scope_id = %(scope)s",
    "threads": "update memsvc.threads set title = 'mine' where scope_id = %(scope)s",
    "jobs": "update memsvc.jobs set worker_id = 'mine' where scope_id = %(scope)s",
}
GROWING = (
    "reviews", "chunks", "chunk_embeddings", "scope_aliases", "scopes", "principals", "grants", "tenants",
    "embedding_models",
)  # fmt: skip
TENANT_READERS = {"reads everything", "writes everything", "keeps everything"}
TENANT_KEEPERS = {"keeps everything"}


@pytest.fixture(scope="module")
def world(server: str, template: str) -> Iterator[str]:
    """A database with two tenants of equal ids that every test of this file reads and none changes."""
    with copied(server, template) as conninfo:
        with psycopg.connect(conninfo) as conn:
            fill(conn)
        yield conninfo


@pytest.fixture(scope="module")
def pool(world: str) -> Iterator[Pool]:
    opened = Pool(world)
    yield opened
    opened.close()


@pytest.fixture
def make_login(server: str) -> Iterator[MakeLogin]:
    with logins(server) as made:
        yield made


# Rows of a scope


@pytest.mark.parametrize("who", PRINCIPALS)
def test_rows_of_other_scopes_are_invisible(pool: Pool, who: str) -> None:
    with pool.transaction(actor(who)) as conn:
        seen = {table: scopes_seen(conn, table) for table in INSERTS}
        counted = {table: count(conn, table) for table in INSERTS}
    readable = READS.get(who, set())
    assert seen == {table: {SCOPES[name] for name in readable} for table in INSERTS}
    of_the_tenant = int(who in TENANT_READERS)
    assert counted == {table: len(readable) + (of_the_tenant if table == "jobs" else 0) for table in INSERTS}


@pytest.mark.parametrize("who", PRINCIPALS)
def test_scopes_are_listed_where_they_may_be_read(pool: Pool, who: str) -> None:
    with pool.transaction(actor(who)) as conn:
        listed = {scope.id for scope in scope_store.readable(conn)}
        assert listed == scopes_seen(conn, "scopes", "id") == {SCOPES[name] for name in READS.get(who, ())}


@pytest.mark.parametrize("who", PRINCIPALS)
def test_text_of_other_scopes_never_comes_back(pool: Pool, who: str) -> None:
    hidden = [f"{DEFAULT_TENANT} {name}" for name in EVERYWHERE - READS.get(who, set())] + [str(OTHER_TENANT)]
    with pool.transaction(actor(who)) as conn:
        for table in INSERTS:
            seen = rows_as_text(conn, table)
            assert [text for text in hidden if text in seen] == [], table


@pytest.mark.parametrize("who", PRINCIPALS)
def test_rows_are_added_only_where_one_may_write(pool: Pool, who: str) -> None:
    with pool.transaction(actor(who)) as conn:
        added = {
            table: {name for name in SCOPES if takes(conn, INSERTS[table], row(who, name, "2"))} for table in INSERTS
        }
    aliases = EVERYWHERE if who in TENANT_KEEPERS else set()
    assert added == dict.fromkeys(INSERTS, writes(who)) | {"scope_aliases": aliases}


@pytest.mark.parametrize("who", PRINCIPALS)
def test_rows_change_only_where_one_may_write(pool: Pool, who: str) -> None:
    with pool.transaction(actor(who)) as conn:
        changed = {table: {name for name in SCOPES if takes(conn, UPDATES[table], row(who, name))} for table in UPDATES}
    assert changed == dict.fromkeys(UPDATES, writes(who))


@pytest.mark.parametrize("table", ["threads", "stage1_outputs", "jobs"])
def test_rows_are_moved_neither_out_of_ones_scopes_nor_into_them(pool: Pool, table: str) -> None:
    move = sql.SQL("update memsvc.{} set scope_id = %s where scope_id = %s").format(sql.Identifier(table))
    with pool.transaction(actor("writes acme and below")) as conn:
        moved = {
            (source, target)
            for source in SCOPES
            for target in SCOPES
            if takes(conn, move, [SCOPES[target], SCOPES[source]])
        }
    assert moved == {(source, target) for source in OF_ACME for target in OF_ACME}


@pytest.mark.parametrize("who", ["writes anvil", "keeps everything"])
def test_what_only_grows_is_neither_changed_nor_deleted(pool: Pool, who: str) -> None:
    with pool.transaction(actor(who)) as conn:
        for table in (*GROWING, *UPDATES):
            named = sql.Identifier(table)
            assert not takes(conn, sql.SQL("delete from memsvc.{}").format(named), [])
            if table in GROWING:
                column = sql.Identifier("created_at" if table in ("scopes", "tenants") else "tenant_id")
                assert not takes(conn, sql.SQL("update memsvc.{} set {c} = {c}").format(named, c=column), [])


def test_nobody_speaks_in_anothers_name(pool: Pool) -> None:
    spoken = {}
    for who in ("writes anvil", "keeps everything"):
        with pool.transaction(actor(who)) as conn:
            forged = row("reads anvil", "anvil", "2")
            spoken[who] = [takes(conn, INSERTS[table], forged) for table in ("memories", "evidence", "reviews")]
    assert spoken == {"writes anvil": [False] * 3, "keeps everything": [True] * 3}


def test_evidence_does_not_reach_a_memory_of_another_scope(pool: Pool) -> None:
    with pool.transaction(actor("writes anvil")) as conn:
        for table in ("evidence", "reviews", "chunks"):
            crossed = row("writes anvil", "anvil", "2") | {"first": memory_id("garden")}
            with pytest.raises(psycopg.errors.ForeignKeyViolation), conn.transaction():
                conn.execute(INSERTS[table], crossed)


# Rows of the tenant


@pytest.mark.parametrize("who", PRINCIPALS)
def test_rows_of_the_tenant_are_for_those_who_may_read_all_of_it(pool: Pool, who: str) -> None:
    for_readers, for_keepers = int(who in TENANT_READERS), int(who in TENANT_KEEPERS)
    with pool.transaction(actor(who)) as conn:
        seen = {table: count(conn, table) for table in TENANT_ROWS if table != "jobs"}
    assert seen == {
        "job_attempts": for_readers,
        "import_runs": for_readers,
        "consolidation_progress": for_readers,
        "import_rejects": for_keepers,
        "stage1_originals": for_keepers,
        "source_files": for_keepers,
    }


@pytest.mark.parametrize("who", PRINCIPALS)
def test_principals_see_themselves_and_admins_see_all(pool: Pool, who: str) -> None:
    known = who != "is disabled"
    every = who in TENANT_KEEPERS
    with pool.transaction(actor(who)) as conn:
        assert conn.execute("select id from memsvc.tenants").fetchall() == [(DEFAULT_TENANT,)] * known
        assert count(conn, "principals") == (len(GRANTS) + 1 if every else int(known))
        assert count(conn, "grants") == (len(GRANTS) if every else int(known and GRANTS[who] is not None))
        assert count(conn, "sources") == int(known)


def test_only_admins_of_everything_add_scopes(pool: Pool) -> None:
    add = "insert into memsvc.scopes (tenant_id, kind, name) values (%s, 'project', 'new')"
    adders = set()
    for who in PRINCIPALS:
        with pool.transaction(actor(who)) as conn:
            if takes(conn, add, [DEFAULT_TENANT]):
                adders.add(who)
            assert not takes(conn, add, [OTHER_TENANT])
    assert adders == TENANT_KEEPERS


# The other tenant


@pytest.mark.parametrize("who", ["writes anvil", "keeps everything"])
def test_rows_of_another_tenant_are_invisible_though_their_ids_are_equal(pool: Pool, who: str) -> None:
    with pool.transaction(actor(who)) as conn:
        for table in (*INSERTS, *TENANT_ROWS, "scopes", "principals", "grants", "sources", "embedding_models"):
            assert tenants_seen(conn, table) <= {DEFAULT_TENANT}, table


def test_one_id_is_another_principal_in_another_tenant(pool: Pool) -> None:
    with pool.transaction(Actor(OTHER_TENANT, fixed("reads anvil"))) as conn:
        for table in INSERTS:
            assert tenants_seen(conn, table) == {OTHER_TENANT}
            assert scopes_seen(conn, table) - {None} == set(SCOPES.values())


@pytest.mark.parametrize("who", ["writes anvil", "keeps everything"])
def test_rows_of_another_tenant_are_neither_added_nor_changed(pool: Pool, who: str) -> None:
    with pool.transaction(actor(who)) as conn:
        for name in SCOPES:
            theirs = row(who, name, "2") | {"tenant": OTHER_TENANT}
            assert not any(takes(conn, statement, theirs) for statement in INSERTS.values())
        for table in UPDATES:
            move = sql.SQL("update memsvc.{} set tenant_id = %s").format(sql.Identifier(table))
            assert not takes(conn, move, [OTHER_TENANT])


def test_admin_of_two_tenants_sees_one_at_a_time(pool: Pool) -> None:
    for tenant in TENANTS:
        with pool.transaction(Actor(tenant, fixed("keeps everything"))) as conn:
            assert {table: tenants_seen(conn, table) for table in INSERTS} == {table: {tenant} for table in INSERTS}


# Who is asking


@pytest.mark.parametrize(
    "stranger",
    [
        Actor(DEFAULT_TENANT, uuid4()),
        Actor(uuid4(), OWNER.principal_id),
        Actor(OTHER_TENANT, OWNER.principal_id),
        Actor(DEFAULT_TENANT, fixed("is disabled")),
    ],
    ids=["unknown principal", "unknown tenant", "principal of another tenant", "disabled principal"],
)
def test_who_is_not_known_sees_nothing_and_adds_nothing(pool: Pool, stranger: Actor) -> None:
    with pool.transaction(stranger) as conn:
        assert sum(count(conn, table) for table in (*INSERTS, *TENANT_ROWS, *GROWING, "sources")) == 0
        given = row("reads anvil", "anvil", "2") | {"author": stranger.principal_id, "tenant": stranger.tenant_id}
        assert not any(takes(conn, statement, given) for statement in (*INSERTS.values(), *TENANT_ROWS.values()))


@pytest.mark.parametrize("setting", ["memsvc.tenant_id", "memsvc.principal_id"])
@pytest.mark.parametrize("value", ["", "x", "'; drop table", "00000000", "{}", "\N{SNOWMAN}"])
def test_malformed_setting_is_nobody(pool: Pool, setting: str, value: str) -> None:
    with pool.transaction(OWNER) as conn:
        conn.execute("select set_config(%s, %s, true)", [setting, value])
        assert count(conn, "memories") == 0


def test_settings_that_were_never_made_are_nobody(world: str) -> None:
    with psycopg.connect(world) as conn:
        conn.execute("set local role memsvc_service")
        assert (count(conn, "memories"), count(conn, "sources")) == (0, 0)


def test_settings_of_a_login_of_its_own_count_for_nothing(world: str, make_login: MakeLogin) -> None:
    with psycopg.connect(as_login(world, make_login()), autocommit=True) as conn:
        claim(conn, OWNER)
        for role in ("memsvc_service", "memsvc_owner", "authenticator", "service_role"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
        for statement in ("select * from memsvc.memories", "select memsvc.current_principal()"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(statement.encode())


def test_login_that_only_inherits_the_service_is_who_the_database_says(world: str, make_login: MakeLogin) -> None:
    """Somebody whom the administrator lets query under a principal of their own, and never as the service."""
    direct, stranger = make_login(), make_login()
    with principal_with_login(world, direct, "reads anvil"):
        for login, readable in ((direct, {"anvil"}), (stranger, set[str]())):
            inherit_only(world, login)
            with psycopg.connect(as_login(world, login)) as conn:
                claim(conn, OWNER)
                assert scopes_seen(conn, "memories") == {SCOPES[name] for name in readable}
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute("set local role memsvc_service")


# Tokens


def token(user: str, **app_metadata: Any) -> str:
    return json.dumps({"sub": user, "role": "authenticated", "app_metadata": app_metadata})


def test_claims_count_behind_postgrest_only(world: str) -> None:
    claims = token("anna", memsvc_tenant_id=str(DEFAULT_TENANT))
    with token_holder(world) as conn:
        assert claimed(conn, claims) == {DEFAULT_TENANT}
        conn.execute("set session authorization default")
        conn.execute("set local role authenticated")
        assert claimed(conn, claims) == set()


@pytest.mark.parametrize(
    ("claims", "tenants"),
    [
        (token("anna", memsvc_tenant_id=str(DEFAULT_TENANT)), {DEFAULT_TENANT}),
        (token("anna", memsvc_tenant_id=str(OTHER_TENANT).upper()), {OTHER_TENANT}),
        (token("anna", memsvc_tenant_id="00000000-0000-4000-8000-00000000dead"), set()),
        (token("anna", memsvc_tenant_id=5), set()),
        (token("anna", tenant_id=str(DEFAULT_TENANT)), set()),
        (token("anna"), set()),
        (f'{{"sub": "anna", "user_metadata": {{"memsvc_tenant_id": "{DEFAULT_TENANT}"}}}}', set()),
        (f'{{"sub": "anna", "memsvc_tenant_id": "{DEFAULT_TENANT}"}}', set()),
        ('{"sub": "anna"}', set()),
        ('{"sub": "bert"}', {OTHER_TENANT}),
        ('{"sub": "bert", "app_metadata": "none"}', {OTHER_TENANT}),
        (token("bert", memsvc_tenant_id=str(DEFAULT_TENANT)), set()),
        (token("bert", memsvc_tenant_id=None), {OTHER_TENANT}),
        ('{"sub": "carl"}', set()),
        ('{"sub": null}', set()),
        ('{"sub": ["anna"]}', set()),
        ('{"sub": "ANNA"}', set()),
        ('{"role": "service_role"}', set()),
        ("{}", set()),
        ("[]", set()),
        ('"anna"', set()),
        ("", set()),
        ("{", set()),
        ("sub=anna", set()),
        ('{"sub": "an\\u0000na"}', set()),
        ("null", set()),
    ],
)
def test_token_picks_the_tenant_or_nobody(world: str, claims: str, tenants: set[UUID]) -> None:
    """Anna belongs to both tenants, Bert to the other one, Carl is disabled."""
    with token_holder(world) as conn:
        assert claimed(conn, claims) == tenants


def test_settings_count_for_nothing_behind_postgrest(world: str) -> None:
    with token_holder(world) as conn:
        claim(conn, OWNER)
        assert claimed(conn, '{"sub": "nobody"}') == set()


# Candidate search, which the policies do not guard

WORDS = ("red", "green", "blue", "the", "running", "parseURL", "/etc/hosts", "naïve")
scope_names = st.sampled_from(sorted(SCOPES))
sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
memories = st.lists(
    st.tuples(
        st.sampled_from(TENANTS), scope_names, sentences, st.sampled_from(["current", "retired", "future", "past"])
    ),
    max_size=12,
)
grants = st.dictionaries(scope_names, st.tuples(st.sampled_from(["read", "write", "admin"]), st.booleans()), max_size=3)
searches = st.lists(st.one_of(scope_names.map(SCOPES.__getitem__), st.just(uuid4())), max_size=6)

BY_TEXT = """
with query as (select lexeme from memsvc.query_lexemes(%(query)s)),
readable as (
    select m.id, memsvc.lexemes(m.context, m.text) as lexemes
    from memsvc.memories m
    where m.scope_id = any (%(searched)s)
      and m.retired_at is null
      and coalesce(m.valid_from <= now(), true)
      and coalesce(m.valid_until > now(), true)
),
found as (
    select r.id, q.lexeme from readable r, query q where r.lexemes @@ memsvc.one_lexeme(q.lexeme)
),
frequency as (select lexeme, count(*)::double precision as df from found group by lexeme)
select f.id, sum(ln(1 + ((select count(*) from readable) - df + 0.5) / (df + 0.5)))
from found f
join frequency using (lexeme)
group by f.id
order by 2 desc, 1
limit %(candidates)s
"""
BY_VECTOR = """
select m.id, max(1 - (e.embedding <=> %(vector)s::halfvec))
from memsvc.memories m
join memsvc.chunk_embeddings e
    on e.tenant_id = m.tenant_id and e.scope_id = m.scope_id and e.memory_id = m.id and e.model = %(model)s
where m.scope_id = any (%(searched)s)
  and m.retired_at is null
  and coalesce(m.valid_from <= now(), true)
  and coalesce(m.valid_until > now(), true)
group by m.id
order by 2 desc, 1
limit %(candidates)s
"""


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kept=memories, held=grants, query=sentences, searched=searches, candidates=st.integers(1, 8))
def test_candidates_are_those_that_the_policies_would_show(
    pool: Pool,
    kept: list[tuple[UUID, str, str, str]],
    held: dict[str, tuple[str, bool]],
    query: str,
    searched: list[UUID],
    candidates: int,
) -> None:
    given = {"query": query, "searched": searched, "candidates": candidates}
    given |= {"vector": written(EMBEDDER.embed_query(query)), "model": EMBEDDER.model}
    with random_world(pool, kept, held) as conn:
        plain_text, plain_vector = ranked(conn, BY_TEXT, given), ranked(conn, BY_VECTOR, given)
        by_text = "select * from memsvc.text_candidates(%(query)s, %(searched)s, %(candidates)s)"
        by_vector = "select * from memsvc.vector_candidates(%(vector)s, %(model)s, %(searched)s, %(candidates)s)"
        assert ranked(conn, by_text, given) == plain_text
        assert ranked(conn, by_vector, given) == plain_vector


def test_candidates_of_scopes_that_one_may_not_read_are_not_looked_for(pool: Pool) -> None:
    with pool.transaction(actor("reads anvil")) as conn:
        for searched, found in (([SCOPES["garden"]], []), (list(SCOPES.values()), [(memory_id("anvil"),)]), (None, [])):
            by_text = "select memory_id from memsvc.text_candidates('shared', %s, 100)"
            by_vector = "select memory_id from memsvc.vector_candidates('[1,2]', 'model 1', %s, 100)"
            assert conn.execute(by_text, [searched]).fetchall() == found
            assert conn.execute(by_vector, [searched]).fetchall() == found


def test_how_rare_a_word_is_elsewhere_does_not_show(pool: Pool) -> None:
    """The score depends on how many memories hold the word: of the readable ones, and of no others."""
    scores = "select score from memsvc.text_candidates('shared', %s, 100)"
    with pool.transaction(actor("reads anvil")) as conn:
        alone = conn.execute(scores, [[SCOPES["anvil"]]]).fetchall()
        assert conn.execute(scores, [list(SCOPES.values())]).fetchall() == alone


def test_operators_that_somebody_put_into_schema_public_are_not_run_as_the_owner(pool: Pool) -> None:
    """Where everybody may create there, a better fitting operator than the built-in one would be taken."""
    with pool.transaction(actor("reads anvil")) as conn:
        as_admin(conn)
        hijack(conn, "integer", "float8")
        hijack(conn, "float8", "bigint")
        hijack(conn, "numeric", "float8")
        hijack(conn, "float8", "numeric")
        conn.execute("set local role memsvc_service")
        assert conn.execute("select 1 + 1::float8").fetchone() == (None,), "the trap is open"
        searched = [SCOPES["anvil"]]
        (text,) = conn.execute("select score from memsvc.text_candidates('shared', %s, 9)", [searched]).fetchall()
        by_vector = "select score from memsvc.vector_candidates('[1,2]', 'model 1', %s, 9)"
        (vector,) = conn.execute(by_vector, [searched]).fetchall()
        assert text[0] is not None
        assert vector[0] is not None
        raise psycopg.Rollback


# Names of scopes

ODD_NAMES = (
    "%", "_", "a_b", "aXb", "a%b", "\\", "\\%", "it's", '"quoted"', "a/b", "A/B", "name", "NAME", "name ", " name",
    "name\t", "na\u00efve", "nai\u0308ve", "\U0001f642", "project:name", "*", "?", "a\nb", "null", "straße", "STRASSE",
)  # fmt: skip


def test_names_of_scopes_are_exact(pool: Pool) -> None:
    with pool.transaction(OWNER) as conn:
        for name in ODD_NAMES:
            conn.execute(
                "insert into memsvc.scopes (tenant_id, kind, name) values (%s, 'project', %s)", [DEFAULT_TENANT, name]
            )
        found = [scope_store.named(conn, "project", name) for name in ODD_NAMES]
        assert [scope.name for scope in found if scope] == list(ODD_NAMES)
        assert len({scope.id for scope in found if scope}) == len(ODD_NAMES)
        for near in ("a?b", "%%", "Name", "name  ", "__", "ITS", "a/b/", "", "na%", "global"):
            assert scope_store.named(conn, "project", near) is None
        assert scope_store.named(conn, "client", "name") is None
        raise psycopg.Rollback


# What the tables refuse


def test_fact_without_evidence_is_refused_at_commit(pool: Pool) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="memories_fact_evidence_fkey"):
        commit(pool, [FACT])


def test_fact_that_names_no_evidence_is_refused_at_once(pool: Pool) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="fact_has_evidence"):
        commit(pool, [FACT, EVIDENCE], proof=None)


@pytest.mark.parametrize("kind", ["session_output", "url"])
def test_evidence_that_a_model_wrote_earns_no_fact(pool: Pool, kind: str) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="memories_fact_evidence_fkey"):
        commit(pool, [FACT, EVIDENCE], kind=kind)


def test_evidence_of_another_memory_earns_no_fact(pool: Pool) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="memories_fact_evidence_fkey"):
        commit(pool, [FACT, EVIDENCE], proven=memory_id("global"))


@pytest.mark.parametrize("kind", ["user_words", "tool_output", "person"])
def test_fact_that_is_earned_stays_as_it_was_proven(pool: Pool, kind: str) -> None:
    with pool.transaction(OWNER) as conn:
        for statement in (FACT, EVIDENCE, "set constraints all immediate"):
            conn.execute(statement, fact(kind=kind))
        assert not takes(conn, "update memsvc.evidence set quote = 'else' where id = %(proof)s", fact())
        for change in ("update memsvc.evidence set kind = 'url'", "delete from memsvc.evidence"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), conn.transaction():
                conn.execute(change.encode())
        raise psycopg.Rollback


def test_fact_of_a_review_needs_evidence_of_that_memory(pool: Pool) -> None:
    review: LiteralString = """
        insert into memsvc.reviews (tenant_id, memory_id, scope_id, verdict, status, reviewer_id, evidence_id)
        values (%(tenant)s, %(first)s, %(scope)s, 'confirm', 'fact', %(author)s, %(proof)s)"""
    with pytest.raises(psycopg.errors.CheckViolation, match="review_fact_has_evidence"):
        commit(pool, [review], proof=None)
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="reviews_evidence_fkey"):
        commit(pool, [review])


def test_memory_keeps_its_text_and_its_author(pool: Pool) -> None:
    with pool.transaction(OWNER) as conn:
        columns = {name for (name,) in conn.execute(COLUMNS, ["memsvc.memories"]).fetchall()}
        refused = {name for name in columns if not changes(conn, name)}
    assert columns - refused == {"retired_at", "retired_by", "retired_because", "superseded_by"}
    assert {"text", "context", "author_id", "status", "scope_id", "tenant_id"} <= refused


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ("'memsvc', 'running', null, null, null, now()", "running_has_lease"),
        ("'memsvc', 'running', now(), null, null, now()", "running_has_lease"),
        ("'memsvc', 'running', null, 'token', null, now()", "running_has_lease"),
        ("'memsvc', 'resting', null, null, null, now()", "live_status_known"),
        ("'memsvc', 'pending', null, null, null, null", "live_can_move"),
        ("'memsvc', 'error', null, null, null, null", "live_can_move"),
        ("'memsvc', 'pending', null, null, 'poison', now()", "stopped_is_error"),
        ("'memsvc', 'error', null, null, 'bored', now()", "stop_reason_known"),
        ("'state_5', 'error', null, null, 'poison', now()", "stopped_is_error"),
    ],
)
def test_live_job_that_could_not_be_is_refused(pool: Pool, values: LiteralString, constraint: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=constraint):
        commit(pool, [JOB + values + ")"])


@pytest.mark.parametrize("status", ["running", "error", "pending", "done", "paused", ""])
@pytest.mark.parametrize("store", ["state_5", "v1", "v2"])
def test_job_of_an_import_is_kept_as_it_was_and_never_due(pool: Pool, store: str, status: str) -> None:
    with pool.transaction(OWNER) as conn:
        conn.execute(JOB + "%(store)s, %(status)s, null, null, null, null)", job(store=store, status=status))
        kept = conn.execute("select status, due_at from memsvc.jobs where kind = 'k'").fetchone()
        assert kept == (status, None)
        raise psycopg.Rollback


# What the tests above stand on

COLUMNS = "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped"
JOB: LiteralString = """
    insert into memsvc.jobs (
        tenant_id, source_id, kind, job_key, retry_remaining, store, status, lease_until, ownership_token, stop_reason,
        not_before)
    values (%(tenant)s, %(source)s, 'k', 'j', 3, """
FACT: LiteralString = """
    insert into memsvc.memories (
        tenant_id, id, scope_id, kind, status, origin, text, text_sha256, author_id, source_id, fact_evidence_id)
    values (%(tenant)s, %(memory)s, %(scope)s, 'note', 'fact', 'human', 'so', '', %(author)s, %(source)s, %(proof)s)"""
EVIDENCE: LiteralString = """
    insert into memsvc.evidence (tenant_id, memory_id, id, scope_id, kind, locator, sha256, added_by)
    values (%(tenant)s, %(proven)s, coalesce(%(proof)s, gen_random_uuid()), %(scope)s, %(kind)s, '{}', '',
        %(author)s)"""


def writes(who: str) -> set[str]:
    grant = GRANTS[who]
    return READS.get(who, set()) if grant and grant[1] != "read" else set()


def fact(**other: Any) -> dict[str, Any]:
    owner = row("keeps everything", "global") | {"author": OWNER.principal_id, "memory": fixed("fact")}
    return owner | {"proven": fixed("fact"), "proof": fixed("proof"), "kind": "user_words"} | other


def job(**other: Any) -> dict[str, Any]:
    return {"tenant": DEFAULT_TENANT, "source": LOCAL_SOURCE} | other


def commit(pool: Pool, statements: list[LiteralString], **values: Any) -> None:
    with pool.transaction(OWNER) as conn:
        for statement in statements:
            conn.execute(statement, fact(**values))


def takes(conn: Conn, statement: LiteralString | sql.Composed, values: Any) -> bool:
    """Does the statement touch a row? Nothing stays of it."""
    try:
        with conn.transaction(force_rollback=True):
            return conn.execute(statement, values).rowcount > 0
    except psycopg.errors.InsufficientPrivilege:
        return False


def changes(conn: Conn, column: str) -> bool:
    change = sql.SQL("update memsvc.memories set {} = default where id = %s").format(sql.Identifier(column))
    return takes(conn, change, [memory_id("global")])


def count(conn: Conn, table: str) -> int:
    # A name of a column, and not *: not every column of every table is granted.
    column = sql.Identifier("id" if table == "tenants" else "tenant_id")
    query = sql.SQL("select count({}) from memsvc.{}").format(column, sql.Identifier(table))
    ((number,),) = conn.execute(query).fetchall()
    assert isinstance(number, int)
    return number


def scopes_seen(conn: Conn, table: str, column: str = "scope_id") -> set[UUID]:
    return _column(conn, table, column) - {None}


def tenants_seen(conn: Conn, table: str) -> set[UUID]:
    return _column(conn, table, "tenant_id")


def _column(conn: Conn, table: str, column: str) -> set[Any]:
    query = sql.SQL("select {} from memsvc.{}").format(sql.Identifier(column), sql.Identifier(table))
    return {value for (value,) in conn.execute(query).fetchall()}


def rows_as_text(conn: Conn, table: str) -> str:
    query = sql.SQL("select coalesce(string_agg(t::text, ' '), '') from memsvc.{} t").format(sql.Identifier(table))
    ((text,),) = conn.execute(query).fetchall()
    return str(text)


def claim(conn: Conn, claimed: Actor) -> None:
    """What our own service says of a transaction, said by somebody else."""
    for name, value in (("tenant_id", claimed.tenant_id), ("principal_id", claimed.principal_id)):
        conn.execute("select set_config(%s, %s, false)", [f"memsvc.{name}", str(value)])


@contextmanager
def token_holder(world: str) -> Iterator[Conn]:
    """A session as PostgREST has it, if the tables were exposed to it."""
    with psycopg.connect(world) as conn, conn.transaction(force_rollback=True):
        conn.execute("grant usage on schema memsvc to authenticated")
        conn.execute("grant select on memsvc.memories to authenticated")
        conn.execute("grant execute on all functions in schema memsvc to authenticated")
        conn.execute("set local session authorization authenticator")
        conn.execute("set local role authenticated")
        yield conn


def claimed(conn: Conn, claims: str) -> set[UUID]:
    conn.execute("select set_config('request.jwt.claims', %s, true)", [claims])
    return tenants_seen(conn, "memories")


@contextmanager
def principal_with_login(world: str, login: str, who: str) -> Iterator[None]:
    change = "update memsvc.principals set login_role = %s where tenant_id = %s and id = %s"
    with psycopg.connect(world, autocommit=True) as conn:
        conn.execute(change, [login, DEFAULT_TENANT, fixed(who)])
        try:
            yield
        finally:
            conn.execute(change, [None, DEFAULT_TENANT, fixed(who)])


def inherit_only(world: str, login: str) -> None:
    with psycopg.connect(world) as conn:
        grant = sql.SQL("grant memsvc_service to {} with inherit true, set false")
        conn.execute(grant.format(sql.Identifier(login)))


def as_admin(conn: Conn) -> None:
    """Lay the role down: the login of the tests is a superuser."""
    conn.execute("set local role none")


def hijack(conn: Conn, left: LiteralString, right: LiteralString) -> None:
    """Arithmetic on these two types gives null from now on, for whoever finds schema public on the search path."""
    types = {"left": sql.SQL(left), "right": sql.SQL(right), "trap": sql.Identifier(f"trap_{left}_{right}")}
    function: LiteralString = "create function public.{trap}({left}, {right}) returns float8 return null::float8"
    conn.execute(sql.SQL(function).format(**types))
    operator: LiteralString = "create operator public.{name} (function = {trap}, leftarg = {left}, rightarg = {right})"
    for name in ("+", "-", "/", "*"):
        conn.execute(sql.SQL(operator).format(name=sql.SQL(name), **types))


def ranked(conn: Conn, query: LiteralString, values: dict[str, Any]) -> list[tuple[UUID, float]]:
    return [(found, round(score, 9)) for found, score in conn.execute(query, values).fetchall()]


@contextmanager
def random_world(
    pool: Pool, kept: list[tuple[UUID, str, str, str]], held: dict[str, tuple[str, bool]]
) -> Iterator[Conn]:
    """A transaction that acts for somebody with these grants, on the world and these memories; nothing stays."""
    somebody = Actor(DEFAULT_TENANT, fixed("somebody"))
    with pool.transaction(somebody) as conn:
        as_admin(conn)
        add_principal(conn, somebody.tenant_id, "somebody")
        for name, (rights, descends) in held.items():
            add_grant(conn, somebody.tenant_id, "somebody", (name, rights, descends))
        for number, (tenant, scope, text, when) in enumerate(kept):
            add_embedded(conn, row("somebody", scope, str(number + 2), tenant=tenant), text, when)
        conn.execute("set local role memsvc_service")
        yield conn
        raise psycopg.Rollback


def add_embedded(conn: Conn, values: dict[str, Any], text: str, when: str) -> None:
    values |= {"text": text, "author": fixed("keeps everything"), "end": len(text), "model": EMBEDDER.model}
    values |= {"vector": written(EMBEDDER.embed_passages([text])[0]), "when": when}
    conn.execute(INSERTS["memories"], values)
    conn.execute(WHEN, values)
    conn.execute(CHUNK, values)
    conn.execute(VECTOR, values)


WHEN: LiteralString = """
    update memsvc.memories set
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
