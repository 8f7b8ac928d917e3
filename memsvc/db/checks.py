"""What the catalogue says about the health of the schema."""

from __future__ import annotations

from memsvc.db import queries
from memsvc.db.pool import Conn

SQL = queries.load(__file__)


def vector_version(conn: Conn) -> str:
    """The version of pgvector that is installed, or would be."""
    row = conn.execute(SQL["vector_version"]).fetchone()
    return str(row[0]) if row else "absent"


def knows_caller(conn: Conn) -> bool:
    """Does the database know a principal for this transaction?"""
    row = conn.execute(SQL["knows_caller"]).fetchone()
    return row is not None and bool(row[0])


def tables_without_row_security(conn: Conn) -> list[str]:
    """Tables of schema memsvc whose rows nothing guards; there should be none."""
    return [str(name) for (name,) in conn.execute(SQL["tables_without_row_security"]).fetchall()]
