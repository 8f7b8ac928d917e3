"""What is read out of session outputs: real ones against statements written down, and texts of every other kind."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsvc.derivation.derive import derive
from memsvc.model.memory import KINDS, STATUSES, Statement

DATA = Path(__file__).parents[1] / "data" / "codex"
STORES = {
    "v1": DATA / "0.135.0" / "05-checkpointed" / "memories_1.sqlite",
    "v2": DATA / "0.171.0-v2" / "05-checkpointed" / "memories_v2_1.sqlite",
}


def outputs(store: str, folder: Path) -> list[tuple[str, str, str]]:
    """Thread id, raw memory and rollout summary of every row, in the order of the ids."""
    copy = folder / "export.sqlite"
    shutil.copy(STORES[store], copy)
    with closing(sqlite3.connect(f"file:{copy}?mode=ro", uri=True)) as export:
        rows: list[tuple[str, str, str]] = export.execute(
            "select thread_id, raw_memory, rollout_summary from stage1_outputs order by thread_id"
        ).fetchall()
    return rows


def shown(statement: Statement) -> str:
    place = statement.place
    parts = [
        f"block {place.block or '-'}, lines {place.first_line}-{place.last_line}: {statement.kind}, {statement.status}",
        f"text: {statement.text}",
        f"about: {statement.context}" if statement.context else "",
        f"quote: {statement.quote}" if statement.quote else "",
    ]
    return "\n  ".join(part.replace("\n", "⏎").replace("\0", "␀") for part in parts if part)


def found(text: str) -> list[tuple[str, str, str]]:
    return [(statement.kind, statement.status, statement.text) for statement in derive(text, "")]


def texts(text: str) -> list[str]:
    return [statement.text for statement in derive(text, "")]


@pytest.mark.parametrize("store", STORES)
def test_real_outputs_give_the_statements_written_down(store: str, tmp_path: Path) -> None:
    sections = [
        "\n".join([f"== {thread}", *map(shown, derive(raw_memory, rollout_summary))])
        for thread, raw_memory, rollout_summary in outputs(store, tmp_path)
    ]
    expected = (Path(__file__).parent / "derived" / f"{store}.txt").read_text(encoding="utf-8")
    assert "\n\n".join(sections) + "\n" == expected


@pytest.mark.parametrize("store", STORES)
def test_places_of_real_statements_hold_their_raw_lines(store: str, tmp_path: Path) -> None:
    for _, raw_memory, rollout_summary in outputs(store, tmp_path):
        source = raw_memory or rollout_summary
        for statement in derive(raw_memory, rollout_summary):
            place = statement.place
            assert place.column == ("raw_memory" if raw_memory else "rollout_summary")
            lines = source.split("\n")[place.first_line - 1 : place.last_line]
            assert source[place.starts_at : place.ends_at] == "\n".join(lines)


def test_the_summary_speaks_only_where_the_raw_memory_is_blank() -> None:
    assert [statement.place.column for statement in derive("- a\n", "- b\n")] == ["raw_memory"]
    (statement,) = derive("\ufeff \r\n\f\n", "- b\n")
    assert (statement.text, statement.place.column) == ("b", "rollout_summary")
    assert derive("", "") == []


def test_free_markdown_of_the_first_era() -> None:
    text = """# Renaming the tool

## Memory context
We were in the tools repository.

## User preferences
- short answers

