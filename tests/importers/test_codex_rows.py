"""Rows that do not fit are set aside with the reason, and everything else goes on; texts stay as they are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsvc.model.export import FileRow, JobRow, OutputRow, ProgressRow, Rejected, ThreadRow
from memsvc_importers.codex import CodexImporter
from tests.importers.codex_home import (
    JOBS,
    OUTPUTS,
    THREADS,
    Reading,
    Value,
    database,
    insert,
    job,
    output,
    read,
    thread,
)

MILLISECONDS = 1_796_072_247_123


def loose(table: str) -> str:
    """The table as a tool other than Codex might have made it: the same types, no constraint."""
    return table.replace(" NOT NULL", "").replace(" PRIMARY KEY", "").replace(", (kind, job_key)", "")


def rejection(reading: Reading) -> Rejected:
    (rejected,) = reading.of(Rejected)
    return rejected


@pytest.mark.parametrize(
    "columns, reason",
    [
        ({"source_updated_at": "yesterday"}, "source_updated_at holds text 'yesterday', not an integer"),
        ({"source_updated_at": b"\1"}, "source_updated_at holds a blob '\\x01', not an integer"),
        ({"generated_at": 1.5}, "generated_at holds 1.5, not an integer"),
        ({"usage_count": "many"}, "usage_count holds text 'many', not an integer"),
        ({"selected_for_phase2": None}, "selected_for_phase2 is NULL"),
        ({"source_updated_at": None}, "source_updated_at is NULL"),
        ({"raw_memory": None}, "raw_memory is NULL"),
        ({"rollout_summary": None}, "rollout_summary is NULL"),
        ({"thread_id": None}, "thread_id is NULL"),
        ({"thread_id": b"t"}, "thread_id holds a blob 't', not text"),
        ({"thread_id": "t\0t"}, "thread_id contains a NUL character: text 't\\x00t'"),
        (
            {"generated_at": MILLISECONDS},
            f"generated_at holds {MILLISECONDS}, which looks like milliseconds, not seconds",
        ),
        ({"last_usage": 2**62}, f"last_usage holds {2**62}, which is outside the years 1 to 9999"),
        ({"last_usage": -(2**62)}, f"last_usage holds {-(2**62)}, which is outside the years 1 to 9999"),
    ],
)
def test_an_output_that_does_not_fit_is_set_aside(columns: dict[str, Value], reason: str, home: Path) -> None:
    rows = [output("before"), output("bad") | columns, output("last")]
    database(home / "memories_1.sqlite", loose(OUTPUTS), JOBS, outputs=rows)
    reading = read(home)
    assert list(reading.outputs) == ["before", "last"]
    rejected = rejection(reading)
    assert (rejected.store, rejected.table, rejected.reason) == ("v1", "stage1_outputs", reason)


@pytest.mark.parametrize(
    "columns, key, reason",
    [
        ({"kind": None}, "/j", "kind is NULL"),
        ({"job_key": None}, "memory_stage1/", "job_key is NULL"),
        ({"status": b"done"}, "memory_stage1/j", "status holds a blob 'done', not text"),
        ({"retry_remaining": None}, "memory_stage1/j", "retry_remaining is NULL"),
        ({"input_watermark": "9th"}, "memory_stage1/j", "input_watermark holds text '9th', not an integer"),
        (
            {"lease_until": MILLISECONDS},
            "memory_stage1/j",
            f"lease_until holds {MILLISECONDS}, which looks like milliseconds, not seconds",
        ),
    ],
)
def test_a_job_that_does_not_fit_is_set_aside(columns: dict[str, Value], key: str, reason: str, home: Path) -> None:
    database(home / "memories_1.sqlite", OUTPUTS, loose(JOBS), jobs=[job("a"), job("j") | columns, job("z")])
    reading = read(home)
    assert [row.job_key for row in reading.of(JobRow)] == ["a", "z"]
    rejected = rejection(reading)
    assert (rejected.table, rejected.key, rejected.reason) == ("jobs", key, reason)


def test_a_rejected_row_keeps_its_values(home: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output("ü", raw_memory="secret", generated_at="now", usage_count=3)])
    rejected = rejection(read(home))
    assert rejected.key == "ü"
    assert rejected.values == {
        "thread_id": "ü".encode(),
        "source_updated_at": 1_796_072_247,
        "raw_memory": b"secret",
        "rollout_summary": b"summary",
        "rollout_slug": None,
        "generated_at": b"now",
        "usage_count": 3,
        "last_usage": None,
        "selected_for_phase2": 0,
        "selected_for_phase2_source_updated_at": None,
    }
    assert {type(value) for value in rejected.values.values()} == {bytes, int, type(None)}


def test_a_reason_never_repeats_a_text_and_cuts_what_it_shows(home: Path) -> None:
    untyped = "create table stage1_outputs (thread_id, source_updated_at, raw_memory, rollout_summary, generated_at)"
    rows = [output("a", raw_memory=4_242), output("b", generated_at="x" * 9000)]
    database(home / "memories_1.sqlite", untyped, outputs=rows)
    first, second = (rejected.reason for rejected in read(home).of(Rejected))
    assert first == "raw_memory holds a number, not text"
    assert second.startswith("generated_at holds text 'xxx")
    assert len(second) < 130


def test_null_keys_do_not_hide_each_other(home: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output(None), output(None), output("t")])
    reading = read(home)
    assert [rejected.key for rejected in reading.of(Rejected)] == ["", ""]
    assert list(reading.outputs) == ["t"]


def test_of_two_rows_with_one_key_the_second_is_set_aside(home: Path) -> None:
    database(home / "memories_1.sqlite", loose(OUTPUTS), JOBS, outputs=[output(), output()])
    reading = read(home)
    assert list(reading.outputs) == ["t"]
    assert rejection(reading).reason == "another row with the same key came before"


def test_a_key_that_is_not_utf8_is_set_aside(home: Path) -> None:
    file = database(home / "memories_1.sqlite", outputs=[output("x")])
    with closing(sqlite3.connect(file, isolation_level=None)) as conn:
        conn.execute("update stage1_outputs set thread_id = cast(x'74ff00' as text)")
    rejected = rejection(read(home))
    assert rejected.key == "t\ufffd\ufffd"
    assert rejected.reason == r"thread_id is not valid UTF-8: text b't\xff\x00'"
    assert rejected.values["thread_id"] == b"t\xff\x00"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a\0b",
        b"\0",
        b"a\r\nb\rc\n",
        b"\xff\xfe\x80",
        "naïve 数 🜚".encode(),
        b"x" * 3_000_000,
        b"\xef\xbb\xbf# BOM ",
    ],
    ids=["empty", "NUL", "one NUL", "CRLF", "invalid UTF-8", "Unicode", "large", "BOM"],
)
@pytest.mark.parametrize("as_blob", [False, True])
def test_texts_stay_as_they_are(content: bytes, as_blob: bool, home: Path) -> None:
    file = database(home / "memories_1.sqlite", outputs=[output()], jobs=[job()])
    value = "?1" if as_blob else "cast(?1 as text)"
    with closing(sqlite3.connect(file, isolation_level=None)) as conn:
        conn.execute(
            f"update stage1_outputs set raw_memory = {value}, rollout_summary = {value}, rollout_slug = {value}",
            [content],
        )
        conn.execute(f"update jobs set last_error = {value}", [content])
    reading = read(home)
    row = reading.outputs["t"]
    assert (row.raw_memory, row.rollout_summary, row.rollout_slug) == (content, content, content)
    assert type(row.raw_memory) is bytes
    assert [row.last_error for row in reading.of(JobRow)] == [content]


@pytest.mark.parametrize(
    "seconds, instant",
    [
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (-1, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (-62_135_596_800, datetime(1, 1, 1, tzinfo=UTC)),
        (253_402_300_799, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_every_instant_of_the_calendar_is_kept(seconds: int, instant: datetime, home: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output(source_updated_at=seconds)])
    assert read(home).outputs["t"].source_updated_at == instant


def test_what_was_never_cited_is_not_zero(home: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output("a"), output("b", usage_count=0, selected_for_phase2=2)])
    rows = read(home).outputs
    assert (rows["a"].usage_count, rows["b"].usage_count) == (None, 0)
    assert (rows["a"].selected_for_phase2, rows["b"].selected_for_phase2) == (0, 2)


def test_columns_that_are_not_known_are_kept(home: Path) -> None:
    file = database(home / "memories_1.sqlite", outputs=[output()], jobs=[job()])
    with closing(sqlite3.connect(file, isolation_level=None)) as conn:
        for name, value in (
            ("scope", "'cl\N{LATIN SMALL LETTER E WITH ACUTE}'"),
            ('"odd ""name"', "cast(x'61ff' as text)"),
        ):
            conn.execute(f"alter table stage1_outputs add column {name}")
            conn.execute(f"update stage1_outputs set {name} = {value}")
        conn.execute("alter table stage1_outputs add column score REAL default 0.5")
        conn.execute("alter table jobs add column attempt INTEGER default 7")
        conn.execute("alter table jobs add column host TEXT")
    reading = read(home)
    assert reading.outputs["t"].extra == {"scope": "clé", 'odd "name': b"a\xff", "score": 0.5}
    assert [row.extra for row in reading.of(JobRow)] == [{"attempt": 7, "host": None}]


def test_only_few_columns_are_needed(home: Path) -> None:
    outputs = "create table stage1_outputs (generated_at, rollout_summary, raw_memory, source_updated_at, thread_id)"
    jobs = "create table jobs (status, job_key, kind)"
    bare: dict[str, Value] = {"status": "done", "job_key": "t", "kind": "memory_stage1"}
    database(home / "memories_1.sqlite", outputs, jobs, outputs=[output()], jobs=[bare])
    reading = read(home)
    row = reading.outputs["t"]
    assert (row.rollout_slug, row.usage_count, row.selected_for_phase2) == (None, None, 0)
    (only,) = reading.of(JobRow)
    assert (only.retry_remaining, only.lease_until, only.last_error) == (3, None, None)
    assert reading.warnings == ("memories_1.sqlite: table jobs has no column retry_remaining; 3 is assumed",)


@pytest.mark.parametrize("column", ["thread_id", "source_updated_at", "raw_memory", "rollout_summary", "generated_at"])
def test_a_table_without_a_column_that_is_needed_is_set_aside(column: str, home: Path) -> None:
    file = database(home / "memories_1.sqlite", loose(OUTPUTS), JOBS, outputs=[output()], jobs=[job()])
    with closing(sqlite3.connect(file)) as conn:
        conn.execute(f"alter table stage1_outputs drop column {column}")
    reading = read(home)
    assert reading.of(OutputRow) == []
    assert [row.job_key for row in reading.of(JobRow)] == ["t"]
    assert rejection(reading).reason == f"the table has no column {column}"
    assert reading.warnings == (
        f"memories_1.sqlite: table stage1_outputs has no column {column}: none of its rows could be taken",
    )


@pytest.mark.parametrize("column", ["kind", "job_key", "status"])
def test_a_ledger_without_a_column_that_is_needed_is_set_aside(column: str, home: Path) -> None:
    file = database(home / "memories_1.sqlite", OUTPUTS, loose(JOBS), outputs=[output()], jobs=[job()])
    with closing(sqlite3.connect(file)) as conn:
        conn.execute(f"alter table jobs rename column {column} to other")
    reading = read(home)
    assert list(reading.outputs) == ["t"]
    assert reading.of(JobRow) == []
    assert rejection(reading).values["other"] == str(job()[column]).encode()
    assert reading.warnings == (
        f"memories_1.sqlite: table jobs has no column {column}: none of its rows could be taken",
    )


def test_progress_that_does_not_fit_is_set_aside(home: Path) -> None:
    table = "create table consolidation_progress (singleton, max_thread_count)"
    file = database(home / "memories_1.sqlite", OUTPUTS, JOBS, table)
    with closing(sqlite3.connect(file, isolation_level=None)) as conn:
        conn.execute("insert into consolidation_progress values (1, 9), (2, 10), (3, 'x')")
    reading = read(home)
    assert reading.of(ProgressRow) == [ProgressRow("v1", 9)]
    assert [rejected.reason for rejected in reading.of(Rejected)] == [
        "another row with the same key came before",
        "max_thread_count holds text 'x', not an integer",
    ]


VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(1_500_000_000, 1_900_000_000),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=20),
)


def with_odd_values(ordinary: dict[str, Value]) -> st.SearchStrategy[dict[str, Value]]:
    odd = st.dictionaries(st.sampled_from(sorted(ordinary)), VALUES, max_size=len(ordinary))
    return odd.map(lambda columns: ordinary | columns)


@settings(deadline=None)
@given(
    outputs=st.lists(with_odd_values(output()), max_size=4),
    jobs=st.lists(with_odd_values(job(started_at=1, last_error="", input_watermark=0)), max_size=4),
    threads=st.lists(with_odd_values(thread(archived_at=0, updated_at_ms=0)), max_size=4),
)
def test_every_row_is_either_accepted_or_rejected(
    outputs: list[dict[str, Value]], jobs: list[dict[str, Value]], threads: list[dict[str, Value]]
) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder, "state_5.sqlite")
        database(file, *map(loose, (OUTPUTS, JOBS, THREADS)))
        with closing(sqlite3.connect(file)) as conn:
            for table, rows in (("stage1_outputs", outputs), ("jobs", jobs), ("threads", threads)):
                for row in rows:
                    insert(conn, table, row)
            conn.commit()
        with CodexImporter().open(Path(folder)) as export:
            found = list(export.rows())
            assert list(export.rows()) == found
            assert export.identity.thread_ids >= {row.thread_id for row in found if isinstance(row, OutputRow)}
    accepted = [row for row in found if isinstance(row, OutputRow | JobRow)]
    accepted_threads = [row for row in found if isinstance(row, ThreadRow) and row.found_in == "state"]
    rejected = [row for row in found if isinstance(row, Rejected)]
    assert len(accepted) + len(accepted_threads) + len(rejected) == len(outputs) + len(jobs) + len(threads)
    assert not any(isinstance(row, FileRow) for row in found)
