"""Scopes: who may see a memory. Global, a client, or a project; and how a folder on some machine names its project."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal
from uuid import UUID

ScopeKind = Literal["global", "client", "project"]
AliasKind = Literal["git_origin", "root", "cwd", "explicit"]

# An index entry of the database holds no more; a longer name or mark is none.
LONGEST_NAME_BYTES = 2000

SCP_FORM = re.compile(r"^(?:[^@/\s]+@)?(\[[^\]]+\]|[^:/@\s\[\]]+):(?!//|:)([^?#]+)")
URL_FORM = re.compile(r"^[a-z][a-z0-9+.-]*://(?:[^/\s]*@)?(\[[^\]]+\]|[^:/@\s\[\]]+)(?::\d*)?/([^?#]+)", re.IGNORECASE)
CREDENTIALS = re.compile(r"(?<=://)(?!git@)[^/\s]*@")
# Where hosting services take ssh through a firewall, on the port of https.
SSH_OVER_443 = {
    "ssh.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
}
THIS_MACHINE = re.compile(r"^(?:localhost|127\.[\d.]+|\[::1\])$", re.IGNORECASE)

DRIVE = re.compile(r"^[a-zA-Z]:[\\/]")
SHARE = re.compile(r"^(?:\\\\|//wsl(?:\$|\.localhost)/)", re.IGNORECASE)
VERBATIM = re.compile(r"^\\\\[?.]\\(?:(UNC)\\|(?=[a-zA-Z]:(?:\\|$)))", re.IGNORECASE)
WSL_DRIVE = re.compile(r"^/mnt/([a-z])(?:/(.*))?$", re.DOTALL)
WSL_SHARE = re.compile(r"^\\\\wsl(?:\$|\.localhost)\\([^\\]+)(.*)$", re.IGNORECASE | re.DOTALL)
ROOTS = re.compile(r"^(?:/|[a-z]:\\|\\\\[^\\]*(?:\\[^\\]*)?\\?)$")
HOMES = re.compile(r"^(?:/root|/(?:home|Users)/[^/]+|[a-z]:\\users\\[^\\]+)$")


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
    marks: tuple[tuple[AliasKind, str, str | None], ...] = (
        ("git_origin", "", normalised_origin(git_origin) if git_origin else None),
        ("root", host, project_folder(root) if root else None),
        ("cwd", host, project_folder(cwd) if cwd else None),
    )
    return ProjectIdentity(tuple(Alias(kind, where, value) for kind, where, value in marks if value))


def is_storable(name: str, *, longest: int = LONGEST_NAME_BYTES) -> bool:
    """Can the database hold it as a name: not empty, at most so many bytes, no NUL, nothing that is no Unicode?"""
    if not name or "\x00" in name:
        return False
    try:
        return len(name.encode()) <= longest
    except UnicodeEncodeError:
        return False


def normalised_origin(url: str) -> str | None:
    """
    `host/path` of a remote, the same for ssh and https, with and without .git, user, port; None for what names no host
    that other machines know.

    Hosting services do not tell case apart in owner and repository, so neither does this.
    """
    given = url.strip()
    match = URL_FORM.match(given) or SCP_FORM.match(given)
    if match is None or given.lower().startswith("file:"):
        return None
    # One letter before a colon is a drive of Windows, as git reads it.
    if len(match[1]) == 1 or THIS_MACHINE.match(match[1]):
        return None
    path = re.sub(r"/+", "/", match[2].lower()).strip("/ ")
    path = re.sub(r"(?:\.git|[/\s])+$", "", path)
    host = match[1].lower().removesuffix(".")
    origin = unicodedata.normalize("NFC", f"{SSH_OVER_443.get(host, host)}/{path}")
    return origin if path and is_storable(origin) else None


def without_credentials(url: str) -> str:
    """A remote's URL that may be shown: the user (but for `git`), the password and the query are masked."""
    return re.sub(r"\?.*", "?***", CREDENTIALS.sub("***@", url), flags=re.DOTALL)


def normalised_folder(path: str) -> str:
    r"""
    One form for all ways to write a folder, without a trailing separator and in Unicode's composed form.

    Windows does not tell case apart, so its folders are in lower case; `\\?\` before them says nothing. WSL's
    `/mnt/c/...` is `c:\...`, also where it is reached as `\\wsl$\DISTRIBUTION\mnt\c\...`; what lies inside a
    distribution keeps that name, since two of them may hold the same path.
    """
    # Bytes that are no Unicode stay visible and apart.
    given = unicodedata.normalize("NFC", path.encode("utf-8", "backslashreplace").decode())
    return _in_windows(given) if is_windows_form(given) else _in_posix(given)


def is_windows_form(path: str) -> bool:
    """Is it written as only Windows does: with a drive letter, or as a share?"""
    return bool(DRIVE.match(path) or SHARE.match(path))


def project_folder(path: str) -> str | None:
    """
    The folder, normalised, if it can be a project's: None for a home folder, the root of a file system, a path that is
    not absolute, and what is too long to be kept.
    """
    folder = normalised_folder(path)
    is_absolute = folder.startswith("/") or is_windows_form(folder)
    if not is_absolute or ROOTS.match(folder) or HOMES.match(folder) or not is_storable(folder):
        return None
    return folder


def folders_above(path: str) -> tuple[str, ...]:
    """The folder and those above it that can be a project's, nearest first, up to the first that cannot."""
    found = []
    folder = project_folder(path)
    while folder is not None:
        found.append(folder)
        folder = project_folder(folder.rpartition("\\" if is_windows_form(folder) else "/")[0])
    return tuple(found)


def _in_windows(path: str) -> str:
    first, *rest = [part for part in re.split(r"[\\/]", path) if part] or [""]
    parts = [first, *(part for part in rest if part != ".")]
    folder = ("" if DRIVE.match(path) else "\\\\") + "\\".join(parts)
    while match := VERBATIM.match(folder):
        folder = ("\\\\" if match[1] else "") + folder[match.end() :]
    if share := WSL_SHARE.match(folder):
        inside = _in_posix(share[2].replace("\\", "/") or "/")
        return inside if DRIVE.match(inside) else rf"\\wsl.localhost\{share[1].lower()}" + inside.replace("/", "\\")
    # Not casefold: Windows takes "straße" and "strasse" for two folders.
    folder = unicodedata.normalize("NFC", folder.lower())
    return f"{folder}\\" if folder.endswith(":") and len(folder) == 2 else folder


def _in_posix(path: str) -> str:
    folder = str(PurePosixPath(re.sub(r"^/+", "/", path)))
    if is_windows_form(folder):  # a relative path that would look like one without its dot
        return f"./{folder}"
    drive = WSL_DRIVE.match(folder)
    return _in_windows(f"{drive[1]}:\\{drive[2] or ''}") if drive else folder
