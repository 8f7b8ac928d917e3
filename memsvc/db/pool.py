"""
Connections, and the transactions that everything runs in.

Each transaction sets its role, its principal and its timeouts for itself alone, so that nothing is left on a
connection and a transaction-mode pooler may stand in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from math import ceil
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg.types.string import StrDumperUnknown
from psycopg_pool import ConnectionPool, PoolTimeout

from memsvc.db import queries
from memsvc.errors import DatabaseUnavailable, NotMigrated, WrongUse
from memsvc.model.principal import Actor

SQL = queries.load(__file__)

Conn = psycopg.Connection[TupleRow]

CONNECT_WITHIN = timedelta(seconds=10)

# How every connection is made, whatever the environment or the database would choose.
CONNECTION: dict[str, Any] = {
    # Prepared statements do not survive a transaction-mode pooler: see keep_plans.
    "prepare_threshold": None,
    "client_encoding": "utf8",
    "application_name": "memsvc",
}
# Our statements count on seeing what others have committed meanwhile, whatever the database's default is.
BEGIN = "begin isolation level read committed;\n"
ONLY_WHEN_ASKED = 2**31  # executions
LONGEST = 2**31 - 1  # milliseconds; PostgreSQL takes no more


class Pool:
    """
    Connections to one database, opened when they are first needed.

    `connect_within` is how long a transaction waits for its connection.

    Raises:
        WrongUse: that is no connection string.
    """

    def __init__(self, conninfo: str, *, max_size: int = 8, connect_within: timedelta = CONNECT_WITHIN) -> None:
        self._conninfo = checked(conninfo)
        self._pool: ConnectionPool[Conn] = ConnectionPool(
            conninfo,
            min_size=0,
            max_size=max_size,
            open=False,
            configure=_configure,
            timeout=connect_within.total_seconds(),
            reconnect_timeout=connect_within.total_seconds(),
            kwargs={"autocommit": True, "connect_timeout": ceil(connect_within.total_seconds()), **CONNECTION},
        )

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()

    @contextmanager
    def transaction(
        self,
        actor: Actor,
        *,
        statement_within: timedelta = timedelta(seconds=30),
        lock_within: timedelta = timedelta(seconds=10),
        idle_within: timedelta = timedelta(seconds=60),
        durable: bool = True,
    ) -> Iterator[Conn]:
        """
        One transaction that acts for somebody: committed at the end, rolled back when anything is raised.

        One that is not `durable` does not wait for the disk: the server may forget it in a crash, as if it had never
        been.

        Raises:
            DatabaseUnavailable: the server cannot be reached, or has no connection to spare.
            NotMigrated: there is no schema of ours there, or this login may not act for it.
        """
        values = {
            "tenant_id": str(actor.tenant_id),
            "principal_id": str(actor.principal_id),
            "statement_timeout": _milliseconds(statement_within),
            "lock_timeout": _milliseconds(lock_within),
            "idle_timeout": _milliseconds(idle_within),
            "durable": durable,
        }
        conn = self._begun(values)
        try:
            with suppress(psycopg.Rollback):
                yield conn
                conn.commit()
        finally:
            self._end(conn)

    @contextmanager
    def listening(self, channel: str, *, name: str) -> Iterator[Conn]:
        """
        A connection of its own, outside any transaction, that hears what is sent to a channel. The server knows it by
        `name`.

        Raises:
            psycopg.OperationalError: it cannot be had.
        """
        with psycopg.connect(
            self._conninfo,
            autocommit=True,
            connect_timeout=ceil(CONNECT_WITHIN.total_seconds()),
            **{**CONNECTION, "application_name": name},
        ) as conn:
            conn.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
            yield conn

    def _begun(self, values: Mapping[str, object]) -> Conn:
        """A connection within a transaction; the dead ones that a restarted server leaves behind are replaced."""
        conn = self._lent()
        try:
            return self._begin(conn, values)
        except psycopg.OperationalError:
            if not conn.closed:
                raise
        self._pool.check()
        return self._begin(self._lent(), values)

    def _begin(self, conn: Conn, values: Mapping[str, object]) -> Conn:
        try:
            _act(conn, values)
        except BaseException:
            self._end(conn)
            raise
        return conn

    def _end(self, conn: Conn) -> None:
        """Give the connection back; what was not committed is undone, and what is dead is thrown away."""
        with suppress(psycopg.Error):
            if not conn.closed:
                conn.rollback()
        self._pool.putconn(conn)

    def _lent(self) -> Conn:
        try:
            self._pool.open()  # nothing happens where it is open; two threads at once open it once
            return self._pool.getconn()
        except psycopg.OperationalError as exc:
            why = self._why_not() if isinstance(exc, PoolTimeout) else reason(exc)
            raise DatabaseUnavailable(
                f"the database cannot be reached: {why}", mend="memsvc doctor says what is wrong"
            ) from exc

    def _why_not(self) -> str:
        """The pool knows only that time ran out; the server, or its absence, says more."""
        try:
            psycopg.connect(self._conninfo, connect_timeout=2, **CONNECTION).close()
        except psycopg.OperationalError as exc:
            return reason(exc)
        return "all connections are in use"


def _act(conn: Conn, values: Mapping[str, object]) -> None:
    """Begin, as somebody: two statements in one message, so values are bound here. The server binds for one only."""
    try:
        with psycopg.ClientCursor(conn) as cursor:
            cursor.execute(BEGIN + SQL["begin"], values)
            cursor.nextset()
            begun = cursor.fetchone()
    except psycopg.errors.InvalidParameterValue as exc:  # role "memsvc_service" does not exist
        raise not_migrated() from exc
    except psycopg.errors.InsufficientPrivilege as exc:
        raise not_admitted() from exc
    if begun is None or not begun[0]:  # the role is there: it belongs to the whole server
        raise not_migrated()


def checked(conninfo: str) -> str:
    """
    The connection string as it is, once it was read.

    Raises:
        WrongUse: it is none. What is wrong is not told, since that could be the password.
    """
    if not _is_readable(conninfo):
        raise WrongUse(
            "the database's connection string cannot be read",
            mend="write it as postgresql://LOGIN:PASSWORD@HOST:PORT/DATABASE, odd characters as %XX",
        )
    return conninfo


class AnyText(StrDumperUnknown):
    """
    Text as Postgres can hold it: what is no Unicode text (names of files may be anything) becomes a question mark.

    What is to be kept byte for byte never comes this way: it is bytes.
    """

    def dump(self, obj: str) -> bytes:
        """The text in UTF-8."""
        return obj.replace("\x00", "?").encode("utf-8", errors="replace")


def settle(conn: Conn) -> None:
    """Our statements count on seeing what others have committed meanwhile, whatever the database's default is."""
    conn.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    conn.adapters.register_dumper(str, AnyText)


