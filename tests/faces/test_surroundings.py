"""The command line in surroundings that nobody meant: closed streams, full disks, names that are no text, signals."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from memsvc.db.pool import Pool
from memsvc.model.principal import OWNER
from tests.importers.codex_home import OUTPUTS, THREADS, database, output, thread
from tests.snapshots import snapshot

MEMSVC = str(Path(sys.executable).parent / "memsvc")


@pytest.fixture
def environment(dsn: str, tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "MEMSVC_DATABASE_URL": dsn, "MEMSVC_EMBEDDER": "hash:64", "HOME": str(tmp_path)}


def shell(command: str, environment: dict[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    given = f"memsvc() {{ '{MEMSVC}' \"$@\"; }}; {command}"
    return subprocess.run(["bash", "-c", given], env=environment, cwd=cwd, capture_output=True, check=False)


def test_a_query_that_is_no_text_has_an_answer(environment: dict[str, str]) -> None:
    done = shell(r"memsvc recall --scope all --json $'\xff\xfe backup'", environment)

    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["hits"] == []


def test_a_folder_whose_name_is_no_text_is_a_folder(environment: dict[str, str], tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    Path(os.fsdecode(folder)).mkdir()

    done = subprocess.run(
        [MEMSVC, "remember", "x", "--json"], env=environment, cwd=folder, capture_output=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["scope"] == f"project:{tmp_path}/caf\\udce9"


def test_an_export_in_a_folder_whose_name_is_no_text_is_read(environment: dict[str, str], tmp_path: Path) -> None:
    home = snapshot("0.135.0", "05-checkpointed", tmp_path)
    odd = os.fsencode(tmp_path) + b"/caf\xe9"
    home.rename(os.fsdecode(odd))

    done = subprocess.run(
        [MEMSVC, "import", "codex", odd, "--no-embed", "--json"], env=environment, capture_output=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"]["inserted"] == 13


@pytest.mark.parametrize(
    "command",
    [
        "memsvc recall x --json >&-",
        "memsvc recall x >&-",
        "memsvc recall x --json >/dev/full",
        "memsvc nonsense >&- 2>&-",
    ],
)
def test_an_output_that_cannot_be_written_is_no_traceback(environment: dict[str, str], command: str) -> None:
    done = shell(command, environment)

    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_a_removed_folder_is_no_folder(environment: dict[str, str], tmp_path: Path) -> None:
    done = shell(
        f"mkdir '{tmp_path}/gone' && cd '{tmp_path}/gone' && rmdir '{tmp_path}/gone' && memsvc recall x", environment
    )

    assert done.returncode == 0
    assert b"no scope was named: everything readable was searched" in done.stdout


def test_an_instant_outside_the_calendar_is_wrong_use(environment: dict[str, str]) -> None:
    done = shell("memsvc remember t --scope global --valid-until 9999-12-31T23:59:59-23:00", environment)

    assert done.returncode == 2
    assert b"lies outside the years 1 to 9999" in done.stderr


def test_a_group_alone_shows_its_help(environment: dict[str, str]) -> None:
    done = shell("memsvc import", environment)

    assert done.returncode == 2
    assert b"Usage: memsvc import" in done.stderr
    assert b"error:" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_import_says_so_and_leaves_no_copy(
    environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    home, temporary = tmp_path / ".codex", tmp_path / "tmp"
    temporary.mkdir()
    rows = [output(f"t{n}", raw_memory="".join(f"- line {n} {k}\n" for k in range(40))) for n in range(4000)]
    database(home / "memories_1.sqlite", OUTPUTS, outputs=rows)
    process = subprocess.Popen(
        [MEMSVC, "import", "codex", str(home), "--no-embed", "--json"],
        env={**environment, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while process.poll() is None and not list(temporary.glob("memsvc-codex-*/databases/*.sqlite")):
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(number)
    printed, said = process.communicate(timeout=60)

    assert process.returncode == 1
    assert json.loads(printed)["error"]["code"] == "interrupted"
    assert b"interrupted: what was committed stays" in said
    assert list(temporary.iterdir()) == []


def test_two_first_imports_at_once_are_one_source(environment: dict[str, str], dsn: str, tmp_path: Path) -> None:
    home = tmp_path / ".codex"
    rows = [output(f"t{n}", raw_memory=f"- line {n}\n") for n in range(300)]
    database(home / "memories_1.sqlite", OUTPUTS, outputs=rows)
    database(home / "state_5.sqlite", THREADS, threads=[thread(f"t{n}") for n in range(300)])
    command = [MEMSVC, "import", "codex", str(home), "--no-embed", "--json"]
    both = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)
    ]
    reports = [json.loads(process.communicate(timeout=120)[0]) for process in both]

    assert [report.get("error") for report in reports] == [None, None]
    assert {report["source"] for report in reports} == {"codex"}
    assert sum(report["outputs"]["inserted"] for report in reports) == 300
    pool = Pool(dsn)
    with pool.transaction(OWNER) as conn:
        assert conn.execute("select count(*), count(distinct text) from memsvc.memories").fetchone() == (300, 300)
    pool.close()


def test_a_source_of_which_nothing_arrived_is_taken_up_again(
    environment: dict[str, str], dsn: str, tmp_path: Path
) -> None:
    home = snapshot("0.135.0", "05-checkpointed", tmp_path)
    pool = Pool(dsn)
    with pool.transaction(OWNER) as conn:
        conn.execute(
            "insert into memsvc.sources (tenant_id, importer, label, home)"
            " values (memsvc.current_tenant(), 'codex', 'codex', '/tmp/w/c135')"
        )
    pool.close()

    done = shell(f"memsvc import codex '{home}' --no-embed --json", environment)

    assert json.loads(done.stdout)["source"] == "codex"
    with closing(sqlite3.connect(home / "state_5.sqlite")) as state:
        assert state.execute("select count(*) from threads").fetchone() == (26,)
