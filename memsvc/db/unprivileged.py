"""How root runs the programs of PostgreSQL, which refuse to run as root."""

from __future__ import annotations

import os
import subprocess

from memsvc.errors import DatabaseUnavailable

# Inside, root's files belong to uid 1000 and so does the process; outside nothing changes and no account is made.
_USER_NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


def prefix() -> tuple[str, ...]:
    """
    The words to put before a command so that it does not run as root; none for an ordinary user.

    Raises:
        DatabaseUnavailable: this is root, and the system lets it make no user namespace.
    """
    if os.geteuid() != 0:
        return ()
    if reason := _refusal():
        raise DatabaseUnavailable(
            f"PostgreSQL does not run as root, and no user namespace can be made for it: {reason}",
            mend="run as an ordinary user, or set MEMSVC_DATABASE_URL to a database",
        )
    return _USER_NAMESPACE


def _refusal() -> str:
    try:
        tried = subprocess.run([*_USER_NAMESPACE, "true"], capture_output=True, text=True, check=False)
    except OSError as exc:
        return f"unshare: {exc.strerror}"
    return "" if tried.returncode == 0 else tried.stderr.strip() or f"unshare ended with {tried.returncode}"
