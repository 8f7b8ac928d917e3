"""The original is read and nothing else, whatever state it is in; the private copy goes away."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from memsvc.errors import BadExport
from memsvc.model.export import JobRow, OutputRow
from memsvc_importers import codex_copy
from memsvc_importers.codex import CodexImporter
from tests.importers.codex_home import JOBS, OUTPUTS, THREADS, Value, database, job, output, read, thread
from tests.snapshots import snapshot, with_markdown

NOBODY = 65534

WRITER = """
import itertools, sqlite3, sys, time
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("pragma wal_autocheckpoint = 100")
for number in itertools.count():
    conn.execute("begin immediate")
    conn.execute("insert into stage1_outputs values (?, 1796072247, ?, '', null, 1796075958, null, null, 0, null)",
                 (f"{number:06}", "x" * 3000))
    conn.execute("insert into jobs (kind, job_key, status, retry_remaining) values ('memory_stage1', ?, 'done', 3)",
                 (f"{number:06}",))
    conn.execute("commit")
    if number == 20:
        print("ready", flush=True)
    time.sleep(0.005)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own folder for temporary files, to see what is left in it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def state_of(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    stats = {file: file.stat() for file in sorted([folder, *folder.rglob("*")])}
    return {
        str(file): (stat.st_mode, stat.st_mtime_ns, b"" if file.is_dir() else file.read_bytes())
        for file, stat in stats.items()
    }


@contextmanager
def powerless() -> Iterator[None]:
    """Root passes over file modes, so act as somebody who cannot."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that everybody may enter and write to, for the test's own files and for the importer's."""
    monkeypatch.undo()
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        monkeypatch.setattr("tempfile.tempdir", folder)
        yield Path(folder)


def test_the_original_is_left_as_it_was(version: str, name: str, tmp_path: Path) -> None:
    home = with_markdown(version, snapshot(version, name, tmp_path / "export"))
    before = state_of(home)
    assert read(home).outputs
    assert state_of(home) == before


def test_a_read_only_folder_is_read(version: str, public: Path) -> None:
    home = snapshot(version, "01-live", public)
    for file in home.iterdir():
        file.chmod(0o444)
    home.chmod(0o555)
    before = state_of(home)
    with powerless():
        with pytest.raises(PermissionError):
            (home / "memories_1.sqlite-shm").touch()
        assert len(read(home).outputs) == 9
    assert state_of(home) == before


def test_a_file_that_may_not_be_read_is_refused(public: Path) -> None:
    database(public / "memories_1.sqlite").chmod(0)
    with powerless(), pytest.raises(BadExport, match="could not be copied: Permission denied"):
        read(public)


def test_rows_that_lie_in_the_wal_alone_are_read_from_a_single_file(tmp_path: Path) -> None:
    folder = snapshot("0.135.0", "01-live", tmp_path / "export")
    reading = read(folder / "memories_1.sqlite")
    assert reading.stores == ("v1",)
    assert len(reading.outputs) == 9
    assert len(reading.of(JobRow)) == 10
    assert reading.warnings == ()


def test_links_are_followed_to_the_file_and_its_sidecars(tmp_path: Path, home: Path) -> None:
    folder = snapshot("0.135.0", "01-live", tmp_path / "export")
    (home / "memories_1.sqlite").symlink_to(folder / "memories_1.sqlite")
    (home / "state_5.sqlite").hardlink_to(folder / "state_5.sqlite")
    (home / "state_5.sqlite-wal").hardlink_to(folder / "state_5.sqlite-wal")
    before = state_of(folder)
    reading = read(home)
    assert len(reading.outputs) == 9
    assert len(reading.identity.thread_ids) == 21
    assert state_of(folder) == before


@pytest.mark.parametrize("single", [False, True])
def test_a_main_file_without_its_wal_is_not_taken_for_an_empty_memory(single: bool, tmp_path: Path, home: Path) -> None:
    folder = snapshot("0.135.0", "01-live", tmp_path / "export")
    shutil.copy(folder / "memories_1.sqlite", home)
    reading = read(home / "memories_1.sqlite" if single else home)
    assert reading.rows == []
    assert reading.warnings == (
        "memories_1.sqlite holds no rows and was in WAL mode, but its -wal file is not there: copy both",
    )


@pytest.mark.parametrize(
    "threads, lost", [([], "holds no threads"), ([thread("a"), thread("b")], "lacks 1 of the sessions")]
)
def test_threads_that_were_cut_off_are_noticed(threads: list[dict[str, Value]], lost: str, home: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output("a"), output("c")])
    with closing(sqlite3.connect(database(home / "state_5.sqlite", THREADS, threads=threads))) as conn:
        assert read(home).warnings == ()
        conn.execute("pragma journal_mode = wal")
    assert read(home).warnings == (
        f"state_5.sqlite {lost} and was in WAL mode, but its -wal file is not there: copy both",
    )


def test_a_database_whose_tables_were_cut_off_is_noticed(home: Path) -> None:
    with closing(sqlite3.connect(home / "memories_1.sqlite")) as conn:
        conn.execute("pragma journal_mode = wal")
    database(home / "memories_v2_1.sqlite", outputs=[output()])
    assert read(home).warnings == (
        "memories_1.sqlite holds no tables and was in WAL mode, but its -wal file is not there: copy both",
    )


