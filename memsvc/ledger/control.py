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
