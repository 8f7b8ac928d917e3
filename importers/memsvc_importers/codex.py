"""Codex exports: a home folder, a folder of copied files, or one SQLite file with its sidecars."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from memsvc.errors import BadExport
from memsvc_importers import codex_copy, codex_digest, codex_files, codex_layout, codex_private, codex_survey
from memsvc_importers.codex_database import Database
from memsvc_importers.codex_early_tables import EARLY
from memsvc_importers.codex_export import CodexExport
from memsvc_importers.codex_files import Files
from memsvc_importers.codex_survey import Survey
from memsvc_importers.codex_tables import JOBS, OUTPUTS, THREADS

_Warn = Callable[[str], None]

_MEMORY = (OUTPUTS, JOBS, *EARLY)
_CUT = "and was in WAL mode, but its -wal file is not there: copy both"


class CodexImporter:
    """Codex exports: stage1_outputs, jobs and threads of its SQLite files, and its memory folders."""

    name = "codex"

    @contextmanager
    def open(self, path: Path) -> Iterator[CodexExport]:
        """
        Take a private copy of a home folder, of a folder of copied files or of a single SQLite file, and open it.

        Raises:
            BadExport: there is nothing there that Codex wrote, or it cannot be read.
        """
        with codex_private.folder() as private, ExitStack() as stack:
            try:
                export = _opened(path, private, stack)
            except OSError as exc:
                mend = "set TMPDIR to a folder with more room" if exc.errno == errno.ENOSPC else None
                raise BadExport(f"{path} could not be copied: {exc.strerror}", mend=mend) from exc
            yield export

    def digest(self, path: Path) -> bytes | None:
        """One hash over everything that would be read; None where something cannot be."""
        with suppress(OSError, BadExport):
            return codex_digest.digest(path, _sources(path))
        return None


def _opened(path: Path, private: Path, stack: ExitStack) -> CodexExport:
    warnings: dict[str, None] = {}

    def warn(text: str) -> None:
        warnings[text] = None

    sources = _sources(path)
    databases = list(_databases(sources, private, stack, warn))
    memory = [database for database in databases if any(map(database.has, _MEMORY))]
    if not memory:
        raise BadExport(_nothing_found(path, sources, warnings))
    state = _state(path, databases)
    found = codex_survey.survey(memory, state)
    for store, rows in found.early.items():
        warn(f"{store}: {rows} rows in the form that Codex kept memory in before 10 February 2026")
    _warn_of_lost_rows(memory, warn)
    if state:
        _warn_of_lost_threads(state, found, warn)
    files = codex_files.copy(path, private / "files", warn) if path.is_dir() else Files(private)
    return CodexExport(memory, state, found, files, warnings)


def _sources(path: Path) -> list[Path]:
    if path.is_dir():
        return codex_layout.databases(path)
    if not path.is_file():
        looked_for = "a Codex home, a folder of its *_N.sqlite files, or one such file"
        raise BadExport(f"nothing to read at {path}: looked for {looked_for}")
    if codex_layout.is_log(path.name):
        raise BadExport(f"{path} holds logs of Codex, not memories")
    return [path]


def _databases(sources: Iterable[Path], private: Path, stack: ExitStack, warn: _Warn) -> Iterator[Database]:
    """The databases with memory or threads; a file that is no database does not spoil the others."""
    folder = private / "databases"
    folder.mkdir()
    for source in sources:
        try:
            copied = codex_copy.copy(source, folder)
            database = stack.enter_context(closing(Database(copied, codex_layout.store(source), warn)))
        except BadExport as exc:
            warn(str(exc))
            continue
        if database.columns:
            yield database
            continue
        if database.is_blank and database.lacks_wal:
            warn(f"{database.name} holds no tables {_CUT}")
        database.close()
        codex_copy.remove(copied)


def _nothing_found(path: Path, sources: Sequence[Path], warnings: Iterable[str]) -> str:
    looked_in = ", ".join(source.name for source in sources) or "files named *_N.sqlite, but there are none"
    return "; ".join([f"no memory tables (stage1_outputs, jobs) at {path}: looked in {looked_in}", *warnings])


def _state(path: Path, databases: Sequence[Database]) -> Database | None:
    """The newest state database of a folder; a single file is its own, whatever its name."""
    with_threads = [database for database in databases if database.has(THREADS)]
    if path.is_dir():
        numbers = {codex_layout.state_number(database.name): database for database in with_threads}
        return max(((n, database) for n, database in numbers.items() if n is not None), default=(0, None))[1]
    return next(iter(with_threads), None)


def _warn_of_lost_rows(memory: Sequence[Database], warn: _Warn) -> None:
    # Codex keeps an empty memories_1 beside a memories_v2_1 in use, so an empty one alone means little.
    if any(database.has_rows(table) for database in memory for table in _MEMORY):
        return
    for database in memory:
        if database.lacks_wal:
            warn(f"{database.name} holds no rows {_CUT}")


def _warn_of_lost_threads(state: Database, found: Survey, warn: _Warn) -> None:
    # Codex deletes the output of a thread with the thread, so both missing rows and a missing file say: cut off.
    if state.lacks_wal and not found.in_state:
        warn(f"{state.name} holds no threads {_CUT}")
    elif state.lacks_wal and found.without_thread:
        warn(f"{state.name} lacks {len(found.without_thread)} of the sessions {_CUT}")
