"""After the install no network is needed: everything works where there is none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.snapshots import snapshot

MEMSVC = str(Path(sys.executable).parent / "memsvc")


def without_network() -> list[str] | None:
    """A command prefix that cuts the network off, None where the system does not allow it."""
    prefix = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") is None:
        return None
    allowed = subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    return prefix if allowed else None


PREFIX = without_network()


@pytest.mark.skipif(PREFIX is None, reason="this system does not let a process leave the network (unshare --net)")
def test_the_main_job_runs_without_a_network(tmp_path: Path) -> None:
    home = snapshot("0.135.0", "01-live", tmp_path)
    environment = {**os.environ, "MEMSVC_DATA_DIR": str(tmp_path / "data"), "HOME": str(tmp_path)}
    environment.pop("XDG_CACHE_HOME", None)

    def run(*words: str) -> dict[str, object]:
        done = subprocess.run(
            [*(PREFIX or []), MEMSVC, *words, "--json"], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    try:
        unreachable = subprocess.run(
            [*(PREFIX or []), sys.executable, "-c", "import socket; socket.create_connection(('192.0.2.1', 9), 1)"],
            capture_output=True,
            check=False,
        )
        imported = run("import", "codex", str(home))
        answer = run("recall", "when does the nightly backup run", "--scope", "all")
        run("remember", "no network was needed", "--scope", "global")
    finally:
        run("down")

    assert b"unreachable" in unreachable.stderr
    assert not list(tmp_path.glob(".cache/**/*")), "something was written outside the data folder"
    assert imported["embedding_jobs"] == 9
    hits = answer["hits"]
    assert isinstance(hits, list)
    assert hits[0]["source"]["thread_id"] == "01a22e3f-8e5c-7760-862b-eea2dc375b3a"
    assert answer["coverage"]["embedded"] == answer["coverage"]["total"]  # type: ignore[index]
