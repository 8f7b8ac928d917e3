"""The memory folders of a Codex home: a private copy of their files, and the rows made of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from memsvc.model.export import FileRow
from memsvc_importers import codex_layout, codex_markdown
from memsvc_importers.codex_markdown import Header

LARGEST = 16 * 1024 * 1024  # bytes
LONGEST_PATH = 2000  # bytes; an index entry of the database holds no more

# Two kinds of baseline that Codex compares its folder with; neither is memory.
_BASELINES = (".git", ".codex-baseline")


class Files:
    """Copied files by their path relative to the home, with forward slashes."""

    def __init__(self, folder: Path, paths: tuple[str, ...] = ()) -> None:
        self._folder = folder
        self._paths = paths

    def rows(self) -> Iterator[FileRow]:
        """All files, sorted by path."""
        for path in self._paths:
            yield FileRow(path, (self._folder / path).read_bytes())

    def headers(self) -> dict[str, Header]:
        """What the rollout summaries say of their sessions, by thread id."""
        return codex_markdown.newest(codex_markdown.header(self._head(path)) for path in self._paths if _summary(path))

    def _head(self, path: str) -> bytes:
        with (self._folder / path).open("rb") as file:
            return file.read(codex_markdown.HEAD)


def copy(home: Path, into: Path, warn: Callable[[str], None]) -> Files:
    """Copy the regular files of the memory folders; no link is followed, and what is left out gets a warning."""
    paths: list[str] = []
    for name in codex_layout.MARKDOWN_FOLDERS:
        if (home / name).is_symlink():
            warn(f"{name} is a symbolic link and was not followed")
        elif (home / name).is_dir():
            paths += [path for path in regular_files(home, name, warn) if _copied(home, path, into, warn)]
    return Files(into, tuple(sorted(paths)))


def regular_files(home: Path, folder: str, warn: Callable[[str], None]) -> Iterator[str]:
    """The files to copy below a folder of a home, by their path from there."""

    def unreadable(exc: OSError) -> None:
        warn(f"{os.fspath(exc.filename)!r} could not be read: {exc.strerror}")

    for root, folders, files in os.walk(home / folder, onerror=unreadable):
        folders[:] = [name for name in folders if name not in _BASELINES]
        for name in [*files, *folders]:
            path = Path(root, name)
            relative = path.relative_to(home).as_posix()
            if path.is_symlink():
                warn(f"{relative!r} is a symbolic link and was not followed")
            elif path.is_file() and name not in _BASELINES:
                yield relative


def _copied(home: Path, path: str, into: Path, warn: Callable[[str], None]) -> bool:
    try:
        if len(path.encode()) > LONGEST_PATH:
            warn(f"the path {path[:100]!r}... is longer than {LONGEST_PATH} bytes: the file was skipped")
            return False
        with (home / path).open("rb") as file:
            content = file.read(LARGEST + 1)
    except UnicodeEncodeError:
        warn(f"the name of {path!r} is not UTF-8: the file was skipped")
        return False
    except OSError as exc:
        warn(f"{path!r} could not be read: {exc.strerror}")
        return False
    if len(content) > LARGEST:
        warn(f"{path!r} is larger than 16 MiB and was skipped")
        return False
    target = into / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return True


def _summary(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder in ("memories/rollout_summaries", "memories_v2/rollout_summaries") and name.endswith(".md")
