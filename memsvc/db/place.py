"""Making the home of a server where the identity that runs it can reach it."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from tempfile import mkdtemp

from memsvc.db.home import Home
from memsvc.db.unprivileged import Identity
from memsvc.errors import DatabaseUnavailable

ASIDE = Path("/var/lib/memsvc")
_PASSABLE = 0o711  # to be passed through, not to be listed


def make(home: Home, identity: Identity) -> Home:
    """
    Make the home's folder, and return where it is.

    An identity other than ours owns the data inside, while what is opened from here (locks, log) stays out of its
    hands. Where it cannot reach the folder, a link takes the place of the folder and leads to one in /var/lib/memsvc.

    Raises:
        DatabaseUnavailable: the folder is another user's, or there already and out of reach.
    """
    if not identity.is_another:
        home.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return home
    if not identity.may_enter(_nearest(home.folder.parent)):
        home = _set_aside(home)
    _make_passable(home.folder.parent)
    home.folder.mkdir(mode=0o700, exist_ok=True)
    home.refuse_another_users()
    identity.admit(home.folder, mode=0o710)
    return home


def _set_aside(home: Home) -> Home:
    folder = home.folder
    if folder.exists():
        moved, there = ASIDE / f"moved-{folder.stat().st_ino}", quote(str(folder))
        raise DatabaseUnavailable(
            f"the user that PostgreSQL runs as cannot reach {folder}",
            mend=f"mkdir -p -m {_PASSABLE:o} {ASIDE} && mv {there} {moved} && ln -s {moved} {there}",
        )
    _make_passable(ASIDE)
    folder.parent.mkdir(parents=True, exist_ok=True)
    target = Path(mkdtemp(prefix="", dir=ASIDE))
    try:
        folder.symlink_to(target)
    except FileExistsError:  # another process was faster
        target.rmdir()
    return Home(folder.resolve())


def _nearest(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def _make_passable(folder: Path) -> None:
    if not folder.exists():
        _make_passable(folder.parent)
        folder.mkdir(mode=_PASSABLE, exist_ok=True)
        folder.chmod(_PASSABLE)  # whatever the umask says
