"""
MEMORY.md and memory_summary.md of an imported home: which lines they have, in which scope, and from which sessions.

A line lies in the project of the one folder that it applies to, else in that of the sessions that it is said to come
from if they share one, else where outputs without a folder lie; never in a wider scope.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from memsvc.db.pool import Conn
from memsvc.derivation import handbook
from memsvc.derivation.handbook import Entry
from memsvc.memory import files, threads
from memsvc.memory.kept import Kept
from memsvc.model.memory import Statement

ScopeOf = Callable[[str | None], UUID]
"""The scope of a folder on the export's host; None, and a folder that is no project's, give the source's own."""

_THREAD_LINE = re.compile(rb"^thread_id[ \t]*:[ \t]*(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class FileLine:
    """A statement of a file. `threads` are the imported sessions that it is said to come from."""

    statement: Statement
    scope_id: UUID
    threads: tuple[str, ...]


@dataclass(frozen=True)
class StoredFile:
    """A file as it is stored, secrets redacted, with its lines; `sha256` is of its original bytes."""

    store: str
    path: str
    text: str
    sha256: bytes
    lines: tuple[FileLine, ...]

    @property
    def scope_id(self) -> UUID:
        """The scope of its first line, for what has to have one scope."""
        return self.lines[0].scope_id


def read(conn: Conn, source_id: UUID, path: str, kept: Kept, *, scope_of: ScopeOf) -> StoredFile | None:
    """The file with what is derived from it; None where that is nothing, which says nothing of what it once held."""
    store, entries = handbook.store_of(path), handbook.derive(kept.text)
    if store is None or not entries:
        return None
    sessions = _sessions(conn, source_id, path.partition("/")[0], entries)
    named = {thread_id for entry in entries for thread_id in _named(entry, sessions)}
    scopes = threads.scopes_of(conn, source_id, sorted(named))
    lines = tuple(_line(entry, _named(entry, sessions), scopes, scope_of) for entry in entries)
    return StoredFile(store, path, kept.text, kept.sha256, lines)


def _line(entry: Entry, named: Iterable[str], scopes: Mapping[str, UUID], scope_of: ScopeOf) -> FileLine:
    imported = tuple(thread_id for thread_id in named if thread_id in scopes)
    if len(entry.folders) == 1:
        return FileLine(entry.statement, scope_of(entry.folders[0]), imported)
    shared = {scopes[thread_id] for thread_id in imported}
    return FileLine(entry.statement, shared.pop() if len(shared) == 1 else scope_of(None), imported)


def _named(entry: Entry, sessions: Mapping[str, str]) -> list[str]:
    found = [sessions[name] for name in entry.references.summaries if name in sessions]
    return list(dict.fromkeys([*entry.references.threads, *found]))


def _sessions(conn: Conn, source_id: UUID, folder: str, entries: Sequence[Entry]) -> dict[str, str]:
    """The session of each summary that is named, by its file's name: what the file's own header says."""
    named = sorted({name for entry in entries for name in entry.references.summaries})
    paths = {f"{folder}/rollout_summaries/{name}": name for name in named}
    heads = files.heads(conn, source_id, list(paths))
    found = ((paths[path], _THREAD_LINE.search(head.split(b"\n\n")[0])) for path, head in heads.items())
    return {name: match[1].decode(errors="replace") for name, match in found if match}
