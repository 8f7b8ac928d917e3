"""Which files of a Codex home hold memory, and what the stores in them are called."""

from __future__ import annotations

import re
from pathlib import Path

MARKDOWN_FOLDERS = ("memories", "memories_extensions", "memories_v2")

_STORES = {"memories_1": "v1", "memories_v2_1": "v2"}
_DATABASE = re.compile(r".+_\d+\.sqlite|state\.sqlite")
_STATE = re.compile(r"state(?:_(\d+))?\.sqlite")
# Logs and the projection of the rollouts grow to many GB, and have never held a memory table.
_TOO_BIG = re.compile(r"(?:logs|thread_history)(?:_\d+)?\.sqlite")
# The jobs of this store are live work; an export is never more than history.
_LIVE = "memsvc"


def databases(home: Path) -> list[Path]:
    """The SQLite files directly in a folder that may hold memory tables, by name."""
    return sorted(
        file
        for file in home.iterdir()
        if _DATABASE.fullmatch(file.name) and not _TOO_BIG.fullmatch(file.name) and file.is_file()
    )


def is_log(name: str) -> bool:
    """Whether Codex keeps its logs in a file of that name."""
    return re.fullmatch(r"logs_.*\.sqlite", name) is not None


def store(file: Path) -> str:
    """The name of the store in a file: `v1`, `v2`, and else the file's name without its ending."""
    name = _STORES.get(file.stem, file.stem)
    return f"{name}_file" if name == _LIVE else name


def state_number(name: str) -> int | None:
    """The N of `state_N.sqlite`, 0 for `state.sqlite`, None for any other file."""
    match = _STATE.fullmatch(name)
    return None if match is None else int(match[1] or 0)