## Task: rename it
Outcome: success
- the old name is an alias
"""
    assert found(text) == [
        ("task", "inference", "Renaming the tool"),
        ("note", "inference", "We were in the tools repository."),
        ("preference", "inference", "short answers"),
        ("task", "inference", "rename it (outcome: success)"),
        ("note", "inference", "the old name is an alias"),
    ]
    assert [statement.place.block for statement in derive(text, "")] == [None, None, None, 1, 1]
    assert derive(text, "")[1].context == "Renaming the tool: Memory context"


def test_front_matter_of_the_second_era_with_bullets_only() -> None:
    text = "---\nrollout_summary_file: a.md\ndescription: Ports: a list\nkeywords: tcp, udp\n---\n\n- 80 is taken\n"
    description, bullet = derive(text, "")
    assert (description.text, description.context) == ("Ports: a list", "keywords: tcp, udp")
    assert (bullet.text, bullet.kind, bullet.context) == ("80 is taken", "note", "Ports: a list")


def test_front_matter_without_blocks_gives_its_task_too() -> None:
    text = "---\ndescription: d\ntask: t\ntask_group: g\ntask_outcome: uncertain\n---\n- b\n"
    assert found(text) == [
        ("task", "assumption", "d"),
        ("task", "assumption", "t (outcome: uncertain)"),
        ("note", "assumption", "b"),
    ]


def test_description_that_repeats_the_task_is_left_out_and_leaves_it_the_keywords() -> None:
    text = "---\ndescription: Mask the token.\nkeywords: mask, log\n---\n### Task 1: Mask the Token\n- b\n"
    task, bullet = derive(text, "")
    assert (task.text, task.context) == ("Mask the Token", "keywords: mask, log")
    assert bullet.context == "Mask the Token"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("---\ndescription: open\n\n### Task 1: T\n- a\n\n---\n\n- b\n", ["open", "T", "a", "b"]),
        ("---\ndescription: open\n- a\n- b\n", ["open", "a", "b"]),
        ("---\ndescription: open\n\nNote: prose\n", ["open", "Note: prose"]),
        ("description: no fence\ntask_group: g\n\n- a\n", ["no fence", "a"]),
        ("description: only one fence\n---\n- a\n", ["only one fence", "a"]),
        ("\ufeff---\r\ndescription: mark\r\n---\r\n- a\r\n", ["mark", "a"]),
        ("---\n\nprose between rules\n\n---\n\nmore\n", ["prose between rules", "more"]),
        ("---\nunknown: key\n---\n- a\n", ["unknown: key", "a"]),
        ("---\ndescription: a\n  b\nkeywords:\n- x\n- y\n---\n- c\n", ["a\nb", "c"]),
        ("---\ndescription: >\n  folded\n---\n", ["folded"]),
        ("---\ndescription:\ntask_outcome: success\n---\n- a\n", ["a"]),
        ("---\n---\n- a\n", ["a"]),
    ],
)
def test_front_matter_in_every_state(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n* b\n+ c\n1. d\n2) e\n-\tf\n", ["a", "b", "c", "d", "e", "f"]),
        ("• a\n– b\n— c\n● d\n  ‣ nested\n・e\n・ f\n", ["a", "b", "c", "d\n  ‣ nested", "e", "f"]),
        ("it was late\n– and dark –\n- a\n", ["it was late\n– and dark –", "a"]),
        ("– 3 degrees\n–4 degrees\n", ["3 degrees\n–4 degrees"]),
        ("- a\n  goes on\n- b\n", ["a\n  goes on", "b"]),
        ("- a\nwrapped\n\nalone\n", ["a\nwrapped", "alone"]),
        ("- a\n  - nested\n    - deeper\n- b\n", ["a\n  - nested\n    - deeper", "b"]),
        ("- a\n\n  after a gap\n\n- b\n", ["a\n\n  after a gap", "b"]),
        (
            "- a\n\n```\n- code\n# code\n```\n\n```\ntoo\n```\n- b",
            ["a\n\n```\n- code\n# code\n```\n\n```\ntoo\n```", "b"],
        ),
        ("- ```sh\n  ls\n  ```\n- b\n", ["```sh\n  ls\n  ```", "b"]),
        ("  - a\n- b\n - c\n", ["a", "b", "c"]),
        ("- none\n- N/A.\n- \n-\n- nothing\n", []),
        ("- no final newline", ["no final newline"]),
        ("- a\r\n\r\n- b\r", ["a", "b"]),
        ("- a\rb\n", ["a\nb"]),
        ("\f- a\f\n\n\fpara\n", ["a", "para"]),
        ("it was in\n2024. That is prose.\n1. a\n", ["it was in\n2024. That is prose.", "a"]),
        ("- a\n***\n- b\n- - -\nc\n===\n", ["a", "b", "c"]),
        ("Title\n=====\n", ["Title"]),
        ("Run it:\n\n```\nmake\n```\n", ["```\nmake\n```"]),
        ("text with code\n\n```\nmake\n```\n\nmore\n", ["text with code\n\n```\nmake\n```", "more"]),
        ("#1 is no heading\n", ["#1 is no heading"]),
        ("####### nor is this\n", ["####### nor is this"]),
        ("# Title ##\n", ["Title"]),
        ("```a``` is no fence\n- b\n", ["```a``` is no fence", "b"]),
    ],
)
def test_lists_paragraphs_and_code(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("Preference signals:", "preference"),
        ("**Preference signals:**", "preference"),
        ("#### Preference signals", "preference"),
        ("- Reusable knowledge:", "knowledge"),
        ("Key steps:", "knowledge"),
        ("Key steps and knowledge:", "knowledge"),
        ("key steps (in order):", "knowledge"),
        ("Failures:", "failure"),
        ("Failures and how to do differently:", "failure"),
        ("References", "reference"),
        ("Commands that helped:", "note"),
        ("Wiederverwendbares Wissen:", "knowledge"),
        ("Fehlschläge:", "failure"),
        ("### ユーザーの好み", "preference"),
        ("再利用可能な知識：", "knowledge"),
        ("失敗と対策:", "failure"),
        ("用户偏好：", "preference"),
        ("役に立ったコマンド：", "note"),
    ],
)
def test_a_label_names_the_kind_of_its_list(label: str, kind: str) -> None:
    text = f"### Task 1: T\n\nReferences:\n- r\n\n{label}\n  - a\n  - b\n"
    assert [(statement.kind, statement.text) for statement in derive(text, "")][2:] == [(kind, "a"), (kind, "b")]


def test_text_beside_a_label_is_of_its_kind() -> None:
    text = "Failures: none\nReusable knowledge: it is so\nand stays so\n\nA paragraph.\n"
    assert found(text) == [
        ("knowledge", "inference", "it is so\nand stays so"),
        ("note", "inference", "A paragraph."),
    ]


def test_labels_without_a_kind_are_told_in_the_context() -> None:
    text = "### Task 1: T\nCommands that helped:\n- make\n\nOpen questions:\n- which port\n"
    assert [(s.context, s.status) for s in derive(text, "")[1:]] == [
        ("T: Commands that helped", "inference"),
        ("T: open questions", "question"),
    ]


@pytest.mark.parametrize(
    ("heading", "title"),
    [
        ("### Task 1: a", "a"),
        ("## Task: a", "a"),
        ("## Task 2 - a", "a"),
        ("## Task 2. a", "a"),
        ("# task 3 a", "a"),
        ("### **Task 1: a** ###", "a"),
    ],
)
def test_headings_that_open_a_task(heading: str, title: str) -> None:
    (task, bullet) = derive(f"{heading}\nOutcome: partial.\n- b\n", "")
    assert (task.text, task.place.block, bullet.place.block) == (f"{title} (outcome: partial)", 1, 1)


def test_a_task_without_a_name_in_its_heading_has_it_in_a_line() -> None:
    task, bullet = derive("### Task 1\n\ntask: a\ntask_group: g\n- task_outcome: fail\n- b\n", "")
    assert (task.text, task.place.first_line, task.context) == ("a (outcome: fail)", 3, "g")
    assert bullet.context == "g: a"


def test_a_heading_of_the_same_level_ends_a_task() -> None:
    text = "## Task 1: T\n### Detail\n- a\n## Afterwards\n- b\n"
    _, inside, outside = derive(text, "")
    assert (inside.place.block, inside.context) == (1, "T: Detail")
    assert (outside.place.block, outside.context) == (None, "Afterwards")


def test_rollout_context_and_outcome_are_no_statements_but_may_cast_doubt() -> None:
    told = (
        "# T\n\nRollout context: x.{}Outcome: uncertain.\n\n## Task 1: a\n- b\n\n## Task 2: c\nOutcome: success\n- d\n"
    )
    for text in (told.format(" "), told.format("\n")):
        assert [(s.text, s.status) for s in derive("", text)] == [
            ("T", "assumption"),
            ("a", "assumption"),
            ("b", "assumption"),
            ("c (outcome: success)", "inference"),
            ("d", "inference"),
        ]


def test_context_does_not_repeat_the_text() -> None:
    text = "### Task 1: needs hardware\ntask_group: kiln\n- needs hardware\n"
    assert [statement.context for statement in derive(text, "")] == ["kiln", "kiln"]


def test_a_fence_that_nobody_closes_ends_at_the_next_section() -> None:
    assert texts("- a\n```\ncode\n- code\n### Task 1: T\n- b\n") == ["a\n```\ncode\n- code", "T", "b"]
    assert texts("- a\n```\ncode\n- code\n") == ["a\n```\ncode\n- code"]


def test_a_fence_may_hold_what_looks_like_a_section() -> None:
    assert texts("- a\n```\n### Task 1: T\nFailures:\n---\n```\n- b\n") == [
        "a\n```\n### Task 1: T\nFailures:\n---\n```",
        "b",
    ]


CITATION = """<oai-mem-citation>
<citation_entries>
MEMORY.md:1-2|note=[x]
</citation_entries>
<rollout_ids>
01a22e3f
</rollout_ids>
</oai-mem-citation>"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"- a {CITATION}\n- b\n", ["a", "b"]),
        (f"- a\n\n{CITATION}\n\n- b\n", ["a", "b"]),
        (f"{CITATION}{CITATION}", []),
        ("- cut `<oai-mem-citation>` blocks\n- b\n", ["cut `<oai-mem-citation>` blocks", "b"]),
        ("- a\n<oai-mem-citation>\n<rollout_ids>\n01\n\n- b\n", ["a", "b"]),
        ("- a <oai-mem-citation><rollout_ids></oai-mem-citation> b\n", ["a  b"]),
        ("- a\n<oai-mem-citation><rollout_ids>\n<oai-mem-citation><rollout_ids></oai-mem-citation>\n- b", ["a", "b"]),
    ],
)
def test_citation_blocks_are_cut_out(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


def test_sixty_thousand_lines() -> None:
    lines = [f"- the value of setting {number} is {number * 7}" for number in range(60_000)]
    statements = derive("### Task 1: T\n\nReusable knowledge:\n" + "\n".join(lines), "")
    assert len(statements) == 60_001
    assert (statements[-1].text, statements[-1].place.last_line) == (lines[-1][2:], 60_003)


@pytest.mark.parametrize(
    "piece", ["a", " ", "`", '"', "“", "*", "#", "\n", "\r", "- ", "```\n", "user said ", "<oai-mem-"]
)
def test_half_a_million_characters_of_one_kind(piece: str) -> None:
    assert len(derive("- x " + piece * (500_000 // len(piece)), "")) <= 1


PIECES = st.sampled_from(
    [
        *("---", "\n", "\n\n", "\r\n", "\r", "\f", "\ufeff", "\0", " ", "\t", "    ", "- ", "* ", "1. ", "# ", "### "),
        *("```", "```py\n", "~~~~", "`", '"', "“", "”", "«", "„", "->", "?", "Task 1: ", "task: ", "task_outcome: "),
        *("Outcome: uncertain", "description: ", "keywords: ", "Preference signals:", "Failures: ", "Open questions:"),
        *(
            "Rollout context: ",
            "the user said ",
            "output: ",
            "maybe ",
            "würde",
            "おそらく",
            "word",
            "é",
            "🦀",
            "\ud800",
        ),
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=8), max_size=40).map("".join)


@given(TEXTS, TEXTS)
def test_no_text_is_refused_and_places_point_at_the_text(raw_memory: str, rollout_summary: str) -> None:
    for statement in derive(raw_memory, rollout_summary):
        place = statement.place
        source = raw_memory if place.column == "raw_memory" else rollout_summary
        raw = source[place.starts_at : place.ends_at]
        assert raw == "\n".join(source.split("\n")[place.first_line - 1 : place.last_line])
        words = re.sub(r" \(outcome: .*\)$", "", statement.text.split("\n")[0])
        assert words.rstrip() in raw
        assert statement.text
        assert statement.text == statement.text.strip()
        assert "\r" not in statement.text
        assert statement.kind in KINDS
        assert statement.status in STATUSES
        assert statement.status != "fact"
        assert statement.context != statement.text


@given(TEXTS)
def test_statements_stand_in_order_and_apart(text: str) -> None:
    places = [statement.place for statement in derive(text, "")]
    for earlier, later in pairwise(places):
        assert 0 <= earlier.starts_at <= earlier.ends_at < later.starts_at <= later.ends_at <= len(text)
        assert earlier.last_line < later.first_line


@given(TEXTS)
def test_equal_texts_give_equal_statements_whatever_their_line_endings(text: str) -> None:
    unix = text.replace("\r", "")
    windows = unix.replace("\n", "\r\n")
    assert found(windows) == found(unix)


BULLETS = st.lists(
    st.sampled_from(
        [
            "- plain",
            "- maybe so",
            '- the user said "x"',
            "- is it?",
            "* a\n  - nested",
            "1. a\n\n```\ncode\n```",
            "- none",
        ]
    ),
    max_size=4,
)
LISTS = st.tuples(
    st.sampled_from(["Preference signals:", "Reusable knowledge:", "Failures:", "Notes to self:"]), BULLETS
)


@given(st.lists(st.lists(LISTS, max_size=3), min_size=1, max_size=3), st.data())
def test_an_inserted_bullet_changes_no_other_statement(
    tasks: list[list[tuple[str, list[str]]]], data: st.DataObject
) -> None:
    parts = ["---\ndescription: d\n---"]
    for number, lists in enumerate(tasks, start=1):
        parts.append(f"\n### Task {number}: t{number}\ntask_outcome: {'uncertain' if number == 2 else 'success'}")
        for label, bullets in lists:
            parts += [f"\n{label}", *bullets]
    at = data.draw(st.integers(2, len(parts)))
    before = found("\n".join(parts))
    after = found("\n".join([*parts[:at], "- something unrelated", *parts[at:]]))
    inserted = [one for one in after if one[2] == "something unrelated"]
    assert len(inserted) == 1
    assert [one for one in after if one not in inserted] == before
