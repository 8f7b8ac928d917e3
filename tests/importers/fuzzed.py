"""SQLite files with anything in them, cut anywhere, with bytes changed anywhere; each is the same on every run."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from memsvc.model.export import JobRow, OutputRow, ProgressRow, Rejected, ThreadRow
from tests.importers.codex_home import JOBS, OUTPUTS, THREADS, Reading, Value, insert, job, output, thread

PROGRESS = "create table consolidation_progress (singleton INTEGER, max_thread_count INTEGER NOT NULL)"
TABLES = ("stage1_outputs", "jobs", "threads", "consolidation_progress")
ENCODINGS = ("UTF-8", "UTF-16le", "UTF-16be")
PAGE = 4096
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)


def loose(schema: str) -> str:
    """The same columns and defaults without types and constraints: SQLite then keeps whatever it is given."""
    for word in (" TEXT", " INTEGER", " NOT NULL", " PRIMARY KEY", ", PRIMARY KEY (kind, job_key)"):
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
            chance.randbytes(chance.choice([400, 500, 501, PAGE])).hex(),
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


def cuts(content: bytes) -> Iterator[int]:
    """Lengths to cut a file to: at every page, just behind its start and in its middle."""
    for boundary in range(0, len(content), PAGE):
        yield from (boundary, boundary + 1, boundary + PAGE // 2)


def flipped(content: bytes, chance: random.Random) -> bytes:
    """The same file with one to 500 of its bytes changed."""
    changed = bytearray(content)
    for _ in range(chance.choice([1, 5, 50, 500])):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)
