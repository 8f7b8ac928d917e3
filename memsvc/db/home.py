"""The folder of one embedded server: its data, its log, and the two locks that keep processes from colliding."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from memsvc.errors import DatabaseUnavailable
from memsvc.settings import Settings

_LONGEST_LOG = 5_000_000  # bytes
_KEPT_LOG = 100_000  # bytes
_LOGGED_LINES = 8
_LEAST_ROOM = 1_000_000  # bytes
_PAUSE = 0.02  # seconds


@dataclass(frozen=True)
class Home:
    """
    Where everything of one server is.

    The server and its children hold `alive` open and locked, from before they start. The kernel frees the lock when
    the last of them is gone, however it went. So the lock tells whether anything of the server lives; a pid cannot,
    since it may be a zombie's, somebody else's by now, or from another namespace.
    """

    folder: Path

    @classmethod
    def of(cls, settings: Settings) -> Home:
        """The home inside `settings.data_dir`, or where a link there leads; the same one by whichever way."""
        return cls((settings.data_dir / "postgres").resolve())

    @property
    def data(self) -> Path:
        """PostgreSQL's own folder."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What the server prints."""
        return self.folder / "server.log"

    def data_version(self) -> str | None:
        """The major version that wrote the data; None when there is no data."""
        try:
            return (self.data / "PG_VERSION").read_text(errors="replace").strip()
        except FileNotFoundError:
            return None

    def is_alive(self) -> bool:
        """Whether a process of the server lives, be it the last orphan of a server that was killed."""
        try:
            with self._alive.open("rb") as file:
                return not _lock(file, fcntl.LOCK_SH)
        except FileNotFoundError:
            return False

    @contextmanager
    def claim(self) -> Iterator[BinaryIO | None]:
        """The lock for the processes of a new server to inherit; None while an older process has it."""
        with self._alive.open("ab") as file:
            yield file if _lock(file, fcntl.LOCK_EX) else None

    @contextmanager
    def turn(self, deadline: float) -> Iterator[None]:
        """
        Be the only one who starts or stops the server.

        Raises:
            DatabaseUnavailable: somebody else is at it until the deadline, an instant of `time.monotonic`, or the
                folder belongs to another user.
        """
        self.refuse_another_users()
        with (self.folder / "turn.lock").open("ab") as file:
            while not _lock(file, fcntl.LOCK_EX):
                self.pause(deadline, "another process is still starting or stopping PostgreSQL")
            yield

    def pause(self, deadline: float, overdue: str) -> None:
        """
        Wait a moment before looking again.

        Raises:
            DatabaseUnavailable: the deadline is past; says what is `overdue`.
        """
        if time.monotonic() > deadline:
            raise self.failure(overdue)
        time.sleep(_PAUSE)

    def failure(self, what: str) -> DatabaseUnavailable:
        """The error that names this folder and ends with the last lines of the log."""
        room = ", where no room is left" if shutil.disk_usage(self.folder).free < _LEAST_ROOM else ""
        return DatabaseUnavailable(f"{what}, in {self.folder}{room}{self._last_words()}", mend=f"see {self.log}")

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Turn what the file system refuses into an error that names the path."""
        try:
            yield
        except OSError as exc:
            raise DatabaseUnavailable(
                f"the database in {self.folder} cannot be used: {exc.filename or self.folder}: {exc.strerror or exc}",
                mend="make room and let this user write there, or set MEMSVC_DATA_DIR to another folder",
            ) from exc

    def shorten_log(self) -> None:
        """Keep the end of a log that has become long. The server appends, so it may go on meanwhile."""
        with suppress(OSError):
            if self.log.stat().st_size > _LONGEST_LOG:
                with self.log.open("r+b") as file:
                    file.seek(-_KEPT_LOG, 2)
                    kept = file.read()
                    file.truncate(0)
                with self.log.open("ab") as file:
                    file.write(kept)

    @property
    def _alive(self) -> Path:
        return self.folder / "alive.lock"

    def refuse_another_users(self) -> None:
        """
        Root could use another user's folder, and would leave files in it that its user cannot.

        Raises:
            DatabaseUnavailable: it is not ours.
        """
        owner = self.folder.stat().st_uid
        if owner != os.geteuid():
            raise DatabaseUnavailable(
                f"{self.folder} belongs to the user with uid {owner}",
                mend="run memsvc as that user, or set MEMSVC_DATA_DIR to another folder",
            )

    def _last_words(self) -> str:
        try:
            with self.log.open(encoding="utf-8", errors="replace") as lines:
                last = deque(lines, maxlen=_LOGGED_LINES)
        except OSError:
            return ""
        return "; its log ends with:\n" + "".join(last).rstrip() if last else ""


def _lock(file: BinaryIO, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
