"""Root without user namespaces: the server runs as another user, which reaches what it needs and nothing else."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memsvc.db import embedded, installation, place, unprivileged
from tests.conftest import embedded_in
from tests.db.programs import copied_programs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root lends another identity")

FORBIDDEN = Path(__file__).with_name("forbidden.py")
CALL = """
import sys
from dataclasses import replace
from pathlib import Path
from memsvc.db import embedded
from memsvc.errors import MemsvcError
from memsvc.settings import load
try:
    print(getattr(embedded, sys.argv[1])(replace(load(), data_dir=Path(sys.argv[2]))))
except MemsvcError as exc:
    sys.exit(f"{exc}\\n{exc.mend}")
"""


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A data folder that root alone reaches; whatever was made for it elsewhere goes with it."""
    tmp_path.chmod(0o700)
    folder = tmp_path / "it's data"
    yield folder
    embedded.stop(embedded_in(folder))
    made = (folder / "postgres").resolve()
    if made.is_relative_to(place.ASIDE):
        shutil.rmtree(made, ignore_errors=True)


def run(verb: str, data_dir: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, FORBIDDEN, sys.executable, "-c", CALL, verb, data_dir],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode == 77:
        pytest.skip("no filter can be put on the calls of a process here")
    return done


def start(data_dir: Path, **environ: str) -> str:
    done = run("start", data_dir, **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def identity_of(data_dir: Path) -> dict[str, list[str]]:
    """Who the server is: the lines of its /proc/PID/status that say so."""
    pid = embedded.status(embedded_in(data_dir)).pid
    lines = (line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: value.split() for name, value in lines if name in ("Uid", "Gid", "Groups", "CapPrm")}


def test_folder_out_of_reach_gets_its_data_elsewhere(data_dir: Path) -> None:
    url = start(data_dir)
    folder = (data_dir / "postgres").resolve()
    assert folder.parent == place.ASIDE
    assert start(data_dir) == embedded.start(embedded_in(data_dir)) == url
    who = identity_of(data_dir)
    (uid,), (gid,) = set(who["Uid"]), set(who["Gid"])
    assert int(uid) != 0
    assert (int(gid), who["Groups"], int(who["CapPrm"][0], 16)) == (unprivileged.GROUP, [], 0)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (place.ASIDE, folder, folder / "run", folder / "data")] == [
        0o711,
        0o710,
        0o770,
        0o700,
    ]
    assert [(folder / name).stat().st_uid for name in (".", "run", "server.log", "data")] == [0, 0, 0, int(uid)]
    assert not unprivileged.Identity(int(uid), int(uid)).may_enter(folder)  # what else runs as that user
    assert run("stop", data_dir).stdout == "True\n"
    assert start(data_dir) == url


def test_killed_server_comes_back(data_dir: Path) -> None:
    url = start(data_dir)
    pid = embedded.status(embedded_in(data_dir)).pid
    assert pid is not None
    os.kill(pid, 9)
    assert start(data_dir) == url
    assert embedded.status(embedded_in(data_dir)).pid != pid


def test_programs_out_of_reach_are_copied_and_replaced_after_an_upgrade(data_dir: Path, tmp_path: Path) -> None:
    programs = copied_programs(tmp_path / "programs")
    start(data_dir, MEMSVC_POSTGRES_BIN=str(programs))
    home = (data_dir / "postgres").resolve()
    (first,) = (home / "programs").iterdir()
    assert stat.S_IMODE(first.stat().st_mode) & 0o022 == 0
    run("stop", data_dir)
    upgraded = tmp_path / "upgraded"
    shutil.copy2(programs / "postgres", upgraded)  # what is there is a hard link to the installed one
    os.utime(upgraded, (0, 0))
    upgraded.replace(programs / "postgres")
    start(data_dir, MEMSVC_POSTGRES_BIN=str(programs))
    (second,) = (home / "programs").iterdir()
    assert second != first


def test_copy_that_was_cut_off_is_made_anew(tmp_path: Path) -> None:
    programs = copied_programs(tmp_path / "installed")
    who = unprivileged.Identity(65534, unprivileged.GROUP)
    tmp_path.chmod(0o700)
    home = Path(f"/tmp/memsvc-test-home-{os.getpid()}")
    (home / "programs" / "unfinished").mkdir(parents=True)
    try:
        copied = installation.reachable(programs, who, home)
        assert copied.is_relative_to(home)
        assert installation.reachable(programs, who, home) == copied
        assert [path.name for path in (home / "programs").iterdir()] != ["unfinished"]
        assert installation.reachable(programs, unprivileged.ours(), home) == programs
    finally:
        shutil.rmtree(home)


def test_data_of_a_user_namespace_is_refused_until_it_is_handed_over(data_dir: Path) -> None:
    if subprocess.run(["unshare", "--user", "--map-root-user", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespace can be made here")
    embedded.start(embedded_in(data_dir))
    embedded.stop(embedded_in(data_dir))
    for expected in ("belongs to root, and no user namespace can be made", "cannot reach"):
        refused = run("start", data_dir)
        message, command = refused.stderr.rstrip().split("\n")
        assert expected in message
        subprocess.run(["sh", "-c", command], check=True)
    start(data_dir)
    assert (data_dir / "postgres").is_symlink()


def test_missing_unshare_counts_as_forbidden(data_dir: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", CALL, "start", data_dir],
        env=os.environ | {"PATH": str(empty)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert identity_of(data_dir)["Gid"][0] == str(unprivileged.GROUP)
