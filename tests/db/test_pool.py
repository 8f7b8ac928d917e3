"""Transactions: whose they are, how long they may take, and what becomes of them when the server goes away."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from memsvc.db import embedded, migrate
from memsvc.db.pool import CONNECT_WITHIN, Conn, Pool
from memsvc.errors import DatabaseUnavailable, NotMigrated
from memsvc.model.principal import DEFAULT_TENANT, OWNER, Actor
from tests.conftest import embedded_in
from tests.db.databases import as_login, logins, new_database

SHORT = timedelta(milliseconds=50)
STATE = """
select current_setting('role'), current_setting('search_path'), current_setting('statement_timeout'),
    current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'),
    coalesce(current_setting('memsvc.tenant_id', true), ''),
    coalesce(current_setting('memsvc.principal_id', true), '')
"""


@pytest.fixture
def narrow(dsn: str) -> Iterator[Pool]:
    """A pool of one connection: whoever comes gets the one that the last had, as behind a transaction-mode pooler."""
    pool = Pool(dsn, max_size=1)
    yield pool
    pool.close()


@pytest.fixture
def admin(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A session with all rights in the database of the test."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture
def people(admin: psycopg.Connection[Any]) -> list[Actor]:
    """Ten principals of the default tenant."""
    made = [Actor(DEFAULT_TENANT, uuid4()) for _ in range(10)]
    with admin.cursor() as cursor:
        cursor.executemany(
            "insert into memsvc.principals (tenant_id, id, kind, name) values (%s, %s, 'agent', %s)",
            [(actor.tenant_id, actor.principal_id, str(actor.principal_id)) for actor in made],
        )
    return made


# What a transaction sets is its own


def test_transaction_acts_as_the_service_for_its_actor(pool: Pool) -> None:
    five, two, seven = (timedelta(seconds=seconds) for seconds in (5, 2, 7))
    with pool.transaction(OWNER, statement_within=five, lock_within=two, idle_within=seven) as conn:
        expected = ("memsvc_service", "memsvc, extensions, public", "5s", "2s", "7s")
        assert conn.execute(STATE).fetchone() == (*expected, str(OWNER.tenant_id), str(OWNER.principal_id))
        assert principal(conn) == OWNER.principal_id


@pytest.mark.parametrize("durable", [False, True])
def test_commit_is_waited_for_unless_its_loss_would_do_no_harm(narrow: Pool, durable: bool) -> None:
    with narrow.transaction(OWNER, durable=durable) as conn:
        assert conn.execute("show synchronous_commit").fetchone() == ("on" if durable else "off",)
    assert conn.execute("show synchronous_commit").fetchone() == ("on",)


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_on_the_connection(narrow: Pool, admin: psycopg.Connection[Any], fails: bool) -> None:
    before = admin.execute(STATE).fetchone()
    with suppress(ZeroDivisionError), narrow.transaction(OWNER) as conn:
        if fails:
            raise ZeroDivisionError
    assert conn.execute(STATE).fetchone() == before
    assert conn.info.transaction_status is psycopg.pq.TransactionStatus.IDLE


def test_raising_rolls_back(narrow: Pool) -> None:
    with suppress(ZeroDivisionError), narrow.transaction(OWNER) as conn:
        add_source(conn, "lost")
        raise ZeroDivisionError
    with narrow.transaction(OWNER) as conn:
        add_source(conn, "kept")
    with narrow.transaction(OWNER) as conn:
        assert labels(conn) == ["kept", "local"]


def test_failed_statement_leaves_a_usable_connection(narrow: Pool) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero), narrow.transaction(OWNER) as conn:
        conn.execute("select 1 / 0")
    with narrow.transaction(OWNER) as conn:
        assert principal(conn) == OWNER.principal_id


def test_two_actors_on_one_physical_connection_never_meet(narrow: Pool, people: list[Actor]) -> None:
    seen = []
    for actor in people[:2] * 10:
        with narrow.transaction(actor) as conn:
            seen.append((conn.info.backend_pid, principal(conn), tenant(conn)))
    assert {pid for pid, _, _ in seen} == {seen[0][0]}
    assert [found for _, *found in seen] == [[actor.principal_id, actor.tenant_id] for actor in people[:2] * 10]


def test_unknown_actor_after_a_known_one_is_nobody(narrow: Pool) -> None:
    for stranger in (Actor(DEFAULT_TENANT, uuid4()), Actor(uuid4(), OWNER.principal_id)):
        with narrow.transaction(OWNER) as conn:
            assert labels(conn) == ["local"]
        with narrow.transaction(stranger) as conn:
            assert (principal(conn), tenant(conn), labels(conn)) == (None, None, [])


def test_ten_threads_never_see_each_others_principal(dsn: str, people: list[Actor]) -> None:
    pool = Pool(dsn, max_size=4)

    def act(actor: Actor) -> Counter[UUID | None]:
        seen: Counter[UUID | None] = Counter()
        for _ in range(15):
            with pool.transaction(actor) as conn:
                seen[principal(conn)] += 1
                conn.execute("select pg_sleep(0.001)")
                seen[principal(conn)] += 1
        return seen

    try:
        with ThreadPoolExecutor(10) as threads:
            assert list(threads.map(act, people)) == [{actor.principal_id: 30} for actor in people]
    finally:
        pool.close()


def test_first_transactions_of_many_threads_open_the_pool_once(dsn: str) -> None:
    for _ in range(5):
        pool, together = Pool(dsn, max_size=2), threading.Barrier(12)

        def act(pool: Pool = pool, together: threading.Barrier = together) -> UUID | None:
            together.wait()
            with pool.transaction(OWNER) as conn:
                return principal(conn)

        try:
            with ThreadPoolExecutor(12) as threads:
                assert [job.result() for job in [threads.submit(act) for _ in range(12)]] == [OWNER.principal_id] * 12
        finally:
            pool.close()


def test_plans_are_kept_where_that_is_asked_for(narrow: Pool) -> None:
    assert kept_plans(narrow) == {"select label from memsvc.sources where label = $1": 20}


def test_no_plan_is_kept_behind_a_pooler(narrow: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 1)  # as a pooler's greeting says
    assert kept_plans(narrow) == {}


def test_default_isolation_of_the_database_does_not_matter(dsn: str, admin: psycopg.Connection[Any]) -> None:
    change = sql.SQL("alter database {} set default_transaction_isolation = 'serializable'")
    admin.execute(change.format(sql.Identifier(admin.info.dbname)))
    pool = Pool(dsn)
    try:
        with pool.transaction(OWNER) as first:
            assert labels(first) == ["local"]
            with pool.transaction(OWNER) as second:
                add_source(second, "committed meanwhile")
            assert labels(first) == ["committed meanwhile", "local"]
    finally:
        pool.close()


def test_text_arrives_whatever_the_environment_says(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    pool = Pool(dsn)
    try:
        with pool.transaction(OWNER) as conn:
            assert conn.execute("select %s::text, length(%s::text)", ["né 記憶 🙂", "🙂"]).fetchone() == (
                "né 記憶 🙂",
                1,
            )
    finally:
        pool.close()


# Time


def test_statement_that_takes_too_long_is_cancelled(pool: Pool) -> None:
    begun = time.monotonic()
    with pytest.raises(psycopg.errors.QueryCanceled), pool.transaction(OWNER, statement_within=SHORT) as conn:
        conn.execute("select pg_sleep(10)")
    assert time.monotonic() - begun < 10


def test_no_time_at_all_is_not_no_limit(pool: Pool) -> None:
    nothing = timedelta(0)
    with pytest.raises(psycopg.errors.QueryCanceled), pool.transaction(OWNER, statement_within=nothing) as conn:
        conn.execute("select pg_sleep(10)")


def test_very_long_limit_is_allowed(pool: Pool) -> None:
    with pool.transaction(OWNER, statement_within=timedelta(days=365)) as conn:
        assert conn.execute("select current_setting('statement_timeout')").fetchone() == ("2147483647ms",)


def test_lock_is_not_waited_for_longer_than_allowed(pool: Pool) -> None:
    lock = "select pg_advisory_xact_lock(7)"
    with pool.transaction(OWNER) as holder:
        holder.execute(lock)
        with pytest.raises(psycopg.errors.LockNotAvailable), pool.transaction(OWNER, lock_within=SHORT) as conn:
            conn.execute(lock)


def test_transaction_that_idles_is_ended_and_the_next_one_works(narrow: Pool) -> None:
    def idle() -> None:
        with narrow.transaction(OWNER, idle_within=SHORT) as conn:
            time.sleep(0.2)
            conn.execute("select 1")

    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        idle()
    with narrow.transaction(OWNER) as conn:
        assert principal(conn) == OWNER.principal_id


# The server goes away


def test_terminated_connection_is_replaced_at_the_next_transaction(
    narrow: Pool, admin: psycopg.Connection[Any]
) -> None:
    with narrow.transaction(OWNER) as conn:
        pid = conn.info.backend_pid
    assert admin.execute("select pg_terminate_backend(%s, 5000)", [pid]).fetchone() == (True,)
    with narrow.transaction(OWNER) as conn:
        assert principal(conn) == OWNER.principal_id
        assert conn.info.backend_pid != pid


def test_connection_terminated_within_a_transaction_loses_that_one_only(
    narrow: Pool, admin: psycopg.Connection[Any]
) -> None:
    def die() -> None:
        with narrow.transaction(OWNER) as conn:
            add_source(conn, "lost")
            admin.execute("select pg_terminate_backend(%s, 5000)", [conn.info.backend_pid])
            conn.execute("select 1")

    with pytest.raises(psycopg.errors.AdminShutdown):
        die()
    with narrow.transaction(OWNER) as conn:
        assert labels(conn) == ["local"]


def test_stopped_server_is_unavailable_and_a_started_one_is_used_again(tmp_path: Path) -> None:
    settings = embedded_in(tmp_path)
    pool = Pool(embedded.start(settings), connect_within=timedelta(seconds=1))
    try:
        with migrate.connect(embedded.start(settings)) as conn:
            migrate.migrate(conn)
        with pool.transaction(OWNER) as conn:
            add_source(conn, "before")
        embedded.stop(settings)
        with pytest.raises(DatabaseUnavailable, match=r"the database cannot be reached: .*No such file"):
            pool.transaction(OWNER).__enter__()
        embedded.start(settings)
        with pool.transaction(OWNER) as conn:
            assert labels(conn) == ["before", "local"]
    finally:
        pool.close()
        embedded.stop(settings)


def test_absent_server_is_unavailable_soon_and_without_the_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with closed_port() as port:
        pool = Pool(f"postgresql://me:s3cret@127.0.0.1:{port}/x", connect_within=timedelta(seconds=1))
        begun = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match="Connection refused") as refused:
            pool.transaction(OWNER).__enter__()
        assert time.monotonic() - begun < 10
        pool.close()
    assert "s3cret" not in str(refused.value) + (refused.value.mend or "") + caplog.text
    assert timedelta(seconds=10) >= CONNECT_WITHIN


def test_silent_server_is_unavailable_soon_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pool = Pool(
            f"postgresql://me:s3cret@127.0.0.1:{silent.getsockname()[1]}/x", connect_within=timedelta(seconds=1)
        )
        begun = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match="connection timeout expired") as refused:
            pool.transaction(OWNER).__enter__()
        assert time.monotonic() - begun < 10
        pool.close()
    assert "s3cret" not in str(refused.value)


def test_all_connections_in_use_is_told_apart(dsn: str) -> None:
    pool = Pool(dsn, max_size=1, connect_within=timedelta(milliseconds=200))
    try:
        with pool.transaction(OWNER) as conn:
            with pytest.raises(DatabaseUnavailable, match="all connections are in use"):
                pool.transaction(OWNER).__enter__()
            assert principal(conn) == OWNER.principal_id
    finally:
        pool.close()


def test_closed_pool_is_unavailable(dsn: str) -> None:
    pool = Pool(dsn)
    with pool.transaction(OWNER):
        pass
    pool.close()
    pool.close()
    with pytest.raises(DatabaseUnavailable, match="closed"):
        pool.transaction(OWNER).__enter__()


def test_pool_that_was_never_used_is_closed_without_a_server() -> None:
    Pool("postgresql://127.0.0.1:1/x").close()


# The schema is not there, or not for this login


def test_database_without_the_schema_is_told_what_to_do(server: str, template: str) -> None:
    assert template, "the roles of the server are there, made by another database"
    with new_database(server) as conninfo:
        assert_not_migrated(conninfo, "no memsvc schema yet")


def test_server_without_the_roles_is_told_what_to_do(tmp_path: Path) -> None:
    settings = embedded_in(tmp_path)
    try:
        assert_not_migrated(embedded.start(settings), "no memsvc schema yet")
    finally:
        embedded.stop(settings)


def test_login_that_may_not_act_for_the_service_is_told_what_to_do(server: str, dsn: str) -> None:
    with logins(server) as make_login:
        assert_not_migrated(as_login(dsn, make_login()), "may not act as memsvc_service")


# What the tests above stand on


def kept_plans(pool: Pool) -> dict[str, int]:
    """How often each statement that the server keeps was executed, after 20 transactions."""
    for number in range(20):
        with pool.transaction(OWNER) as conn:
            conn.execute("select label from memsvc.sources where label = %s", [str(number)], prepare=True)
            conn.execute("select id from memsvc.sources where label = %s", [str(number)])
    with pool.transaction(OWNER) as conn:
        return dict(
            conn.execute("select statement, generic_plans + custom_plans from pg_prepared_statements").fetchall()
        )


def assert_not_migrated(conninfo: str, said: str) -> None:
    pool = Pool(conninfo)
    try:
        for _ in range(2):
            with pytest.raises(NotMigrated, match=said) as refused:
                pool.transaction(OWNER).__enter__()
            assert "memsvc migrate" in (refused.value.mend or "")
    finally:
        pool.close()


def principal(conn: Conn) -> UUID | None:
    ((found,),) = conn.execute("select memsvc.current_principal()").fetchall()
    assert found is None or isinstance(found, UUID)
    return found


def tenant(conn: Conn) -> UUID | None:
    ((found,),) = conn.execute("select memsvc.current_tenant()").fetchall()
    assert found is None or isinstance(found, UUID)
    return found


def labels(conn: Conn) -> list[str]:
    return [label for (label,) in conn.execute("select label from memsvc.sources order by label").fetchall()]


def add_source(conn: Conn, label: str) -> None:
    conn.execute(
        "insert into memsvc.sources (tenant_id, importer, label) values (%s, 'codex', %s)", [DEFAULT_TENANT, label]
    )


@contextmanager
def closed_port() -> Iterator[int]:
    """A port where nobody listens, and nobody else can begin to."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
