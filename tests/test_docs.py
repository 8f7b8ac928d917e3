"""What the documents name exists, what exists is named, and what they show runs as printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import memsvc
from memsvc.faces.cli import cli
from tests.snapshots import snapshot

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SETTING = re.compile(r"\b(?:MEMSVC|CODEX)_[A-Z_]*[A-Z]\b")
FOR_TESTS_AND_COMPOSE = ("MEMSVC_TEST_DATABASE_URL", "MEMSVC_DB_PASSWORD", "MEMSVC_DB_PORT")

pytestmark = pytest.mark.skipif(not (ROOT / "README.md").exists(), reason="the documents are not beside the tests")


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


COMMANDS = dict(commands(cli))


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_and_option_is_documented(words: tuple[str, ...]) -> None:
    document = text(ROOT / "docs" / "command-line.md")

    assert f"memsvc {' '.join(words)}" in document
    for parameter in COMMANDS[words].params:
        for option in parameter.opts:
            if option.startswith("--"):
                assert f"`{option}" in document, option


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_documented_command_exists(path: Path) -> None:
    known = set(COMMANDS) | {words[:1] for words in COMMANDS}
    for line in re.findall(r"`memsvc ([a-z][a-z -]*)", text(path)):
        words = tuple(word for word in line.split() if not word.startswith("-"))
        assert words[:1] in known or words[:2] in known, line


def test_every_setting_is_documented_and_every_documented_setting_is_read() -> None:
    package = Path(str(memsvc.__file__)).parent
    read = {name for path in package.rglob("*.py") for name in SETTING.findall(text(path))}
    documented = {name for path in DOCUMENTS for name in SETTING.findall(text(path))}

    assert read - documented == set()
    assert documented - read - set(FOR_TESTS_AND_COMPOSE) == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", text(path)):
        assert (path.parent / target).exists(), target


def shown_commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", text(ROOT / "README.md"), re.DOTALL)
    return [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]


def test_the_readme_shows_what_is_tested_here() -> None:
    assert shown_commands() == [
        "make demo",
        "make test",
        "pip install .",
        "memsvc import codex ~/.codex",
        'memsvc recall "how do we deploy the orchard api"',
    ]


def test_the_readmes_commands_run_as_printed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(snapshot("0.135.0", "05-checkpointed", tmp_path), home / ".codex")
    environment = {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_DATA_HOME": str(home / "data"),
    }

    def run(command: str) -> str:
        done = subprocess.run(
            ["/bin/sh", "-c", command], env=environment, cwd=home, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        answers = [run(command) for command in shown_commands() if command.startswith("memsvc")]
    finally:
        run("memsvc down")

    assert "outputs  13" in answers[0]
    assert "masking happens in `deploy/log.py`" in answers[1]
    assert (home / "data" / "memsvc").is_dir()
