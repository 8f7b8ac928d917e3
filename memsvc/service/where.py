"""Which scopes a call means: the words that a person writes, or the folder that they stand in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from memsvc.db.pool import Conn
from memsvc.errors import NotFound, WrongUse
from memsvc.memory import scopes
from memsvc.model.scope import Alias, Scope, ScopeKind, is_storable, is_windows_form, normalised_origin, project_folder
from memsvc.service import folder as folders
from memsvc.service.folder import Marks

FORMS = "all, global, client:NAME, project:IDENTITY, or a folder"


@dataclass(frozen=True)
class Searched:
    """The scopes of a question; `note` says why, where a person might wonder."""

    scopes: tuple[Scope, ...]
    note: str | None = None


def searched(conn: Conn, word: str | None, folder: Path | None, *, host: str) -> Searched:
    """
    The scopes to search: what `word` names, else the project of the folder, its client and global.

    Raises:
        NotFound: no such scope, or none that the caller may read.
        WrongUse: the word is none of the forms.
    """
    if word == "all":
        return Searched(tuple(scopes.readable(conn)))
    if word is not None:
        found = named(conn, word, host=host)
        return Searched(tuple(scopes.around(conn, found)) if found.kind == "project" else (found,))
    project = scopes.by_alias(conn, folders.marks(folder, host=host).all) if folder else None
    if project is not None:
        return Searched(tuple(scopes.around(conn, project)))
    reason = f"{folder} belongs to no known project" if folder else "no scope was named"
    return Searched(tuple(scopes.readable(conn)), f"{reason}: everything readable was searched")


def target(conn: Conn, word: str | None, folder: Path | None, *, host: str) -> Scope:
    """
    The scope to write in: what `word` names, else the project of the folder, which is made if it is not known.

    Raises:
        NotFound: no such scope, or none that the caller may see.
        Refused: the caller may not write there.
        WrongUse: there is neither a word nor a folder, or the word is none of the forms.
    """
    if word == "all":
        raise WrongUse("a memory lies in one scope, not in all", mend=f"name one: {FORMS.removeprefix('all, ')}")
    if word is not None and not is_folder(word):
        found = named(conn, word, host=host)
    elif folder is None and word is None:
        raise WrongUse("no scope was named", mend=f"name one: {FORMS.removeprefix('all, ')}")
    else:
        found = _project_of(conn, Path(word) if word is not None else cast(Path, folder), host=host)
    scopes.require_writable(conn, found)
    return found


def named(conn: Conn, word: str, *, host: str) -> Scope:
    """
    The scope that a word means: `global`, `client:NAME`, `project:IDENTITY` or a folder.

    Raises:
        NotFound: no such scope, or none that the caller may see.
        WrongUse: the word is none of the forms.
    """
    if is_folder(word):
        found = scopes.by_alias(conn, folders.marks(Path(word), host=host).all)
    else:
        kind, name = parted(word)
        found = _by_name(conn, kind, name, host=host) if is_storable(name) else None
    if found is None:
        raise NotFound(f"there is no scope {word!r}", mend="memsvc scope ls shows those that you may read")
    return found


def parted(word: str) -> tuple[ScopeKind, str]:
    """
    The kind and the exact name in `client:NAME` and its like.

    Raises:
        WrongUse: the word is none of the forms.
    """
    if word == "global":
        return "global", "global"
    kind, colon, name = word.partition(":")
    if kind not in ("client", "project") or not colon or not name:
        raise WrongUse(f"{word!r} names no scope", mend=f"write {FORMS}")
    return cast(ScopeKind, kind), name


def is_folder(word: str) -> bool:
    """Is the word written as a folder is?"""
    return word.startswith(("/", "./", "../", "~")) or word in (".", "..") or is_windows_form(word)


def new_name(conn: Conn, marks: Marks, *, host: str) -> str | None:
    """What the project of the folder would be called if it were made now; None where there can be none."""
    name = marks.own.name
    return scopes.free_name(conn, name, f"{host}:{name}") if name else None


def _project_of(conn: Conn, folder: Path, *, host: str) -> Scope:
    marks = folders.marks(folder, host=host)
    match = scopes.first(scopes.matches(conn, marks.all))
    if match is not None:
        # A repository that was moved, or is here for the first time, is known by its place from now on. Marks that are
        # stronger than the known one are not taken over: another repository may have come to an old one's place.
        scopes.add_aliases(conn, match.scope, marks.weaker_than(marks.all[match.place]))
        return match.scope
    name = marks.own.name
    if name is None:
        raise WrongUse(
            f"{folder} is no project: a home folder and the root of a file system belong to none",
            mend=f"name one: {FORMS.removeprefix('all, ')}",
        )
    return scopes.ensure_project(conn, marks.own, name=name, alternative=f"{host}:{name}")


def _by_name(conn: Conn, kind: ScopeKind, name: str, *, host: str) -> Scope | None:
    found = scopes.named(conn, kind, name)
    return scopes.by_alias(conn, _aliases(name, host)) if found is None and kind == "project" else found


def _aliases(name: str, host: str) -> tuple[Alias, ...]:
    exact = name == name.strip()
    origin = (normalised_origin(name) or normalised_origin(f"https://{name}")) if exact else None
    folder = project_folder(name)
    return (
        *((Alias("git_origin", "", origin),) if origin else ()),
        *((Alias("root", host, folder), Alias("cwd", host, folder)) if folder else ()),
        Alias("explicit", "", name),
    )
