"""Making the data folder of PostgreSQL, and refusing one that another version made."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import BinaryIO

from memsvc.db import binaries
from memsvc.db.home import Home
from memsvc.db.postmaster import LOGIN
from memsvc.db.unprivileged import Identity
from memsvc.errors import DatabaseUnavailable, WrongMajorVersion

# Written into postgresql.conf once, where a person may change them. The log must not hold the text of a memory, so a
# failing statement, and the row it failed on, stay out of it.
_CONFIGURATION = {
    # A busy worker's jobs leave thousands of dead rows a minute.
    "autovacuum_naptime": "5s",
    "jit": "off",
    "log_checkpoints": "off",
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
    "log_timezone": "UTC",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "timezone": "UTC",
}
_KEPT_VARIABLES = ("HOME", "LD_LIBRARY_PATH", "PATH", "TMPDIR")


def ensure(home: Home, programs: Path, identity: Identity, alive: BinaryIO, deadline: float) -> None:
    """
    See that the home has data that the programs can serve, and make it when there is none.

    A killed initdb leaves nothing that looks like data. It holds `alive` too, so that nobody begins anew beside it.

    Raises:
        WrongMajorVersion: another version made the data; nothing was touched.
        DatabaseUnavailable: there is something else, or initdb failed.
    """
    theirs, ours = home.data_version(), str(binaries.major_version(programs))
    if theirs is None:
        _make(home, programs, int(ours), identity, alive, deadline)
    elif theirs != ours:
        raise WrongMajorVersion(
            f"the data in {home.data} was written by PostgreSQL {theirs}, and the programs in {programs} are {ours}",
            mend=f"with MEMSVC_POSTGRES_BIN set to the bin folder of PostgreSQL {theirs}: memsvc backup FILE, "
            f"memsvc down; then mv {home.folder} {home.folder}-{theirs}, and without the variable: "
            "memsvc restore FILE; or only move the folder away, to begin with an empty database",
        )


def environment() -> dict[str, str]:
    """
    The variables of the caller that PostgreSQL gets.

    No secrets, since the server outlives the caller; nothing that names another server; no language that the system
    may lack.
    """
    return {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ} | {"LC_ALL": "C"}


def _make(home: Home, programs: Path, major: int, identity: Identity, alive: BinaryIO, deadline: float) -> None:
    if home.data.exists() and any(home.data.iterdir()):
        raise DatabaseUnavailable(f"{home.data} holds something that is no database", mend=f"move {home.data} away")
    unfinished = home.folder / "data.unfinished"
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir(mode=0o700)
    identity.give(unfinished)
    try:
        made = identity.run(
            [programs / "initdb", "--pgdata", unfinished, *_options(major)],
            capture_output=True,
            timeout=max(deadline - time.monotonic(), 1),
            pass_fds=(alive.fileno(),),
            cwd=home.folder,
            env=environment(),
        )
    except subprocess.TimeoutExpired as exc:
        raise home.failure("initdb did not end in time") from exc
    if made.returncode != 0:
        raise DatabaseUnavailable(
            f"initdb failed in {home.folder}: {made.stderr.strip() or made.returncode}",
            mend="make room and let this user write there, or set MEMSVC_DATA_DIR to another folder",
        )
    unfinished.rename(home.data)


def _options(major: int) -> list[str]:
    # The builtin provider came with 17. It needs no locale of the system, and sorts alike everywhere.
    builtin = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
    return [
        f"--username={LOGIN}",
        "--auth-local=trust",
        "--auth-host=reject",
        "--encoding=UTF8",
        *(builtin if major >= 17 else ["--locale=C.UTF-8"]),
        *(f"--set={name}={value}" for name, value in _CONFIGURATION.items()),
    ]