def keep_plans(conn: Conn) -> None:
    """
    Let `execute(..., prepare=True)` keep its plan where the connection goes to the server itself, and nowhere else.

    A pooler hands out process ids of its own making, so that of the greeting is not that of the server's process.
    Everything else is planned anew each time: what is right for one scope is wrong for another.
    """
    ((pid,),) = conn.execute(SQL["process"]).fetchall()
    conn.prepare_threshold = ONLY_WHEN_ASKED if pid == conn.info.backend_pid else None


def _configure(conn: Conn) -> None:
    settle(conn)
    keep_plans(conn)


def reason(exc: BaseException) -> str:
    """The first line of what a driver says: no SQL, no connection string."""
    lines = str(exc).strip().splitlines()
    return lines[0] if lines else type(exc).__name__


def not_migrated() -> NotMigrated:
    """The error for a database without our schema."""
    return NotMigrated("the database has no memsvc schema yet", mend="memsvc migrate")


def not_admitted() -> NotMigrated:
    """The error for a login that nobody let in."""
    return NotMigrated(
        "this login may not act as memsvc_service", mend="memsvc migrate, with a login that may grant it"
    )


def _is_readable(conninfo: str) -> bool:
    try:
        parts = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        return False
    # An unescaped @ or / in a password makes its end look like a host, or its beginning like a port.
    hosts, ports = (str(parts.get(name) or "").split(",") for name in ("host", "port"))
    return not any("@" in host[1:] for host in hosts) and all(port.isdecimal() for port in ports if port)


def _milliseconds(span: timedelta) -> str:
    # 0 would mean that there is no limit.
    return str(min(max(1, round(span.total_seconds() * 1000)), LONGEST))
