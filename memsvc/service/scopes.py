"""Scopes: list them, add one, name a project, and explain which one a folder belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from memsvc.db.pool import Conn
from memsvc.errors import Conflict, Refused, WrongUse
from memsvc.memory import scopes
from memsvc.memory.scopes import Match
from memsvc.model.scope import (
    LONGEST_NAME_BYTES,
    Alias,
    AliasKind,
    Scope,
    ScopeKind,
    is_storable,
    normalised_origin,
    without_credentials,
)
from memsvc.service import folder as folders
from memsvc.service import where
from memsvc.service.app import App
from memsvc.service.folder import Marks

REMOTE = re.compile(r"://|^[^@/\s:]+@[^/\s:]+:")

Outcome = Literal["decides", "weaker", "another-origin", "unknown"]


@dataclass(frozen=True)
class ListedScope:
    """A scope as it is written, its aliases, strongest first, and the number of its current memories."""

    scope: str
    kind: ScopeKind
    name: str
    client: str | None
    aliases: tuple[Alias, ...]
    memories: int


@dataclass(frozen=True)
class AddRequest:
    """`client:NAME` or `project:NAME`, exactly so; `client` is the name of the project's client."""

    scope: str
    client: str | None = None


@dataclass(frozen=True)
class AddResult:
    """The new scope."""

    scope: str
    client: str | None


@dataclass(frozen=True)
class AliasRequest:
    """A project, and what shall name it too: the URL of a git remote, a folder of this machine, or any other name."""

    scope: str
    alias: str


@dataclass(frozen=True)
class AliasResult:
    """The alias as it is kept; `created` is False when it named the project before."""

    scope: str
    alias: Alias
    created: bool


@dataclass(frozen=True)
class ResolveRequest:
    """The folder to explain; a file stands for its folder."""

    folder: Path


@dataclass(frozen=True)
class GitMark:
    """
    What the repository says: where it begins, the root that names it, and the remote that counts, if one does.

    `url` is the remote's own, credentials masked; `origin` the same for all its forms, None when it names no host.
    """

    top: str
    root: str
    remote: str | None
    url: str | None
    origin: str | None


@dataclass(frozen=True)
class Mark:
    """
    One mark of the folder, strongest first, what it names and what came of it.

    `matched` is the kind of the known alias, which for a folder's path may be `explicit`. `outcome`: `decides`;
    `weaker` than the one that does; `another-origin`: the path alone speaks for a project of another repository, and
    that is not enough; `unknown`.
    """

    kind: AliasKind
    host: str
    value: str
    matched: AliasKind | None
    scope: str | None
    outcome: Outcome


@dataclass(frozen=True)
class NewProject:
    """The project that `remember` would make here, and the aliases it would have."""

    scope: str
    aliases: tuple[Alias, ...]
    allowed: bool


@dataclass(frozen=True)
class ResolveResult:
    """Which project a folder belongs to and why; `scope` is None when none is known."""

    folder: str
    host: str
    git: GitMark | None
    marks: tuple[Mark, ...]
    scope: str | None
    would_create: NewProject | None
    notes: tuple[str, ...]


def ls(app: App) -> tuple[ListedScope, ...]:
    """Every scope that the caller may read: global, clients, projects."""
    with app.pool.transaction(app.actor) as conn:
        return tuple(
            ListedScope(str(row.scope), row.scope.kind, row.scope.name, row.client, row.aliases, row.memories)
            for row in scopes.listed(conn)
        )


def add(app: App, request: AddRequest) -> AddResult:
    """
    Add a client or a project.

    Raises:
        WrongUse: that is no name of a client or project, or a client was given one.
        NotFound: there is no such client.
        Refused: the caller may not add scopes.
        Conflict: there is one of that name.
    """
    kind, name = where.parted(request.scope)
    if kind == "global":
        raise WrongUse("global is there already, and once", mend="name client:NAME or project:NAME")
    _require_storable(name)
    if request.client is not None and kind != "project":
        raise WrongUse("only a project has a client", mend="leave --client out")
    with app.pool.transaction(app.actor) as conn:
        _require_admin(conn, f"add {request.scope}")
        client = where.named(conn, f"client:{request.client}", host=app.host) if request.client is not None else None
        if not scopes.add(conn, kind, name, parent_id=client.id if client else None):
            raise Conflict(f"{request.scope!r} is there already", mend="memsvc scope ls shows it")
    return AddResult(request.scope, str(client) if client else None)


def alias(app: App, request: AliasRequest) -> AliasResult:
    """
    Let something name a project too.

    Raises:
        WrongUse: no project was named, or what shall name it cannot.
        NotFound: there is no such project.
        Refused: the caller may not name projects.
        Conflict: it names another project.
    """
    named_by = _alias(request.alias, host=app.host)
    with app.pool.transaction(app.actor) as conn:
        project = where.named(conn, request.scope, host=app.host)
        if project.kind != "project":
            raise WrongUse(f"{project} is no project; only projects have aliases", mend="name project:NAME")
        _require_admin(conn, f"name {project}")
        created = scopes.add_aliases(conn, project, [named_by]) > 0
        _require_names(conn, named_by, project)
    return AliasResult(str(project), named_by, created)


