"""Scopes: who may see a memory. Global, a client, or a project; and how a folder on some machine names its project."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Literal
from uuid import UUID

ScopeKind = Literal["global", "client", "project"]
AliasKind = Literal["git_origin", "root", "cwd", "explicit"]

SCP_FORM = re.compile(r"^(?:[^@/\s]+@)?([^:/\s]+):(?!//)(.+)$")
URL_FORM = re.compile(r"^[a-z][a-z0-9+.-]*://(?:[^@/\s]*@)?(\[[^\]]+\]|[^:/\s]+)(?::\d+)?/(.+)$", re.IGNORECASE)
DRIVE = re.compile(r"^[a-z]:[\\/]", re.IGNORECASE)


@dataclass(frozen=True)
class Scope:
    """One scope; `name` is exact, never a pattern. Written `global`, `client:NAME` or `project:NAME`."""

    id: UUID
    kind: ScopeKind
    name: str
    parent_id: UUID | None = None

    def __str__(self) -> str:
        return "global" if self.kind == "global" else f"{self.kind}:{self.name}"


@dataclass(frozen=True)
class Alias:
    """One thing that names a project; `host` is empty where the value means the same on every machine."""

    kind: AliasKind
    host: str
    value: str


@dataclass(frozen=True)
class ProjectIdentity:
    """
    What is known of a project from outside: the strongest alias first.

    The git origin is the same on every machine; folders count on their own host only.
    """

    aliases: tuple[Alias, ...]

    @property
    def name(self) -> str | None:
        """A name for the project, from its strongest alias; None when nothing is known."""
        return self.aliases[0].value if self.aliases else None


def identity(
    *, host: str, git_origin: str | None = None, root: str | None = None, cwd: str | None = None
) -> ProjectIdentity:
    """The identity of a project, of whichever of its marks are known."""
    found: list[Alias] = []
    origin = normalised_origin(git_origin) if git_origin else None
    if origin:
        found.append(Alias("git_origin", "", origin))
    if root:
        found.append(Alias("root", host, normalised_folder(root)))
    if cwd:
        found.append(Alias("cwd", host, normalised_folder(cwd)))
    return ProjectIdentity(tuple(found))


def normalised_origin(url: str) -> str | None:
    """
    `host/path` of a remote, the same for ssh and https, with and without .git, user, port; None for what names no host.

    Hosting services do not tell case apart in owner and repository, so neither does this.
    """
    given = url.strip()
    if DRIVE.match(given):
        return None
    match = URL_FORM.match(given) or SCP_FORM.match(given)
    if match is None or given.lower().startswith("file:"):
        return None
    path = match[2].strip("/").removesuffix(".git").strip("/")
    return f"{match[1]}/{path}".lower() if path else None


def normalised_folder(path: str) -> str:
    """
    A folder without a trailing separator; Windows forms keep their case folded, since Windows does not tell it
    apart.
    """
    if DRIVE.match(path) or path.startswith("\\\\"):
        return str(PureWindowsPath(path)).casefold()
    return str(PurePosixPath(path))
