"""The private folder that copies of an export lie in: gone when the import ends, or when the next one begins."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "memsvc-codex-"
# A folder that is younger may be one whose lock is about to be taken.
_SECONDS = 60


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that nobody else can read, removed at the end; what an import that was killed left is removed first."""
    _sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as private, (Path(private) / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(private)


def _sweep(temporary: Path) -> None:
    """Remove folders whose owner is gone: the system frees the lock of a process, however it ends."""
    for left in temporary.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # held, of another user, or gone meanwhile
            if left.stat().st_mtime < time.time() - _SECONDS and not left.is_symlink():
                with (left / "lock").open("rb") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(left)
