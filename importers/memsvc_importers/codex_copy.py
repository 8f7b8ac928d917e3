"""A private copy of a SQLite database with its sidecars, taken while somebody else may be writing to it."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memsvc.errors import BadExport

_MAGIC = b"SQLite format 3\0"
_WAL_VERSIONS = b"\x02\x02"  # bytes 18 and 19 of the header: written, and to be read, through a WAL
_WAL_HEADER = 32
SIDECARS = ("-wal", "-journal")
_ATTEMPTS = 12
_PAUSE = 0.05  # seconds


@dataclass(frozen=True)
class Copied:
    """
    One copied database.

    `settled` is False when the original changed during every attempt, so that the copy may mix two moments.
    `lacks_wal` says that the database was in WAL mode, but that no -wal file was there.
    """

    path: Path
    name: str
    settled: bool
    lacks_wal: bool


@dataclass(frozen=True)
class Moment:
    """What of a database must be equal before and after copying it."""

    inode: int
    main: tuple[int, int]
    journal: tuple[int, int] | None
    wal: bytes | None
    wal_mode: bool

    def same(self, later: Moment) -> bool:
        """Whether a copy made between the two, main file first, shows one state of the database."""
        # While the WAL keeps its header (its salts change whenever it starts over), the pages that a checkpoint moves
        # into the main file stay in the WAL too. The main file is copied first, so whatever it got is in the copied
        # WAL, and a writer that only appends does no harm. Without a WAL only an untouched file will do.
        if self.wal_mode and self.wal is not None and len(self.wal) == _WAL_HEADER:
            return (self.inode, self.wal, self.wal_mode) == (later.inode, later.wal, later.wal_mode)
        return self == later


def copy(source: Path, into: Path) -> Copied:
    """
    Copy a database and its -wal and -journal into a folder; the original is read, never opened by SQLite.

    Raises:
        BadExport: it is no SQLite database.
        OSError: it cannot be read, or the folder cannot take it.
    """
    if not _is_sqlite(source):
        raise BadExport(f"{source} is not a SQLite database")
    copied = _attempt(source, into / source.name)
    for _ in range(_ATTEMPTS - 1):
        if copied.settled:
            break
        time.sleep(_PAUSE)
        copied = _attempt(source, into / source.name)
    return copied


def moment(source: Path) -> Moment:
    """Take down what tells whether somebody writes to the database."""
    stat = source.stat()
    with source.open("rb") as file:
        header = file.read(20)
    return Moment(
        inode=stat.st_ino,
        main=(stat.st_size, stat.st_mtime_ns),
        journal=_size_and_time(sidecar(source, "-journal")),
        wal=_start(sidecar(source, "-wal")),
        wal_mode=header[18:20] == _WAL_VERSIONS,
    )


def remove(copied: Copied) -> None:
    """Delete a copy and whatever SQLite put beside it."""
    for suffix in ("", "-wal", "-journal", "-shm"):
        Path(f"{copied.path}{suffix}").unlink(missing_ok=True)


def _attempt(source: Path, target: Path) -> Copied:
    before = moment(source)
    _copy_files(source, target)
    after = moment(source)
    return Copied(target, source.name, before.same(after), lacks_wal=after.wal_mode and after.wal is None)


def _copy_files(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    for suffix in SIDECARS:
        beside = Path(f"{target}{suffix}")
        beside.unlink(missing_ok=True)
        # It may vanish between two looks: whoever closes the database last removes its sidecars.
        with suppress(FileNotFoundError):
            shutil.copyfile(sidecar(source, suffix), beside)


def sidecar(source: Path, suffix: str) -> Path:
    """SQLite keeps the sidecars of a linked database beside the file that the link leads to."""
    real = Path(f"{source.resolve()}{suffix}")
    return real if real.exists() else Path(f"{source}{suffix}")


def _size_and_time(file: Path) -> tuple[int, int] | None:
    with suppress(FileNotFoundError):
        stat = file.stat()
        return stat.st_size, stat.st_mtime_ns
    return None


def _start(file: Path) -> bytes | None:
    with suppress(FileNotFoundError), file.open("rb") as opened:
        return opened.read(_WAL_HEADER)
    return None


def _is_sqlite(file: Path) -> bool:
    """An empty file is an empty database."""
    with file.open("rb") as opened:
        return opened.read(len(_MAGIC)) in (b"", _MAGIC)
