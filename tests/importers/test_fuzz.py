"""
Whole SQLite files with anything in them, cut anywhere, with bytes changed anywhere: rows that add up, or BadExport.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from memsvc.errors import BadExport
from memsvc.model.export import OutputRow
from memsvc_importers.codex import CodexImporter
from tests.importers.codex_home import OUTPUTS, Reading, insert, output, read
from tests.importers.fuzzed import ENCODINGS, PAGE, TABLES, counted, cuts, flipped, made, readable

SEEDS = range(15)
FLIPS = range(90)
ROWS = 70


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
    file = made(tmp_path_factory.mktemp("made") / "state_5.sqlite", random.Random(1), rows=ROWS)
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
    if sum(found.values()) < 4 * ROWS:
        assert reading.warnings


def test_a_file_cut_anywhere_adds_up(tmp_path: Path, twenty_pages: bytes) -> None:
    for length in cuts(twenty_pages):
        file = tmp_path / f"{length}" / "state_5.sqlite"
        file.parent.mkdir()
        file.write_bytes(twenty_pages[:length])
        assert_adds_up(file)


@pytest.mark.parametrize("start", FLIPS[::30])
def test_a_file_with_changed_bytes_adds_up(tmp_path: Path, twenty_pages: bytes, start: int) -> None:
    for seed in range(start, start + 30):
        content = flipped(twenty_pages, random.Random(seed))
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
