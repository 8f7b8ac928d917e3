"""Row-level security: who sees and changes which rows, whatever SQL they send; and what the tables refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from memsvc.db.pool import Conn, Pool
from memsvc.memory import scopes as scope_store
from memsvc.model.principal import DEFAULT_TENANT, OWNER, Actor
from tests.db.databases import MakeLogin, as_login, logins
from tests.db.world import (
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
    as_admin,
    count,
    fixed,
    memory_id,
    row,
    rows_as_text,
    scopes_seen,
    takes,
    tenants_seen,
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


@pytest.mark.parametrize("who", PRINCIPALS)
def test_windows_are_taken_away_only_where_one_may_write(pool: Pool, who: str) -> None:
    delete = sql.SQL("delete from memsvc.{} where scope_id = %s")
    with pool.transaction(actor(who)) as conn:
        as_admin(conn)
        for name in SCOPES:
            for table in ("chunks", "chunk_embeddings"):
                conn.execute(INSERTS[table].replace("'own'", "'window'").encode(), row(who, name))
        conn.execute("set local role memsvc_service")
        taken = {
            table: {
                name for name in SCOPES if conn.execute(delete.format(sql.Identifier(table)), [SCOPES[name]]).rowcount
            }
            for table in ("chunk_embeddings", "chunks")
        }
        assert taken == {"chunk_embeddings": writes(who), "chunks": writes(who)}
        raise psycopg.Rollback


def test_nobody_speaks_in_anothers_name(pool: Pool) -> None:
    spoken = {}
    for who in ("writes anvil", "keeps everything"):
        with pool.transaction(actor(who)) as conn:
            forged = row("reads anvil", "anvil", "2")
            spoken[who] = [takes(conn, INSERTS[table], forged) for table in ("memories", "evidence", "reviews")]
    assert spoken == {"writes anvil": [False] * 3, "keeps everything": [True] * 3}


def test_word_of_a_person_is_given_by_persons_only(pool: Pool) -> None:
    word: LiteralString = INSERTS["evidence"].replace("session_output", "person")
    for kind, may in (("agent", False), ("service", False), ("person", True)):
        with pool.transaction(actor("writes anvil")) as conn:
            as_admin(conn)
            conn.execute("update memsvc.principals set kind = %s where id = %s", [kind, fixed("writes anvil")])
            conn.execute("set local role memsvc_service")
            assert takes(conn, word, row("writes anvil", "anvil")) == may
            raise psycopg.Rollback


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


# What the tests above stand on


def writes(who: str) -> set[str]:
    grant = GRANTS[who]
    return READS.get(who, set()) if grant and grant[1] != "read" else set()


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
