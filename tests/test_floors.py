"""A module imports from floors below its own; two packages on one floor do not know each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import memsvc
import memsvc_importers

FLOORS = {
    "errors": 0,
    "settings": 0,
    "model": 0,
    "importer": 1,
    "db": 1,
    "derivation": 1,
    "redaction": 1,
    "ledger": 2,
    "memory": 2,
    "embedding": 2,
    "workspace": 2,
    "recall": 3,
    "pipeline": 4,
    "service": 5,
    "faces": 6,
}
SEEN_BY_IMPORTERS = ("memsvc.errors", "memsvc.model", "memsvc.importer")

ROOT = Path(str(memsvc.__file__)).parent
IMPORTERS = Path(str(memsvc_importers.__file__)).parent


def imported(path: Path) -> Iterator[str]:
    """The modules of ours that a file names, in full."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0].startswith("memsvc"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0].startswith("memsvc"))


def room(module: str) -> str:
    """memsvc.db.pool lies in db."""
    return module.split(".")[1]


MODULES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem != "__init__")


def test_every_room_has_a_floor() -> None:
    rooms = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in MODULES}

    assert rooms <= set(FLOORS), "give the new package its floor"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_from_floors_below(path: Path) -> None:
    mine = path.relative_to(ROOT).parts[0].removesuffix(".py")

    for name in imported(path):
        theirs = room(name)
        if theirs in ("__version__", mine, "errors"):  # errors know nobody, so everybody may know them
            continue
        assert FLOORS[theirs] < FLOORS[mine], f"{path.name} on floor {FLOORS[mine]} imports {name}"


@pytest.mark.parametrize("path", sorted(IMPORTERS.rglob("*.py")), ids=lambda path: path.name)
def test_importer_sees_only_values_and_errors(path: Path) -> None:
    for name in imported(path):
        allowed = name.startswith(SEEN_BY_IMPORTERS) or name.startswith("memsvc_importers")
        assert allowed, f"{path.name} imports {name}"
