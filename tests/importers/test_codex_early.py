"""Memory from before stage1_outputs: read, put under stores of its own, and nothing of it lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memsvc.db.pool import Pool
from memsvc.model.export import JobRow, OutputRow, Rejected, ThreadRow
from memsvc.model.principal import OWNER
from memsvc.model.report import Tally
from memsvc.pipeline.ingest import ingest
from tests.importers.codex_home import JOBS, OUTPUTS, THREADS, Value, database, insert, output, read, thread

AT = 1_770_200_000

FIRST_FORM = """
create table thread_memory (
    thread_id TEXT PRIMARY KEY REFERENCES threads (id) ON DELETE CASCADE, trace_summary TEXT NOT NULL,
    memory_summary TEXT NOT NULL, updated_at INTEGER NOT NULL)
"""
SCOPED_FORM = """
create table thread_memory (
    thread_id TEXT NOT NULL, scope_kind TEXT NOT NULL, scope_key TEXT NOT NULL, raw_memory TEXT NOT NULL,
    memory_summary TEXT NOT NULL, updated_at INTEGER NOT NULL, last_used_at INTEGER,
    used_count INTEGER NOT NULL DEFAULT 0, invalidated_at INTEGER, invalid_reason TEXT,
    PRIMARY KEY (thread_id, scope_kind, scope_key))
"""
SUMMARIES = """
create table memory_summaries (
    thread_id TEXT PRIMARY KEY, cwd TEXT NOT NULL, summary TEXT NOT NULL, created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL)
"""
PHASE1 = """
create table memory_phase1_jobs (
    thread_id TEXT NOT NULL, scope_kind TEXT NOT NULL, scope_key TEXT NOT NULL, status TEXT NOT NULL,
    owner_session_id TEXT, started_at INTEGER, finished_at INTEGER, failure_reason TEXT,
    source_updated_at INTEGER NOT NULL, raw_memory_path TEXT, summary_hash TEXT, ownership_token TEXT,
    PRIMARY KEY (thread_id, scope_kind, scope_key))
"""
PHASE2 = """
create table memory_phase2_jobs (
    scope_kind TEXT NOT NULL, scope_key TEXT NOT NULL, status TEXT NOT NULL, owner_session_id TEXT,
    agent_thread_id TEXT, started_at INTEGER, last_heartbeat_at INTEGER, finished_at INTEGER,
    attempt INTEGER NOT NULL DEFAULT 0, failure_reason TEXT, ownership_token TEXT,
    PRIMARY KEY (scope_kind, scope_key))
