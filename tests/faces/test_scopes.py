"""The scope commands as a user meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MEMSVC = str(Path(sys.executable).parent / "memsvc")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(dsn: str, tmp_path: Path) -> Run:
    (tmp_path / "work").mkdir()
    environment = {**os.environ, "MEMSVC_DATABASE_URL": dsn, "MEMSVC_EMBEDDER": "hash:64", "HOME": str(tmp_path)}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [MEMSVC, "scope", *words],
            env=environment,
            cwd=tmp_path / "work",
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def document(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_scopes_are_added_named_and_listed(run: Run) -> None:
    assert document(run("add", "client:acme", "--json")) == {"scope": "client:acme", "client": None}
    added = document(run("add", "project:Pear 🍐", "--client", "acme", "--json"))
    assert added == {"scope": "project:Pear 🍐", "client": "client:acme"}
    named = document(run("alias", "project:Pear 🍐", "git@git.example:fruit/pear", "--json"))

    assert named["alias"] == {"kind": "git_origin", "host": "", "value": "git.example/fruit/pear"}
    project = document(run("ls", "--json"))["scopes"][2]
    assert project == {
        "scope": "project:Pear 🍐", "kind": "project", "name": "Pear 🍐", "client": "acme",
        "aliases": [named["alias"]], "memories": 0,
    }  # fmt: skip
    assert "git_origin git.example/fruit/pear" in run("ls").stdout


def test_resolve_explains_the_current_folder(run: Run, tmp_path: Path) -> None:
    found = document(run("resolve", "--json"))

    assert set(found) == {"folder", "host", "git", "marks", "scope", "would_create", "notes"}
    assert found["folder"] == str(tmp_path / "work")
    assert found["would_create"]["scope"] == f"project:{tmp_path / 'work'}"
    assert "remember would make" in run("resolve").stdout
    document(run("add", "project:p", "--json"))
    document(run("alias", "project:p", ".", "--json"))
    assert document(run("resolve", "--json"))["scope"] == "project:p"
    assert "decides: project:p (as explicit alias)" in run("resolve", str(tmp_path / "work" / "below")).stdout


def test_what_is_shown_cannot_steer_the_terminal(run: Run) -> None:
    document(run("add", "project:[red]\x1b[31m", "--json"))

    assert "project:[red]\\x1b[31m" in run("ls").stdout


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("add", "planet:earth"), 2, "wrong-use"),
        (("add", "project:p", "--client", "absent"), 3, "not-found"),
        (("alias", "project:absent", "x"), 3, "not-found"),
        (("resolve", "~no-such-person"), 2, "wrong-use"),
    ],
)
def test_errors_have_their_exit_status(run: Run, words: tuple[str, ...], status: int, code: str) -> None:
    done = run(*words, "--json")

    assert done.returncode == status
    assert json.loads(done.stdout)["error"]["code"] == code


def test_a_scope_is_added_once(run: Run) -> None:
    run("add", "project:p")

    assert run("add", "project:p").returncode == 5
