"""Sessions come from the threads table, and where it has none from what else is known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from memsvc.model.export import Rejected, ThreadRow
from memsvc_importers import codex_markdown, codex_threads
from tests.importers.codex_home import THREADS, Reading, Value, database, job, output, read, thread
from tests.snapshots import snapshot, with_markdown

FRONT_MATTER = "---\ndescription: a: b\ncwd: /src/kiln: two\nkeywords: x\n---\n\n### Task 1: x\ncwd: /elsewhere\n"


def threads(reading: Reading) -> dict[str, ThreadRow]:
    return {row.thread_id: row for row in reading.of(ThreadRow)}


def summary(home: Path, name: str, *lines: str, folder: str = "memories") -> None:
    file = home / folder / "rollout_summaries" / f"{name}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([*lines, "", "# Summary", "cwd: /not/this"]))


def test_columns_of_the_threads_table_have_their_types(home: Path) -> None:
    table = THREADS.replace(
        "archived_at INTEGER", "archived_at INTEGER, recency_at INTEGER, attached TEXT, weight REAL"
    )
    row = thread(archived=1, archived_at=1_796_072_250, recency_at=0, updated_at_ms=1_796_072_247, attached="x")
    database(home / "memories_1.sqlite")
    database(home / "state_5.sqlite", table, threads=[row])
    (found,) = read(home).of(ThreadRow)
    assert found == ThreadRow(
        "t",
        "state",
        {
            "id": b"t",
            "rollout_path": b"/home/ada/.codex/sessions/2026/11/30/rollout-t.jsonl",
            "created_at": datetime(2026, 11, 30, 20, 57, 20, tzinfo=UTC),
            "updated_at": datetime(2026, 11, 30, 20, 57, 27, tzinfo=UTC),
            "cwd": b"/src/orchard",
            "archived": 1,
            "archived_at": datetime(2026, 11, 30, 20, 57, 30, tzinfo=UTC),
            "recency_at": datetime(1970, 1, 1, tzinfo=UTC),
            "updated_at_ms": 1_796_072_247,
        },
        {"attached": "x", "weight": None},
    )


@pytest.mark.parametrize(
    "columns, reason",
    [
        ({"id": None}, "id is NULL"),
        ({"created_at": "once"}, "created_at holds text 'once', not an integer"),
        (
            {"updated_at": 1_796_072_247_123},
            "updated_at holds 1796072247123, which looks like milliseconds, not seconds",
        ),
        ({"cwd": None}, "cwd is NULL"),
    ],
)
def test_a_thread_that_does_not_fit_is_set_aside(columns: dict[str, Value], reason: str, home: Path) -> None:
    database(home / "memories_1.sqlite")
    database(home / "state_5.sqlite", THREADS.replace(" NOT NULL", ""), threads=[thread("a"), thread("b") | columns])
    reading = read(home)
    assert list(threads(reading)) == ["a"]
    (rejected,) = reading.of(Rejected)
    assert (rejected.store, rejected.table, rejected.reason) == ("state_5", "threads", reason)


def test_a_session_whose_thread_was_set_aside_is_not_taken_for_a_deleted_one(home: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output("bad")])
    database(home / "state_5.sqlite", THREADS, threads=[thread("good"), thread("bad", created_at="once")])
    reading = read(home)
    assert list(threads(reading)) == ["good"]
    assert reading.identity.thread_ids == {"good", "bad"}


def test_the_newest_state_database_is_asked(home: Path) -> None:
    database(home / "memories_1.sqlite")
    for number in (4, 5, 10):
        database(home / f"state_{number}.sqlite", THREADS, threads=[thread(cwd=f"/{number}")])
    database(home / "other_11.sqlite", THREADS, threads=[thread(cwd="/other")])
    assert threads(read(home))["t"].columns["cwd"] == b"/10"


def test_without_a_state_database_summaries_tell_of_the_sessions(version: str, tmp_path: Path) -> None:
    home = with_markdown(version, snapshot(version, "02-closed", tmp_path))
    known = threads(read(home))
    for file in home.glob("state_5.sqlite*"):
        file.unlink()
    reading = read(home)
    found = threads(reading)
    assert set(found) == set(reading.outputs)
    assert {row.found_in for row in found.values()} == {"summary"}
    for name, row in found.items():
        same = ("id", "cwd", "rollout_path", "updated_at", "git_branch")
        assert row.columns == {column: known[name].columns[column] for column in same if known[name].columns[column]}
    assert reading.identity.home == read(snapshot(version, "04-killed", tmp_path)).identity.home


def test_a_session_that_the_state_lacks_is_found_elsewhere(home: Path) -> None:
    rows = [output(name, raw_memory=FRONT_MATTER) for name in ("known", "header", "front")]
    database(
        home / "memories_1.sqlite", outputs=rows, jobs=[job("job"), job("global", kind="memory_consolidate_global")]
    )
    database(home / "state_5.sqlite", THREADS, threads=[thread("known")])
    summary(home, "one", "thread_id: header", "cwd: /src/header")
    summary(home, "two", "thread_id: stranger", "cwd: /src/stranger")
    found = threads(read(home))
    assert {name: row.found_in for name, row in found.items()} == {
        "known": "state",
        "front": "front_matter",
        "header": "summary",
        "job": "front_matter",
    }
    assert found["header"].columns == {"id": b"header", "cwd": b"/src/header"}
    assert found["front"].columns == {"id": b"front", "cwd": b"/src/kiln: two"}
    assert found["job"].columns == {"id": b"job"}


def test_of_two_summaries_the_newer_one_counts(home: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output()])
    summary(home, "a", "thread_id: t", "updated_at: 2026-11-30T20:57:27+00:00", "cwd: /newer", folder="memories_v2")
    summary(home, "b", "thread_id: t", "updated_at: 2026-11-30T21:00:00+02:00", "cwd: /older")
    summary(home, "c", "thread_id: t", "cwd: /undated")
    assert threads(read(home))["t"].columns["cwd"] == b"/newer"


@pytest.mark.parametrize(
    "head, columns",
    [
        (b"thread_id: t\ncwd: /a: b \n\nrollout_path: /x", {"id": b"t", "cwd": b"/a: b "}),
        (b"thread_id: t\r\ngit_branch: main\r\n\r\ncwd: /x", {"id": b"t", "git_branch": b"main"}),
        (b"no colon\nthread_id:t\nother: x\ncwd: \xff", {"id": b"t", "cwd": b"\xff"}),
        (b"thread_id: t\nupdated_at: yesterday\ncwd:", {"id": b"t"}),
        (b"thread_id: t\nupdated_at: 2026-11-30T20:57:27", {"id": b"t"}),
        (b"thread_id: t\nupdated_at: 0001-01-01T00:00:00+01:00", {"id": b"t"}),
        (b"cwd: /a\n\nthread_id: t", None),
        (b"thread_id: \xff", None),
        (b"", None),
    ],
)
def test_a_header_ends_at_the_first_blank_line(head: bytes, columns: dict[str, bytes] | None) -> None:
    found = codex_markdown.header(head)
    assert (found and found.columns) == columns


def test_the_time_of_a_header_is_in_utc() -> None:
    found = codex_markdown.header(b"thread_id: t\nupdated_at: 2026-11-30T22:57:27+02:00\n")
    assert found is not None
    assert found.updated_at is not None
    assert found.updated_at == datetime(2026, 11, 30, 22, 57, 27, tzinfo=timezone(timedelta(hours=2)))
    assert found.updated_at.tzinfo is UTC


@pytest.mark.parametrize(
    "raw_memory, cwd",
    [
        (FRONT_MATTER.encode(), b"/src/kiln: two"),
        (b"\n---\r\ncwd: C:\\src\\kiln\r\n---\r\n", b"C:\\src\\kiln"),
        (b"---\ncwd: /no/closing/fence\n", b"/no/closing/fence"),
        (b"---\ncwd: Unknown\n---\n", None),
        (b"---\ncwd:\n---\n", None),
        (b"---\ntask: x\n---\ncwd: /after\n", None),
        (b"---\ntask: x\n### Task 1: y\ncwd: /after\n", None),
        (b"cwd: /no/fence\n", None),
        (b"", None),
        (b"---", None),
    ],
)
def test_front_matter_tells_the_working_directory(raw_memory: bytes, cwd: bytes | None) -> None:
    assert codex_markdown.cwd(raw_memory) == cwd


@pytest.mark.parametrize(
    "paths, home",
    [
        ([b"/home/ada/.codex/sessions/2026/11/30/rollout.jsonl"], "/home/ada/.codex"),
        ([b"/home/ada/sessions/.codex/archived_sessions/rollout.jsonl"], "/home/ada/sessions/.codex"),
        ([rb"C:\Users\ada\.codex\sessions\2026\rollout.jsonl"], r"C:\Users\ada\.codex"),
        ([b"/a/sessions/x", b"/b/sessions/x", b"/b/sessions/y"], "/b"),
        ([b"/b/sessions/x", b"/a/sessions/x"], "/a"),
        ([b"/a/obsessions/x", b"", None, 5], None),
    ],
)
def test_the_home_is_where_most_rollouts_lie(paths: list[object], home: str | None) -> None:
    assert codex_threads.home(paths) == home
