"""Original bytes of imported texts, where the stored text differs from them. Admins only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.db.recordset import recordset
from memsvc.memory.kept import Kept

SQL = queries.load(__file__)


@dataclass(frozen=True)
class KeptColumn:
    """One text column of one imported row."""

    store: str
    table: str
    row_key: str
    column: str
    kept: Kept


def replace(conn: Conn, source_id: UUID, columns: Iterable[KeptColumn]) -> None:
    """Keep what differs, drop what no longer does: afterwards the originals fit these columns exactly."""
    rows = [
        {
            "store": c.store,
            "table_name": c.table,
            "row_key": c.row_key,
            "column_name": c.column,
            "original": c.kept.original,
        }
        for c in columns
    ]
    values = {"source_id": source_id, "rows": recordset(rows)}
    conn.execute(SQL["drop_exact"], values)
    conn.execute(SQL["keep_differing"], values)
