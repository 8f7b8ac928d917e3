"""The command line as a user meets it: real processes, real exit statuses, one JSON document."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from memsvc import errors
from memsvc.db import embedded
from memsvc.errors import MemsvcError
from memsvc.faces.printable import printable
from memsvc.faces.translate import EXIT_STATUS
from memsvc.settings import Settings
from tests.snapshots import snapshot

MEMSVC = str(Path(sys.executable).parent / "memsvc")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(dsn: str, tmp_path: Path) -> Run:
    """Run memsvc against a database of the test's own, with the model that is for tests."""
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {
        **os.environ,
        "MEMSVC_DATABASE_URL": dsn,
        "MEMSVC_DATA_DIR": str(tmp_path / "data"),
        "MEMSVC_EMBEDDER": "hash:64",
        "HOME": str(tmp_path),
    }

    def call(*words: str, stdin: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [MEMSVC, *words],
            env={**environment, **extra},
            cwd=folder,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    return call


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return snapshot("0.135.0", "04-killed", tmp_path / "exports")


def document(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_prints_the_report(run: Run, home: Path) -> None:
    report = document(run("import", "codex", str(home), "--json"))

    assert report["source"] == "codex"
    assert report["outputs"] == {"inserted": 13, "updated": 0, "unchanged": 0, "older": 0, "rejected": 0}
    assert report["jobs"]["inserted"] == 20
    assert report["threads"]["inserted"] == 26
    assert report["memories"]["inserted"] > 60
    assert report["rejected"] == []
    assert report["embedding_jobs"] == 13


def test_a_dry_run_of_an_import_leaves_nothing_behind(run: Run, home: Path) -> None:
    dry = document(run("import", "codex", str(home), "--dry-run", "--json"))

    assert (dry["dry_run"], dry["outputs"]["inserted"], dry["embedding_jobs"]) == (True, 13, 0)
    assert document(run("import", "status", "--json")) == {"runs": []}
    assert "dry run: nothing was written" in run("import", "codex", str(home), "--dry-run").stdout
    assert [source["label"] for source in document(run("status", "--json"))["sources"]] == ["local"]


def test_status_counts_history_and_live_jobs_apart(run: Run, home: Path) -> None:
    document(run("import", "codex", str(home), "--no-embed", "--json"))

    before = document(run("status", "--json"))
    document(run("worker", "--once", "--json"))
    after = document(run("status", "--json"))

    assert before["jobs"]["memory_stage1"] == {"pending": 0, "running": 2, "done": 14, "error": 3}
    assert before["jobs"]["memory_consolidate_global"] == {"pending": 1, "running": 0, "done": 0, "error": 0}
    assert before["live_jobs"] == {"memory_embed": {"pending": 13, "running": 0, "done": 0, "error": 0}}
    assert before["expired_leases"] == 0
    assert before["coverage"]["embedded"] == 0
    assert after["live_jobs"] == {"memory_embed": {"pending": 0, "running": 0, "done": 13, "error": 0}}
    assert after["coverage"]["embedded"] == after["coverage"]["total"] == before["coverage"]["total"]
    assert [source["label"] for source in after["sources"]] == ["codex", "local"]
    shown = run("status").stdout
    assert "unknown field `confidence`" in shown
    assert "2 retries left when it was exported" in shown


def test_an_import_names_the_embedding_jobs_that_failed(run: Run, home: Path, dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(
            "insert into memsvc.embedding_models (tenant_id, name, dimension, max_tokens)"
            " select id, 'hash:64', 9, 256 from memsvc.tenants"
        )

    report = document(run("import", "codex", str(home), "--json"))

    assert (report["embedding_jobs"], report["embedding_failed"]) == (0, 13)
    reason = "the model 'hash:64' is recorded with 9 dimensions and gives 64"
    assert sum(reason in warning for warning in report["warnings"]) == 13
    assert report["warnings"][-1].startswith("failed jobs are tried again after a pause: memsvc worker --once")
    assert reason in run("import", "codex", str(home)).stdout


def test_an_import_without_its_model_says_so_and_succeeds(run: Run, home: Path) -> None:
    done = run("import", "codex", str(home), MEMSVC_EMBEDDER="onnx:/nowhere")

    assert done.returncode == 0
    assert "note: not embedded, found by words only: /nowhere is not a folder (mend: set MEMSVC_EMBEDDER" in done.stdout
    shown = run("status", MEMSVC_EMBEDDER="onnx:/nowhere").stdout
    assert "model: /nowhere is not a folder" in shown
    assert "mend: set MEMSVC_EMBEDDER to a model that is there" in shown
    asked = run("recall", "nightly backup", "--scope", "all", MEMSVC_EMBEDDER="st:/nowhere")
    assert asked.returncode == 0
    assert "note: found by words only: /nowhere is not a folder" in asked.stdout


def test_off_a_terminal_progress_has_no_control_characters(run: Run, home: Path) -> None:
    imported = run("import", "codex", str(home), "--no-embed")
    worked = run("worker", "--once")

    for done in (imported, worked):
        assert done.returncode == 0
        assert not set(done.stdout + done.stderr) & {"\x1b", "\r", "\x08"}
    assert worked.stdout == "13 done, 0 failed, 0 lost, 0 given back\n"
    assert run("worker", "--once", "--json").stderr == ""


def test_on_a_terminal_a_bar_tells_how_fast_it_goes(run: Run, home: Path, dsn: str, tmp_path: Path) -> None:
    document(run("import", "codex", str(home), "--no-embed", "--json"))
    ours, theirs = pty.openpty()
    environment = {**os.environ, "MEMSVC_DATABASE_URL": dsn, "MEMSVC_EMBEDDER": "hash:64", "TERM": "xterm"}
    worker = subprocess.Popen(
        [MEMSVC, "worker", "--once"], env={**environment, "COLUMNS": "120"}, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    seen = b""
    with suppress(OSError):  # what Linux answers when nobody has the other end any more
        while piece := os.read(ours, 65536):
            seen += piece
    os.close(ours)
    out, _ = worker.communicate()

    assert out == b"13 done, 0 failed, 0 lost, 0 given back\n"
    assert re.search(rb"embedding memories.* \d+ of \d+, [\d.]+ a second, 0:00:\d\d left", seen)


def test_models_are_listed_and_dropped(run: Run, home: Path) -> None:
    document(run("import", "codex", str(home), "--json"))
    document(run("worker", "--once", "--json", MEMSVC_EMBEDDER="hash:32"))

    listed = document(run("models", "ls", "--json"))
    refused = run("models", "drop", "hash:64")
    dry = document(run("models", "drop", "hash:32", "--dry-run", "--json"))
    dropped = run("models", "drop", "hash:32")

    total = listed["models"][0]["total"]
    assert listed["models"] == [
        {"name": "hash:32", "dimension": 32, "embedded": total, "total": total, "current": False},
        {"name": "hash:64", "dimension": 64, "embedded": total, "total": total, "current": True},
    ]
    assert (refused.returncode, "hash:64 is the model in use" in refused.stderr) == (2, True)
    assert (dry["name"], dry["dry_run"], dry["vectors"] > 60) == ("hash:32", True, True)
    assert dropped.stdout == f"hash:32: {dry['vectors']} vectors deleted\n"
    assert run("models", "drop", "hash:32").returncode == 3
    assert run("models", "ls").stdout.split() == [
        "model", "dimension", "memories", "hash:64", "64", *f"{total} of {total}".split(), "in", "use"
    ]  # fmt: skip


def test_recall_names_the_contracts_fields(run: Run, home: Path) -> None:
    document(run("import", "codex", str(home), "--json"))

    answer = document(run("recall", "nightly", "backup", "--scope", "all", "--limit", "3", "--json"))

    assert answer["query"] == "nightly backup"
    assert len(answer["hits"]) == 3
    assert answer["coverage"]["embedded"] == answer["coverage"]["total"]
    first = answer["hits"][0]
    assert {
        "id", "text", "kind", "status", "scope", "score", "ranks", "source", "recorded_at", "source_updated_at"
    } <= set(first)  # fmt: skip
    assert set(first["ranks"]) == {"vector", "text", "recency"}
    assert first["source"]["importer"] == "codex"
    assert first["source"]["thread_id"] == "01a22e3f-8e5c-7760-862b-eea2dc375b3a"
    assert first["source"]["path"].endswith(".jsonl")
    assert first["source"]["lines"].startswith("raw_memory ")
    assert first["scope"] == "project:git.example.invalid/fruit/orchard-api"


def test_remember_show_and_recall_in_a_folder(run: Run, tmp_path: Path) -> None:
    made = document(run("remember", "Deploys go through make ship", "--kind", "preference", "--json"))

    assert made["created"] is True
    assert (made["status"], made["kind"], made["scope"]) == ("fact", "preference", f"project:{tmp_path / 'work'}")
    again = document(run("remember", "Deploys  go through make ship", "--json"))
    assert (again["id"], again["created"]) == (made["id"], False)
    shown = document(run("show", made["id"], "--json"))
    assert shown["memory"]["text"] == "Deploys go through make ship"
    assert [evidence["kind"] for evidence in shown["evidence"]] == ["person"]
    answer = document(run("recall", "how do deploys go", "--json"))
    assert answer["scopes"] == [f"project:{tmp_path / 'work'}", "global"]
    assert answer["hits"][0]["id"] == made["id"]
    assert answer["hits"][0]["author"] == "owner"


def test_remember_takes_its_fields(run: Run) -> None:
    made = document(
        run(
            "remember",
            "-",
            "--scope",
            "global",
            "--status",
            "assumption",
            "--session",
            "s1",
            "--ordinal",
            "7",
            "--speaker",
            "Ada",
            "--observed-at",
            "2026-03-01",
            "--valid-from",
            "2026-03-01T12:00:00+01:00",
            "--valid-until",
            "2036-01-01",
            "--idempotency-key",
            "k1",
            "--json",
            stdin="Ada thinks the kiln is slow\n",
        )
    )

    memory = document(run("show", made["id"], "--json"))["memory"]

    assert memory["text"] == "Ada thinks the kiln is slow"
    assert (memory["session"], memory["ordinal"], memory["speaker"]) == ("s1", 7, "Ada")
    assert memory["observed_at"] == "2026-03-01T00:00:00+00:00"
    assert memory["valid_from"] == "2026-03-01T11:00:00+00:00"
    assert memory["status"] == "assumption"
    clash = run("remember", "something else", "--scope", "global", "--idempotency-key", "k1", "--json")
    assert clash.returncode == 5
    assert json.loads(clash.stdout)["error"]["code"] == "conflict"


@pytest.mark.parametrize(
    ("words", "status", "code", "said"),
    [
        (("recall", "   "), 2, "wrong-use", "the query is empty"),
        (("recall", "x" * 20_001), 2, "wrong-use", "20000 is the most"),
        (("recall", "x", "--limit", "0"), 2, "wrong-use", "it goes from 1 to 200"),
        (("recall", "x", "--scope", "project:nowhere"), 3, "not-found", "no scope 'project:nowhere'"),
        (("recall", "x", "--scope", "galaxy"), 2, "wrong-use", "'galaxy' names no scope"),
        (("remember", " "), 2, "wrong-use", "nothing to remember"),
        (("remember", "x", "--scope", "all"), 2, "wrong-use", "one scope"),
        (("remember", "x", "--valid-from", "2026-01-02", "--valid-until", "2026-01-01"), 2, "wrong-use", "valid_until"),
        (("remember", "x", "--observed-at", "yesterday"), 2, "wrong-use", "ISO 8601"),
        (("show", "not-an-id"), 3, "not-found", "no memory not-an-id"),
        (("show", "00000000-0000-4000-8000-000000000000"), 3, "not-found", "no memory"),
        (("import", "codex", "/nonexistent"), 1, "bad-export", "/nonexistent"),
        (("frobnicate",), 2, "wrong-use", "No such command"),
        (("down",), 2, "wrong-use", "did not start"),
    ],
)
def test_errors_name_cause_and_status(run: Run, words: tuple[str, ...], status: int, code: str, said: str) -> None:
    plain, as_json = run(*words), run(*words, "--json")

    assert plain.returncode == as_json.returncode == status
    assert plain.stdout == ""
    assert said in plain.stderr
    assert "Traceback" not in plain.stderr
    error = json.loads(as_json.stdout)["error"]
    assert error["code"] == code
    assert said in error["message"]


def test_a_database_that_is_not_there_is_a_clear_error(run: Run) -> None:
    done = run("status", MEMSVC_DATABASE_URL="postgresql://somebody:hush@127.0.0.1:1/none")

    assert done.returncode == 1
    assert "cannot be reached" in done.stderr
    assert "hush" not in done.stderr + done.stdout


def test_a_key_that_nobody_knows_is_refused(run: Run) -> None:
    assert run("recall", "x", MEMSVC_API_KEY="msk_unknown").returncode == 4


def test_no_memory_steers_the_terminal(run: Run) -> None:
    document(run("remember", "red \x1b[31malert\x1b[0m and \u202ebackwards", "--scope", "global", "--json"))

    shown = run("recall", "red alert", "--scope", "global").stdout

    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "red \\x1b[31malert\\x1b[0m and \\u202ebackwards" in shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\tand tab", "two\nlines\tand tab"),
        ("bell \x07 escape \x1b[2J", "bell \\x07 escape \\x1b[2J"),
        ("c1 \x9b31m", "c1 \\x9b31m"),
        ("family 👩\u200d🚀", "family 👩\u200d🚀"),
        ("turned \u2066x\u2069", "turned \\u2066x\\u2069"),
        ("line\u2028separator", "line\\u2028separator"),
        ("carriage\rreturn", "carriage\\x0dreturn"),
    ],
)
def test_printable(given: str, shown: str) -> None:
    assert printable(given) == shown


def test_every_error_has_an_exit_status() -> None:
    def children(root: type[MemsvcError]) -> Iterator[type[MemsvcError]]:
        for child in root.__subclasses__():
            yield child
            yield from children(child)

    assert {child.code for child in children(errors.MemsvcError)} | {"failed"} == set(EXIT_STATUS)


def test_help_takes_little_time() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([MEMSVC, "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)

    assert (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) < 0.3


def test_a_closed_pipe_is_no_traceback(run: Run, home: Path, dsn: str) -> None:
    document(run("import", "codex", str(home), "--json"))

    done = subprocess.run(
        f"'{MEMSVC}' recall backup --scope all --limit 100 | head -n 1",
        shell=True,
        env={**os.environ, "MEMSVC_DATABASE_URL": dsn, "MEMSVC_EMBEDDER": "hash:64"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_up_and_down_on_the_embedded_database(tmp_path: Path) -> None:
    environment = {**os.environ, "MEMSVC_DATA_DIR": str(tmp_path / "data"), "HOME": str(tmp_path)}

    def call(*words: str) -> Any:
        done = subprocess.run([MEMSVC, *words, "--json"], env=environment, capture_output=True, text=True, check=False)
        return document(done)

    try:
        first = call("up")
        second = call("up")
        health = call("doctor")
        stopped = [call("down"), call("down")]
    finally:
        embedded.stop(Settings(data_dir=tmp_path / "data"))

    assert first["embedded"] is True
    assert len(first["applied"]) >= 7
    assert second["applied"] == []
    assert health["ok"] is True
    assert {check["name"] for check in health["checks"]} >= {"model", "database", "pgvector", "migrations", "jobs"}
    assert stopped == [{"stopped": True}, {"stopped": False}]


def test_doctor_names_the_command_that_mends(run: Run, home: Path) -> None:
    document(run("import", "codex", str(home), "--no-embed", "--json"))

    done = run("doctor", "--json")

    assert done.returncode == 1
    wrong = [check for check in json.loads(done.stdout)["checks"] if not check["ok"]]
    assert [(check["name"], check["mend"]) for check in wrong] == [("coverage", "memsvc worker --once")]


def test_migrate_says_what_it_would_do(run: Run, tmp_path: Path) -> None:
    assert document(run("migrate", "--dry-run", "--json")) == {"applied": [], "indexed": [], "dry_run": True}
    written = document(run("migrate", "--emit", str(tmp_path / "out"), "--json"))["written"]
    assert sorted(Path(path).name for path in written) == sorted(path.name for path in (tmp_path / "out").iterdir())
