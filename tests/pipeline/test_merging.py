"""Many exports of one home become one source, whatever their order; what Codex no longer uses is marked."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memsvc.db.pool import Pool
from memsvc.model.principal import OWNER
from memsvc.model.report import IngestReport, Tally
from memsvc.pipeline.ingest import ingest
from tests.importers.codex_home import OUTPUTS, THREADS, Value, database, output, thread

WITH_MODE = THREADS.replace("cwd TEXT NOT NULL", "cwd TEXT NOT NULL, memory_mode TEXT NOT NULL DEFAULT 'enabled'")
BACKFILL = "create table backfill_state (id INTEGER PRIMARY KEY, status TEXT NOT NULL)"
EARLIER, LATER = 1_796_000_000, 1_796_090_000


def imported(pool: Pool, path: Path) -> IngestReport:
    return ingest(pool, OWNER, "codex", path, host="here")


def rows(pool: Pool, query: str) -> list[Any]:
    with pool.transaction(OWNER) as conn:
        return conn.execute(query.encode()).fetchall()


def export(folder: Path, *outputs: Mapping[str, Value], threads: tuple[Mapping[str, Value], ...] | None = None) -> Path:
    database(folder / "memories_1.sqlite", OUTPUTS, outputs=outputs)
    if threads is not None:
        database(folder / "state_5.sqlite", WITH_MODE, threads=threads)
    return folder


def hidden(pool: Pool) -> dict[str, str | None]:
    return dict(rows(pool, "select id, hidden_because from memsvc.threads order by id"))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("counts", [(9, 2), (2, 9), (None, 2), (9, None)])
def test_counters_never_fall_in_either_order(
    pool: Pool, tmp_path: Path, order: tuple[int, int], counts: tuple[int | None, int | None]
) -> None:
    used = [None if count is None else EARLIER + count for count in counts]
    exports = [
        export(
            tmp_path / "older",
            output(source_updated_at=EARLIER, raw_memory="- old\n", usage_count=counts[0], last_usage=used[0]),
        ),
        export(
            tmp_path / "newer",
            output(source_updated_at=LATER, raw_memory="- new\n", usage_count=counts[1], last_usage=used[1]),
        ),
    ]

    reports = [imported(pool, exports[place]) for place in order]

    assert reports[1].outputs == (Tally(updated=1) if order == (0, 1) else Tally(older=1))
    found = rows(pool, "select raw_memory, usage_count, extract(epoch from last_usage)::int from memsvc.stage1_outputs")
    assert found == [("- new\n", max(filter(None, counts)), max(filter(None, used)))]


def test_two_stores_of_one_home_keep_their_outputs_apart(pool: Pool, tmp_path: Path) -> None:
    export(tmp_path, output(raw_memory="- of the first\n"))
    database(tmp_path / "memories_v2_1.sqlite", OUTPUTS, outputs=[output(raw_memory="", rollout_summary="# Second")])

    assert imported(pool, tmp_path).outputs == Tally(inserted=2)

    found = rows(pool, "select store, thread_id, raw_memory from memsvc.stage1_outputs order by store")
    assert found == [("v1", "t", "- of the first\n"), ("v2", "t", "")]


def test_two_homes_with_one_session_are_two_sources(pool: Pool, tmp_path: Path) -> None:
    one = export(tmp_path / "a", output(), threads=(thread(),))
    other = export(
        tmp_path / "b", output(), threads=(thread(rollout_path="/home/bo/.codex/sessions/2026/11/30/rollout-t.jsonl"),)
    )

    assert [imported(pool, home).source for home in (one, other)] == ["codex", "codex-2"]
    assert rows(pool, "select count(*) from memsvc.stage1_outputs") == [(2,)]


def test_sessions_that_codex_leaves_out_are_imported_and_marked(pool: Pool, tmp_path: Path) -> None:
    names = ("enabled", "disabled", "polluted", "gone")
    threads = tuple(thread(name, memory_mode=name) for name in names[:3])

    report = imported(pool, export(tmp_path, *map(output, names), threads=threads))

    assert report.outputs == Tally(inserted=4)
    assert hidden(pool) == {"enabled": None, "disabled": "disabled", "polluted": "polluted", "gone": "deleted"}


def test_the_newest_export_says_which_sessions_are_deleted(pool: Pool, tmp_path: Path) -> None:
    stays = thread("stays")
    goes = thread("goes", cwd="/src/kiln", git_origin_url="git@example.invalid:fruit/orchard.git")
    both = [output("stays"), output("goes")]
    with_origin = WITH_MODE.replace("cwd TEXT", "git_origin_url TEXT, cwd TEXT")
    database(tmp_path / "1" / "memories_1.sqlite", OUTPUTS, outputs=both)
    shutil.copytree(tmp_path / "1", tmp_path / "2")
    shutil.copytree(tmp_path / "1", tmp_path / "3")
    database(tmp_path / "1" / "state_5.sqlite", with_origin, threads=[stays, goes])
    database(tmp_path / "2" / "state_5.sqlite", with_origin, threads=[stays | {"updated_at": LATER}])
    database(tmp_path / "3" / "state_5.sqlite", with_origin, threads=[stays | {"updated_at": LATER + 1}, goes])
    imported(pool, tmp_path / "1")
    scopes = rows(pool, "select id, scope_id, cwd from memsvc.threads order by id")

    deleted = imported(pool, tmp_path / "2")
    assert deleted.threads == Tally(updated=2)
    assert hidden(pool) == {"goes": "deleted", "stays": None}
    assert rows(pool, "select id, scope_id, cwd from memsvc.threads order by id") == scopes
    assert rows(pool, "select count(distinct scope_id) from memsvc.stage1_outputs") == [(2,)]

    imported(pool, tmp_path / "1")
    assert hidden(pool)["goes"] == "deleted"

    imported(pool, tmp_path / "3")
    assert hidden(pool) == {"goes": None, "stays": None}


def test_an_export_without_threads_table_marks_and_unmarks_nothing(pool: Pool, tmp_path: Path) -> None:
    imported(pool, export(tmp_path / "1", output("a"), output("b"), threads=(thread("a"),)))
    assert hidden(pool) == {"a": None, "b": "deleted"}

    imported(pool, export(tmp_path / "2", output("a"), output("b"), output("c", generated_at=LATER)))

    assert hidden(pool) == {"a": None, "b": "deleted", "c": None}


@pytest.mark.parametrize("status", ["pending", "running", "complete"])
def test_a_threads_table_that_is_still_being_filled_proves_nothing(pool: Pool, tmp_path: Path, status: str) -> None:
    database(tmp_path / "memories_1.sqlite", OUTPUTS, outputs=[output("a"), output("b")])
    state = database(tmp_path / "state_5.sqlite", WITH_MODE, BACKFILL, threads=[thread("a")])
    add_backfill(state, status)

    imported(pool, tmp_path)

    assert hidden(pool)["b"] == ("deleted" if status == "complete" else None)


def test_a_threads_table_without_its_wal_tells_of_older_sessions_only(pool: Pool, tmp_path: Path) -> None:
    outputs = [output("a"), output("older", source_updated_at=EARLIER), output("newer", source_updated_at=LATER)]
    export(tmp_path, *outputs, threads=(thread("a"),))
    with closing(sqlite3.connect(tmp_path / "state_5.sqlite")) as conn:
        conn.execute("pragma journal_mode = wal")

    imported(pool, tmp_path)

    assert hidden(pool) == {"a": None, "newer": None, "older": "deleted"}


def test_an_empty_threads_table_proves_nothing(pool: Pool, tmp_path: Path) -> None:
    imported(pool, export(tmp_path, output(), threads=()))

    assert hidden(pool) == {"t": None}


def test_marks_are_not_changed_by_importing_again(pool: Pool, tmp_path: Path) -> None:
    home = export(tmp_path, output("a"), output("b"), threads=(thread("a"),))
    imported(pool, home)

    assert imported(pool, home).threads == Tally(unchanged=2)


def add_backfill(state: Path, status: str) -> None:
    with closing(sqlite3.connect(state)) as conn:
        conn.execute("insert into backfill_state values (1, ?)", (status,))
        conn.commit()
