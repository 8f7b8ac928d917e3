"""Real exports are reproduced: rows, texts, order, identity."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from memsvc.importer import Export, Importer, find
from memsvc.model.export import FileRow, JobRow, OutputRow, ProgressRow, Rejected, ThreadRow
from memsvc_importers.codex import CodexImporter
from tests.importers.codex_home import Reading, read
from tests.snapshots import snapshot, truth, with_markdown

STORES = {"memories_1.sqlite": "v1", "memories_v2_1.sqlite": "v2"}
SHORT = (
    "thread_id",
    "source_updated_at",
    "rollout_slug",
    "generated_at",
    "usage_count",
    "last_usage",
    "selected_for_phase2",
    "selected_for_phase2_source_updated_at",
)


@pytest.fixture(scope="module")
def reading(version: str, name: str, tmp_path_factory: pytest.TempPathFactory) -> Reading:
    return read(snapshot(version, name, tmp_path_factory.mktemp("export")))


def exported(value: object) -> object:
    """A value as it stood in the export."""
    if isinstance(value, datetime):
        assert value.tzinfo is UTC
        return int(value.timestamp())
    return value.decode() if isinstance(value, bytes) else value


def columns(row: JobRow) -> dict[str, object]:
    names = [field.name for field in fields(row) if field.name not in ("store", "extra")]
    return {name: exported(getattr(row, name)) for name in names}


def memory_stores(version: str, name: str) -> dict[str, dict[str, Any]]:
    return {STORES[file]: known for file, known in truth(version, name).items() if file in STORES}


def test_it_is_found_under_its_name() -> None:
    importer: Importer = CodexImporter()
    assert isinstance(find("codex"), CodexImporter)
    assert importer.name == "codex"


def test_every_output_is_reproduced(version: str, name: str, reading: Reading) -> None:
    for store, known in memory_stores(version, name).items():
        rows = [row for row in reading.of(OutputRow) if row.store == store]
        assert len(rows) == known["tables"]["stage1_outputs"]
        assert [{column: exported(getattr(row, column)) for column in SHORT} for row in rows] == [
            {column: row[column] for column in SHORT}
            for row in sorted(known["stage1_outputs"], key=lambda row: (row["source_updated_at"], row["generated_at"]))
        ]


def test_every_text_is_reproduced_byte_for_byte(version: str, name: str, reading: Reading) -> None:
    for store, known in memory_stores(version, name).items():
        rows = {row.thread_id: row for row in reading.of(OutputRow) if row.store == store}
        for output in known["stage1_outputs"]:
            row = rows[output["thread_id"]]
            assert len(row.raw_memory) == output["raw_memory_bytes"]
            assert len(row.rollout_summary.decode()) == output["rollout_summary_chars"]
            assert hashlib.sha256(row.raw_memory).hexdigest() == output["raw_memory_sha256"]
            assert hashlib.sha256(row.rollout_summary).hexdigest() == output["rollout_summary_sha256"]
            assert (b"\0" in row.raw_memory) == output["raw_memory_has_nul"]


def test_every_job_is_reproduced(version: str, name: str, reading: Reading) -> None:
    for store, known in memory_stores(version, name).items():
        rows = [row for row in reading.of(JobRow) if row.store == store]
        assert [columns(row) for row in rows] == sorted(known["jobs"], key=lambda job: (job["kind"], job["job_key"]))
        assert Counter(f"{row.kind}|{row.status}" for row in rows) == known["jobs_by_kind_status"]


def test_progress_is_reproduced(version: str, name: str, reading: Reading) -> None:
    expected = {
        store: count
        for store, known in memory_stores(version, name).items()
        for _, count in known.get("consolidation_progress", ())
    }
    assert {row.store: row.max_thread_count for row in reading.of(ProgressRow)} == expected


def test_every_thread_is_reproduced(version: str, name: str, reading: Reading) -> None:
    known = truth(version, name)["state_5.sqlite"]
    rows = reading.of(ThreadRow)
    assert len(rows) == known["tables"]["threads"]
    assert {row.found_in for row in rows} == {"state"}
    assert all(row.columns["id"] == row.thread_id.encode() for row in rows)
    kinds = Counter(
        "|".join(str(exported(row.columns[column])) for column in ("source", "memory_mode", "archived")) for row in rows
    )
    assert kinds == known["threads_by_source_mode_archived"]
    by_id = {row.thread_id: row for row in rows}
    for thread in known.get("threads", ()):
        columns = by_id[thread["id"]].columns
        assert {column: exported(columns[column]) for column in thread} == thread


def test_nothing_is_rejected_and_nothing_is_odd(reading: Reading) -> None:
    assert reading.of(Rejected) == []
    assert reading.warnings == ()


def test_stores_are_named_after_their_files(version: str, reading: Reading) -> None:
    assert reading.stores == (("v1",) if version == "0.135.0" else ("v1", "v2"))


def test_rows_come_in_their_order(reading: Reading) -> None:
    order = [ThreadRow, OutputRow, JobRow, ProgressRow, FileRow]
    kinds = [order.index(type(row)) for row in reading.rows if not isinstance(row, Rejected)]
    assert kinds == sorted(kinds)
    outputs = [(row.source_updated_at, row.generated_at, row.thread_id) for row in reading.of(OutputRow)]
    assert outputs == sorted(outputs)


def test_rows_are_the_same_when_read_twice(version: str, name: str, tmp_path: Path) -> None:
    folder = with_markdown(version, snapshot(version, name, tmp_path))
    with CodexImporter().open(folder) as opened:
        export: Export = opened
        first = list(export.rows())
        assert list(export.rows()) == first
        assert any(isinstance(row, FileRow) for row in first)


def test_identity_tells_the_home(version: str, name: str, reading: Reading) -> None:
    identity = reading.identity
    assert identity.home == {"0.135.0": "/tmp/w/c135", "0.171.0-v2": "/tmp/w/c171v2"}[version]
    assert {row.thread_id for row in reading.of(OutputRow)} < identity.thread_ids
    assert len(identity.thread_ids) == truth(version, name)["state_5.sqlite"]["tables"]["threads"]
    outputs = reading.of(OutputRow)
    instants = [row.last_usage for row in outputs] + [row.generated_at for row in outputs]
    instants += [instant for row in reading.of(JobRow) for instant in (row.started_at, row.finished_at)]
    instants += [cast(datetime, row.columns["updated_at"]) for row in reading.of(ThreadRow)]
    assert identity.exported_at == max(instant for instant in instants if instant is not None)


def test_files_of_the_memory_folders_are_read(version: str, tmp_path: Path) -> None:
    home = with_markdown(version, snapshot(version, "02-closed", tmp_path))
    files = {row.path: row.content for row in read(home).of(FileRow)}
    folder = "memories" if version == "0.135.0" else "memories_v2"
    assert {f"{folder}/memory_summary.md", f"{folder}/extensions/ad_hoc/instructions.md"} < set(files)
    assert sum(path.startswith(f"{folder}/rollout_summaries/") for path in files) == 9
    assert not any(".git" in path or ".codex-baseline" in path for path in files)
    assert all(content == (home / path).read_bytes() for path, content in files.items())
    assert list(files) == sorted(files)
