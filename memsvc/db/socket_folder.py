"""The private folder of the server's unix socket. Whoever can open the folder is trusted by the server."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from memsvc.db.unprivileged import Identity
from memsvc.errors import DatabaseUnavailable

PORT = 5432
_SOCKET = f".s.PGSQL.{PORT}"
_LONGEST = 103  # bytes in a socket's path: 107 on Linux, fewer elsewhere


def choose(folder: Path) -> Path:
    """
    Where the socket of the server in this folder belongs: inside it, or in a short folder named after it.

    Raises:
        DatabaseUnavailable: no folder for runtime files has a path that is short enough.
    """
    for candidate in _candidates(folder):
        if _fits(candidate):
            return candidate
    raise DatabaseUnavailable(
        f"every path for the socket of {folder} is too long",
        mend="set MEMSVC_DATA_DIR to a folder with a shorter path",
    )


def make(path: Path, identity: Identity) -> None:
    """
    Make the folder, or see that it is ours alone, and let the identity that runs the server in.

    Raises:
        DatabaseUnavailable: something else has that name, or it belongs to another user.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise DatabaseUnavailable(f"{path} is not a folder of the user who runs memsvc", mend=f"remove {path}")
    identity.admit(path, mode=0o770)


def clear(path: Path) -> None:
    """Remove the socket, and the note of its owner, that a dead server left in the folder."""
    for name in (_SOCKET, f"{_SOCKET}.lock"):
        (path / name).unlink(missing_ok=True)


def has_socket(path: Path) -> bool:
    """Whether a server, living or dead, has its socket in the folder."""
    return (path / _SOCKET).is_socket()


def _candidates(folder: Path) -> Iterator[Path]:
    yield folder / "run"
    name = f"memsvc-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"
    if os.geteuid() != 0:  # root's own folders are closed to whom it may start the server as
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        if runtime and os.access(runtime, os.W_OK):
            yield Path(runtime, name)
        yield Path(tempfile.gettempdir(), name)
    yield Path("/tmp", name)  # noqa: S108 - `make` refuses a folder that somebody else put there


def _fits(path: Path) -> bool:
    # libpq takes a comma for the start of another host
    return len(os.fsencode(path / _SOCKET)) <= _LONGEST and b"," not in os.fsencode(path)
