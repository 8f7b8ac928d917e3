"""As whom PostgreSQL runs: its programs refuse to run as root, so root lends them another identity."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from memsvc.errors import DatabaseUnavailable

# A gid between the ranges that distributions, services and containers hand out. The kernel needs no entry for it. The
# account that root lends may run other services too, and they are kept out: folders open to this group alone.
GROUP = 60777


@dataclass(frozen=True)
class Identity:
    """The `uid` and `gid` of what the server writes, as seen from here, and the words before its commands."""

    uid: int
    gid: int
    prefix: tuple[str, ...] = ()

    @property
    def is_another(self) -> bool:
        """Whether this is not the uid of the process that asks."""
        return self.uid != os.geteuid()

    def run(self, command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
        """
        Run a command as this identity and wait for its end; `options` are those of `subprocess.run`.

        Raises:
            OSError, subprocess.TimeoutExpired: as `subprocess.run`.
        """
        if self.is_another:
            options |= {"user": self.uid, "group": self.gid, "extra_groups": ()}
        return subprocess.run(
            [*self.prefix, *command], stdin=subprocess.DEVNULL, text=True, errors="replace", check=False, **options
        )

    def may_enter(self, folder: Path) -> bool:
        """Whether it can look up names in the folder, whatever stands in the way of it."""
        return self.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", folder], stderr=subprocess.DEVNULL).returncode == 0

    def give(self, folder: Path) -> None:
        """Make it the owner of a folder that was just made here."""
        if self.is_another:
            os.chown(folder, self.uid, self.gid, follow_symlinks=False)

    def admit(self, folder: Path, *, mode: int) -> None:
        """Let it into a folder of ours: through its group, which may do there what `mode` says, where it is another."""
        if self.is_another:
            os.chown(folder, -1, self.gid, follow_symlinks=False)
        folder.chmod(mode if self.is_another else mode & 0o700)


def ours() -> Identity:
    """The identity of this process."""
    return Identity(os.geteuid(), os.getegid())


def identity(data: Path) -> Identity:
    """
    As whom the server of this data runs: the one that owns the data, or where there is none yet, the best there is.

    An ordinary user runs it as it is; root in a user namespace, or where none can be made, as an unprivileged uid.

    Raises:
        DatabaseUnavailable: this is root and may do neither, or not the one that the data needs.
    """
    if os.geteuid() != 0:
        return ours()
    version = data / "PG_VERSION"
    made = version.stat() if version.exists() else None
    if made and made.st_gid == GROUP:
        return Identity(made.st_uid, GROUP)
    inside, account = _in_namespace(), Identity(_account(), GROUP)
    refused = _refusal(inside)
    if not refused:
        return inside
    if also_refused := _refusal(account):
        raise DatabaseUnavailable(
            f"PostgreSQL does not run as root, no user namespace can be made for it ({refused}), and no process can "
            f"become uid {account.uid} ({also_refused})",
            mend="run as an ordinary user, or set MEMSVC_DATABASE_URL to a database",
        )
    if made:
        raise DatabaseUnavailable(
            f"{data} belongs to root, and no user namespace can be made to serve it ({refused})",
            mend=f"chown -R {account.uid}:{GROUP} {quote(str(data))}",
        )
    return account


def _in_namespace() -> Identity:
    # Inside, root's files belong to the account and so does the process; outside nothing changes.
    account = _account()
    return Identity(0, 0, ("unshare", "--user", f"--map-user={account}", f"--map-group={account}"))


def _account() -> int:
    """An unprivileged uid that has a name, since initdb asks for one."""
    named = {account.pw_name: account.pw_uid for account in pwd.getpwall() if account.pw_uid != 0}
    return named.get("nobody", min(named.values(), default=65534))


def _refusal(asked: Identity) -> str:
    try:
        tried = asked.run(["/bin/sh", "-c", ":"], capture_output=True)
    except OSError as exc:
        return f"{asked.prefix[0]}: {exc.strerror}" if asked.prefix else str(exc.strerror)
    return "" if tried.returncode == 0 else tried.stderr.strip() or f"it ended with {tried.returncode}"
