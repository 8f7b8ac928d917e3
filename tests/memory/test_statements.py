"""Deriving again gives the same rows; a line lives, goes, comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest

from memsvc.db.pool import Conn
from memsvc.memory import statements
from memsvc.memory.outputs import StoredOutput
from memsvc.memory.statements import Changes
from memsvc.model.principal import GLOBAL_SCOPE, LOCAL_SOURCE, OWNER

BLOCK = "### Task 1: Ship it\n\ntask: Ship it\ntask_outcome: success\n\nReusable knowledge:\n"


@dataclass
class Output:
    """One session output in the database, whose text a test changes."""

    conn: Conn

    def becomes(self, *bullets: str, scope: UUID = GLOBAL_SCOPE) -> Changes:
        raw_memory = BLOCK + "".join(f"- {bullet}\n" for bullet in bullets)
        self.conn.execute(
            """
            insert into memsvc.stage1_outputs (
                tenant_id, source_id, store, thread_id, scope_id, source_updated_at, raw_memory, rollout_summary,
                generated_at, raw_memory_sha256, rollout_summary_sha256, row_sha256)
            values (memsvc.current_tenant(), %s, 'v1', 't', %s, now(), %s, '', now(), '', '', '')
            on conflict on constraint stage1_outputs_pkey do update set raw_memory = excluded.raw_memory
            """,
            [LOCAL_SOURCE, scope, raw_memory],
        )
        given = [StoredOutput("v1", "t", scope, raw_memory, "")]
        return statements.reconcile(self.conn, OWNER, LOCAL_SOURCE, given)

    def rows(self, where: str = "true") -> list[tuple[Any, ...]]:
        return self.conn.execute(
            f"select text, life, retired_because from memsvc.memories where kind = 'knowledge' and {where}"
            " order by text, life".encode()
        ).fetchall()

    def current(self) -> dict[str, UUID]:
        return dict(
            self.conn.execute(
                "select text, id from memsvc.memories where kind = 'knowledge' and retired_at is null"
            ).fetchall()
        )

    def lines(self, text: str) -> list[int]:
        row = self.conn.execute(
            "select e.locator -> 'lines' from memsvc.evidence e join memsvc.memories m on m.id = e.memory_id"
            " where m.text = %s and m.retired_at is null",
            [text],
        ).fetchone()
        assert row is not None
        return list(row[0])


@pytest.fixture
def output(conn: Conn) -> Output:
    return Output(conn)


def test_deriving_again_changes_nothing(output: Output) -> None:
    output.becomes("one", "two")
    before = output.current()

    again = output.becomes("one", "two")

    assert again.added == []
    assert again.retired == []
    assert output.current() == before


def test_an_inserted_line_renames_nothing_and_moves_places(output: Output) -> None:
    output.becomes("one", "two")
    before = output.current()
    assert output.lines("two") == [8, 8]

    output.becomes("zero", "one", "two")

    assert {text: output.current()[text] for text in ("one", "two")} == before
    assert output.lines("two") == [9, 9]


def test_a_line_that_is_gone_is_retired(output: Output) -> None:
    output.becomes("one", "two")

    output.becomes("one")

    assert output.rows() == [("one", 0, None), ("two", 0, "the line is gone")]


def test_a_line_that_comes_back_is_the_next_life(output: Output) -> None:
    output.becomes("one")
    first = output.current()["one"]
    output.becomes("two")

    output.becomes("one", "two")

    second = output.current()["one"]
    assert second != first
    assert output.rows("text = 'one'") == [("one", 0, "the line is gone"), ("one", 1, None)]
    successor = output.conn.execute("select superseded_by from memsvc.memories where id = %s", [first]).fetchone()
    assert successor == (second,)


def test_equal_lines_are_told_apart_by_their_order(output: Output) -> None:
    output.becomes("same", "same")

    assert len(output.rows("retired_at is null")) == 2
    output.becomes("same")
    assert len(output.rows("retired_at is null")) == 1


def test_what_a_person_retired_stays_retired(output: Output) -> None:
    output.becomes("one", "two")
    output.conn.execute(
        "update memsvc.memories set retired_at = now(), retired_by = %s, retired_because = 'wrong' where text = 'one'",
        [OWNER.principal_id],
    )

    output.becomes("two")
    changes = output.becomes("one", "two")

    assert changes.added == []
    assert set(output.current()) == {"two"}


def test_a_line_that_turns_into_a_guess_is_classified_anew(output: Output) -> None:
    output.becomes("the cache is cold", "two")
    output.becomes("the cache is probably cold", "two")

    statuses: dict[str, str] = dict(
        output.conn.execute(
            "select text, status from memsvc.memories where kind = 'knowledge' and retired_at is null"
        ).fetchall()
    )

    assert statuses == {"the cache is probably cold": "assumption", "two": "inference"}


def test_ids_are_made_of_where_and_what(output: Output) -> None:
    changes = output.becomes("one")
    known = statements.compare(OWNER.tenant_id, LOCAL_SOURCE, changes.added[0].output, [])
    elsewhere = statements.compare(OWNER.tenant_id, uuid4(), changes.added[0].output, [])

    assert [found.id for found in known.added] == [found.id for found in changes.added]
    assert {found.id for found in elsewhere.added}.isdisjoint(found.id for found in known.added)
