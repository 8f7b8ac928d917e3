"""What the tests of the ledger share: short names for its calls, and a way to bend time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from psycopg import sql

from memsvc.db.pool import Conn
from memsvc.ledger import jobs
from memsvc.model.job import JobKey, Lease
from memsvc.model.principal import DEFAULT_TENANT, LOCAL_SOURCE

KIND = "test_kind"
MINUTE = timedelta(minutes=1)
NEVER = timedelta(0)


def key(name: str, kind: str = KIND) -> JobKey:
    return JobKey(LOCAL_SOURCE, kind, name)


def enqueue(conn: Conn, *names: str, kind: str = KIND, watermark: int | None = None) -> int:
    keys = [key(name, kind) for name in names]
    marks = None if watermark is None else dict.fromkeys(keys, watermark)
    return jobs.enqueue(conn, [(found, None) for found in keys], watermarks=marks)


def claim(
    conn: Conn, *, kinds: Iterable[str] = (KIND,), worker_id: str = "one", lease_for: timedelta = MINUTE, limit: int = 1
) -> list[Lease]:
    return jobs.claim(conn, list(kinds), worker_id=worker_id, lease_for=lease_for, limit=limit)


def claimed(conn: Conn, *, kind: str = KIND, worker_id: str = "one", lease_for: timedelta = MINUTE) -> Lease:
    (lease,) = claim(conn, kinds=[kind], worker_id=worker_id, lease_for=lease_for)
    return lease


def column(conn: Conn, name: str, *columns: str) -> Any:
    """The columns of a live job, one as itself, several as a tuple."""
    query = sql.SQL("select {} from memsvc.jobs where job_key = %s and store = 'memsvc'")
    (found,) = conn.execute(query.format(sql.SQL(", ").join(map(sql.Identifier, columns))), [name]).fetchall()
    return found if len(columns) > 1 else found[0]


def change(conn: Conn, name: str, **columns: object) -> None:
    """Move a live job, which is how time is bent."""
    sets = sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(c), sql.Placeholder(c)) for c in columns)
    query = sql.SQL("update memsvc.jobs set {} where job_key = %(name)s and store = 'memsvc'").format(sets)
    assert conn.execute(query, {**columns, "name": name}).rowcount == 1


def pass_time(conn: Conn, span: timedelta) -> None:
    """Every instant of every live job moves into the past, as if the clock had gone on."""
    columns = ("started_at", "finished_at", "lease_until", "retry_at", "not_before")
    sets = sql.SQL(", ").join(sql.SQL("{0} = {0} - %(span)s").format(sql.Identifier(c)) for c in columns)
    conn.execute(sql.SQL("update memsvc.jobs set {} where store = 'memsvc'").format(sets), {"span": span})


def imported(conn: Conn, name: str, status: str, *, kind: str = KIND, store: str = "v1", **columns: object) -> None:
    """A row of an import's history."""
    values = {
        "tenant_id": DEFAULT_TENANT,
        "source_id": LOCAL_SOURCE,
        "store": store,
        "kind": kind,
        "job_key": name,
        "status": status,
        "retry_remaining": 0,
        **columns,
    }
    query = sql.SQL("insert into memsvc.jobs ({}) values ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, values)), sql.SQL(", ").join(map(sql.Placeholder, values))
    )
    conn.execute(query, values)


def history(conn: Conn, name: str) -> list[tuple[Any, ...]]:
    return conn.execute(
        "select outcome, worker_id, error from memsvc.job_attempts where job_key = %s order by started_at, ended_at,"
        " ownership_token",
        [name],
    ).fetchall()


def now(conn: Conn) -> datetime:
    (found,) = conn.execute("select now()").fetchone() or (None,)
    assert isinstance(found, datetime)
    return found
