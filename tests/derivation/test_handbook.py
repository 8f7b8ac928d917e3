"""What is read out of MEMORY.md and memory_summary.md: real ones written down, and texts of every other kind."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsvc.derivation import handbook
from memsvc.derivation.handbook import Entry, derive
from memsvc.derivation.references import References, folders
from memsvc.model.memory import KINDS
from tests.snapshots import with_markdown

REAL = {
    "v1-MEMORY": ("0.135.0", "memories/MEMORY.md"),
    "v1-memory_summary": ("0.135.0", "memories/memory_summary.md"),
    "v2-memory_summary": ("0.171.0-v2", "memories_v2/memory_summary.md"),
}

GROUP = """# Task Group: orchard builds

scope: how the orchard is built
applies_to: cwd=/src/orchard; reuse_rule=safe in the same checkout

## Task 1: Speed up the build, success

### rollout_summary_files

- rollout_summaries/a.md (cwd=/src/orchard, rollout_path=/r/a.jsonl, updated_at=2026-11-30T20:57:28+00:00, thread_id=t1)

### keywords

- cache, build, make

## Task 2: Find the leak, uncertain

### rollout_summary_files

- rollout_summaries/b.md (cwd=/src/orchard, thread_id=t2, looked at twice)

### keywords

- leak

- the pool is never drained

## User preferences

- when asked twice, the user said "no new tools" -> keep to make [Task 1]
- der Nutzer bat um „kurze Antworten“ -> knapp bleiben [Task 1][Task 2]

## Reusable knowledge

- the cache lies in .cache [Task 1]
- probably the linker is slow [Task 2]
- おそらくリンカが遅い [Task 2]
- is the cache shared? [Task 1, Task 2]
- we first blamed the disk [Task 2]

## Failures and how to do differently

- make -j broke the cache -> build serially
"""

SUMMARY = """v1

## User Profile

Builds orchards.

## User preferences

- short answers

## General Tips

- read the log first

## What's in Memory

### /src/orchard

#### 2026-11-30

- build cache: make, cache, ccache
  - desc: how the cache was moved; thread_id=t1
  - learnings: maybe the cache must be cold

### Older Memory Topics

#### /src/pond

- pumps: valve
  - desc: the pump was replaced
