"""MEMORY.md and memory_summary.md of imported homes: what of them is remembered, where, and how it goes away again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memsvc.db.pool import Pool
from memsvc.model.principal import OWNER
from memsvc.model.report import IngestReport
from memsvc.pipeline.ingest import ingest
from memsvc.recall import search
from tests.importers.codex_home import THREADS, database, output, thread
from tests.snapshots import snapshot, with_markdown

GROUP = "# Task Group: orchard\n\nscope: s\napplies_to: cwd=/src/orchard; reuse_rule=r\n\n"
LISTED = "## Reusable knowledge\n\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two sessions of two projects."""
    folder = tmp_path / ".codex"
    outputs = [output("t1", raw_memory="- the cache lies in .cache\n"), output("t2", raw_memory="- other\n")]
    database(folder / "memories_1.sqlite", outputs=outputs)
    database(folder / "state_5.sqlite", THREADS, threads=[thread("t1"), thread("t2", cwd="/src/pond")])
    return folder


def imported(pool: Pool, home: Path, *, redact_originals: bool = False) -> IngestReport:
    return ingest(pool, OWNER, "codex", home, host="here", redact_originals=redact_originals)


def write(home: Path, text: str | bytes, name: str = "MEMORY.md", *, folder: str = "memories") -> None:
    (home / folder).mkdir(exist_ok=True)
    (home / folder / name).write_bytes(text.encode() if isinstance(text, str) else text)


def rows(pool: Pool, query: str, *values: object) -> list[Any]:
    with pool.transaction(OWNER) as conn:
        return conn.execute(query.encode(), values).fetchall()


def current(pool: Pool) -> dict[str, str]:
    """The current lines of files, each with the name of its scope."""
    return dict(
        rows(
            pool,
            "select m.text, s.name from memsvc.memories m join memsvc.scopes s on s.id = m.scope_id"
            " where m.path is not null and m.retired_at is null order by m.ordinal",
        )
    )


def recalled(pool: Pool, query: str) -> list[search.Hit]:
    with pool.transaction(OWNER) as conn:
        scopes = [row[0] for row in conn.execute("select id from memsvc.scopes").fetchall()]
        return search.nearest(conn, query, None, model="hash:8", scopes=scopes, limit=20)[0]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.135.0", {"memories/MEMORY.md": (29, 29), "memories/memory_summary.md": (13, 7)}),
        ("0.171.0-v2", {"memories_v2/memory_summary.md": (10, 7)}),
    ],
)
def test_real_files_become_memories_once(
    pool: Pool, tmp_path: Path, version: str, expected: dict[str, tuple[int, int]]
) -> None:
    folder = with_markdown(version, snapshot(version, "02-closed", tmp_path))
    imported(pool, folder)

    counted = "select path, count(*), count(thread_id) from memsvc.memories where path is not null group by path"
    assert {path: (lines, tied) for path, lines, tied in rows(pool, counted)} == expected
    untold = "select count(*) from memsvc.memories m where path is not null and (rule_set <> 'codex-files-1'"
    assert rows(pool, untold + " or status = 'fact')") == [(0,)]
    projects = {Path(name).name for name in current(pool).values() if name != "source:codex"}
    # By their git origins, which the sessions tell of the folders that the files name.
    assert projects == {"firmware", "orchard-api", "paperboy", "tide-charts"}

    again = imported(pool, folder)
    assert (again.memories.inserted, again.memories.retired) == (0, 0)
    assert {path: (lines, tied) for path, lines, tied in rows(pool, counted)} == expected


def test_a_hit_names_the_file_and_its_lines(pool: Pool, home: Path) -> None:
    write(home, f"{GROUP}{LISTED}- the drain is clogged\n")
    imported(pool, home)

    hit = recalled(pool, "clogged drain")[0]

    assert (hit.source.lines, hit.source.thread_id) == ("memories/MEMORY.md 8", None)


def test_what_a_file_repeats_is_recalled_once(pool: Pool, home: Path) -> None:
    write(home, f"{GROUP}## Task 1: t\n\n{LISTED}- the cache  lies in .cache [Task 1]\n")
    imported(pool, home)

    hits = [hit for hit in recalled(pool, "cache lies") if "cache" in hit.text]

    assert len(hits) == 1
    stored = "select count(*), count(distinct text_sha256) from memsvc.memories where text like %s"
    assert rows(pool, stored, "%lies in .cache") == [(2, 1)]


