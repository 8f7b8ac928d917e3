"""What a folder of this machine says about its project: its git origin, the root of its repository, its path."""

from __future__ import annotations

from pathlib import Path

from memsvc.model.scope import Alias, ProjectIdentity, identity, normalised_folder


def identify(folder: Path, *, host: str) -> ProjectIdentity:
    """
    The identity of the project that the folder lies in, strongest mark first.

    Folders above it count too, up to the root of its repository; outside a repository up to the home folder, which is
    no project itself.
    """
    here = folder.expanduser().absolute()
    root = _repository_root(here)
    known = identity(host=host, git_origin=_origin(root) if root else None, root=str(root) if root else None)
    return ProjectIdentity((*known.aliases, *(Alias("cwd", host, path) for path in _upwards(here, root))))


def _upwards(here: Path, root: Path | None) -> list[str]:
    stops = {Path.home().absolute(), Path(here.anchor)}
    found = [here]
    for parent in here.parents:
        if found[-1] == root or parent in stops:
            break
        found.append(parent)
    return [normalised_folder(str(path)) for path in found]


def _repository_root(here: Path) -> Path | None:
    return next((path for path in (here, *here.parents) if (path / ".git").exists()), None)


def _origin(root: Path) -> str | None:
    from dulwich.errors import NotGitRepository  # slow to import, and most folders need it once or never
    from dulwich.repo import Repo

    try:
        with Repo(str(root)) as repo:
            return repo.get_config().get((b"remote", b"origin"), b"url").decode("utf-8", errors="replace")
    except (KeyError, NotGitRepository, OSError, ValueError):
        return None
