"""One hash over everything that an export is read from, by which the same export is known without reading its rows."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from memsvc_importers import codex_copy, codex_files, codex_layout


def digest(home: Path, databases: Sequence[Path]) -> bytes:
    """
    sha-256 over names and contents: of the databases, their sidecars, and the files in the memory folders of a home.

    Raises:
        OSError: one of them cannot be read.
    """
    odd: list[str] = []
    whole = hashlib.sha256()
    for name, file in [*_databases(databases), *_files(home, odd)]:
        with file.open("rb") as opened:
            _add(whole, os.fsencode(name), hashlib.file_digest(opened, "sha256").digest())
    _add(whole, *map(os.fsencode, odd))
    return whole.digest()


def _databases(databases: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    for database in databases:
        yield database.name, database
        for suffix in codex_copy.SIDECARS:
            beside = codex_copy.sidecar(database, suffix)
            if beside.exists():
                yield f"{database.name}{suffix}", beside


def _files(home: Path, odd: list[str]) -> Iterator[tuple[str, Path]]:
    """The files that would be copied; `odd` takes what would be said of the others."""
    for name in codex_layout.MARKDOWN_FOLDERS if home.is_dir() else ():
        for path in sorted(codex_files.regular_files(home, name, odd.append)):
            yield path, home / path


def _add(whole: hashlib._Hash, *parts: bytes) -> None:
    for part in parts:
        whole.update(len(part).to_bytes(8, "big"))
        whole.update(part)