def test_lines_lie_in_their_project_and_never_wider(pool: Pool, home: Path) -> None:
    files = "### rollout_summary_files\n\n- rollout_summaries/x.md (thread_id=t2)\n\n"
    write(
        home,
        f"- nowhere\n\n{GROUP}- by folder\n\n# Task Group: both\napplies_to: cwd=/src/orchard, /src/pond\n\n- both\n"
        f"\n# Task Group: session\n\n## Task 1: by session\n\n{files}\n"
        "# Task Group: any\napplies_to: cwd=any\n\n- any\n",
    )
    imported(pool, home)

    assert current(pool) == {
        "nowhere": "source:codex",
        "by folder": "/src/orchard",
        "both": "source:codex",
        "by session": "/src/pond",
        "any": "source:codex",
    }
    assert rows(pool, "select thread_id from memsvc.memories where text = 'by session'") == [("t2",)]
    assert rows(
        pool, "select count(*) from memsvc.memories m join memsvc.scopes s on s.id = m.scope_id where s.kind = 'global'"
    ) == [(0,)]


def test_a_summary_that_is_named_leads_to_its_session(pool: Pool, home: Path) -> None:
    (home / "memories" / "rollout_summaries").mkdir(parents=True)
    write(home, "thread_id: t2\ncwd: /src/pond\n\nThe pond.\n", "rollout_summaries/x.md")
    write(home, "v1\n\n## What's in Memory\n\n- drained the pond: rollout_summaries/x.md\n", "memory_summary.md")
    imported(pool, home)

    assert current(pool) == {"drained the pond": "/src/pond"}
    (locator,) = rows(pool, "select locator from memsvc.evidence where kind = 'memory_file'")[0]
    assert (locator["path"], locator["lines"], locator["threads"]) == ("memories/memory_summary.md", [5, 5], ["t2"])
    assert rows(
        pool,
        "select sha256 = decode(%s, 'hex') from memsvc.source_files where path = %s",
        locator["sha256"],
        locator["path"],
    ) == [(True,)]


def test_a_line_that_is_gone_is_retired_and_the_others_stay(pool: Pool, home: Path) -> None:
    write(home, f"{GROUP}{LISTED}- one\n- two\n")
    imported(pool, home)
    before = dict(rows(pool, "select text, id from memsvc.memories where path is not null"))
    write(home, f"{GROUP}{LISTED}- zero\n- two\n")

    report = imported(pool, home)

    assert report.memories.retired == 1
    assert set(current(pool)) == {"zero", "two"}
    assert rows(pool, "select retired_because from memsvc.memories where id = %s", before["one"]) == [
        ("the line is gone",)
    ]
    assert rows(pool, "select retired_at is null from memsvc.memories where id = %s", before["two"]) == [(True,)]


@pytest.mark.parametrize("emptied", ["", "\n \n", "v1\n", None])
def test_an_emptied_or_missing_file_deletes_nothing(pool: Pool, home: Path, emptied: str | None) -> None:
    write(home, f"{GROUP}- one\n")
    imported(pool, home)
    if emptied is None:
        (home / "memories" / "MEMORY.md").unlink()
    else:
        write(home, emptied)

    imported(pool, home)

    assert set(current(pool)) == {"one"}


def test_a_file_of_an_older_export_changes_nothing(pool: Pool, home: Path, tmp_path: Path) -> None:
    write(home, f"{GROUP}- new\n")
    imported(pool, home)
    older = tmp_path / "older" / ".codex"
    database(older / "memories_1.sqlite", outputs=[output("t1", source_updated_at=1, generated_at=1)])
    database(older / "state_5.sqlite", THREADS, threads=[thread("t1", updated_at=1, created_at=1)])
    write(older, f"{GROUP}- old\n")

    report = imported(pool, older)

    assert report.files.older == 1
    assert set(current(pool)) == {"new"}


def test_secrets_are_cut_out_and_named(pool: Pool, home: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    write(home, f"- the key is {secret}\n")

    report = imported(pool, home)

    assert report.redacted == 1
    assert list(current(pool)) == ["the key is [REDACTED_SECRET]"]


def test_bytes_of_every_kind_are_read(pool: Pool, home: Path) -> None:
    write(
        home, b"# T\r\n\r\n- nul \0 here\r\n- bad \xff byte\r\n- \xe3\x81\x8a\xe3\x81\x9d\xe3\x82\x89\xe3\x81\x8f\r\n"
    )
    imported(pool, home)

    assert list(current(pool)) == ["nul ␀ here", "bad � byte", "おそらく"]


def test_a_line_is_hidden_with_the_one_session_that_it_comes_from(pool: Pool, home: Path) -> None:
    write(home, "- drained the pond; thread_id=t2\n- swept the yard\n")
    imported(pool, home)
    with pool.transaction(OWNER) as conn:
        conn.execute("update memsvc.threads set memory_mode = 'disabled' where id = 't2'")

    found = {hit.text for hit in recalled(pool, "drained pond swept yard")}

    assert "swept the yard" in found
    assert not any("drained" in text for text in found)
