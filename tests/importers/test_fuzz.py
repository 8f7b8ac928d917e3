"""
Whole SQLite files with anything in them, cut anywhere, with bytes changed anywhere: rows that add up, or BadExport.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from memsvc.errors import BadExport
from memsvc.model.export import JobRow, OutputRow, ProgressRow, Rejected, ThreadRow
from memsvc_importers.codex import CodexImporter
from tests.importers.codex_home import JOBS, OUTPUTS, THREADS, Reading, Value, insert, job, output, read, thread

PROGRESS = "create table consolidation_progress (singleton INTEGER, max_thread_count INTEGER NOT NULL)"
TABLES = ("stage1_outputs", "jobs", "threads", "consolidation_progress")
ENCODINGS = ("UTF-8", "UTF-16le", "UTF-16be")
PAGE = 4096
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
SEEDS = range(15)
FLIPS = range(90)


def loose(schema: str) -> str:
    """The same columns without types and constraints: SQLite then keeps whatever it is given."""
    for word in (" TEXT", " INTEGER", " NOT NULL", " PRIMARY KEY", " DEFAULT 0", ", PRIMARY KEY (kind, job_key)"):
        schema = schema.replace(word, "")
    return schema.replace(", (kind, job_key)", "")


def made(file: Path, chance: random.Random, *, rows: int, encoding: str = "UTF-8", odd: float = 0.0) -> Path:
    """A database with all four tables; a share `odd` of the values is anything at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as conn:
        conn.execute(f"pragma encoding = '{encoding}'")
        conn.execute(f"pragma page_size = {PAGE}")
        for schema in (OUTPUTS, JOBS, THREADS, PROGRESS):
            conn.execute(loose(schema) if odd else schema)
        for number in range(rows):
            text = f"- line {number}\n" * chance.randrange(1, 60)
            for table, row in (
                ("stage1_outputs", output(f"t{number}", raw_memory=text)),
                ("jobs", job(f"t{number}", last_error=text[:200], started_at=number)),
                ("threads", thread(f"t{number}", updated_at_ms=1)),
                ("consolidation_progress", {"singleton": 1, "max_thread_count": number}),
            ):
                insert(
                    conn,
                    table,
                    {name: anything(chance) if chance.random() < odd else value for name, value in row.items()},
                )
        conn.commit()
    return file


def anything(chance: random.Random) -> Value:
    return chance.choice(
        [
            None,
            chance.randrange(-(2**63), 2**63),
            chance.randrange(0, 2_000_000_000),
            chance.choice([0.0, -1.5, 1e300, float("inf")]),
            "".join(chance.choices("aé中\U0001f600\0\r\n'\"\\{}%\ud7ff", k=chance.randrange(40))),
            "x" * chance.choice([0, 1, PAGE - 100, PAGE, 5 * PAGE]),
            bytes(chance.randrange(256) for _ in range(chance.randrange(40))),
        ]
    )


def readable(file: Path) -> dict[str, int]:
    """How many rows of each table SQLite itself can read, one by one."""
    found: dict[str, int] = {}
    with closing(sqlite3.connect(file)) as conn:
        conn.text_factory = bytes
        for table in TABLES:
            rowids: list[int] = []
            with suppress(*UNREADABLE):
                rowids.extend(rowid for (rowid,) in conn.execute(f"select rowid from {table} not indexed"))
            found[table] = sum(is_readable(conn, table, rowid) for rowid in rowids)
    return found


def is_readable(conn: sqlite3.Connection, table: str, rowid: int) -> bool:
    try:
        return conn.execute(f"select * from {table} where rowid = ?", (rowid,)).fetchone() is not None
    except UNREADABLE:
        return False


def counted(reading: Reading) -> dict[str, int]:
    counts = Counter(row.table for row in reading.of(Rejected))
    counts["stage1_outputs"] += len(reading.of(OutputRow))
    counts["jobs"] += len(reading.of(JobRow))
    counts["threads"] += sum(row.found_in == "state" for row in reading.of(ThreadRow))
    counts["consolidation_progress"] += len(reading.of(ProgressRow))
    return {table: counts[table] for table in TABLES}


