"""Imports that are cut off: real processes, killed for real. Nothing is doubled or lost, and the error is one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from memsvc.db import embedded
from memsvc.settings import Settings
from tests.conftest import embedded_in
from tests.importers.codex_home import THREADS, database, output, thread

MEMSVC = str(Path(sys.executable).parent / "memsvc")
OUTPUTS = 3000
SMALL = 600


class Machine:
    """A machine with a Codex home on it: the command line, as processes of their own, and a look at its database."""

    def __init__(self, folder: Path, outputs: int, **environment: str) -> None:
        self.home = made_home(folder / "codex", outputs)
        self._environment = {**os.environ, "MEMSVC_EMBEDDER": "hash:64", "HOME": str(folder), **environment}

    def start(self) -> subprocess.Popen[str]:
        words = [MEMSVC, "import", "codex", str(self.home), "--no-embed"]
        return subprocess.Popen(words, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words: str) -> Any:
        done = subprocess.run(
            [MEMSVC, *words, "--json"], env=self._environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def import_again(self) -> Any:
        return self.run("import", "codex", str(self.home), "--no-embed")

    def statuses(self) -> list[str]:
        return [run["status"] for run in self.run("import", "status")["runs"]]


def made_home(folder: Path, outputs: int) -> Path:
    names = [f"t{number:05d}" for number in range(outputs)]
    database(
        folder / "memories_1.sqlite",
        outputs=[output(name, raw_memory=f"- {name} has a line\n- and another\n") for name in names],
    )
    database(folder / "state_5.sqlite", THREADS, threads=[thread(name) for name in names])
    return folder


@pytest.fixture
def machine(dsn: str, tmp_path: Path) -> Machine:
    return Machine(tmp_path, OUTPUTS, MEMSVC_DATABASE_URL=dsn)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[tuple[Machine, Settings]]:
    """A machine with an embedded server of its own."""
    settings = embedded_in(tmp_path / "data")
    try:
        yield Machine(tmp_path, SMALL, MEMSVC_DATA_DIR=str(settings.data_dir)), settings
    finally:
        embedded.stop(settings)


def until_half_way(url: str, outputs: int) -> None:
    """Wait until some batches of outputs are committed and others are not."""
    with psycopg.connect(url, autocommit=True) as conn:
        until(lambda: counted(conn, "memsvc.stage1_outputs") > 0)
        assert counted(conn, "memsvc.stage1_outputs") < outputs, "the import was too fast to be cut off"


def counted(conn: psycopg.Connection[Any], table: str) -> int:
    ((count,),) = conn.execute(f"select count(*) from {table}".encode())
    return int(count)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def assert_complete(url: str, outputs: int) -> None:
    with psycopg.connect(url) as conn:
        assert counted(conn, "memsvc.stage1_outputs") == outputs
        assert counted(conn, "memsvc.threads") == outputs
        assert counted(conn, "memsvc.memories") == 2 * outputs
        assert counted(conn, "memsvc.evidence") == 2 * outputs
        assert counted(conn, "memsvc.jobs") == outputs
        assert counted(conn, "memsvc.memories where retired_at is not null") == 0


def assert_adds_up(report: Any, outputs: int) -> None:
    tally = report["outputs"]
    assert tally["inserted"] + tally["unchanged"] == outputs
    assert tally["inserted"] > 0
    assert (tally["updated"], tally["older"], tally["rejected"]) == (0, 0, 0)
    assert report["threads"]["unchanged"] + report["threads"]["inserted"] == outputs


def assert_one_line(process: subprocess.Popen[str]) -> str:
    printed, errors = process.communicate(timeout=60)
    assert (process.returncode, printed) == (1, "")
    first, *others = errors.splitlines()
    assert first.startswith("error: ")
    assert [line for line in others if not line.startswith("mend: ")] == []
    assert "Traceback" not in errors
    return first


@pytest.mark.slow
def test_a_killed_import_goes_on_where_it_was(machine: Machine, dsn: str) -> None:
    process = machine.start()
    until_half_way(dsn, OUTPUTS)
    assert machine.statuses() == ["running"]
    process.kill()
    process.communicate()
    with psycopg.connect(dsn) as conn:
        before = counted(conn, "memsvc.stage1_outputs")

    until(lambda: machine.statuses() == ["interrupted"])
    report = machine.import_again()

    assert_adds_up(report, OUTPUTS)
    assert report["outputs"]["unchanged"] >= before > 0
    assert_complete(dsn, OUTPUTS)
    assert machine.statuses() == ["complete", "interrupted"]


def test_a_dropped_connection_is_one_line_and_the_next_import_completes(machine: Machine, dsn: str) -> None:
    process = machine.start()
    until_half_way(dsn, OUTPUTS)
    with psycopg.connect(dsn, autocommit=True) as conn:
        # Between two transactions a lost connection is replaced, and the import goes on.
        while process.poll() is None:
            conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
            time.sleep(0.02)

    assert_one_line(process)
    assert_adds_up(machine.import_again(), OUTPUTS)
    assert_complete(dsn, OUTPUTS)
    assert machine.statuses() == ["complete", "interrupted"]


def test_a_killed_server_is_one_line_and_the_next_import_completes(own_server: tuple[Machine, Settings]) -> None:
    machine, settings = own_server
    machine.run("migrate")
    url = embedded.start(settings)
    process = machine.start()
    until_half_way(url, SMALL)
    pid = embedded.status(settings).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    assert assert_one_line(process).startswith("error: the database ")  # went away, or cannot be reached any more
    report = machine.import_again()

    assert_adds_up(report, SMALL)
    assert_complete(embedded.start(settings), SMALL)
    assert machine.statuses() == ["complete", "interrupted"]


FULL_DISK = """
mount -t tmpfs -o size=220m tmpfs "$1" || exit 77
memsvc migrate >&2 || exit 78
left=$(df -k --output=avail "$1" | tail -n 1)
head -c "$(((left - 2000) * 1024))" /dev/zero >"$1/full"
memsvc import codex "$2" --no-embed >&2
test $? = 1 || exit 79
rm "$1/full"
memsvc import codex "$2" --no-embed --json
memsvc down >&2
"""


def test_a_full_disk_is_named_and_the_next_import_completes(tmp_path: Path) -> None:
    inside = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespace can be made here")
    mount = tmp_path / "mount"
    mount.mkdir()
    home = made_home(tmp_path / "codex", SMALL)
    environment = {
        **os.environ,
        "PATH": f"{Path(MEMSVC).parent}:{os.environ['PATH']}",
        "MEMSVC_DATA_DIR": str(mount),
        "MEMSVC_EMBEDDER": "hash:64",
    }

    done = subprocess.run(
        [*inside, "sh", "-c", FULL_DISK, "sh", mount, home],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    if done.returncode == 77:
        pytest.skip("nothing can be mounted here")
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    report = json.loads(done.stdout)
    assert report["outputs"]["inserted"] + report["outputs"]["unchanged"] == SMALL
