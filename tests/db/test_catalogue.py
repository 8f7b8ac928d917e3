"""What the catalogue must say of the schema, whatever tables are added."""

from __future__ import annotations

import pytest

from memsvc.db import checks
from memsvc.db.pool import Conn

# What a migration tool needs to know is the same for all tenants.
WITHOUT_TENANT = ("schema_migrations",)


@pytest.fixture
def tables(conn: Conn) -> list[str]:
    rows = conn.execute(
        "select relname from pg_class where relnamespace = 'memsvc'::regnamespace and relkind = 'r' order by relname"
    ).fetchall()
    return [name for (name,) in rows if name not in WITHOUT_TENANT]


def test_tables_of_the_design_are_there(tables: list[str]) -> None:
    expected = {
        "tenants", "principals", "scopes", "scope_aliases", "grants", "sources", "source_files", "threads",
        "stage1_outputs", "stage1_originals", "jobs", "job_attempts", "import_runs", "import_rejects",
        "consolidation_progress", "memories", "evidence", "reviews", "embedding_models", "chunks", "chunk_embeddings",
    }  # fmt: skip

    assert expected <= set(tables)


def test_tenant_is_first_in_every_key(conn: Conn, tables: list[str]) -> None:
    rows = conn.execute(
        """
        select c.relname, i.relname, a.attname
        from pg_index x
        join pg_class c on c.oid = x.indrelid
        join pg_class i on i.oid = x.indexrelid
        join pg_attribute a on a.attrelid = c.oid and a.attnum = x.indkey[0]
        where c.relnamespace = 'memsvc'::regnamespace and x.indisunique
        """
    ).fetchall()

    wrong = [(t, i, first) for t, i, first in rows if t in tables and t != "tenants" and first != "tenant_id"]
    assert wrong == []
    assert {t for t, _, _ in rows} >= set(tables), "a table without a key"


def test_tenant_is_first_in_every_foreign_key(conn: Conn) -> None:
    rows = conn.execute(
        """
        select k.conname, a.attname
        from pg_constraint k
        join pg_attribute a on a.attrelid = k.conrelid and a.attnum = k.conkey[1]
        where k.connamespace = 'memsvc'::regnamespace and k.contype = 'f'
        """
    ).fetchall()

    assert [name for name, first in rows if first != "tenant_id"] == []


def test_row_security_is_on_for_every_table_and_each_has_a_policy(conn: Conn, tables: list[str]) -> None:
    with_policy = {name for (name,) in conn.execute("select tablename from pg_policies where schemaname = 'memsvc'")}

    assert checks.tables_without_row_security(conn) == []
    assert set(tables) - with_policy == set()


def test_everything_is_owned_by_a_role_that_nobody_logs_in_as(conn: Conn) -> None:
    rows = conn.execute(
        """
        select o.relname, r.rolname, r.rolcanlogin, r.rolsuper, r.rolbypassrls
        from pg_class o
        join pg_roles r on r.oid = o.relowner
        where o.relnamespace = 'memsvc'::regnamespace and o.relkind in ('r', 'v', 'S')
        """
    ).fetchall()

    assert {row[1:] for row in rows} == {("memsvc_owner", False, False, False)}


def test_the_service_role_owns_nothing_and_bypasses_nothing(conn: Conn) -> None:
    row = conn.execute(
        "select rolsuper, rolbypassrls, rolcanlogin, pg_has_role('memsvc_service', 'memsvc_owner', 'member')"
        " from pg_roles where rolname = 'memsvc_service'"
    ).fetchone()

    assert row == (False, False, False, False)


def test_every_definer_function_has_a_fixed_search_path_that_ends_in_pg_temp(conn: Conn) -> None:
    rows = conn.execute(
        """
        select p.proname, coalesce((select c from unnest(p.proconfig) c where c like 'search_path=%'), '')
        from pg_proc p
        where p.pronamespace = 'memsvc'::regnamespace and p.prosecdef
        """
    ).fetchall()

    assert rows
    assert [name for name, config in rows if not config.endswith("pg_temp")] == []


def test_nobody_outside_may_run_our_functions(conn: Conn) -> None:
    rows = conn.execute(
        """
        select p.proname
        from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
        where p.pronamespace = 'memsvc'::regnamespace and a.grantee = 0
        """
    ).fetchall()

    assert rows == []


def test_every_constraint_was_named_by_hand(conn: Conn) -> None:
    rows = conn.execute(
        """
        select k.conname from pg_constraint k
        where k.connamespace = 'memsvc'::regnamespace and k.contype in ('c', 'f', 'u')
          and k.conname ~ '(_check|_key1|_fkey1|_check1)$'
        """
    ).fetchall()

    assert rows == []


def test_the_key_of_forgotten_text_is_readable_by_nobody(conn: Conn) -> None:
    row = conn.execute("select has_column_privilege('memsvc_service', 'memsvc.tenants', 'forget_key', 'select')")

    assert row.fetchone() == (False,)


def test_only_the_columns_that_retire_a_memory_can_change(conn: Conn) -> None:
    rows = conn.execute(
        """
        select a.attname from pg_attribute a
        where a.attrelid = 'memsvc.memories'::regclass and a.attnum > 0
          and has_column_privilege('memsvc_service', a.attrelid, a.attnum, 'update')
        order by a.attname
        """
    ).fetchall()

    assert [name for (name,) in rows] == ["retired_at", "retired_because", "retired_by", "superseded_by"]
