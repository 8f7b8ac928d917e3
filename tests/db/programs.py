"""PostgreSQL's programs in a place of a test's own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from memsvc.db import binaries
from tests.conftest import embedded_in


def copied_programs(target: Path) -> Path:
    """A copy of the embedded PostgreSQL that knows no pgvector, as cheap as it can be; its bin folder comes back."""
    installed = binaries.bin_dir(embedded_in(target)).parent
    libraries = installed.parents[1] / f"{installed.parent.name}.libs"
    copy = target / installed.parent.name / installed.name
    shutil.copytree(installed, copy, copy_function=link, ignore=shutil.ignore_patterns("vector*", "include"))
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, copy_function=link)
    return copy / "bin"


def link(source: str, target: str) -> None:
    """A hard link, where the file system allows it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
