"""A copy of PostgreSQL's programs, for an identity that cannot reach them where they are installed."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from memsvc.db.unprivileged import Identity
from memsvc.errors import DatabaseUnavailable

_PARTS = ("bin", "lib", "lib64", "share")


def reachable(programs: Path, identity: Identity, home: Path) -> Path:
    """
    The bin folder, or that of a copy inside the home where the identity cannot run what is in it.

    A copy of other programs than these is removed: call it only while no server of the home lives.

    Raises:
        DatabaseUnavailable: the copy does not run either.
    """
    if not identity.is_another or _runs(programs, identity):
        return programs
    copies = home / "programs"
    copy = copies / _name(programs)
    if not copy.is_dir():
        shutil.rmtree(copies, ignore_errors=True)
        unfinished = copies / "unfinished"
        _copy(programs.parent, unfinished)
        unfinished.rename(copy)
    copied = copy / programs.parent.parent.name / programs.parent.name / programs.name
    if not _runs(copied, identity):
        raise DatabaseUnavailable(
            f"uid {identity.uid} can run neither the programs in {programs} nor a copy of them in {copied}",
            mend="set MEMSVC_POSTGRES_BIN to the bin folder of a PostgreSQL that every user may run",
        )
    return copied


def _name(programs: Path) -> str:
    """Another name for every installation and every upgrade of it."""
    state = (programs / "postgres").stat()
    return hashlib.sha256(f"{programs}\n{state.st_size}\n{state.st_mtime_ns}".encode()).hexdigest()[:16]


def _copy(installed: Path, target: Path) -> None:
    package = installed.parent
    for part in _PARTS:
        if (installed / part).is_dir():
            shutil.copytree(installed / part, target / package.name / installed.name / part, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")  # where a wheel keeps what its programs link with
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    for path in (target.parent, target, *target.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))


def _runs(programs: Path, identity: Identity) -> bool:
    try:
        return identity.run([programs / "postgres", "--version"], capture_output=True).returncode == 0
    except OSError:
        return False
