"""Copies of somebody's memory do not stay behind, not even after a kill -9."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memsvc_importers import codex_private


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def aged(folder: Path) -> Path:
    long_ago = time.time() - 3600
    os.utime(folder, (long_ago, long_ago))
    return folder


def killed_owner(temporary: Path) -> Path:
    """The folder of a process that was killed while it held it."""
    held = "with codex_private.folder() as found: print(found, flush=True); sys.stdin.read()"
    code = f"import sys; from memsvc_importers import codex_private\n{held}"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    (folder / "copy").write_text("somebody's memory")
    process.kill()
    process.communicate()
    return folder


def test_a_folder_is_private_and_gone_at_the_end(temporary: Path) -> None:
    with codex_private.folder() as private:
        assert private.stat().st_mode & 0o777 == 0o700
        (private / "copy").touch()

    assert list(temporary.iterdir()) == []


def test_what_a_killed_import_left_is_removed_by_the_next(temporary: Path) -> None:
    left = aged(killed_owner(temporary))

    with codex_private.folder():
        assert not left.exists()


def test_the_folder_of_a_living_import_stays(temporary: Path) -> None:
    with codex_private.folder() as living:
        aged(living)
        with codex_private.folder():
            assert living.is_dir()


def test_what_is_young_or_not_ours_stays(temporary: Path) -> None:
    young = killed_owner(temporary)
    other = temporary / "memsvc-codex-without-lock"
    other.mkdir()
    aged(other)

    with codex_private.folder():
        assert young.is_dir()
        assert other.is_dir()