def read_or_refused(file: Path) -> Reading | None:
    """What the importer reads; None when it refuses the file. Anything else that it raises fails the test."""
    try:
        return read(file)
    except BadExport:
        return None


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_any_values_add_up(tmp_path: Path, seed: int, encoding: str) -> None:
    chance = random.Random(seed)
    file = made(tmp_path / "state_5.sqlite", chance, rows=6, encoding=encoding, odd=chance.choice([0.05, 0.3, 0.9]))

    reading = read(file)

    assert counted(reading) == dict.fromkeys(TABLES, 6)
    with CodexImporter().open(file) as export:
        assert list(map(repr, export.rows())) == list(map(repr, reading.rows))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_texts_are_the_same_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    text = "é 中 \U0001f600 \0 \r\n end"
    file = tmp_path / "memories_1.sqlite"
    with closing(sqlite3.connect(file)) as conn:
        conn.execute(f"pragma encoding = '{encoding}'")
        conn.execute(OUTPUTS)
        insert(conn, "stage1_outputs", output(raw_memory=text))
        conn.commit()

    assert read(file).outputs["t"].raw_memory == text.encode()


@pytest.fixture(scope="module")
def twenty_pages(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = made(tmp_path_factory.mktemp("made") / "state_5.sqlite", random.Random(1), rows=70)
    content = file.read_bytes()
    assert len(content) >= 20 * PAGE
    return content


def assert_adds_up(file: Path) -> None:
    """Either refused, or all that can be read is accepted or rejected, and a loss is named."""
    reading = read_or_refused(file)
    if reading is None:
        return
    found, there = counted(reading), readable(file)
    assert all(found[table] >= there[table] or any(table in text for text in reading.warnings) for table in TABLES)
    if sum(found.values()) < 4 * 70:
        assert reading.warnings


def cuts(content: bytes) -> Iterator[int]:
    for boundary in range(0, len(content), PAGE):
        yield from (boundary, boundary + 1, boundary + PAGE // 2)


def test_a_file_cut_anywhere_adds_up(tmp_path: Path, twenty_pages: bytes) -> None:
    for length in cuts(twenty_pages):
        file = tmp_path / f"{length}" / "state_5.sqlite"
        file.parent.mkdir()
        file.write_bytes(twenty_pages[:length])
        assert_adds_up(file)


@pytest.mark.parametrize("start", FLIPS[::30])
def test_a_file_with_changed_bytes_adds_up(tmp_path: Path, twenty_pages: bytes, start: int) -> None:
    for seed in range(start, start + 30):
        chance = random.Random(seed)
        content = bytearray(twenty_pages)
        for _ in range(chance.choice([1, 5, 50, 500])):
            content[chance.randrange(len(content))] = chance.randrange(256)
        file = tmp_path / f"{seed}" / "state_5.sqlite"
        file.parent.mkdir()
        file.write_bytes(content)
        assert_adds_up(file)


def test_only_the_rows_of_a_damaged_page_are_lost(tmp_path: Path, twenty_pages: bytes) -> None:
    file = tmp_path / "state_5.sqlite"
    file.write_bytes(twenty_pages)
    everything = {row.thread_id for row in read(file).of(OutputRow)}
    with closing(sqlite3.connect(file)) as conn:
        (root,) = conn.execute("select rootpage from sqlite_master where name = 'stage1_outputs'").fetchone()
    leaves = [page for page in range(len(twenty_pages) // PAGE) if page + 1 != root and twenty_pages[page * PAGE] == 13]
    lost: list[int] = []
    for page in leaves:
        content = bytearray(twenty_pages)
        content[page * PAGE] = 0
        file.write_bytes(content)
        reading = read(file)
        missing = everything - {row.thread_id for row in reading.of(OutputRow)}
        lost.append(len(missing))
        if missing:
            assert any("stage1_outputs breaks off" in text for text in reading.warnings)
    assert sum(lost) == len(everything)
    assert max(lost) < 20
