"""What a person does to jobs without holding a lease: try again, and stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from psycopg.rows import class_row

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.db.recordset import recordset
from memsvc.model.job import RETRIES

SQL = queries.load(__file__)


@dataclass(frozen=True)
class Row:
    """What names one row of the ledger, live or history."""

    source_id: UUID
    store: str
    kind: str
    job_key: str


def chosen(
    conn: Conn,
    kind: str,
    job_key: str | None = None,
    *,
    live: bool = True,
    source_id: UUID | None = None,
    store: str | None = None,
) -> list[Row]:
    """The rows of a kind that are not done, live ones or history; None stands for any."""
    values = {"kind": kind, "job_key": job_key, "live": live, "source_id": source_id, "store": store}
    with conn.cursor(row_factory=class_row(Row)) as cursor:
        return cursor.execute(SQL["chosen"], values).fetchall()


def retry(conn: Conn, rows: Sequence[Row]) -> list[Row]:
    """
    Error, stopped or not, and pending that is not due yet -> pending, due at once, with all retries and attempts.

    History gets a live twin that begins from its watermarks and stays as it is. What is due, running or done is left
    alone. Returns the live jobs that were moved or made.
    """
    found = conn.execute(SQL["retry"], {"rows": recordset(map(asdict, rows)), "retries": RETRIES}).fetchall()
    return [Row(*row[:4]) for row in found]


def cancel(conn: Conn, rows: Sequence[Row]) -> list[Row]:
    """
    Pending, running and error that would be tried again -> error, stopped as cancelled; only retry or newer input opens
    it again. A running job's lease is lost. History, and what has ended, is left alone.

    Returns the jobs that were stopped.
    """
    live = [asdict(row) for row in rows if row.store == "memsvc"]
    with conn.cursor(row_factory=class_row(Row)) as cursor:
        return cursor.execute(SQL["cancel"], {"rows": recordset(live)}).fetchall()