"""
LOCKS: dict[str, tuple[str, dict[str, Value], str]] = {
    "memory_summary_locks": (
        "create table memory_summary_locks (cwd TEXT PRIMARY KEY, owner_id TEXT, acquired_at INT, expires_at INT)",
        {"cwd": "/src/kiln", "owner_id": "x", "acquired_at": 1, "expires_at": 2},
        "/src/kiln",
    ),
    "memory_consolidation_locks": (
        "create table memory_consolidation_locks (cwd TEXT PRIMARY KEY, working_thread_id TEXT, updated_at INTEGER)",
        {"cwd": "/src/kiln", "working_thread_id": "t", "updated_at": 1},
        "/src/kiln",
    ),
    "memory_scope_dirty": (
        "create table memory_scope_dirty (scope_kind TEXT, scope_key TEXT, dirty INTEGER, updated_at INTEGER)",
        {"scope_kind": "cwd", "scope_key": "/src/kiln", "dirty": 1, "updated_at": 2},
        "cwd//src/kiln",
    ),
}


def early(file: Path, *schema: str, **tables: Sequence[Mapping[str, Value]]) -> Path:
    """A state database of early February 2026 with the rows of each named table."""
    database(file, THREADS, *schema, threads=[thread()])
    with closing(sqlite3.connect(file)) as conn:
        for table, rows in tables.items():
            for row in rows:
                insert(conn, table, row)
        conn.commit()
    return file


def first_form(thread_id: str = "t", **columns: Value) -> dict[str, Value]:
    ordinary: dict[str, Value] = {
        "thread_id": thread_id,
        "trace_summary": "- the trace\n",
        "memory_summary": "the summary",
        "updated_at": AT,
    }
    return ordinary | columns


def scoped(kind: str, key: str, **columns: Value) -> dict[str, Value]:
    ordinary: dict[str, Value] = {"thread_id": "t", "raw_memory": f"- of {key}\n", "memory_summary": "short"}
    return ordinary | {"scope_kind": kind, "scope_key": key, "updated_at": AT} | columns


@pytest.mark.parametrize("name", ["state.sqlite", "state_2.sqlite", "state_4.sqlite"])
def test_the_first_form_becomes_outputs_of_its_own_store(name: str, home: Path) -> None:
    store = name.removesuffix(".sqlite") + ".thread_memory"
    file = early(home / name, FIRST_FORM, thread_memory=[first_form("a"), first_form("b", updated_at=AT - 1)])
    for path in (home, file):
        reading = read(path)
        assert [row.thread_id for row in reading.of(OutputRow)] == ["b", "a"]
        row = reading.outputs["a"]
        assert (row.store, row.raw_memory, row.rollout_summary) == (store, b"- the trace\n", b"the summary")
        assert row.source_updated_at == row.generated_at == datetime.fromtimestamp(AT, UTC)
        assert (row.usage_count, row.last_usage, row.extra) == (None, None, {})
        assert reading.stores == (store,)
        assert reading.warnings == (f"{store}: 2 rows in the form that Codex kept memory in before 10 February 2026",)
        assert {"a", "b", "t"} == reading.identity.thread_ids


def test_each_scope_of_a_session_is_an_output(home: Path) -> None:
    rows = [
        scoped("user", "user", updated_at=AT + 1, used_count=3, last_used_at=AT + 2),
        scoped("cwd", "/src/kiln"),
    ]
    early(home / "state_4.sqlite", SCOPED_FORM, thread_memory=rows)

    found = {row.store: row for row in read(home).of(OutputRow)}

    assert list(found) == ["state_4.thread_memory", "state_4.thread_memory.2"]
    first, second = found.values()
    assert (first.raw_memory, second.raw_memory) == (b"- of /src/kiln\n", b"- of user\n")
    assert (first.extra["scope_kind"], first.extra["scope_key"]) == ("cwd", "/src/kiln")
    assert (second.usage_count, second.last_usage) == (3, datetime.fromtimestamp(AT + 2, UTC))
    assert "invalidated_at" not in vars(second)


def test_a_memory_that_codex_set_aside_is_kept_but_not_taken(home: Path) -> None:
    row = scoped("user", "user", invalidated_at=AT + 5, invalid_reason="stale")
    early(home / "state_4.sqlite", SCOPED_FORM, thread_memory=[row])

    reading = read(home)

    (rejected,) = reading.of(Rejected)
    assert reading.of(OutputRow) == []
    assert rejected.reason == f"invalidated_at is {AT + 5}: Codex had set this memory aside"
    assert (rejected.table, rejected.key) == ("thread_memory", "t")
    assert rejected.values["invalid_reason"] == b"stale"
    assert rejected.values["raw_memory"] == b"- of user\n"


def test_summaries_bring_the_folder_of_their_session(home: Path) -> None:
    row: dict[str, Value] = {"thread_id": "other", "cwd": "/src/kiln", "summary": "- fired twice", "created_at": AT - 9}
    early(home / "state_4.sqlite", SUMMARIES, memory_summaries=[row | {"updated_at": AT}])

    reading = read(home)

    (only,) = reading.of(OutputRow)
    assert (only.store, only.raw_memory, only.rollout_summary) == (
        "state_4.memory_summaries",
        b"",
        b"- fired twice",
    )
    assert only.extra == {"cwd": "/src/kiln", "created_at": AT - 9}
    without_row = [row for row in reading.of(ThreadRow) if row.found_in != "state"]
    assert [(row.thread_id, row.columns["cwd"]) for row in without_row] == [("other", b"/src/kiln")]


def test_the_ledgers_of_both_phases_become_history(home: Path) -> None:
    one: dict[str, Value] = {"thread_id": "t", "scope_kind": "cwd", "scope_key": "/src/kiln", "status": "failed"}
    one |= {"owner_session_id": "me", "failure_reason": "no model", "source_updated_at": AT, "summary_hash": "h"}
    two: dict[str, Value] = {"scope_kind": "user", "scope_key": "user", "status": "done", "attempt": 2}
    early(home / "state_4.sqlite", PHASE1, PHASE2, memory_phase1_jobs=[one], memory_phase2_jobs=[two])

    first, second = read(home).of(JobRow)

    assert (first.store, first.kind, first.job_key) == ("state_4", "memory_phase1", "t/cwd//src/kiln")
    assert (first.status, first.worker_id, first.last_error) == ("failed", "me", b"no model")
    assert (first.input_watermark, first.retry_remaining) == (AT, 0)
    assert first.extra == {"raw_memory_path": None, "summary_hash": "h"}
    assert (second.kind, second.job_key, second.extra["attempt"]) == ("memory_phase2", "user/user", 2)


@pytest.mark.parametrize("table", LOCKS)
def test_locks_are_kept_as_they_were(table: str, home: Path) -> None:
    schema, row, key = LOCKS[table]
    early(home / "state_4.sqlite", schema, **{table: [row]})

    (kept,) = read(home).of(Rejected)

    assert (kept.store, kept.table, kept.key) == ("state_4", table, key)
    assert kept.reason == "Codex gave up this table in February 2026, and memsvc has none for it"
    as_read = {name: value.encode() if isinstance(value, str) else value for name, value in row.items()}
    assert kept.values == as_read


def test_the_first_name_of_rollout_summary_is_known(home: Path) -> None:
    old = """
    create table stage1_outputs (
        thread_id TEXT PRIMARY KEY, source_updated_at INTEGER NOT NULL, raw_memory TEXT NOT NULL,
        summary TEXT NOT NULL, generated_at INTEGER NOT NULL)
    """
    row = output()
    row["summary"] = row.pop("rollout_summary")
    database(home / "state_4.sqlite", old, JOBS, outputs=[row])

    only = read(home).outputs["t"]

    assert (only.store, only.rollout_summary, only.extra) == ("state_4", b"summary", {})


def test_both_names_side_by_side_are_two_columns(home: Path) -> None:
    database(home / "state_4.sqlite", OUTPUTS.replace("rollout_slug", "summary TEXT, rollout_slug"), JOBS)
    with closing(sqlite3.connect(home / "state_4.sqlite")) as conn:
        insert(conn, "stage1_outputs", output(summary="another"))
        conn.commit()

    only = read(home).outputs["t"]

    assert (only.rollout_summary, only.extra) == (b"summary", {"summary": "another"})


def test_a_table_of_that_name_from_elsewhere_is_set_aside(home: Path) -> None:
    schema = "create table thread_memory (thread_id TEXT, role TEXT, content TEXT)"
    rows = [{"thread_id": "t", "role": "user", "content": "hello"}]
    early(home / "state_4.sqlite", schema, thread_memory=rows)

    reading = read(home)

    missing = "source_updated_at, raw_memory, rollout_summary"
    assert [rejected.reason for rejected in reading.of(Rejected)] == [f"the table has no column {missing}"]
    assert reading.warnings == (
        f"state_4.sqlite: table thread_memory has no column {missing}: none of its rows could be taken",
    )


def test_tables_that_are_not_known_are_named(home: Path) -> None:
    file = database(home / "memories_1.sqlite", OUTPUTS, JOBS, "create table stage3_outputs (x)", outputs=[output()])
    database(home / "memories_7.sqlite", "create table memory_graph (x)", "create table empty (x)")
    for name, table in ((file, "stage3_outputs"), (home / "memories_7.sqlite", "memory_graph")):
        with closing(sqlite3.connect(name)) as conn:
            conn.execute(f"insert into {table} values (1), (2)")
            conn.commit()

    assert read(home).warnings == (
        "memories_1.sqlite holds tables that memsvc does not know; they were not read: stage3_outputs (2 rows)",
        "memories_7.sqlite holds tables that memsvc does not know; they were not read: memory_graph (2 rows)",
    )


def test_an_early_home_is_imported_whole(pool: Pool, tmp_path: Path) -> None:
    rows = [scoped("user", "user", invalidated_at=AT), scoped("cwd", "/src/kiln"), scoped("cwd", "/src/orchard")]
    schema, lock, _ = LOCKS["memory_scope_dirty"]
    early(tmp_path / "state_4.sqlite", SCOPED_FORM, schema, thread_memory=rows, memory_scope_dirty=[lock])

    report = ingest(pool, OWNER, "codex", tmp_path, host="here")
    again = ingest(pool, OWNER, "codex", tmp_path, host="here")

    assert (report.outputs, again.outputs) == (Tally(inserted=2), Tally(unchanged=2))
    assert report.stores == ("state_4.thread_memory",)
    assert "state_4.thread_memory: 2 rows" in report.warnings[0]
    assert [row.table for row in report.rejected] == ["thread_memory", "memory_scope_dirty"]
    with pool.transaction(OWNER) as conn:
        stored = conn.execute("select store, thread_id, extra->>'scope_key' from memsvc.stage1_outputs order by store")
        assert stored.fetchall() == [
            ("state_4.thread_memory", "t", "/src/kiln"),
            ("state_4.thread_memory.2", "t", "/src/orchard"),
        ]
        said = conn.execute("select text from memsvc.memories order by text").fetchall()
        assert said == [("of /src/kiln",), ("of /src/orchard",)]
        kept = conn.execute("select table_name, row_values from memsvc.import_rejects order by table_name").fetchall()
        assert kept[0] == ("memory_scope_dirty", lock)
        assert kept[1][1]["raw_memory"] == "- of user\n"
