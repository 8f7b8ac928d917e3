"""The embedded PostgreSQL: one server per data folder, started on first use and left running for all processes."""

from __future__ import annotations

import logging
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

from memsvc.db import binaries, cluster, installation, place, postmaster, socket_folder, unprivileged
from memsvc.db.home import Home
from memsvc.db.postmaster import DATABASE, LOGIN, Postmaster
from memsvc.db.unprivileged import Identity
from memsvc.errors import DatabaseUnavailable
from memsvc.settings import Settings

logger = logging.getLogger(__name__)

_PATIENCE = timedelta(seconds=60)


@dataclass(frozen=True)
class Status:
    """
    What is known about the embedded server.

    `version` is that of the running server ("18.6"), else that of the data ("18"), None where there is no data yet.
    `pid` and `url` are None unless it runs. `folder` holds everything that belongs to it; moving it away means to
    begin anew. `log` may not exist yet.
    """

    running: bool
    pid: int | None
    version: str | None
    url: str | None
    folder: Path
    log: Path


def start(settings: Settings, *, wait_for: timedelta = _PATIENCE) -> str:
    """
    Make sure that the server of `settings.data_dir` runs; make its data folder and its database if they are absent.

    Returns the URL of the database, with a login that is superuser. The server outlives this process.

    Raises:
        WrongMajorVersion: the data was written by another PostgreSQL; nothing was touched.
        DatabaseUnavailable: it does not run within `wait_for`, and why.
    """
    home = Home.of(settings)
    with home.named_in_errors():
        found = postmaster.find(home)
        if found is None or not found.has_database():
            found = _start(home, settings, _deadline(wait_for))
        home.shorten_log()
    return found.url


def stop(settings: Settings, *, wait_for: timedelta = _PATIENCE) -> bool:
    """
    End the server and all its sessions, and wait until the last of its processes is gone.

    Returns False when there was no server to end.

    Raises:
        DatabaseUnavailable: it is not gone within `wait_for`, or cannot be ended from here.
    """
    home = Home.of(settings)
    with home.named_in_errors():
        if not home.folder.is_dir():
            return False
        deadline = _deadline(wait_for)
        with home.turn(deadline):
            return _stop(home, deadline)


def status(settings: Settings) -> Status:
    """
    Look at the server, and change nothing.

    Raises:
        DatabaseUnavailable: the folder cannot be read.
    """
    home = Home.of(settings)
    with home.named_in_errors():
        found = postmaster.find(home)
        if found is None or not found.answers():
            return Status(False, None, home.data_version(), None, home.folder, home.log)
        return Status(True, found.pid, found.version() or home.data_version(), found.url, home.folder, home.log)


def _deadline(wait_for: timedelta) -> float:
    return time.monotonic() + wait_for.total_seconds()


def _start(home: Home, settings: Settings, deadline: float) -> Postmaster:
    programs = binaries.bin_dir(settings)
    identity = unprivileged.identity(home.data)
    home = place.make(home, identity)
    with home.turn(deadline):
        found = _running(home, programs, identity, deadline)
        _ensure_database(found, programs)
    return found


def _running(home: Home, programs: Path, identity: Identity, deadline: float) -> Postmaster:
    launched = False
    while True:
        found = postmaster.find(home)
        if found is None:
            launched = _launch_unless_alive(home, programs, identity, deadline, launched=launched)
        elif found.answers():
            return found
        elif found.lost_its_socket():
            found.interrupt()
        home.pause(deadline, "PostgreSQL does not answer in time")


def _launch_unless_alive(home: Home, programs: Path, identity: Identity, deadline: float, *, launched: bool) -> bool:
    with home.claim() as alive:
        if alive is None:
            return launched
        if launched:
            raise home.failure("PostgreSQL ended while it was starting")
        programs = installation.reachable(programs, identity, home.folder)
        cluster.ensure(home, programs, identity, alive, deadline)
        _launch(home, programs, identity, alive)
        return True


def _launch(home: Home, programs: Path, identity: Identity, alive: BinaryIO) -> None:
    sockets = socket_folder.choose(home.folder)
    socket_folder.make(sockets, identity)
    # Nothing of the last server lives, or `alive` were not ours; PostgreSQL itself would trust a pid that was reused.
    socket_folder.clear(sockets)
    (home.data / "postmaster.pid").unlink(missing_ok=True)
    command: list[str | Path] = [programs / "postgres", "-D", home.data, *_options(sockets)]
    with home.log.open("ab") as log:
        # The shell ends at once: the server becomes nobody's child, and its end leaves no zombie with the caller.
        identity.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(alive.fileno(),),
            cwd=home.folder,
            env=cluster.environment(),
        )
    logger.info("started PostgreSQL in %s", home.folder)


def _options(sockets: Path) -> list[str]:
    quoted = str(sockets).replace('"', '""')
    settings = {
        "listen_addresses": "",
        "port": str(socket_folder.PORT),
        "unix_socket_directories": f'"{quoted}"',
        "unix_socket_permissions": "0700",
    }
    return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]


def _ensure_database(found: Postmaster, programs: Path) -> None:
    if found.has_database():
        return
    made = subprocess.run(
        [
            programs / "createdb",
            "--no-password",
            f"--host={found.sockets}",
            f"--port={socket_folder.PORT}",
            f"--username={LOGIN}",
            DATABASE,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=cluster.environment(),
    )
    if made.returncode != 0:
        raise DatabaseUnavailable(
            f"the database cannot be made: {made.stderr.strip()}", mend="memsvc down && memsvc up"
        )


def _stop(home: Home, deadline: float) -> bool:
    asked = False
    while True:
        found = postmaster.find(home)
        if found and found.is_process():
            if not asked:
                found.interrupt()
            asked = True
        elif not home.is_alive():
            _remove_empty(socket_folder.choose(home.folder))
            return asked
        elif found and found.answers():
            raise DatabaseUnavailable(
                f"the server in {home.folder} runs in another container or sandbox",
                mend="memsvc down, where it was started",
            )
        home.pause(deadline, "processes of PostgreSQL are still alive")


def _remove_empty(sockets: Path) -> None:
    with suppress(OSError):
        sockets.rmdir()
