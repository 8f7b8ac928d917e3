"""
Connections, and the transactions that everything runs in.

Each transaction sets its role, its principal and its timeouts for itself alone, so that nothing is left on a
connection and a transaction-mode pooler may stand in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolTimeout

from memsvc.db import queries
from memsvc.errors import DatabaseUnavailable, NotMigrated
from memsvc.model.principal import Actor

SQL = queries.load(__file__)

Conn = psycopg.Connection[TupleRow]

CONNECT_WITHIN = timedelta(seconds=10)


class Pool:
    """Connections to one database, opened when they are first needed."""

    def __init__(self, conninfo: str, *, max_size: int = 8) -> None:
        self._pool: ConnectionPool[Conn] = ConnectionPool(
            conninfo,
            min_size=0,
            max_size=max_size,
            open=False,
            # A server that was restarted leaves dead connections behind: each is tried before it is lent.
            check=ConnectionPool.check_connection,
            timeout=CONNECT_WITHIN.total_seconds(),
            reconnect_timeout=CONNECT_WITHIN.total_seconds(),
            kwargs={
                # Prepared statements do not survive a transaction-mode pooler.
                "prepare_threshold": None,
                "autocommit": True,
                "connect_timeout": int(CONNECT_WITHIN.total_seconds()),
                "application_name": "memsvc",
            },
        )
        self._opened = False

    def close(self) -> None:
        """Close every connection."""
        if self._opened:
            self._pool.close()

    @contextmanager
    def transaction(
        self,
        actor: Actor,
        *,
        statement_within: timedelta = timedelta(seconds=30),
        lock_within: timedelta = timedelta(seconds=10),
        idle_within: timedelta = timedelta(seconds=60),
    ) -> Iterator[Conn]:
        """
        One transaction that acts for somebody: committed at the end, rolled back when anything is raised.

        Raises:
            DatabaseUnavailable: the server cannot be reached.
            NotMigrated: there is no schema of ours there.
        """
        with self._connection() as conn, conn.transaction():
            self._begin(conn, actor, statement_within, lock_within, idle_within)
            yield conn

    @contextmanager
    def _connection(self) -> Iterator[Conn]:
        if not self._opened:
            self._pool.open()
            self._opened = True
        try:
            conn = self._pool.getconn()
        except (PoolTimeout, psycopg.OperationalError) as exc:
            raise DatabaseUnavailable(
                f"the database cannot be reached: {reason(exc)}", mend="memsvc doctor says what is wrong"
            ) from exc
        try:
            yield conn
        finally:
            self._pool.putconn(conn)

    def _begin(
        self, conn: Conn, actor: Actor, statement_within: timedelta, lock_within: timedelta, idle_within: timedelta
    ) -> None:
        values: dict[str, Any] = {
            "tenant_id": str(actor.tenant_id),
            "principal_id": str(actor.principal_id),
            "statement_timeout": _milliseconds(statement_within),
            "lock_timeout": _milliseconds(lock_within),
            "idle_timeout": _milliseconds(idle_within),
        }
        try:
            conn.execute(SQL["begin"], values)
        except psycopg.errors.InvalidParameterValue as exc:  # role "memsvc_service" does not exist
            raise NotMigrated("the database has no memsvc schema yet", mend="memsvc migrate") from exc
        except psycopg.errors.InsufficientPrivilege as exc:
            raise NotMigrated(
                "this login may not act as memsvc_service", mend="memsvc migrate, with a login that may grant it"
            ) from exc


def reason(exc: BaseException) -> str:
    """The first line of what a driver says: no SQL, no connection string."""
    lines = str(exc).strip().splitlines()
    return lines[0] if lines else type(exc).__name__


def _milliseconds(span: timedelta) -> str:
    return str(int(span.total_seconds() * 1000))
