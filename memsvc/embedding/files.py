"""The files a model is made of: found, read whole and checked."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from memsvc.errors import EmbedderUnavailable

_PIECE = 1 << 20


def package_folder(package: str) -> Path | None:
    """Where a package lies, without running it; None if it is not installed."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def read(file: Path, *, mend: str | None = None) -> bytes:
    """
    The file's content.

    Raises:
        EmbedderUnavailable: it cannot be read.
    """
    try:
        return file.read_bytes()
    except OSError as exc:
        raise _unreadable(file, exc, mend) from exc


def checked(file: Path, expected: str, *, mend: str | None = None) -> bytes:
    """
    The file's content, which is what is then loaded: nobody can change it after it was checked.

    Raises:
        EmbedderUnavailable: it cannot be read, or its SHA-256 is not `expected`.
    """
    content = read(file, mend=mend)
    found = sha256(content).hexdigest()
    if found != expected:
        raise EmbedderUnavailable(f"{file} has the SHA-256 {found}, expected {expected}", mend=mend)
    return content


def digest(files: Iterable[Path]) -> str:
    """
    The SHA-256 of the files' contents, one after the other; of a single file it is that file's own.

    Raises:
        EmbedderUnavailable: one of them cannot be read.
    """
    found = sha256()
    for file in files:
        try:
            with file.open("rb") as opened:
                while piece := opened.read(_PIECE):
                    found.update(piece)
        except OSError as exc:
            raise _unreadable(file, exc, None) from exc
    return found.hexdigest()


def _unreadable(file: Path, exc: OSError, mend: str | None) -> EmbedderUnavailable:
    return EmbedderUnavailable(f"cannot read {file}: {exc.strerror}", mend=mend)
