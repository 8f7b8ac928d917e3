"""Real Codex exports, unpacked where a test wants them."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any, cast

VERSIONS = ("0.135.0", "0.171.0-v2")
NAMES = ("01-live", "02-closed", "03-cited", "04-killed", "05-checkpointed")

_DATA = Path(__file__).parent / "data" / "codex"


def snapshot(version: str, name: str, into: Path) -> Path:
    """Unpack one snapshot; the folder that holds its SQLite files."""
    packed = _DATA / version / f"{name}.tar.gz"
    if packed.exists():
        _unpack(packed, into)
    else:
        shutil.copytree(_DATA / version / name, into / name)
    return into / name


def with_markdown(version: str, home: Path) -> Path:
    """Add the memory folder that Codex had written when snapshot 02 was taken; the same home."""
    (packed,) = (_DATA / version).glob("memories*-02.tar.gz")
    _unpack(packed, home)
    return home


def truth(version: str, name: str) -> dict[str, dict[str, Any]]:
    """What is known of a snapshot, by the name of the database."""
    known = json.loads((_DATA / version / "truth.json").read_text(encoding="utf-8"))
    return cast(dict[str, dict[str, Any]], known[name])


def _unpack(packed: Path, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(packed) as archive:
        archive.extractall(into, filter="data")
