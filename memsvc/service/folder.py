"""What a folder says about its project: its git origin, the root of its repository, its path, the folders above."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from memsvc.errors import WrongUse
from memsvc.model.scope import (
    Alias,
    ProjectIdentity,
    folders_above,
    identity,
    is_windows_form,
    project_folder,
)
from memsvc.service import repository
from memsvc.service.repository import Repository


@dataclass(frozen=True)
class Marks:
    """
    What names the project of a folder.

    `nearest` is the folder itself, normalised; None where it can be no project. `own` are the marks of the project
    itself, strongest first: a new project is known by them. `above` are the other folders up to the root of the
    repository or, outside of one, up to the home folder: they find a project only.
    """

    folder: str
    repository: Repository | None
    nearest: str | None
    own: ProjectIdentity
    above: tuple[Alias, ...]

    @property
    def all(self) -> tuple[Alias, ...]:
        """Every mark, strongest first."""
        stronger = tuple(mark for mark in self.own.aliases if mark.kind != "cwd")
        nearest = tuple(mark for mark in self.own.aliases if mark.kind == "cwd")
        # In a repository the folders below its root are nearer than the root's own path.
        return (*stronger, *self.above, *nearest) if self.repository else (*stronger, *nearest, *self.above)

    def weaker_than(self, mark: Alias) -> tuple[Alias, ...]:
        """The project's own marks below one that speaks for the whole repository; none below a mere folder."""
        if mark.kind == "cwd" or mark not in self.own.aliases:
            return ()
        return self.own.aliases[self.own.aliases.index(mark) + 1 :]


def marks(folder: Path, *, host: str) -> Marks:
    """
    The marks of the project that the folder lies in. Links are followed, so that one folder has one name.

    A home folder and the root of a file system have none, and no repository there counts for the folders below.

    Raises:
        WrongUse: that cannot be a folder.
    """
    here = _resolved(folder)
    if here is None:
        return _outside(str(folder), folders_above(str(folder)), host)
    no_projects = _no_projects(here)
    lineage = list(takewhile(lambda path: path not in no_projects, (here, *here.parents)))
    found = repository.around(lineage)
    if found is None:
        return _outside(str(here), _folders(lineage), host)
    root = str(found.top if found.root in no_projects else found.root)
    url = found.remote.url if found.remote else None
    own = identity(host=host, git_origin=url, root=root, cwd=root)
    inside = _folders(lineage[: lineage.index(found.top) + 1])
    above = tuple(Alias("cwd", host, path) for path in inside if path != _cwd(own))
    return Marks(str(here), found, project_folder(str(here)), own, above)


def _outside(folder: str, paths: tuple[str, ...], host: str) -> Marks:
    nearest, *above = paths or (None,)
    own = identity(host=host, cwd=nearest)
    return Marks(folder, None, nearest, own, tuple(Alias("cwd", host, path) for path in above))


def _cwd(own: ProjectIdentity) -> str | None:
    return next((mark.value for mark in own.aliases if mark.kind == "cwd"), None)


def _folders(lineage: list[Path]) -> tuple[str, ...]:
    return tuple(path for path in map(project_folder, map(str, lineage)) if path is not None)


def _resolved(folder: Path) -> Path | None:
    """The folder on this machine, that of a file for a file; None for one in the form of another system."""
    try:
        if is_windows_form(str(folder)) and os.name != "nt":
            return None
        here = folder.expanduser().resolve()
        return here.parent if here.is_file() else here
    except (OSError, ValueError, RuntimeError) as exc:
        raise WrongUse(f"{str(folder)!r} cannot be a folder: {exc}") from None


def _no_projects(here: Path) -> set[Path]:
    root = Path(here.anchor)
    try:
        return {root, Path.home().resolve()}
    except (OSError, RuntimeError):  # an account without a home folder
        return {root}