def resolve(app: App, request: ResolveRequest) -> ResolveResult:
    """
    Explain which project a folder belongs to. Nothing is written.

    Raises:
        WrongUse: that cannot be a folder.
    """
    found = folders.marks(request.folder, host=app.host)
    with app.pool.transaction(app.actor) as conn:
        matches = scopes.matches(conn, found.all)
        match = scopes.first(matches)
        new = _new_project(conn, found, host=app.host) if match is None else None
    return ResolveResult(
        folder=found.folder,
        host=app.host,
        git=_git(found),
        marks=_marks(found, matches, match),
        scope=str(match.scope) if match else None,
        would_create=new,
        notes=tuple(_notes(found, matches, match)),
    )


def _require_admin(conn: Conn, what: str) -> None:
    if not scopes.may_add(conn):
        raise Refused(f"you may not {what}", mend="ask an admin")


def _require_storable(name: str) -> None:
    if not is_storable(name):
        raise WrongUse(
            "that name cannot be kept: it is empty, not Unicode, has a NUL or is too long",
            mend=f"name it in at most {LONGEST_NAME_BYTES} bytes of UTF-8",
        )


def _alias(word: str, *, host: str) -> Alias:
    if where.is_folder(word):
        own = folders.marks(Path(word), host=host).nearest
        if own is None:
            raise WrongUse(f"{word!r} can be no project: it is a home folder or the root of a file system")
        return Alias("explicit", host, own)
    if REMOTE.search(word):
        origin = normalised_origin(word)
        if origin is None:
            raise WrongUse(
                f"{without_credentials(word)!r} names no host that other machines know",
                mend="name the folder of the repository",
            )
        return Alias("git_origin", "", origin)
    _require_storable(word)
    return Alias("explicit", "", word)


def _require_names(conn: Conn, given: Alias, project: Scope) -> None:
    """An alias is one project's alone, and no other project's name, which would come first."""
    holders = [scopes.by_alias(conn, [given])]
    if given.kind == "explicit" and not given.host:
        holders.append(scopes.named(conn, "project", given.value))
    for held in holders:
        if held is not None and held.id != project.id:
            raise Conflict(f"{given.value!r} names {held} already", mend="memsvc scope ls shows what names what")


def _git(found: Marks) -> GitMark | None:
    repository = found.repository
    if repository is None:
        return None
    remote = repository.remote
    return GitMark(
        top=str(repository.top),
        root=str(repository.root),
        remote=remote.name if remote else None,
        url=without_credentials(remote.url) if remote else None,
        origin=normalised_origin(remote.url) if remote else None,
    )


def _marks(found: Marks, matches: list[Match], deciding: Match | None) -> tuple[Mark, ...]:
    # Where a path is both a name that a person gave and a place that was seen, the first is the one that counts.
    by_place = {match.place: match for match in reversed(matches)}
    return tuple(_mark(mark, by_place.get(place), deciding) for place, mark in enumerate(found.all))


def _mark(mark: Alias, match: Match | None, deciding: Match | None) -> Mark:
    if match is None:
        return Mark(mark.kind, mark.host, mark.value, None, None, "unknown")
    outcome: Outcome = "decides" if match is deciding else "another-origin" if match.of_another_origin else "weaker"
    return Mark(mark.kind, mark.host, mark.value, match.kind, str(match.scope), outcome)


def _new_project(conn: Conn, found: Marks, *, host: str) -> NewProject | None:
    name = where.new_name(conn, found, host=host)
    return NewProject(f"project:{name}", found.own.aliases, scopes.may_add(conn)) if name else None


def _notes(found: Marks, matches: list[Match], deciding: Match | None) -> list[str]:
    notes = []
    repository = found.repository
    if repository is None:
        notes.append("no git repository: the folder and those above it count")
    elif repository.remote is None:
        notes.append(f"no git origin: {repository.reason}")
    elif normalised_origin(repository.remote.url) is None:
        notes.append("no git origin: the remote's URL names no host that other machines know, so the root counts")
    elif deciding is not None and deciding.kind == "root":
        notes.append(
            "the git origin names no known project, the root does: if the remote was renamed, add the new one with "
            "`memsvc scope alias`; if it is another repository, give it a project of its own with `memsvc scope add`"
        )
    if any(match.of_another_origin for match in matches):
        notes.append("a folder's path alone does not carry a repository into the project of another git origin")
    if not found.all:
        notes.append("a home folder and the root of a file system belong to no project")
    return notes
