"""What the tables themselves refuse, whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from memsvc.db.pool import Conn, Pool
from memsvc.model.principal import DEFAULT_TENANT, LOCAL_SOURCE, OWNER
from tests.db.world import fixed, memory_id, row, takes


@pytest.fixture(scope="module")
def pool(world: str) -> Iterator[Pool]:
    opened = Pool(world)
    yield opened
    opened.close()


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
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match=r"reviews_.*evidence_fkey"):
        commit(pool, [review])
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="reviews_fact_evidence_fkey"):
        commit(pool, [EVIDENCE, review], proven=memory_id("global"), kind="session_output")


def test_memory_is_not_its_own_successor(pool: Pool) -> None:
    itself: LiteralString = """
        update memsvc.memories set retired_at = now(), retired_because = 'old', superseded_by = id
        where id = %(first)s"""
    with pytest.raises(psycopg.errors.CheckViolation, match="not_superseded_by_itself"):
        commit(pool, [itself])


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ("'project', 'x', (select id from memsvc.scopes where name = 'anvil')", "scope_parent_is_client"),
        ("'project', 'x', (select id from memsvc.scopes where name = 'global')", "scope_parent_is_client"),
        ("'client', 'x', (select id from memsvc.scopes where name = 'acme')", "only_projects_have_a_parent"),
        ("'global', 'x', null", "one_global"),
        ("'global', 'global', null", "scope_name_unique"),
        ("'project', 'anvil', null", "scope_name_unique"),
        ("'project', '', null", "scope_name_not_empty"),
        ("'team', 'x', null", "scope_kind_known"),
    ],
)
def test_scope_that_could_not_be_is_refused(pool: Pool, values: LiteralString, refusal: str) -> None:
    with pytest.raises(psycopg.IntegrityError, match=refusal):
        commit(
            pool, ["insert into memsvc.scopes (tenant_id, kind, name, parent_id) values (%(tenant)s, " + values + ")"]
        )


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


def fact(**other: Any) -> dict[str, Any]:
    owner = row("keeps everything", "global") | {"author": OWNER.principal_id, "memory": fixed("fact")}
    return owner | {"proven": fixed("fact"), "proof": fixed("proof"), "kind": "user_words"} | other


def job(**other: Any) -> dict[str, Any]:
    return {"tenant": DEFAULT_TENANT, "source": LOCAL_SOURCE} | other


def commit(pool: Pool, statements: list[LiteralString], **values: Any) -> None:
    with pool.transaction(OWNER) as conn:
        for statement in statements:
            conn.execute(statement, fact(**values))


def changes(conn: Conn, column: str) -> bool:
    change = sql.SQL("update memsvc.memories set {} = default where id = %s").format(sql.Identifier(column))
    return takes(conn, change, [memory_id("global")])
