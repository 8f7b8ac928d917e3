"""Scopes in the database: found by name, by what names a project, or made."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.rows import class_row

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.db.recordset import recordset
from memsvc.errors import Refused
from memsvc.model.scope import Alias, ProjectIdentity, Scope, ScopeKind

SQL = queries.load(__file__)


def readable(conn: Conn) -> list[Scope]:
    """Every scope that the caller may read: global first, then by kind and name."""
    with conn.cursor(row_factory=class_row(Scope)) as cursor:
        return cursor.execute(SQL["readable"]).fetchall()


def named(conn: Conn, kind: ScopeKind, name: str) -> Scope | None:
    """The scope of exactly this name, if the caller may read it."""
    with conn.cursor(row_factory=class_row(Scope)) as cursor:
        return cursor.execute(SQL["named"], {"kind": kind, "name": name}).fetchone()


def by_alias(conn: Conn, aliases: Sequence[Alias]) -> Scope | None:
    """The project that the first matching alias names; earlier aliases are stronger."""
    rows = recordset(
        {"place": place, "kind": a.kind, "host": a.host, "value": a.value} for place, a in enumerate(aliases)
    )
    with conn.cursor(row_factory=class_row(Scope)) as cursor:
        return cursor.execute(SQL["by_alias"], {"aliases": rows}).fetchone()


def around(conn: Conn, project: Scope) -> list[Scope]:
    """The project, its client and global: what a question asked inside the project searches."""
    with conn.cursor(row_factory=class_row(Scope)) as cursor:
        return cursor.execute(SQL["around"], {"scope_id": project.id}).fetchall()


def ensure_project(conn: Conn, identity: ProjectIdentity, *, name: str, alternative: str) -> Scope:
    """
    The project of this identity, made if it is not known: none -> scope with its aliases.

    `name` is taken unless another project holds it; then `alternative` is.

    Raises:
        Refused: the caller may not add a project.
    """
    known = by_alias(conn, identity.aliases) if identity.aliases else None
    if known is None:
        held = named(conn, "project", name)
        # Without an alias the name is all there is to go by.
        known = held if held is not None and not identity.aliases else _add(conn, alternative if held else name)
    if identity.aliases:
        conn.execute(
            SQL["add_aliases"],
            {
                "scope_id": known.id,
                "aliases": recordset({"kind": a.kind, "host": a.host, "value": a.value} for a in identity.aliases),
            },
        )
    return known


def require_writable(conn: Conn, scope: Scope) -> None:
    """
    Refuse early, with a sentence instead of a policy's message.

    Raises:
        Refused: the caller may not write there.
    """
    row = conn.execute(SQL["is_writable"], {"scope_id": scope.id}).fetchone()
    if row is None or not row[0]:
        raise Refused(f"you may not write in {scope}", mend="ask an admin for a grant on that scope")


def _add(conn: Conn, name: str) -> Scope:
    row = conn.execute(SQL["may_add"]).fetchone()
    if row is None or not row[0]:
        raise Refused(f"the project {name!r} is not known, and you may not add one", mend="ask an admin to add it")
    with conn.cursor(row_factory=class_row(Scope)) as cursor:
        conn.execute(SQL["add_project"], {"name": name})
        found = cursor.execute(SQL["named"], {"kind": "project", "name": name}).fetchone()
    if found is None:
        raise Refused(f"the project {name!r} exists and you may not see it", mend="ask an admin for a grant")
    return found