def test_an_empty_store_beside_one_in_use_is_not_odd(version: str, tmp_path: Path) -> None:
    reading = read(snapshot(version, "05-checkpointed", tmp_path))
    assert reading.warnings == ()


def test_a_hot_journal_is_rolled_back_in_the_copy(home: Path, tmp_path: Path) -> None:
    live = database(tmp_path / "memories_1.sqlite", outputs=[output("kept", raw_memory="x" * 9000)])
    with closing(sqlite3.connect(live, isolation_level=None)) as conn:
        conn.execute("pragma cache_spill = 1")
        conn.execute("pragma cache_size = 1")
        conn.execute("begin")
        conn.execute("delete from stage1_outputs")
        conn.executemany("insert into jobs values ('k', ?, 's', 0,0,0,0,0,0,0,0,0,0)", [(n,) for n in range(5000)])
        for file in tmp_path.glob("memories_1.sqlite*"):
            shutil.copy(file, home)
    assert (home / "memories_1.sqlite-journal").exists()
    before = state_of(home)
    reading = read(home)
    assert list(reading.outputs) == ["kept"]
    assert reading.of(JobRow) == []
    assert state_of(home) == before


def test_a_database_that_is_written_to_gives_one_moment(home: Path) -> None:
    file = database(home / "memories_1.sqlite")
    with closing(sqlite3.connect(file)) as conn:
        conn.execute("pragma journal_mode = wal")
    with subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            last = 0
            for _ in range(20):
                reading = read(home)
                assert reading.warnings == ()
                assert list(reading.outputs) == [f"{number:06}" for number in range(len(reading.outputs))]
                assert [row.job_key for row in reading.of(JobRow)] == list(reading.outputs)
                assert len(reading.outputs) >= max(last, 20)
                last = len(reading.outputs)
        finally:
            writer.kill()
    assert writer.returncode < 0, "the writer was at work to the end"


def test_a_wal_that_starts_over_makes_a_new_attempt(home: Path) -> None:
    file = database(home / "memories_1.sqlite")
    with closing(sqlite3.connect(file, isolation_level=None)) as conn:
        conn.execute("pragma journal_mode = wal")
        conn.execute("create table other (n)")
        before = codex_copy.moment(file)
        conn.execute("insert into other values (1)")
        assert before.same(codex_copy.moment(file)), "the copy may lack what was appended meanwhile"
        conn.execute("pragma wal_checkpoint(restart)")
        conn.execute("insert into other values (2)")
        assert not before.same(codex_copy.moment(file))


def test_a_damaged_database_gives_the_rows_that_can_be_read(home: Path) -> None:
    rows = [output(f"{number:04}", raw_memory="x" * 2000) for number in range(200)]
    file = database(home / "memories_1.sqlite", outputs=rows, jobs=[job(f"{number:04}") for number in range(200)])
    content = bytearray(file.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 8192] = b"\xff" * 8192
    file.write_bytes(content)
    reading = read(home)
    assert 0 < len(reading.outputs) < 200
    assert "memories_1.sqlite is damaged" in reading.warnings[0]
    assert any("stage1_outputs" in warning for warning in reading.warnings)


@pytest.mark.parametrize("start", range(0, 40_960, 4096))
def test_no_damaged_page_makes_it_fail_in_an_unforeseen_way(start: int, home: Path) -> None:
    rows = [output(f"{number:04}", raw_memory="x" * 500) for number in range(40)]
    database(home / "memories_1.sqlite", outputs=rows, jobs=[job(f"{number:04}") for number in range(40)])
    database(home / "state_5.sqlite", THREADS, threads=[thread(f"{number:04}") for number in range(40)])
    for file in home.iterdir():
        content = bytearray(file.read_bytes())
        if start + 4096 <= len(content) and start:
            content[start : start + 4096] = bytes(range(256)) * 16
            file.write_bytes(content)
    assert all(warning.count("\n") == 0 for warning in read(home).warnings)


def test_the_copy_is_private_and_gone_afterwards(home: Path, temporary: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output()])
    with CodexImporter().open(home) as export:
        (copy,) = temporary.iterdir()
        assert copy.stat().st_mode & 0o777 == 0o700
        assert list(export.rows())
    assert list(temporary.iterdir()) == []


def test_the_copy_is_gone_when_the_rows_were_not_read_to_the_end(home: Path, temporary: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output(f"{number}") for number in range(9)])
    with CodexImporter().open(home) as export:
        rows = export.rows()
        next(rows)
    assert list(temporary.iterdir()) == []


def test_the_copy_is_gone_after_an_error(home: Path, temporary: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output()])
    with pytest.raises(StopIteration), CodexImporter().open(home) as export:
        next(iter(list(export.rows())[9:]))
    assert list(temporary.iterdir()) == []


def test_an_error_of_the_caller_is_not_taken_for_one_of_the_export(home: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output()])
    with pytest.raises(FileNotFoundError), CodexImporter().open(home):
        raise FileNotFoundError


def test_the_original_may_change_once_it_is_open(home: Path) -> None:
    file = database(home / "memories_1.sqlite", OUTPUTS, JOBS, outputs=[output()])
    (home / "memories").mkdir()
    (home / "memories" / "MEMORY.md").write_text("then")
    with CodexImporter().open(home) as export:
        before = list(export.rows())
        file.write_bytes(b"")
        (home / "memories" / "MEMORY.md").write_text("now")
        assert list(export.rows()) == before
    assert len([row for row in before if isinstance(row, OutputRow)]) == 1
