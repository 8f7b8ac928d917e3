"""Real exports go into the ledger's tables as they were, once, whatever the order."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from memsvc.db.pool import Conn, Pool
from memsvc.errors import AmbiguousSource, BadExport, WrongUse
from memsvc.model.principal import OWNER
from memsvc.model.report import IngestReport, MemoryTally, Tally
from memsvc.pipeline.ingest import ingest
from memsvc_importers.codex import CodexImporter
from tests.importers.codex_home import JOBS, OUTPUTS, THREADS, database, job, output, thread
from tests.snapshots import NAMES, VERSIONS, snapshot, truth, with_markdown

STORES = {"memories_1.sqlite": "v1", "memories_v2_1.sqlite": "v2", "state_5.sqlite": "state_5"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / ".codex"


def imported(
    pool: Pool, path: Path, *, label: str | None = None, dry_run: bool = False, redact_originals: bool = False
) -> IngestReport:
    return ingest(
        pool, OWNER, "codex", path, host="here", label=label, dry_run=dry_run, redact_originals=redact_originals
    )


def rows(pool: Pool, query: str, *values: object) -> list[Any]:
    with pool.transaction(OWNER) as conn:
        return conn.execute(query.encode(), values).fetchall()


def seconds(value: datetime | None) -> int | None:
    return None if value is None else int(value.timestamp())


def stored_outputs(conn: Conn, store: str) -> list[dict[str, Any]]:
    found = conn.execute(
        "select thread_id, source_updated_at, encode(raw_memory_sha256, 'hex'), encode(rollout_summary_sha256, 'hex'),"
        " rollout_slug, generated_at, usage_count, last_usage, selected_for_phase2,"
        " selected_for_phase2_source_updated_at from memsvc.stage1_outputs where store = %s order by thread_id",
        [store],
    ).fetchall()
    names = (
        "thread_id", "source_updated_at", "raw_memory_sha256", "rollout_summary_sha256", "rollout_slug", "generated_at",
        "usage_count", "last_usage", "selected_for_phase2", "selected_for_phase2_source_updated_at",
    )  # fmt: skip
    return [{n: seconds(v) if isinstance(v, datetime) else v for n, v in zip(names, row, strict=True)} for row in found]


def stored_jobs(conn: Conn, store: str) -> list[dict[str, Any]]:
    names = (
        "kind", "job_key", "status", "worker_id", "ownership_token", "started_at", "finished_at", "lease_until",
        "retry_at", "retry_remaining", "last_error", "input_watermark", "last_success_watermark",
    )  # fmt: skip
    found = conn.execute(
        f"select {', '.join(names)} from memsvc.jobs where store = %s order by kind, job_key".encode(), [store]
    ).fetchall()
    return [{n: seconds(v) if isinstance(v, datetime) else v for n, v in zip(names, row, strict=True)} for row in found]


def assert_as_in_truth(pool: Pool, expected: dict[str, Any]) -> None:
    with pool.transaction(OWNER) as conn:
        for name, database_truth in expected.items():
            if "stage1_outputs" in database_truth:
                store = STORES[name]
                wanted = sorted(database_truth["stage1_outputs"], key=lambda row: row["thread_id"])
                found = stored_outputs(conn, store)
                assert found == [{key: row[key] for key in found[0]} for row in wanted] if found else wanted == []
                jobs = sorted(database_truth["jobs"], key=lambda row: (row["kind"], row["job_key"]))
                assert stored_jobs(conn, store) == jobs
            for _, count in database_truth.get("consolidation_progress", []):
                stored = conn.execute(
                    "select max_thread_count from memsvc.consolidation_progress where store = %s", [STORES[name]]
                ).fetchone()
                assert stored == (count,)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_snapshot_is_reproduced(pool: Pool, tmp_path: Path, version: str, name: str) -> None:
    report = imported(pool, snapshot(version, name, tmp_path))

    expected = truth(version, name)
    outputs = sum(len(db.get("stage1_outputs", [])) for db in expected.values())
    jobs = sum(len(db.get("jobs", [])) for db in expected.values())
    assert report.outputs == Tally(inserted=outputs)
    assert report.jobs == Tally(inserted=jobs)
    assert report.rejected == []
    assert_as_in_truth(pool, expected)
    threads = rows(
        pool,
        "select source, memory_mode, archived, count(*) from memsvc.threads where found_in = 'state' group by 1, 2, 3",
    )
    assert {f"{s}|{m}|{a}": n for s, m, a, n in threads} == expected["state_5.sqlite"][
        "threads_by_source_mode_archived"
    ]


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_import_changes_nothing(pool: Pool, tmp_path: Path, version: str, read: bool) -> None:
    home = with_markdown(version, snapshot(version, "04-killed", tmp_path))
    first = imported(pool, home)
    everything = [rows(pool, f"select * from memsvc.{table} order by 1, 2, 3") for table in (
        "sources", "threads", "stage1_outputs", "stage1_originals", "jobs", "memories", "evidence", "source_files",
        "consolidation_progress", "scopes", "scope_aliases")]  # fmt: skip

    with patch.object(CodexImporter, "digest", return_value=None) if read else nullcontext():
        second = imported(pool, home)

    assert second.source == first.source
    for tally, before in ((second.outputs, first.outputs), (second.jobs, first.jobs), (second.threads, first.threads)):
        assert tally == Tally(unchanged=before.inserted)
    assert second.files == Tally(unchanged=first.files.inserted)
    assert second.memories == MemoryTally(unchanged=first.memories.inserted)
    assert everything == [rows(pool, f"select * from memsvc.{table} order by 1, 2, 3") for table in (
        "sources", "threads", "stage1_outputs", "stage1_originals", "jobs", "memories", "evidence", "source_files",
        "consolidation_progress", "scopes", "scope_aliases")]  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_a_later_snapshot_updates_the_same_source(pool: Pool, tmp_path: Path, version: str) -> None:
    first = imported(pool, snapshot(version, "01-live", tmp_path))

    later = imported(pool, snapshot(version, "04-killed", tmp_path))

    assert later.source == first.source == "codex"
    # Nine known sessions, six of them cited meanwhile; four new ones.
    assert later.outputs == Tally(inserted=4, updated=6, unchanged=3)
    assert later.memories.inserted > 0
    assert later.memories.retired == 0
    assert_as_in_truth(pool, truth(version, "04-killed"))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_snapshot_changes_nothing(pool: Pool, tmp_path: Path, version: str) -> None:
    imported(pool, snapshot(version, "04-killed", tmp_path))

    older = imported(pool, snapshot(version, "01-live", tmp_path))

    assert older.outputs == Tally(unchanged=3, older=6)
    assert older.jobs == Tally(unchanged=9, older=1)
    assert (older.threads.updated, older.threads.inserted) == (0, 0)
    assert_as_in_truth(pool, truth(version, "04-killed"))


def test_an_older_export_that_a_newer_one_overtakes_sets_no_flags(pool: Pool, tmp_path: Path) -> None:
    older, newer = tmp_path / "older", tmp_path / "newer"
    for folder, selected in ((older, 0), (newer, 1)):
        used = {"usage_count": selected, "last_usage": 1_796_080_000 + selected}
        database(folder / "memories_1.sqlite", outputs=[output(selected_for_phase2=selected, **used)])
        database(folder / "state_5.sqlite", THREADS, threads=[thread()])
    reports: list[IngestReport] = []

    def overtake(done: int) -> None:
        if not reports:
            reports.append(imported(pool, newer))

    overtaken = ingest(pool, OWNER, "codex", older, host="here", progress=overtake)

    assert [report.source for report in reports] == ["codex"]
    assert (reports[0].outputs, overtaken.outputs) == (Tally(inserted=1), Tally(older=1))
    assert rows(pool, "select selected_for_phase2, usage_count from memsvc.stage1_outputs") == [(1, 1)]


def test_two_homes_are_two_sources(pool: Pool, tmp_path: Path) -> None:
    one = imported(pool, snapshot(VERSIONS[0], "05-checkpointed", tmp_path / "a"))
    two = imported(pool, snapshot(VERSIONS[1], "05-checkpointed", tmp_path / "b"))

    assert (one.source, two.source) == ("codex", "codex-2")
    assert rows(pool, "select count(*) from memsvc.stage1_outputs") == [(26,)]


def test_a_label_decides(pool: Pool, tmp_path: Path) -> None:
    home = snapshot(VERSIONS[0], "05-checkpointed", tmp_path)
    imported(pool, home, label="laptop")

    assert imported(pool, home, label="desktop").outputs.inserted == 13
    with pytest.raises(AmbiguousSource, match="desktop, laptop"):
        imported(pool, home)


@pytest.mark.parametrize("label", ["", "  \n", "a\x00b", "\udcff", "é" * 101])
def test_a_label_that_names_nothing_is_wrong_use(pool: Pool, home: Path, label: str) -> None:
    database(home / "memories_1.sqlite", outputs=[output()])

    with pytest.raises(WrongUse, match="label"):
        imported(pool, home, label=label)

    assert rows(pool, "select label from memsvc.sources") == [("local",)]


def test_originals_are_kept_where_postgres_cannot_hold_them(pool: Pool, tmp_path: Path) -> None:
    imported(pool, snapshot(VERSIONS[0], "05-checkpointed", tmp_path))

    kept = rows(pool, "select column_name, original from memsvc.stage1_originals order by column_name")

    assert [name for name, _ in kept] == ["raw_memory", "rollout_summary"]
    assert all(b"\x00" in bytes(original) for _, original in kept)
    (stored,) = rows(
        pool, "select raw_memory from memsvc.stage1_outputs where raw_memory like %s", "%a title held NUL%"
    )
    assert "`A␀B`" in stored[0]
    assert bytes(kept[0][1]).decode().replace("\x00", "␀") == stored[0]
    crlf = rows(pool, "select 1 from memsvc.stage1_outputs where raw_memory like %s", "%\r\n%")
    assert crlf == [(1,)]


def test_secrets_reach_no_table_but_the_originals(pool: Pool, home: Path) -> None:
    secret = "sk-" + "proj-" + "a1B2c3D4" * 5
    database(
        home / "memories_1.sqlite",
        outputs=[output(raw_memory=f"- the key is {secret}\n", rollout_summary=f"# Used {secret}")],
    )
    with_title = THREADS.replace("cwd TEXT NOT NULL", "cwd TEXT NOT NULL, title TEXT, first_user_message TEXT")
    database(
        home / "state_5.sqlite",
        with_title,
        threads=[thread(title=f"why does {secret} fail", first_user_message=secret)],
    )

    report = imported(pool, home)

    assert report.redacted == 4
    assert "secrets cut out: 4" in report.warnings
    assert {(place.table, place.key, place.column, place.line) for place in report.secrets} == {
        ("stage1_outputs", "t", "raw_memory", 1),
        ("stage1_outputs", "t", "rollout_summary", 1),
        ("threads", "t", "title", 1),
        ("threads", "t", "first_user_message", 1),
    }
    for table in ("stage1_outputs", "threads", "memories", "evidence", "jobs", "import_runs", "scopes"):
        assert rows(pool, f"select 1 from memsvc.{table} t where t::text like %s", f"%{secret}%") == []
    assert len(rows(pool, "select 1 from memsvc.stage1_originals")) == 4


def with_secrets(home: Path) -> str:
    """A home with a secret in every place where an import keeps original bytes; returns the secret."""
    secret = "sk-" + "proj-" + "a1B2c3D4" * 5
    odd = f"- NUL \0 and {secret}\n"
    database(
        home / "memories_1.sqlite",
        outputs=[output(raw_memory=odd, rollout_summary=f"one {secret}"), output("bad", generated_at=secret)],
        jobs=[job(last_error=f"denied: {secret}")],
    )
    notes = home / "memories" / "notes.md"
    notes.parent.mkdir()
    notes.write_bytes(b"\xff " + secret.encode())
    return secret


KEPT_TABLES = (
    "sources", "source_files", "threads", "stage1_outputs", "stage1_originals", "import_rejects", "jobs", "memories",
    "evidence", "import_runs", "scopes", "scope_aliases",
)  # fmt: skip


def tables_holding(pool: Pool, text: str) -> list[str]:
    """The tables in which the text stands, plainly or as the hex form of its bytes."""
    given = (f"%{text}%", f"%{text.encode().hex()}%")
    return [
        name
        for name in KEPT_TABLES
        if rows(pool, f"select 1 from memsvc.{name} t where t::text like any (array[%s, %s])", *given)
    ]


def test_redacted_originals_keep_everything_but_the_secrets(pool: Pool, home: Path) -> None:
    secret = with_secrets(home)

    report = imported(pool, home, redact_originals=True)

    assert report.redacted == 3
    assert [(place.key, place.column) for place in report.secrets if place.table == "jobs"] == [
        ("memory_stage1/t", "last_error")
    ]
    assert tables_holding(pool, secret) == []
    kept = rows(pool, "select column_name, original from memsvc.stage1_originals")
    assert kept == [("raw_memory", b"- NUL \0 and [REDACTED_SECRET]\n")]
    assert rows(pool, "select content from memsvc.source_files") == [(b"\xff [REDACTED_SECRET]",)]
    assert imported(pool, home, redact_originals=True).files.unchanged == 1


def test_redacting_later_cuts_what_was_kept_before(pool: Pool, home: Path) -> None:
    secret = with_secrets(home)
    imported(pool, home)
    assert set(tables_holding(pool, secret)) == {"source_files", "stage1_originals", "import_rejects"}

    report = imported(pool, home, redact_originals=True)

    assert report.outputs == Tally(unchanged=1, rejected=1)
    assert tables_holding(pool, secret) == []


def test_many_secrets_are_counted_and_the_first_hundred_named(pool: Pool, home: Path) -> None:
    lines = "".join(f"- key {number}: AKIA{number:016d}\n" for number in range(150))
    database(home / "memories_1.sqlite", outputs=[output(raw_memory=lines)])

    report = imported(pool, home)

    assert (report.redacted, len(report.secrets)) == (150, 100)
    assert [place.line for place in report.secrets] == list(range(1, 101))


def everything(pool: Pool) -> dict[str, list[Any]]:
    return {name: rows(pool, f"select t::text from memsvc.{name} t order by 1") for name in KEPT_TABLES}


@pytest.mark.parametrize("before", ["nothing", "the first snapshot"])
def test_a_dry_run_tells_what_would_be_and_writes_nothing(pool: Pool, tmp_path: Path, before: str) -> None:
    if before == "the first snapshot":
        imported(pool, snapshot(VERSIONS[0], "01-live", tmp_path))
    home = with_markdown(VERSIONS[0], snapshot(VERSIONS[0], "04-killed", tmp_path))
    untouched = everything(pool)

    dry = imported(pool, home, dry_run=True)

    assert everything(pool) == untouched
    assert dry.dry_run
    assert dry.outputs.inserted > 0
    assert replace(dry, dry_run=False) == imported(pool, home)


def test_an_export_without_sessions_makes_no_source(pool: Pool, home: Path) -> None:
    database(home / "memories_1.sqlite")

    report = imported(pool, home)

    assert report.source is None
    assert "nothing was imported" in report.warnings[-1]
    assert rows(pool, "select label from memsvc.sources") == [("local",)]


def test_an_emptied_home_deletes_nothing(pool: Pool, home: Path) -> None:
    database(home / "memories_1.sqlite", outputs=[output(raw_memory="- kept\n")])
    database(home / "state_5.sqlite", THREADS, threads=[thread()])
    imported(pool, home)
    (home / "memories_1.sqlite").unlink()
    database(home / "memories_1.sqlite")

    report = imported(pool, home)

    assert report.source == "codex"
    assert rows(pool, "select text from memsvc.memories where retired_at is null") == [("kept",)]


def test_nothing_to_read_writes_nothing(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(BadExport):
        imported(pool, tmp_path)

    assert rows(pool, "select count(*) from memsvc.import_runs") == [(0,)]


def test_rejected_rows_are_kept_with_their_values(pool: Pool, home: Path) -> None:
    database(
        home / "memories_1.sqlite",
        outputs=[
            output(thread_id="good", raw_memory="- a line\n"),
            output(thread_id="bad", generated_at="soon"),
        ],
    )

    report = imported(pool, home)

    assert report.outputs == Tally(inserted=1, rejected=1)
    assert [(row.table, row.key) for row in report.rejected] == [("stage1_outputs", "bad")]
    ((key, values),) = rows(pool, "select row_key, row_values from memsvc.import_rejects")
    assert key == "bad"
    assert values["generated_at"] == "soon"


@pytest.mark.parametrize("size", [1000, 1001, 6000])
def test_a_key_too_long_for_an_index_costs_its_row_alone(pool: Pool, home: Path, size: int) -> None:
    # Nothing that could be compressed.
    long = random.Random(size).randbytes(size).hex()[:size]
    database(
        home / "memories_1.sqlite",
        outputs=[output("a"), output(long, raw_memory="- a \0 line\n")],
        jobs=[job("a"), job(long, kind=long, last_error="NUL \0")],
    )
    database(home / "state_5.sqlite", THREADS, threads=[thread("a"), thread(long, rollout_path="NUL \0")])
    deep = home.joinpath(
        "memories", *(long[start : start + 200] for start in range(0, min(size, 2200), 200)), "note.md"
    )
    deep.parent.mkdir(parents=True)
    deep.write_bytes(b"deep")

    report = imported(pool, home)

    fits = size <= 1000
    assert report.outputs == report.jobs == report.threads == Tally(inserted=1 + fits, rejected=int(not fits))
    assert report.files.inserted == int(size < 2000)
    assert [("skipped" in text) for text in report.warnings] == [True] * (size > 2000)
    assert all("is longer than 1000 bytes" in row.reason for row in report.rejected)
    assert rows(pool, "select count(*) from memsvc.import_rejects") == [(0 if fits else 3,)]


def test_equal_rows_of_a_table_without_a_key_are_counted_each_and_kept_once(pool: Pool, home: Path) -> None:
    keyless = OUTPUTS.replace(" PRIMARY KEY", "")
    database(home / "memories_1.sqlite", keyless, JOBS, outputs=[output("a")] * 4)

    first, second = imported(pool, home), imported(pool, home)

    assert (first.outputs, second.outputs) == (Tally(inserted=1, rejected=3), Tally(unchanged=1, rejected=3))
    assert rows(pool, "select count(*) from memsvc.import_rejects") == [(1,)]


def test_threads_lie_in_the_project_of_their_origin_or_folder(pool: Pool, tmp_path: Path) -> None:
    imported(pool, snapshot(VERSIONS[0], "05-checkpointed", tmp_path))

    names = {name for (name,) in rows(pool, "select name from memsvc.scopes where kind = 'project'")}

    assert names == {
        "git.example.invalid/fruit/orchard-api",
        "git.example.invalid/kiln/firmware",
        "/tmp/w/src/Räume & Pläne",
        "/tmp/w/src/notes",
        "/tmp/w/src/paperboy",
        "/tmp/w/src/tide-charts",
    }
    aliases = rows(pool, "select kind, host, value from memsvc.scope_aliases where value like %s", "%orchard%")
    assert set(aliases) == {
        ("git_origin", "", "git.example.invalid/fruit/orchard-api"),
        ("cwd", "here", "/tmp/w/src/orchard-api"),
    }


def test_every_imported_job_is_history(pool: Pool, tmp_path: Path) -> None:
    imported(pool, snapshot(VERSIONS[0], "04-killed", tmp_path))

    assert rows(pool, "select count(*) from memsvc.jobs where store = 'v1' and due_at is not null") == [(0,)]
    kinds = rows(pool, "select distinct kind, store from memsvc.jobs where store = 'memsvc'")
    assert kinds == [("memory_embed", "memsvc")]


def test_the_run_is_recorded(pool: Pool, tmp_path: Path) -> None:
    home = snapshot(VERSIONS[0], "05-checkpointed", tmp_path)
    imported(pool, home)

    ((status, path, watermark, success, counts),) = rows(
        pool, "select status, path, last_watermark, last_success_at, counts from memsvc.import_runs"
    )

    assert (status, path) == ("complete", str(home))
    assert watermark.startswith("v1/jobs/memory_stage1/")
    assert success is not None
    assert counts["outputs"]["inserted"] == 13


def test_ids_do_not_depend_on_the_database(pool: Pool, tmp_path: Path) -> None:
    home = snapshot(VERSIONS[0], "05-checkpointed", tmp_path)
    imported(pool, home)

    ids = [row[0] for row in rows(pool, "select id from memsvc.memories")]

    assert all(isinstance(found, UUID) and found.version == 5 for found in ids)
    assert len(set(ids)) == len(ids)
