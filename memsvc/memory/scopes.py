"""Scopes in the database: found by name, by what names a project, or made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import class_row

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.db.recordset import recordset
from memsvc.errors import Refused
from memsvc.model.scope import Alias, AliasKind, ProjectIdentity, Scope, ScopeKind

SQL = queries.load(__file__)


@dataclass(frozen=True)
class Match:
    """
    A known alias among those asked for.

    `place` is that of the given one; `kind` is the known one's: a folder's path also finds what a person named by it.
    `of_another_origin` says that the path alone speaks for the project, which has another git origin than was given.
    """

    place: int
    kind: AliasKind
    scope: Scope
    of_another_origin: bool


@dataclass(frozen=True)
class Listed:
    """A scope with its client's name, if it has one, its aliases, and the number of its current memories."""

    scope: Scope
    client: str | None
    aliases: tuple[Alias, ...]
    memories: int


def readable(conn: Conn) -> list[Scope]:
    """Every scope that the caller may read: global first, then by kind and name."""
    with conn.cursor(row_factory=class_row(Scope)) as cursor:
        return cursor.execute(SQL["readable"]).fetchall()


def listed(conn: Conn) -> list[Listed]:
    """Every scope that the caller may read, with what is known of it, in the order of `readable`."""
    return [
        Listed(Scope(*scope), client, tuple(Alias(**alias) for alias in aliases), memories)
        for *scope, client, aliases, memories in conn.execute(SQL["listed"]).fetchall()
    ]


def named(conn: Conn, kind: ScopeKind, name: str) -> Scope | None:
    """The scope of exactly this name, if the caller may read it."""
    with conn.cursor(row_factory=class_row(Scope)) as cursor:
        return cursor.execute(SQL["named"], {"kind": kind, "name": name}).fetchone()


def matches(conn: Conn, aliases: Sequence[Alias]) -> list[Match]:
    """All projects that the aliases name, in their order: earlier aliases are stronger."""
    rows = recordset(
        {"place": place, "kind": a.kind, "host": a.host, "value": a.value} for place, a in enumerate(aliases)
    )
    return [
        Match(place, kind, Scope(*scope), of_another_origin)
        for place, kind, *scope, of_another_origin in conn.execute(SQL["matches"], {"aliases": rows}).fetchall()
    ]


def first(found: Sequence[Match]) -> Match | None:
    """The match that decides: the strongest that does not speak for another repository."""
    return next((match for match in found if not match.of_another_origin), None)


def by_alias(conn: Conn, aliases: Sequence[Alias]) -> Scope | None:
    """The project that the strongest matching alias names."""
    match = first(matches(conn, aliases))
    return match.scope if match else None


def around(conn: Conn, project: Scope) -> list[Scope]:
    """The project, its client and global: what a question asked inside the project searches."""
    with conn.cursor(row_factory=class_row(Scope)) as cursor:
        return cursor.execute(SQL["around"], {"scope_id": project.id}).fetchall()


def add(conn: Conn, kind: ScopeKind, name: str, *, parent_id: UUID | None = None) -> bool:
    """None -> a scope; False when there is one of that name. Ask `may_add` first."""
    return bool(conn.execute(SQL["add"], {"kind": kind, "name": name, "parent_id": parent_id}).fetchone())


def add_aliases(conn: Conn, scope: Scope, aliases: Sequence[Alias]) -> int:
    """
    Let these name the project too; returns how many are new. One that names another project stays with it, and nothing
    changes for a caller who may not name projects.
    """
    if not aliases:
        return 0
    rows = recordset({"kind": a.kind, "host": a.host, "value": a.value} for a in aliases)
    return len(conn.execute(SQL["add_aliases"], {"scope_id": scope.id, "aliases": rows}).fetchall())


def free_name(conn: Conn, name: str, alternative: str) -> str:
    """What a new project is called: `name`, unless another project holds it."""
    return name if named(conn, "project", name) is None else alternative


def ensure_project(conn: Conn, identity: ProjectIdentity, *, name: str, alternative: str) -> Scope:
    """
    The project of this identity, made if it is not known: none -> scope with its aliases.

    `name` is taken unless another project holds it; then `alternative` is. A project that was named after its folder
    takes the name of its git origin when that becomes known, and keeps the old name as an alias: an import that learns
    of the origin late ends as one that knew it from the beginning.

    Raises:
        Refused: the caller may not add a project.
    """
    # Without an alias the name is all there is to go by.
    known = by_alias(conn, identity.aliases) if identity.aliases else named(conn, "project", name)
    if known is None:
        known = _added(conn, free_name(conn, name, alternative))
    elif identity.aliases and identity.aliases[0].kind == "git_origin":
        _name_after_origin(conn, known, identity, free_name(conn, name, alternative))
    add_aliases(conn, known, identity.aliases)
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


def may_add(conn: Conn) -> bool:
    """May the caller add scopes and name projects?"""
    row = conn.execute(SQL["may_add"]).fetchone()
    return row is not None and bool(row[0])


def _name_after_origin(conn: Conn, project: Scope, identity: ProjectIdentity, name: str) -> None:
    folders = [alias for alias in identity.aliases if alias.kind != "git_origin"]
    old = [written for alias in folders for written in (alias.value, f"{alias.host}:{alias.value}")]
    if conn.execute(SQL["rename"], {"scope_id": project.id, "name": name, "old": old}).fetchone():
        add_aliases(conn, project, [Alias("explicit", "", project.name)])
    rows = recordset({"kind": alias.kind, "host": alias.host, "value": alias.value} for alias in folders)
    conn.execute(SQL["take_folders"], {"scope_id": project.id, "aliases": rows})


def _added(conn: Conn, name: str) -> Scope:
    if not may_add(conn):
        raise Refused(f"the project {name!r} is not known, and you may not add one", mend="ask an admin to add it")
    add(conn, "project", name)
    found = named(conn, "project", name)
    if found is None:
        raise Refused(f"the project {name!r} exists and you may not see it", mend="ask an admin for a grant")
    return found
