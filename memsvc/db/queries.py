"""SQL files: one next to each module that runs queries, one named query a function."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import LiteralString, cast

NAME = re.compile(r"^-- name: ([a-z_]+)\s*$", re.MULTILINE)


def load(module_file: str) -> Mapping[str, LiteralString]:
    """
    The queries of the .sql file with the stem of the module, by name.

    They count as literal: the file is part of the program, and values reach it as parameters only.
    """
    parts = NAME.split(Path(module_file).with_suffix(".sql").read_text(encoding="utf-8"))
    names, bodies = parts[1::2], parts[2::2]
    if len(set(names)) != len(names):
        raise ValueError(f"a query name stands twice beside {module_file}")
    return {name: cast(LiteralString, body.strip()) for name, body in zip(names, bodies, strict=True)}
