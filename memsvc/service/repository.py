"""The git repository that a folder lies in: where it begins, which folder names it, and the remote it came from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dulwich.config import ConfigFile


@dataclass(frozen=True)
class Remote:
    """The remote that counts; `url` is as the repository has it, so it may hold a password."""

    name: str
    url: str


@dataclass(frozen=True)
class Repository:
    """
    A repository. `top` is where its files begin; `root` names it: for a linked worktree that is the main one, which is
    there when the worktree is gone. `remote` is None where none counts, and `reason` then says why.
    """

    top: Path
    root: Path
    remote: Remote | None
    reason: str | None = None


def around(folders: Iterable[Path]) -> Repository | None:
    """
    The repository that the first of these folders is the top of; None when none is.

    A folder whose .git is broken is a repository still, without a remote: going on would find somebody else's.
    """
    for folder in folders:
        if _exists(folder / ".git"):
            return _read(folder, _git_folder(folder / ".git"))
        if folder.name != ".git" and all(_exists(folder / part) for part in ("HEAD", "objects", "refs")):
            return _read(folder, folder)
    return None


def _read(top: Path, git: Path | None) -> Repository:
    common = _common_folder(git) if git else None
    config = _config(common) if common else None
    if git is None or common is None or config is None:
        return Repository(top, top, None, "the git configuration cannot be read")
    root = top if common == git != top else _main_root(common, config)
    remote, reason = _remote(config)
    return Repository(top, root, remote, reason)


def _git_folder(dot_git: Path) -> Path | None:
    """.git itself, or the folder that it names as a file does in worktrees and submodules."""
    from dulwich.repo import read_gitfile  # slow to import, and most folders need it once or never

    try:
        if not dot_git.is_file():
            return dot_git
        with dot_git.open("rb") as file:
            return (dot_git.parent / read_gitfile(file)).resolve()
    except (OSError, ValueError, RuntimeError):
        return None


def _common_folder(git: Path) -> Path | None:
    """Where a worktree's repository keeps what all its worktrees share; of any other, its own folder."""
    try:
        return (git / (git / "commondir").read_text(encoding="utf-8").rstrip("\r\n")).resolve()
    except FileNotFoundError:
        return git
    except (OSError, ValueError, RuntimeError):
        return None


def _config(common: Path) -> ConfigFile | None:
    from dulwich.config import ConfigFile

    path = common / "config"
    try:
        # The file may be a stranger's: what it includes is not followed, and only a file is opened.
        return ConfigFile.from_path(str(path), expand_includes=False) if path.is_file() else None
    except (OSError, ValueError, LookupError):
        return None


def _main_root(common: Path, config: ConfigFile) -> Path:
    try:
        return (common / config.get((b"core",), b"worktree").decode("utf-8", "surrogateescape")).resolve()
    except (KeyError, OSError, ValueError, RuntimeError):
        return common.parent if common.name == ".git" else common


def _remote(config: ConfigFile) -> tuple[Remote | None, str | None]:
    """`origin`, else the only one; which of several others is meant would be a guess."""
    remotes = dict(_remotes(config))
    if "origin" in remotes:
        return Remote("origin", remotes["origin"]), None
    if len(remotes) == 1:
        return Remote(*remotes.popitem()), None
    return None, "none of its remotes is named origin" if remotes else "the repository has no remote"


def _remotes(config: ConfigFile) -> Iterable[tuple[str, str]]:
    for section in config.sections():
        # git fetches from the first of several URLs.
        url = next(iter(config.get_multivar(section, b"url")), None) if section[0].lower() == b"remote" else None
        if url and len(section) == 2:
            yield section[1].decode("utf-8", "replace"), url.decode("utf-8", "replace")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a folder that may not be looked into
        return False
