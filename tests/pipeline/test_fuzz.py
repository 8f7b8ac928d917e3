"""
Whole SQLite files with anything in them through all of an import: the report adds up and is what the database holds,
importing again changes nothing, and a damaged copy does not stand in the way of the good one.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memsvc.errors import BadExport
from memsvc.model.report import IngestReport, MemoryTally, Tally
from memsvc.service.app import App
from memsvc.service.imports import ImportRequest, run_import
from tests.importers.fuzzed import ENCODINGS, TABLES, cuts, flipped, made, readable

ROWS = 12
SEEDS = range(4)
FLIPS = range(8)
WRITTEN = ("stage1_outputs", "jobs", "threads")
KEPT = (
    "sources", "threads", "stage1_outputs", "stage1_originals", "import_rejects", "consolidation_progress", "jobs",
    "memories", "evidence", "scopes", "scope_aliases",
)  # fmt: skip
# Of a table's rows those that an export had: the rest are our own jobs, and what is known of sessions without a row.
EXPORTED = {
    "stage1_outputs": "true",
    "jobs": "t.store <> 'memsvc'",
    "threads": "t.found_in = 'state'",
    "consolidation_progress": "true",
}
# What differs between two imports of one file although nothing of it does: names and instants of our own.
OWN = ["tenant_id", "source_id", "scope_id", "imported_at", "first_seen_at"]


def rows(app: App, query: str, *values: object) -> list[Any]:
    with app.pool.transaction(app.actor) as conn:
        return conn.execute(query.encode(), values).fetchall()


def everything(app: App) -> dict[str, Any]:
    """A hash of all rows of each table."""
    hashes = ", ".join(f"(select md5(string_agg(t::text, '|' order by t::text)) from memsvc.{name} t)" for name in KEPT)
    return dict(zip(KEPT, rows(app, f"select {hashes}")[0], strict=True))


def imported(app: App, file: Path, source: str) -> IngestReport:
    return run_import(app, ImportRequest("codex", file, source=source))


def contents(app: App, source: str) -> dict[str, list[Any]]:
    """What a source holds, without the names that are its own."""
    found = {
        table: rows(
            app,
            f"select (to_jsonb(t) - %s::text[])::text, c.name from memsvc.{table} t"
            " join memsvc.sources s on s.tenant_id = t.tenant_id and s.id = t.source_id and s.label = %s"
            " left join memsvc.scopes c on c.tenant_id = t.tenant_id and to_jsonb(t) ->> 'scope_id' = c.id::text"
            f" where {EXPORTED[table]} order by 1",
            OWN,
            source,
        )
        for table in TABLES
    }
    found["memories"] = rows(
        app,
        "select m.store, m.thread_id, m.ordinal, m.text, m.occurrence, m.kind, m.status, m.context, c.name,"
        " e.locator::text, e.quote"
        " from memsvc.memories m"
        " join memsvc.sources s on s.tenant_id = m.tenant_id and s.id = m.source_id and s.label = %s"
        " join memsvc.scopes c on c.tenant_id = m.tenant_id and c.id = m.scope_id"
        " join memsvc.evidence e on e.tenant_id = m.tenant_id and e.memory_id = m.id"
        " where m.retired_at is null order by 1, 2, 3, 5",
        source,
    )
    return found


def stored(app: App, source: str) -> dict[str, int]:
    """How many rows of each exported table a source holds."""
    return {
        table: rows(
            app,
            f"select count(*) from memsvc.{table} t"
            " join memsvc.sources s on s.tenant_id = t.tenant_id and s.id = t.source_id"
            f" where s.label = %s and {EXPORTED[table]}",
            source,
        )[0][0]
        for table in TABLES
    }


def assert_adds_up(app: App, report: IngestReport, source: str) -> Counter[str]:
    """The first report of a source against what is stored of it; returns the rows that were met, by table."""
    found, rejected = stored(app, source), Counter(row.table for row in report.rejected)
    assert [report.outputs.rejected, report.jobs.rejected, report.threads.rejected] == [rejected[n] for n in WRITTEN]
    assert (report.outputs.inserted, report.jobs.inserted) == (found["stage1_outputs"], found["jobs"])
    assert all(tally.updated == tally.older == 0 for tally in (report.outputs, report.jobs, report.threads))
    (counted,) = rows(
        app,
        "select (select count(*) from memsvc.threads t where t.source_id = s.id),"
        " (select count(*) from memsvc.memories m where m.source_id = s.id and m.retired_at is null),"
        " (select count(distinct (r.table_name, r.row_key)) from memsvc.import_rejects r where r.source_id = s.id),"
        " (select count(*) from memsvc.import_runs r where r.source_id = s.id and r.status = 'complete'"
        "   and r.counts -> 'outputs' ->> 'inserted' = %s::text)"
        " from memsvc.sources s where s.label = %s",
        str(report.outputs.inserted),
        source,
    )
    refused = {(row.table, row.key) for row in report.rejected}
    assert counted == (report.threads.inserted, report.memories.inserted, len(refused), 1)
    return Counter(found) + rejected


def assert_again_changes_nothing(app: App, file: Path, source: str, first: IngestReport) -> None:
    before = everything(app)

    again = imported(app, file, source)

    assert everything(app) == before
    assert again.memories == MemoryTally(unchanged=first.memories.inserted)
    for tally, known in ((again.outputs, first.outputs), (again.jobs, first.jobs), (again.threads, first.threads)):
        assert tally == Tally(unchanged=known.inserted, rejected=known.rejected)
    assert again.rejected == first.rejected


def imported_or_refused(app: App, file: Path, source: str) -> IngestReport | None:
    """What an import came to; None when the file is refused, and then nothing is written."""
    before = everything(app)
    try:
        return imported(app, file, source)
    except BadExport:
        assert everything(app) == before
        return None


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_any_values_add_up_in_the_database(app: App, tmp_path: Path, encoding: str) -> None:
    for seed in SEEDS:
        chance, source = random.Random(seed), f"seed {seed}"
        odd = chance.choice([0.02, 0.1, 0.3])
        file = made(tmp_path / source / "state_5.sqlite", chance, rows=6, encoding=encoding, odd=odd)

        report = imported(app, file, source)

        assert assert_adds_up(app, report, source) == Counter(dict.fromkeys(TABLES, 6))
        assert_again_changes_nothing(app, file, source, report)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("good") / "state_5.sqlite", random.Random(1), rows=ROWS)


@pytest.fixture
def fresh(app: App, good: Path) -> dict[str, list[Any]]:
    """What the good file comes to where nothing was before."""
    imported(app, good, "good")
    return contents(app, "good")


def assert_damage_adds_up(app: App, file: Path, source: str) -> IngestReport | None:
    report = imported_or_refused(app, file, source)
    if report is not None:
        met, there = assert_adds_up(app, report, source), readable(file)
        assert all(met[table] >= there[table] or any(table in text for text in report.warnings) for table in TABLES)
        assert met.total() >= len(TABLES) * ROWS or report.warnings
        assert_again_changes_nothing(app, file, source, report)
    return report


def test_a_file_cut_anywhere_does_not_stand_in_the_way(
    app: App, tmp_path: Path, good: Path, fresh: dict[str, list[Any]]
) -> None:
    content = good.read_bytes()
    for length in list(cuts(content))[::2]:
        source = f"cut {length}"
        file = tmp_path / source / "state_5.sqlite"
        file.parent.mkdir()
        file.write_bytes(content[:length])
        assert_damage_adds_up(app, file, source)

        imported(app, good, source)

        assert contents(app, source) == fresh


def test_a_file_with_changed_bytes_does_not_stand_in_the_way(
    app: App, tmp_path: Path, good: Path, fresh: dict[str, list[Any]]
) -> None:
    for seed in FLIPS:
        source = f"flipped {seed}"
        file = tmp_path / source / "state_5.sqlite"
        file.parent.mkdir()
        file.write_bytes(flipped(good.read_bytes(), random.Random(seed)))
        assert_damage_adds_up(app, file, source)

    imported(app, good, "good again")

    assert contents(app, "good again") == fresh