"""


def real(name: str, folder: Path) -> str:
    version, path = REAL[name]
    return (with_markdown(version, folder) / path).read_bytes().decode()


def shown(entry: Entry) -> str:
    said, place = entry.statement, entry.statement.place
    named = ", ".join([*entry.references.threads, *entry.references.summaries])
    parts = [
        f"group {place.block or '-'}, lines {place.first_line}-{place.last_line}: {said.kind}, {said.status}",
        f"text: {said.text}",
        f"about: {said.context}" if said.context else "",
        f"quote: {said.quote}" if said.quote else "",
        f"in: {', '.join(entry.folders)}" if entry.folders else "",
        f"from: {named}" if named else "",
    ]
    return "\n  ".join(part.replace("\n", "⏎").replace("\0", "␀") for part in parts if part)


def found(text: str) -> list[tuple[str, str, str]]:
    return [(entry.statement.kind, entry.statement.status, entry.statement.text) for entry in derive(text)]


@pytest.mark.parametrize("name", REAL)
def test_real_files_give_the_statements_written_down(name: str, tmp_path: Path) -> None:
    expected = (Path(__file__).parent / "derived" / f"{name}.txt").read_text(encoding="utf-8")
    assert "\n".join(map(shown, derive(real(name, tmp_path)))) + "\n" == expected


def test_a_task_group_gives_its_tasks_and_lists() -> None:
    assert found(GROUP) == [
        ("task", "inference", "Speed up the build, success"),
        ("task", "assumption", "Find the leak, uncertain"),
        ("note", "assumption", "the pool is never drained"),
        ("preference", "reported", 'when asked twice, the user said "no new tools" -> keep to make'),
        ("preference", "reported", "der Nutzer bat um „kurze Antworten“ -> knapp bleiben"),
        ("knowledge", "inference", "the cache lies in .cache"),
        ("knowledge", "assumption", "probably the linker is slow"),
        ("knowledge", "assumption", "おそらくリンカが遅い"),
        ("knowledge", "question", "is the cache shared?"),
        ("knowledge", "assumption", "we first blamed the disk"),
        ("failure", "inference", "make -j broke the cache -> build serially"),
    ]
    entries = {entry.statement.text: entry for entry in derive(GROUP)}
    assert entries["Speed up the build, success"].statement.context == "orchard builds; keywords: cache, build, make"
    assert entries["the cache lies in .cache"].statement.context == "orchard builds"
    assert entries["der Nutzer bat um „kurze Antworten“ -> knapp bleiben"].statement.quote == "kurze Antworten"


def test_a_line_comes_from_the_tasks_that_it_names_else_from_those_of_its_group() -> None:
    threads = {entry.statement.text: entry.references.threads for entry in derive(GROUP)}
    assert threads["the cache lies in .cache"] == ("t1",)
    assert threads["probably the linker is slow"] == ("t2",)
    assert threads["is the cache shared?"] == ("t1", "t2")
    assert threads["make -j broke the cache -> build serially"] == ("t1", "t2")
    assert threads["the pool is never drained"] == ("t2",)


@pytest.mark.parametrize(
    ("applies_to", "expected"),
    [
        ("cwd=/a; reuse_rule=x", ("/a",)),
        ("cwd=`/a`", ("/a",)),
        ("cwd=/a, /b; reuse_rule=x", ("/a", "/b")),
        ("cwd=/a and similar checkouts", ("/a", "similar checkouts")),
        ("reuse_rule=anywhere", ()),
    ],
)
def test_folders_that_a_group_applies_to(applies_to: str, expected: tuple[str, ...]) -> None:
    (entry,) = derive(f"# Task Group: g\n\nscope: s\napplies_to: {applies_to}\n\n- a\n")
    assert entry.folders == expected


def test_a_group_of_several_folders_leaves_each_task_its_own() -> None:
    text = GROUP.replace("applies_to: cwd=/src/orchard;", "applies_to: cwd=/src/orchard, /src/pond;")
    text = text.replace("a.md (cwd=/src/orchard", "a.md (cwd=/src/pond")
    where = {entry.statement.text: entry.folders for entry in derive(text)}
    assert where["Speed up the build, success"] == ("/src/pond",)
    assert where["Find the leak, uncertain"] == ("/src/orchard",)
    assert where["make -j broke the cache -> build serially"] == ("/src/pond", "/src/orchard")


@pytest.mark.parametrize("version", ["v1\n\n", "v1\r\n\r\n", "\ufeffv1\n", ""])
def test_a_summary_gives_its_chapters_and_its_index(version: str) -> None:
    text = version + SUMMARY.removeprefix("v1\n\n")
    assert found(text) == [
        ("note", "inference", "Builds orchards."),
        ("preference", "inference", "short answers"),
        ("knowledge", "inference", "read the log first"),
        ("task", "inference", "build cache: make, cache, ccache"),
        ("note", "inference", "how the cache was moved"),
        ("knowledge", "assumption", "maybe the cache must be cold"),
        ("task", "inference", "pumps: valve"),
        ("note", "inference", "the pump was replaced"),
    ]
    entries = derive(text)
    assert [entry.folders for entry in entries[3:]] == [("/src/orchard",)] * 3 + [("/src/pond",)] * 2
    assert entries[4].references.threads == ("t1",)
    assert entries[5].statement.context == "/src/orchard: build cache: make, cache, ccache"


def test_the_index_of_the_second_version_gives_its_sentences() -> None:
    text = (
        "v1\n\n## What's in Memory\n\n### /src/a\n\n- rollout_summaries/x-1.md — Masked the token; thread_id=t-1\n"
        "  - rollout_summaries/y.md\n"
    )
    (entry,) = derive(text)
    assert (entry.statement.text, entry.folders) == ("Masked the token", ("/src/a",))
    assert entry.references == References(("t-1",), ("x-1.md", "y.md"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n- b\n", ["a", "b"]),
        ("prose\n\n# Anything\n\n* c\n", ["prose", "c"]),
        ("# Task Group: g\r\n\r\n## Reusable knowledge\r\n\r\n- a [Task 1]\r\n", ["a"]),
        ("## What’s in Memory\n- topic without a place\n", ["topic without a place"]),
        ("- a\n- none\n- [Task 1]\n", ["a"]),
        ("", []),
        ("v1", []),
        ("v1\n", []),
    ],
)
def test_files_of_no_known_form(text: str, expected: list[str]) -> None:
    assert [entry.statement.text for entry in derive(text)] == expected


def test_only_the_two_files_of_a_memory_folder_are_read() -> None:
    assert handbook.store_of("memories/MEMORY.md") == "v1"
    assert handbook.store_of("memories_v2/memory_summary.md") == "v2"
    assert handbook.store_of("memories/skills/MEMORY.md") is None
    assert handbook.store_of("memories/raw_memories.md") is None
    assert handbook.store_of("memories_extensions/MEMORY.md") is None


def test_a_list_of_folders_is_read_in_words() -> None:
    assert folders("/a, `/b` and /c or /a") == ("/a", "/b", "/c")
    assert folders(" ") == ()


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "[Task 1]",
            "rollout_summaries/",
            "thread_id=",
            "thread_id =" + " " * 50,
            "cwd=",
            "a, ",
            " and ",
            "\n  - desc: x",
        ),
        *(
            "\n## Task 1: t\n- a",
            "\n- a [Task 1]",
            "\n### keywords\n- k",
            "\n### rollout_summary_files\n- x",
            "\n### a",
        ),
        *("\n# Task Group: g\napplies_to: cwd=/a", "\n## What's in Memory\n- a\n  - b", "\n  ```\n"),
    ],
)
def test_a_hundred_thousand_characters_of_one_kind(piece: str) -> None:
    text = "# Task Group: g\n\n## Task 1: t\n\n- x " + piece * (100_000 // len(piece))
    assert all(entry.statement.text for entry in derive(text))


PIECES = st.sampled_from(
    [
        *("v1", "# Task Group: g", "# t", "## Task 1: a, uncertain", "## Task 2:", "### rollout_summary_files"),
        *("- rollout_summaries/a.md (cwd=/a, thread_id=t)", "### keywords", "- a, b", "## User preferences", "  - b"),
        *(
            "- desc: x",
            "  - desc: x",
            "  - learnings:",
            "    - y",
            "## What's in Memory",
            "### /src/a",
            "#### 2026-11-30",
        ),
        *("### Older Memory Topics", "scope: s", "applies_to: cwd=/a; reuse_rule=r", "- x [Task 1]", "[Task 1]", ""),
        *(
            "```",
            "~~~",
            "task: t",
            "References:",
            "- rollout_summaries/a.md — s; thread_id=t",
            "\r",
            "\0",
            "- ",
            "prose",
        ),
        *(
            "<oai-mem-citation>",
            "<citation_entries>",
            "</oai-mem-citation>",
            "- 「やめて」",
            "---",
            "\ufeff",
            "Outcome: success",
        ),
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES | st.text(max_size=20), max_size=25).map("\n".join))


@given(TEXTS)
def test_no_text_is_refused_and_places_point_at_the_text(text: str) -> None:
    for entry in derive(text):
        said, place = entry.statement, entry.statement.place
        raw = text[place.starts_at : place.ends_at]
        assert raw == "\n".join(text.split("\n")[place.first_line - 1 : place.last_line])
        assert said.text == said.text.strip() != ""
        assert said.kind in KINDS
        assert said.status != "fact"


@given(TEXTS)
def test_statements_stand_in_order_and_apart(text: str) -> None:
    places = [entry.statement.place for entry in derive(text)]
    for earlier, later in pairwise(places):
        assert 0 <= earlier.starts_at <= earlier.ends_at < later.starts_at <= later.ends_at <= len(text)


@given(st.sampled_from([GROUP, SUMMARY]), st.data())
def test_an_inserted_bullet_changes_no_other_statement(text: str, data: st.DataObject) -> None:
    lines = text.split("\n")
    after_bullets = [at + 1 for at, line in enumerate(lines) if line.startswith("- ") and "rollout_" not in line]
    flat = [at for at in after_bullets if not lines[at].startswith("  ")]
    at = data.draw(st.sampled_from(flat))
    before = found(text)
    after = found("\n".join([*lines[:at], "- something unrelated", *lines[at:]]))
    inserted = [one for one in after if one[2] == "something unrelated"]
    assert len(inserted) == 1
    assert [one for one in after if one not in inserted] == before
