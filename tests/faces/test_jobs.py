"""`memsvc jobs` as a user meets it: real processes, one JSON document, errors that name the mend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memsvc.service.app import App
from tests.snapshots import snapshot

MEMSVC = str(Path(sys.executable).parent / "memsvc")
STAGE1 = "memory_stage1"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(dsn: str, tmp_path: Path) -> Run:
    environment = {
        **os.environ,
        "MEMSVC_DATABASE_URL": dsn,
        "MEMSVC_DATA_DIR": str(tmp_path / "data"),
        "MEMSVC_EMBEDDER": "hash:64",
        "HOME": str(tmp_path),
    }

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [MEMSVC, *words], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return call


@pytest.fixture
def imported(run: Run, tmp_path: Path) -> Run:
    """A ledger with the history of a real export, and embedding jobs that are due."""
    home = snapshot("0.135.0", "04-killed", tmp_path / "exports")
    assert run("import", "codex", str(home), "--no-embed").returncode == 0
    return run


def document(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ls_pages_through_all_jobs(imported: Run) -> None:
    seen: list[Any] = []
    words: list[str] = []
    while True:
        page = document(imported("jobs", "ls", "--limit", "12", "--json", *words))
        seen += page["jobs"]
        if page["cursor"] is None:
            break
        words = ["--cursor", page["cursor"]]

    assert len(seen) == len({(job["store"], job["kind"], job["job_key"]) for job in seen}) == 33
    live = document(imported("jobs", "ls", "--live", "--json"))["jobs"]
    assert {job["kind"] for job in live} == {"memory_embed"}
    assert "ownership_token" not in live[0]
    assert imported("jobs", "ls", "--cursor", "nonsense").returncode == 2
    assert imported("jobs", "ls", "--limit", "0").returncode == 2


def test_history_is_retried_as_live_twins(imported: Run) -> None:
    before = document(imported("jobs", "ls", "--imported", "--json"))

    dry = document(imported("jobs", "retry", STAGE1, "--imported", "--dry-run", "--json"))
    assert document(imported("jobs", "ls", "--live", "--kind", STAGE1, "--json"))["jobs"] == []
    wet = document(imported("jobs", "retry", STAGE1, "--imported", "--json"))

    assert (len(dry["jobs"]), dry["dry_run"]) == (5, True)
    assert wet == {**dry, "dry_run": False}
    assert document(imported("jobs", "ls", "--imported", "--json")) == before
    live = document(imported("jobs", "ls", "--live", "--kind", STAGE1, "--json"))["jobs"]
    assert {job["status"] for job in live} == {"pending"}
    assert document(imported("jobs", "retry", STAGE1, "--imported", "--json"))["jobs"] == []


def test_one_job_is_cancelled_explained_and_tried_again(imported: Run) -> None:
    job = document(imported("jobs", "ls", "--live", "--limit", "1", "--json"))["jobs"][0]
    name = [job["kind"], job["job_key"]]

    due = document(imported("jobs", "explain", *name, "--json"))["explanation"]
    assert (due["code"], due["mend"]) == ("due", "memsvc worker --kinds memory_embed")
    document(imported("jobs", "cancel", *name, "--json"))
    again = imported("jobs", "cancel", *name)
    assert again.returncode == 5
    assert again.stderr.endswith(f"mend: memsvc jobs retry {' '.join(name)} --source codex\n")
    document(imported("jobs", "retry", *name, "--json"))
    document(imported("worker", "--once", "--json", "--kinds", "memory_embed", "--concurrency", "2", "--grace", "5"))

    shown = document(imported("jobs", "show", *name, "--json"))
    assert shown["job"]["status"] == "done"
    assert [one["outcome"] for one in shown["attempts"]] == ["done"]
    assert shown["explanation"]["code"] == "up-to-date"
    assert "up-to-date: done" in imported("jobs", "show", *name).stdout


def test_what_is_not_there_or_not_clear_is_said(imported: Run) -> None:
    absent = imported("jobs", "show", STAGE1, "no such", "--json")
    assert absent.returncode == 3
    assert json.loads(absent.stdout)["error"]["mend"] == f"memsvc jobs ls --kind {STAGE1}"
    unknown = imported("worker", "--kinds", "memory_dream")
    assert unknown.returncode == 2
    assert "memory_dream" in unknown.stderr
    assert imported("worker", "--once", "--concurrency", "0").returncode == 2
    assert "nothing of that kind" in imported("jobs", "retry", "memory_dream").stdout


def test_a_watch_off_the_terminal_ends(imported: Run) -> None:
    once = imported("jobs", "watch")
    assert once.returncode == 0
    assert "memory_embed" in once.stdout
    assert "no worker is seen" in once.stdout

    thrice = imported("jobs", "watch", "--every", "0.1", "--for", "0.25")
    assert thrice.stdout.count("no worker is seen") >= 3
    assert document(imported("jobs", "watch", "--json"))["live_jobs"]["memory_embed"]["pending"] == 13


def test_one_key_in_two_places_is_a_conflict_that_names_them(run: Run, app: App) -> None:
    with app.pool.transaction(app.actor) as conn:
        for store in ("v1", "v2"):
            conn.execute(
                "insert into memsvc.jobs (tenant_id, source_id, store, kind, job_key, status, retry_remaining)"
                " select tenant_id, id, %s, 'k', 'j', 'error', 0 from memsvc.sources where label = 'local'",
                [store],
            )

    unclear = run("jobs", "explain", "k", "j")
    assert unclear.returncode == 5
    assert "--source local --store v1; --source local --store v2" in unclear.stderr
    assert document(run("jobs", "retry", "k", "j", "--store", "v2", "--json"))["jobs"] == [
        {"source": "local", "kind": "k", "job_key": "j"}
    ]
    assert document(run("jobs", "explain", "k", "j", "--json"))["job"]["live"] is True
