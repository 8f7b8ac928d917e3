"""Jobs of an imported export: Codex's ledger as it stood, verbatim. Never claimed, never counted as work."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.db.recordset import recordset
from memsvc.memory import originals
from memsvc.memory.digest import row_sha256
from memsvc.memory.kept import NOTHING, Kept, keep, secrets
from memsvc.memory.merge import JobVersion, compare_jobs
from memsvc.memory.originals import KeptColumn
from memsvc.memory.raw import extra
from memsvc.model.export import JobRow
from memsvc.model.report import Outcome, Upserted

SQL = queries.load(__file__)

TABLE = "jobs"


def upsert(conn: Conn, source_id: UUID, rows: Sequence[JobRow], *, from_newest: bool, exact: bool = True) -> Upserted:
    """
    Write what is new or newer: absent or older -> the given row. The result is in the order of the rows.

    Unless `exact`, secrets are cut out of the originals too.
    """
    stored = _versions(conn, source_id, rows)
    outcomes: list[Outcome] = []
    written: list[tuple[JobRow, Kept, bytes]] = []
    for row in rows:
        given = JobVersion(row.started_at, row.finished_at, row.input_watermark, row_sha256(vars(row)))
        outcome = compare_jobs(stored.get((row.store, row.kind, row.job_key)), given, from_newest=from_newest)
        outcomes.append(outcome)
        if outcome in ("inserted", "updated"):
            error = NOTHING if row.last_error is None else keep(row.last_error)
            written.append((row, error, given.row_sha256))
    if written:
        _write(conn, source_id, written, exact)
    found = [place for row, error, _ in written for place in secrets(TABLE, _key(row), {"last_error": error})]
    return Upserted(outcomes, found)


def _key(row: JobRow) -> str:
    return f"{row.kind}/{row.job_key}"


def _write(conn: Conn, source_id: UUID, written: Sequence[tuple[JobRow, Kept, bytes]], exact: bool) -> None:
    rows = [
        {
            **vars(row),
            "last_error": None if row.last_error is None else error.text,
            "extra": extra(row.extra),
            "row_sha256": digest,
        }
        for row, error, digest in written
    ]
    conn.execute(SQL["upsert"], {"source_id": source_id, "rows": recordset(rows)})
    originals.replace(
        conn,
        source_id,
        (KeptColumn(row.store, TABLE, _key(row), "last_error", error) for row, error, _ in written),
        exact=exact,
    )


def _versions(conn: Conn, source_id: UUID, rows: Sequence[JobRow]) -> dict[tuple[str, str, str], JobVersion]:
    keys = recordset({"store": row.store, "kind": row.kind, "job_key": row.job_key} for row in rows)
    found = conn.execute(SQL["versions"], {"source_id": source_id, "keys": keys}).fetchall()
    return {(store, kind, job_key): JobVersion(*version) for store, kind, job_key, *version in found}
