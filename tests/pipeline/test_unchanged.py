"""An export that was imported before is known by its bytes, and only read when its source has changed since."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from memsvc.db.pool import Pool
from memsvc.model.principal import OWNER
from memsvc.model.report import IngestReport
from memsvc.pipeline.ingest import ingest
from memsvc_importers.codex import CodexImporter
from tests.snapshots import VERSIONS, snapshot, with_markdown


def imported(pool: Pool, home: Path) -> IngestReport:
    return ingest(pool, OWNER, "codex", home, host="here")


def repeated(pool: Pool, home: Path) -> IngestReport:
    """The import that is known to repeat an earlier one, without a row being read."""
    with patch.object(CodexImporter, "open", side_effect=AssertionError("rows were to be read")):
        return imported(pool, home)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_equal_export_is_not_read_again_and_reported_as_if_it_were(pool: Pool, tmp_path: Path, version: str) -> None:
    home = with_markdown(version, snapshot(version, "04-killed", tmp_path))
    imported(pool, home)
    with patch.object(CodexImporter, "digest", return_value=None):
        read = imported(pool, home)
    assert repeated(pool, home) == read


@pytest.mark.parametrize(
    "change",
    [
        "delete from memsvc.stage1_outputs where thread_id = (select min(thread_id) from memsvc.stage1_outputs)",
        "update memsvc.stage1_outputs set row_sha256 = sha256(row_sha256)",
        "update memsvc.sources set exported_at = exported_at + interval '1 second'",
        "update memsvc.threads set deleted = not deleted",
        "delete from memsvc.jobs where store <> 'memsvc'",
        "update memsvc.source_files set sha256 = sha256(sha256)",
        "delete from memsvc.scope_aliases",
    ],
)
def test_a_source_that_has_changed_is_read_again(pool: Pool, tmp_path: Path, change: str) -> None:
    home = with_markdown(VERSIONS[0], snapshot(VERSIONS[0], "04-killed", tmp_path))
    imported(pool, home)
    with pool.transaction(OWNER) as conn:
        conn.execute("reset role")
        assert conn.execute(change.encode()).rowcount
    with pytest.raises(AssertionError, match="rows were to be read"):
        repeated(pool, home)


@pytest.mark.parametrize("place", ["memories_1.sqlite", "memories/new.md"])
def test_an_export_that_has_changed_is_read_again(pool: Pool, tmp_path: Path, place: str) -> None:
    home = with_markdown(VERSIONS[0], snapshot(VERSIONS[0], "04-killed", tmp_path))
    imported(pool, home)
    with (home / place).open("ab") as file:
        file.write(b"\0" * 4096)
    with pytest.raises(AssertionError, match="rows were to be read"):
        repeated(pool, home)


def test_an_export_that_is_written_to_while_it_is_copied_is_read_again(pool: Pool, tmp_path: Path) -> None:
    home = snapshot(VERSIONS[0], "04-killed", tmp_path)
    with patch.object(CodexImporter, "digest", side_effect=[b"before", b"after"]):
        imported(pool, home)
    with (
        patch.object(CodexImporter, "digest", return_value=b"before"),
        pytest.raises(AssertionError, match="rows were to be read"),
    ):
        repeated(pool, home)
