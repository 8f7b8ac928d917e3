"""Texts of a size that nobody expects: they come in, in reasonable time and memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from memsvc.model.export import Rejected, Row
from memsvc.pipeline.batches import BYTES, batches
from tests.importers.codex_home import database, output

MEMSVC = str(Path(sys.executable).parent / "memsvc")
MEMORY = 2 * 1024**3  # bytes of address space
SIZE = 40 * 1024 * 1024


def imported(dsn: str, home: Path) -> Any:
    """Import in a process of its own that may not use more than so much memory."""
    done = subprocess.run(
        [MEMSVC, "import", "codex", str(home), "--no-embed", "--json"],
        env={**os.environ, "MEMSVC_DATABASE_URL": dsn, "MEMSVC_EMBEDDER": "hash:64"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_forty_megabytes_in_one_output(dsn: str, tmp_path: Path) -> None:
    # The NUL makes the original bytes be kept too, which is the larger parameter.
    line = "word " * 50 + "\0\n"
    text = (line * (SIZE // len(line) + 1))[:SIZE]
    database(tmp_path / "memories_1.sqlite", outputs=[output(raw_memory=text), output("other")])

    assert imported(dsn, tmp_path)["outputs"]["inserted"] == 2

    with psycopg.connect(dsn) as conn:
        stored = conn.execute("select length(raw_memory) from memsvc.stage1_outputs where thread_id = 't'").fetchone()
    assert stored == (SIZE,)


@pytest.mark.slow
def test_sixty_thousand_lines(dsn: str, tmp_path: Path) -> None:
    text = "".join(f"- line {number} of very many\n" for number in range(60_000))
    database(tmp_path / "memories_1.sqlite", outputs=[output(raw_memory=text)])

    assert imported(dsn, tmp_path)["memories"]["inserted"] == 60_000


def test_batches_end_where_their_texts_grow_large() -> None:
    def rows() -> list[Row]:
        return [Rejected("v1", "stage1_outputs", f"{n}", "odd", {"raw_memory": b"x" * (BYTES // 2)}) for n in range(5)]

    assert [len(batch) for batch in batches(rows())] == [2, 2, 1]
