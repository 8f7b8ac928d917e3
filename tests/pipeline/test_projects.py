"""What is learnt of a project late ends as if it had been known from the beginning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memsvc.db.pool import Pool
from memsvc.memory import scopes
from memsvc.memory.remembered import NewMemory, remember
from memsvc.model.principal import OWNER
from memsvc.model.scope import Alias, ProjectIdentity
from memsvc.pipeline.ingest import ingest
from memsvc.service import where
from tests.conftest import copied
from tests.importers.codex_home import OUTPUTS, THREADS, Value, database, output, thread
from tests.snapshots import snapshot

WITH_ORIGIN = THREADS.replace("cwd TEXT", "git_origin_url TEXT, cwd TEXT")
MEMORY = "---\ncwd: {cwd}\n---\n- {said}\n"
ORCHARD = "git@example.invalid:fruit/orchard.git"


@pytest.fixture
def another(server: str, template: str) -> Iterator[Pool]:
    """Connections to a second database of the test's own."""
    with copied(server, template) as conninfo:
        opened = Pool(conninfo)
        yield opened
        opened.close()


def home(folder: Path, *sessions: tuple[str, str, str | None]) -> Path:
    """A home with sessions of these ids, folders and git origins, each of which taught one thing."""
    outputs = [output(name, raw_memory=MEMORY.format(cwd=cwd, said=f"taught by {name}")) for name, cwd, _ in sessions]
    threads: list[dict[str, Value]] = [thread(name, cwd=cwd, git_origin_url=origin) for name, cwd, origin in sessions]
    database(folder / "memories_1.sqlite", OUTPUTS, outputs=outputs)
    database(folder / "state_5.sqlite", WITH_ORIGIN, threads=threads)
    return folder


def imported(pool: Pool, *paths: Path) -> None:
    for path in paths:
        ingest(pool, OWNER, "codex", path, host="here", label="home")


def known(pool: Pool) -> dict[str, list[Any]]:
    """Everything but ids and times that an order of imports must not change; retired rows are history."""
    queries = {
        "threads": "select t.id, s.name, t.found_in, t.row_sha256 from memsvc.threads t"
        " join memsvc.scopes s on s.id = t.scope_id order by t.id",
        "outputs": "select o.store, o.thread_id, s.name, o.row_sha256 from memsvc.stage1_outputs o"
        " join memsvc.scopes s on s.id = o.scope_id order by o.store, o.thread_id",
        "memories": "select s.name, m.store, m.thread_id, m.text, m.kind, m.status from memsvc.memories m"
        " join memsvc.scopes s on s.id = m.scope_id where m.retired_at is null"
        " order by m.store, m.thread_id, m.ordinal, m.text",
        "aliases": "select a.kind, a.host, a.value, s.name from memsvc.scope_aliases a"
        " join memsvc.scopes s on s.id = a.scope_id where a.kind <> 'explicit' order by a.kind, a.host, a.value",
    }
    with pool.transaction(OWNER) as conn:
        return {name: conn.execute(query.encode()).fetchall() for name, query in queries.items()}


def memories(pool: Pool) -> list[Any]:
    with pool.transaction(OWNER) as conn:
        return conn.execute("select id, text, retired_at from memsvc.memories order by id").fetchall()


def names(pool: Pool) -> list[str]:
    with pool.transaction(OWNER) as conn:
        return [scope.name for scope in scopes.readable(conn) if scope.kind == "project"]


def test_a_late_git_origin_gives_what_an_early_one_gives(pool: Pool, another: Pool, tmp_path: Path) -> None:
    whole = home(tmp_path, ("t", "/src/orchard", ORCHARD), ("u", "/src/kiln", None))
    imported(pool, whole / "memories_1.sqlite")
    assert names(pool) == ["/src/kiln", "/src/orchard"]
    before = memories(pool)

    imported(pool, whole)
    imported(another, whole)

    assert known(pool) == known(another)
    assert names(pool) == names(another) == ["/src/kiln", "example.invalid/fruit/orchard"]
    assert memories(pool) == before


def test_the_old_name_still_means_the_project(pool: Pool, tmp_path: Path) -> None:
    whole = home(tmp_path, ("t", "/src/orchard", ORCHARD))
    imported(pool, whole / "memories_1.sqlite", whole)

    with pool.transaction(OWNER) as conn:
        for host in ("here", "elsewhere"):
            found = where.named(conn, "project:/src/orchard", host=host)
            assert found.name == "example.invalid/fruit/orchard"


def test_two_repositories_that_lay_in_one_folder_come_apart(pool: Pool, another: Pool, tmp_path: Path) -> None:
    kiln = "https://example.invalid/clay/kiln"
    whole = home(tmp_path, ("t", "/workspace", ORCHARD), ("u", "/workspace", kiln))
    imported(pool, whole / "memories_1.sqlite", whole)
    imported(another, whole)

    assert known(pool) == known(another)
    assert names(pool) == ["example.invalid/clay/kiln", "example.invalid/fruit/orchard"]


def test_several_folders_of_one_repository_come_together(pool: Pool, another: Pool, tmp_path: Path) -> None:
    whole = home(tmp_path, ("t", "/src/orchard", ORCHARD), ("u", "/src/orchard-2", ORCHARD))
    imported(pool, whole / "memories_1.sqlite", whole)
    imported(another, whole)

    assert known(pool) == known(another)


def test_a_folder_in_which_something_was_remembered_stays(pool: Pool, tmp_path: Path) -> None:
    whole = home(tmp_path, ("t", "/src/orchard", ORCHARD), ("u", "/src/orchard-2", ORCHARD))
    imported(pool, whole / "memories_1.sqlite")
    with pool.transaction(OWNER) as conn:
        own = scopes.named(conn, "project", "/src/orchard-2")
        assert own is not None
        said = "the second tree is for grafting"
        remember(conn, NewMemory(own.id, said, kind="note", status="inference", origin="human"))

    imported(pool, whole)

    with pool.transaction(OWNER) as conn:
        assert where.named(conn, "project:/src/orchard-2", host="here") == own


def test_a_project_that_a_person_named_keeps_its_name(pool: Pool, tmp_path: Path) -> None:
    with pool.transaction(OWNER) as conn:
        given = ProjectIdentity((Alias("cwd", "here", "/src/orchard"),))
        scopes.ensure_project(conn, given, name="the orchard", alternative="x")

    imported(pool, home(tmp_path, ("t", "/src/orchard", ORCHARD)))

    assert names(pool) == ["the orchard"]


def test_a_name_that_another_project_holds_is_left_to_it(pool: Pool, tmp_path: Path) -> None:
    whole = home(tmp_path, ("t", "/src/orchard", ORCHARD))
    imported(pool, whole / "memories_1.sqlite")
    with pool.transaction(OWNER) as conn:
        scopes.add(conn, "project", "example.invalid/fruit/orchard")

    imported(pool, whole)

    assert names(pool) == ["example.invalid/fruit/orchard", "here:example.invalid/fruit/orchard"]


def test_a_real_home_is_the_same_in_both_orders(pool: Pool, another: Pool, tmp_path: Path) -> None:
    whole = snapshot("0.135.0", "02-closed", tmp_path)
    imported(pool, whole / "memories_1.sqlite", whole)
    imported(another, whole)

    assert known(pool) == known(another)
