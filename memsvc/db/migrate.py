"""
Migrations: plain SQL files, applied in order, each in a transaction of its own and recorded by itself.

memsvc.schema_migrations is the truth for this runner and for anybody who applies the files with another tool.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from memsvc.db import queries
from memsvc.db.pool import Conn, reason
from memsvc.errors import (
    DatabaseUnavailable,
    MigrationDrift,
    MissingExtension,
    NotMigrated,
    WrongUse,
)

SQL = queries.load(__file__)

PGVECTOR = (0, 8)
POSTGRES = 16


@dataclass(frozen=True)
class Migration:
    """One file: its 14-digit version, its subject, its text and the hash of that text."""

    version: str
    name: str
    text: str
    sha256: bytes


def folder() -> Path:
    """Where the files are: the copy inside an installed package, else the folder of the checkout."""
    packaged = Path(__file__).parents[1] / "_migrations"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "supabase" / "migrations"


def available() -> list[Migration]:
    """The migrations that this program carries, in order."""
    found: list[Migration] = []
    for path in sorted(folder().glob("*.sql")):
        version, _, name = path.stem.partition("_")
        # A checkout may have turned the line ends.
        text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
        found.append(Migration(version, name, text, hashlib.sha256(text.encode()).digest()))
    return found


def emit(target: Path) -> list[Path]:
    """
    Write the files into a folder of the user's own, for another tool to apply.

    Raises:
        WrongUse: a file of that name is there with another text.
    """
    target.mkdir(parents=True, exist_ok=True)
    paths = {target / f"{m.version}_{m.name}.sql": m for m in available()}
    for path, migration in paths.items():
        if path.exists() and path.read_text(encoding="utf-8") != migration.text:
            raise WrongUse(f"{path} is there already and differs", mend="name another folder, or move that file away")
    for path, migration in paths.items():
        path.write_text(migration.text, encoding="utf-8", newline="\n")
    return list(paths)


def connect(conninfo: str) -> Conn:
    """
    A connection for administration: the login's own rights, no role taken.

    Raises:
        DatabaseUnavailable: the server cannot be reached.
    """
    try:
        return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None, connect_timeout=10)
    except psycopg.OperationalError as exc:
        raise DatabaseUnavailable(f"the database cannot be reached: {reason(exc)}", mend="memsvc doctor") from exc


def applied(conn: Conn) -> dict[str, bytes | None]:
    """What is applied, by version; empty where the schema is absent."""
    if not _one(conn, "is_there"):
        return {}
    return dict(conn.execute(SQL["applied"]).fetchall())


def pending(conn: Conn) -> list[Migration]:
    """
    The migrations that are not applied yet.

    Raises:
        MigrationDrift: one that is applied differs from the file.
    """
    known = applied(conn)
    for migration in available():
        recorded = known.get(migration.version)
        if recorded is not None and recorded != migration.sha256:
            raise MigrationDrift(
                f"migration {migration.version}_{migration.name} was applied with another text",
                mend="use the memsvc version that applied it, or restore the file",
            )
    return [m for m in available() if m.version not in known]


def require_current(conn: Conn) -> None:
    """
    Refuse to work on an older schema.

    Raises:
        NotMigrated: names the first migration that is missing.
    """
    missing = pending(conn)
    if missing:
        raise NotMigrated(
            f"{len(missing)} migrations are missing, from {missing[0].version}_{missing[0].name} on",
            mend="memsvc migrate",
        )


def migrate(conn: Conn, *, service_login: str | None = None) -> list[Migration]:
    """
    Apply what is missing and let the service's login act as memsvc_service.

    Two runners at once are one after the other: an advisory lock, held for each transaction, decides.

    Raises:
        MissingExtension: no pgvector, or one that is too old.
        MigrationDrift: an applied file differs.
        DatabaseUnavailable: the server is too old, or the login may not do this.
    """
    check_server(conn)
    done: list[Migration] = []
    while missing := pending(conn):
        if _apply(conn, missing[0]):
            done.append(missing[0])
    with conn.transaction():
        conn.execute(
            SQL["record_hashes"],
            {"versions": [m.version for m in available()], "hashes": [m.sha256 for m in available()]},
        )
        if service_login is not None:
            conn.execute(sql.SQL("grant memsvc_service to {}").format(sql.Identifier(service_login)))
    return done


def check_server(conn: Conn) -> None:
    """
    Is this a PostgreSQL that we can live in?

    Raises:
        DatabaseUnavailable: PostgreSQL is older than 16.
        MissingExtension: no pgvector, or one older than 0.8.
    """
    if conn.info.server_version < POSTGRES * 10000:
        raise DatabaseUnavailable(
            f"the server is PostgreSQL {conn.info.server_version // 10000}, memsvc needs {POSTGRES} or later",
            mend="upgrade the server, or unset MEMSVC_DATABASE_URL to use the embedded one",
        )
    row = conn.execute(SQL["vector_versions"]).fetchone()
    usable, installed = row if row is not None else (None, None)
    needed = ".".join(map(str, PGVECTOR))
    if usable is None:
        raise MissingExtension(
            f"the server has no pgvector; memsvc needs {needed} or later",
            mend="install pgvector on the server, or unset MEMSVC_DATABASE_URL to use the embedded database",
        )
    version = installed or usable
    if _numbers(version) < PGVECTOR:
        raise MissingExtension(
            f"the server has pgvector {version}; memsvc needs {needed} or later",
            mend="upgrade pgvector, then: alter extension vector update",
        )


def _apply(conn: Conn, migration: Migration) -> bool:
    """Apply one file unless another runner was faster."""
    try:
        with conn.transaction():
            conn.execute(SQL["lock"])
            if not _one(conn, "is_there"):
                conn.execute(shim())
            elif migration.version in applied(conn):
                return False
            conn.execute(migration.text.encode())
    except psycopg.errors.InsufficientPrivilege as exc:
        raise DatabaseUnavailable(
            f"this login may not apply {migration.version}_{migration.name}: {reason(exc)}",
            mend="set MEMSVC_ADMIN_DATABASE_URL to a login that may create roles and schemas",
        ) from exc
    return True


def shim() -> bytes:
    """What Supabase has and plain Postgres lacks: it does nothing where schema auth is there."""
    return (Path(__file__).parent / "shim.sql").read_bytes()


def _one(conn: Conn, query: str) -> bool:
    row = conn.execute(SQL[query]).fetchone()
    return row is not None and bool(row[0])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
