"""What is looked at, and what is said when there is nothing to read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memsvc.errors import BadExport
from memsvc.model.export import FileRow, JobRow, OutputRow, Row, ThreadRow
from memsvc_importers import codex_files
from tests.importers.codex_home import JOBS, OUTPUTS, THREADS, database, job, output, read, thread


def refusal(path: Path) -> str:
    with pytest.raises(BadExport) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_path_without_anything_says_what_was_looked_for(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert refusal(absent) == (
        f"nothing to read at {absent}: looked for a Codex home, a folder of its *_N.sqlite files, or one such file"
    )


def test_an_empty_folder_says_what_was_looked_for(home: Path) -> None:
    assert refusal(home) == (
        f"no memory tables (stage1_outputs, jobs) at {home}: looked in files named *_N.sqlite, but there are none"
    )


def test_databases_without_memory_tables_are_named(home: Path) -> None:
    database(home / "goals_1.sqlite", "create table thread_goals (thread_id TEXT)")
    database(home / "state_5.sqlite", THREADS, threads=[thread()])
    assert refusal(home) == (
        f"no memory tables (stage1_outputs, jobs) at {home}: looked in goals_1.sqlite, state_5.sqlite"
    )


def test_a_file_that_is_not_sqlite_is_refused(home: Path) -> None:
    (home / "memories_1.sqlite").write_text("MEMORY")
    for path in (home, home / "memories_1.sqlite"):
        assert f"{home}/memories_1.sqlite is not a SQLite database" in refusal(path)


def test_a_file_with_a_broken_header_is_refused(home: Path) -> None:
    (home / "memories_1.sqlite").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    assert "memories_1.sqlite cannot be read as a SQLite database" in refusal(home / "memories_1.sqlite")


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0"])
def test_an_empty_file_is_refused(content: bytes, home: Path) -> None:
    (home / "memories_1.sqlite").write_bytes(content)
    assert "memories_1.sqlite" in refusal(home)


def test_a_special_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "memories_1.sqlite")
    assert "nothing to read" in refusal(tmp_path / "memories_1.sqlite")
    assert "there are none" in refusal(tmp_path)


def test_one_bad_file_does_not_spoil_the_others(home: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output()])
    (home / "memories_v2_1.sqlite").write_text("MEMORY")
    reading = read(home)
    assert list(reading.outputs) == ["t"]
    assert reading.warnings == (f"{home}/memories_v2_1.sqlite is not a SQLite database",)


def test_empty_memory_tables_are_fine(home: Path) -> None:
    database(home / "memories_1.sqlite")
    reading = read(home)
    assert reading.rows == []
    assert reading.warnings == ()
    assert reading.stores == ("v1",)
    assert reading.identity.exported_at is None
    assert reading.identity.home is None


def test_logs_and_backups_are_not_read(home: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output("kept")])
    database(home / "logs_2.sqlite", outputs=[output("log")])
    database(home / "db-backups" / "memories_1.sqlite", outputs=[output("backup")])
    assert list(read(home).outputs) == ["kept"]
    assert refusal(home / "logs_2.sqlite") == f"{home}/logs_2.sqlite holds logs of Codex, not memories"


@pytest.mark.parametrize(
    "file, store",
    [
        ("memories_1.sqlite", "v1"),
        ("memories_v2_1.sqlite", "v2"),
        ("state_5.sqlite", "state_5"),
        ("state_4.sqlite", "state_4"),
        ("state.sqlite", "state"),
        ("memories_2.sqlite", "memories_2"),
        ("memories_v2_7.sqlite", "memories_v2_7"),
        ("anything_12.sqlite", "anything_12"),
    ],
)
def test_stores_are_named_after_their_files(file: str, store: str, home: Path) -> None:
    database(home / file, outputs=[output()], jobs=[job()])
    for path in (home, home / file):
        reading = read(path)
        assert reading.stores == (store,)
        assert [row.store for row in reading.of(OutputRow)] == [store]
        assert [row.store for row in reading.of(JobRow)] == [store]


def test_a_single_file_may_have_any_name(tmp_path: Path) -> None:
    file = database(tmp_path / "copy of memories.db", OUTPUTS, JOBS, THREADS, outputs=[output()], threads=[thread()])
    reading = read(file)
    assert reading.stores == ("copy of memories",)
    assert [row.found_in for row in reading.of(ThreadRow)] == ["state"]


def test_no_file_is_taken_for_the_live_store(tmp_path: Path) -> None:
    assert read(database(tmp_path / "memsvc.sqlite", jobs=[job()])).stores == ("memsvc_file",)


def test_two_stores_may_hold_the_same_session(home: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output(raw_memory="one")], jobs=[job()])
    database(home / "memories_v2_1.sqlite", outputs=[output(raw_memory="")], jobs=[job()])
    reading = read(home)
    assert [(row.store, row.raw_memory) for row in reading.of(OutputRow)] == [("v1", b"one"), ("v2", b"")]
    assert [row.store for row in reading.of(JobRow)] == ["v1", "v2"]
    assert [row.thread_id for row in reading.of(ThreadRow)] == ["t"]


def test_outputs_of_all_stores_come_oldest_first(home: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output(f"a{age}", source_updated_at=age) for age in (5, 1, 3)])
    bad = output("x", source_updated_at=None)
    loose = OUTPUTS.replace("NOT NULL", "")
    database(home / "state_5.sqlite", loose, outputs=[bad, *(output(f"b{n}", source_updated_at=n) for n in (2, 4))])
    assert list(read(home).outputs) == ["a1", "b2", "a3", "b4", "a5"]


def test_tables_of_the_state_database_are_read_whatever_their_column_order(home: Path) -> None:
    old = """
    create table stage1_outputs (
        thread_id TEXT PRIMARY KEY, source_updated_at INTEGER NOT NULL, raw_memory TEXT NOT NULL,
        rollout_summary TEXT NOT NULL, generated_at INTEGER NOT NULL, rollout_slug TEXT, usage_count INTEGER,
        last_usage INTEGER, selected_for_phase2 INTEGER NOT NULL DEFAULT 0,
        selected_for_phase2_source_updated_at INTEGER,
        FOREIGN KEY (thread_id) REFERENCES threads (id) ON DELETE CASCADE)
    """
    rows = [output("t", rollout_slug="slug", usage_count=2)]
    database(home / "state_5.sqlite", THREADS, old, JOBS, threads=[thread()], outputs=rows, jobs=[job()])
    reading = read(home)
    assert reading.stores == ("state_5",)
    row = reading.outputs["t"]
    assert (row.rollout_slug, row.generated_at.year, row.usage_count) == (b"slug", 2026, 2)
    assert [thread.found_in for thread in reading.of(ThreadRow)] == ["state"]


def files(reading_rows: list[Row]) -> dict[str, bytes]:
    return {row.path: row.content for row in reading_rows if isinstance(row, FileRow)}


def test_files_that_cannot_be_taken_are_named(home: Path, tmp_path: Path) -> None:
    database(home / "memories_1.sqlite")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("secret")
    notes = home / "memories" / "extensions" / "ad_hoc"
    notes.mkdir(parents=True)
    (notes / "note.md").write_bytes(b"a\0b\r\n\xff")
    (notes / "link.md").symlink_to(tmp_path / "secret" / "key")
    (notes / "folder").symlink_to(tmp_path / "secret")
    (notes / "large.md").write_bytes(b"x" * (codex_files.LARGEST + 1))
    (home / "memories" / ".git").mkdir()
    (home / "memories" / ".git" / "HEAD").write_text("ref")
    Path(os.fsdecode(os.fsencode(notes) + b"/\xff.md")).write_text("name")
    os.mkfifo(notes / "pipe")
    (home / "memories_v2").symlink_to(tmp_path / "secret")
    (home / "memories_extensions").mkdir()
    (home / "memories_extensions" / "old.md").write_text("old")
    reading = read(home)
    assert files(list(reading.rows)) == {
        "memories/extensions/ad_hoc/note.md": b"a\0b\r\n\xff",
        "memories_extensions/old.md": b"old",
    }
    assert sorted(reading.warnings) == [
        "'memories/extensions/ad_hoc/folder' is a symbolic link and was not followed",
        "'memories/extensions/ad_hoc/large.md' is larger than 16 MiB and was skipped",
        "'memories/extensions/ad_hoc/link.md' is a symbolic link and was not followed",
        "memories_v2 is a symbolic link and was not followed",
        r"the name of 'memories/extensions/ad_hoc/\udcff.md' is not UTF-8: the file was skipped",
    ]


def test_a_single_file_has_no_memory_folders(home: Path) -> None:
    file = database(home / "memories_1.sqlite")
    (home / "memories").mkdir()
    (home / "memories" / "MEMORY.md").write_text("# Memory")
    assert read(file).of(FileRow) == []
    assert len(read(home).of(FileRow)) == 1
