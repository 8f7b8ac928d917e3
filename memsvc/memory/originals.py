"""Original bytes of imported texts, where the stored text differs from them. Admins only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.db.recordset import recordset
from memsvc.memory.kept import NOTHING, Kept, keep, without_secrets

SQL = queries.load(__file__)


@dataclass(frozen=True)
class KeptColumn:
    """One text column of one imported row."""

    store: str
    table: str
    row_key: str
    column: str
    kept: Kept


def replace(conn: Conn, source_id: UUID, columns: Iterable[KeptColumn], *, exact: bool = True) -> None:
    """
    Keep what differs, drop what no longer does: afterwards the originals fit these columns.

    Unless `exact`, secrets are cut out of what is kept.
    """
    _write(conn, source_id, [_columns(c, c.kept if exact else without_secrets(c.kept)) for c in columns])


def cut_secrets(conn: Conn, source_id: UUID) -> None:
    """Cut secrets out of what earlier imports of the source kept as well."""
    keys = conn.execute(SQL["keys"], {"source_id": source_id}).fetchall()
    for store, table, row_key, column in keys:
        key = {"store": store, "table_name": table, "row_key": row_key, "column_name": column}
        found = conn.execute(SQL["original"], {"source_id": source_id, **key}).fetchone()
        kept = keep(bytes(found[0])) if found else NOTHING
        if kept.findings:
            _write(conn, source_id, [{**key, "original": without_secrets(kept).original}])


def _write(conn: Conn, source_id: UUID, rows: Sequence[Mapping[str, object]]) -> None:
    for query, given in (
        ("drop", [row for row in rows if row["original"] is None]),
        ("keep", [row for row in rows if row["original"] is not None]),
    ):
        if given:
            conn.execute(SQL[query], {"source_id": source_id, "rows": recordset(given)})


def _columns(column: KeptColumn, kept: Kept) -> dict[str, object]:
    return {
        "store": column.store,
        "table_name": column.table,
        "row_key": column.row_key,
        "column_name": column.column,
        "original": kept.original,
    }
