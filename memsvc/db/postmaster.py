"""The server's first process, as its postmaster.pid tells it and as it is found."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import pq

from memsvc.db import socket_folder
from memsvc.db.home import Home

DATABASE = "memsvc"
LOGIN = "postgres"
_ANSWERS_WITHIN = 5  # seconds


@dataclass(frozen=True)
class Postmaster:
    """What a server wrote about itself when it started; it may be dead since. `ready` as it saw itself last."""

    pid: int
    data: Path
    sockets: Path
    ready: bool

    @property
    def url(self) -> str:
        """The URL of memsvc's database."""
        return self._url(DATABASE)

    def answers(self) -> bool:
        """Whether a server takes connections there, even if it has none to spare."""
        conninfo = f"{self._url(LOGIN)}&connect_timeout={_ANSWERS_WITHIN}"
        return self.ready and pq.PGconn.ping(conninfo.encode()) == pq.Ping.OK

    def version(self) -> str | None:
        """What the server says it is, such as "18.6"; None when memsvc's database cannot be opened."""
        try:
            with psycopg.connect(self.url, connect_timeout=_ANSWERS_WITHIN) as conn:
                major, minor = divmod(conn.info.server_version, 10_000)
        except psycopg.OperationalError:
            return None
        return f"{major}.{minor}"

    def has_database(self) -> bool:
        """Whether memsvc's database can be opened."""
        return self.version() is not None

    def is_process(self) -> bool:
        """Whether the pid is, seen from here, a living PostgreSQL that was started on this data."""
        if not Path("/proc/self/stat").exists():
            return _takes_signals(self.pid)
        process = Path("/proc", str(self.pid))
        try:
            state = (process / "stat").read_bytes().rpartition(b")")[2].split()[0]
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return state not in (b"Z", b"X") and b"postgres" in words[0] and os.fsencode(self.data) in words

    def lost_its_socket(self) -> bool:
        """Whether it lives where nobody can reach it: its folder was moved, or the socket was removed."""
        return self.ready and not socket_folder.has_socket(self.sockets) and self.is_process()

    def interrupt(self) -> None:
        """Ask it to end its sessions and itself (a fast shutdown)."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGINT)

    def _url(self, database: str) -> str:
        folder = quote(os.fsencode(self.sockets), safe="/")
        return f"postgresql://{LOGIN}@/{database}?host={folder}&port={socket_folder.PORT}"


def find(home: Home) -> Postmaster | None:
    """
    The postmaster that the home's data names, if anything of its server lives.

    None also while a server has only begun to start. One that was started by hand counts: it holds no lock, but names
    this data, which the copied file of another home's server does not.
    """
    found = _read(home.data / "postmaster.pid")
    if found and (home.is_alive() or (found.data == home.data and found.is_process())):
        return found
    return None


def _read(path: Path) -> Postmaster | None:
    try:
        lines = os.fsdecode(path.read_bytes()).split("\n")
    except FileNotFoundError:
        return None
    if not lines[0].lstrip("-").isdecimal() or len(lines) < 5:
        return None
    # single-user mode writes its pid negated
    pid = abs(int(lines[0]))
    return Postmaster(pid, Path(lines[1]), Path(lines[4]), ready=lines[7:8] == ["ready   "])


def _takes_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
