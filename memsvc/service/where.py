"""Which scopes a call means: the words that a person writes, or the folder that they stand in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from memsvc.db.pool import Conn
from memsvc.errors import NotFound, WrongUse
from memsvc.memory import scopes
from memsvc.model.scope import Alias, ProjectIdentity, Scope, ScopeKind, normalised_origin
from memsvc.service import folder as folders

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
        found = _named(conn, word, host=host)
        return Searched(tuple(scopes.around(conn, found)) if found.kind == "project" else (found,))
    project = scopes.by_alias(conn, folders.identify(folder, host=host).aliases) if folder else None
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
    if word is not None and not _is_folder(word):
        found = _named(conn, word, host=host)
    elif folder is None and word is None:
        raise WrongUse("no scope was named", mend=f"name one: {FORMS.removeprefix('all, ')}")
    else:
        found = _project_of(conn, Path(word) if word is not None else cast(Path, folder), host=host)
    scopes.require_writable(conn, found)
    return found


def _project_of(conn: Conn, folder: Path, *, host: str) -> Scope:
    known = folders.identify(folder, host=host)
    found = scopes.by_alias(conn, known.aliases)
    if found is not None:
        return found
    # Only the repository and the folder itself become names of the new project, not the folders above.
    here = str(folder.expanduser().absolute())
    own = ProjectIdentity(tuple(a for a in known.aliases if a.kind != "cwd" or a.value == here))
    name = own.name or here
    return scopes.ensure_project(conn, own, name=name, alternative=f"{host}:{name}")


def _named(conn: Conn, word: str, *, host: str) -> Scope:
    if _is_folder(word):
        found = scopes.by_alias(conn, folders.identify(Path(word), host=host).aliases)
    elif word == "global":
        found = scopes.named(conn, "global", "global")
    else:
        kind, colon, name = word.partition(":")
        if kind not in ("client", "project") or not colon or not name:
            raise WrongUse(f"{word!r} names no scope", mend=f"write {FORMS}")
        found = scopes.named(conn, cast(ScopeKind, kind), name)
        if found is None and kind == "project":
            found = scopes.by_alias(conn, _aliases(name, host))
    if found is None:
        raise NotFound(f"there is no scope {word!r}", mend="memsvc recall --scope all shows where memories lie")
    return found


def _aliases(name: str, host: str) -> tuple[Alias, ...]:
    origin = normalised_origin(name)
    return (
        *((Alias("git_origin", "", origin),) if origin else ()),
        Alias("git_origin", "", name.lower()),
        Alias("root", host, name),
        Alias("cwd", host, name),
        Alias("explicit", "", name),
    )


def _is_folder(word: str) -> bool:
    return word.startswith(("/", "./", "../", "~", "\\")) or word in (".", "..") or word[1:3] in (":\\", ":/")
