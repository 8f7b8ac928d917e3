"""
Migrations: plain SQL files, applied in order, each in a transaction of its own and recorded by itself.

memsvc.schema_migrations is the truth for this runner and for anybody who applies the files with another tool.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from memsvc.db import queries
from memsvc.db.pool import CONNECTION, Conn, checked, not_admitted, reason, settle
from memsvc.errors import (
    Conflict,
    DatabaseUnavailable,
    MigrationDrift,
    MissingExtension,
    NotMigrated,
    WrongUse,
)

SQL = queries.load(__file__)

PGVECTOR = (0, 8)
POSTGRES = 16
# The schemas that transactions and functions look in for pgvector.
VECTOR_SCHEMAS = ("extensions", "public")

READERS = ["memsvc_service", "memsvc_owner"]
OWNER = ["memsvc_owner"]


@dataclass(frozen=True)
class Migration:
    """One file: its 14-digit version, its subject, its text and the hash of that text."""

    version: str
    name: str
    text: str
    sha256: bytes

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return f"{self.version}_{self.name}.sql"


def folder() -> Path:
    """Where the files are: the copy inside an installed package, else the folder of the checkout."""
    packaged = Path(__file__).parents[1] / "_migrations"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "supabase" / "migrations"


def available(source: Path | None = None) -> list[Migration]:
    """The migrations in a folder, in order; those that this program carries when none is named."""
    found: list[Migration] = []
    for path in sorted((source or folder()).glob("*.sql")):
        version, _, name = path.stem.partition("_")
        # A checkout may have turned the line ends.
        text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
        found.append(Migration(version, name, text, hashlib.sha256(text.encode()).digest()))
    return found


def emit(target: Path) -> list[Path]:
    """
    Write the files into a folder of the user's own, for another tool to apply; those that are there stay as they are.

    Raises:
        WrongUse: a file of that version is there with another name or text; nothing was written.
    """
    if target.exists() and not target.is_dir():
        raise WrongUse(f"{target} is not a folder", mend="name a folder")
    paths = {target / m.file_name: m for m in available()}
    for path, migration in paths.items():
        for other in target.glob(f"{migration.version}_*.sql"):
            if other != path or not _says(other, migration):
                raise WrongUse(
                    f"{other} is there already and differs", mend="name another folder, or move that file away"
                )
    target.mkdir(parents=True, exist_ok=True)
    for path, migration in paths.items():
        if not path.exists():
            path.write_text(migration.text, encoding="utf-8", newline="\n")
    return list(paths)


def connect(conninfo: str) -> Conn:
    """
    A connection for administration: the login's own rights, no role taken.

    Raises:
        DatabaseUnavailable: the server cannot be reached.
        WrongUse: that is no connection string.
    """
    try:
        conn = psycopg.connect(checked(conninfo), autocommit=True, connect_timeout=10, **CONNECTION)
    except psycopg.OperationalError as exc:
        raise DatabaseUnavailable(f"the database cannot be reached: {reason(exc)}", mend="memsvc doctor") from exc
    settle(conn)
    return conn


def applied(conn: Conn) -> dict[str, bytes | None]:
    """
    What is applied, by version; empty where the schema is absent.

    Raises:
        NotMigrated: this login may not look.
    """
    # Rolled back for the role's sake: whatever was set before is set again.
    with conn.transaction(force_rollback=True):
        if not _one(conn, "is_there"):
            return {}
        conn.execute(SQL["take_role"], {"roles": READERS})
        try:
            return dict(conn.execute(SQL["applied"]).fetchall())
        except psycopg.errors.InsufficientPrivilege as exc:
            raise not_admitted() from exc


def pending(conn: Conn, carried: Sequence[Migration] | None = None) -> list[Migration]:
    """
    The migrations that are not applied yet, of those given; of all that this program carries when none are.

    Raises:
        MigrationDrift: one that is applied differs from the file.
        NotMigrated: this login may not look.
    """
    carried = available() if carried is None else carried
    known = applied(conn)
    for migration in carried:
        recorded = known.get(migration.version)
        if recorded is not None and recorded != migration.sha256:
            raise MigrationDrift(
                f"migration {migration.file_name} was applied with another text",
                mend="use the memsvc version that applied it, or restore the file",
            )
    return [m for m in carried if m.version not in known]


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


def migrate(
    conn: Conn, *, service_login: str | None = None, carried: Sequence[Migration] | None = None
) -> list[Migration]:
    """
    Apply what is missing and let the service's login act as memsvc_service; returns what was applied here.

    Two runners at once are one after the other: an advisory lock, held for each transaction, decides.

    Raises:
        MissingExtension: no pgvector, or one that is too old.
        MigrationDrift: an applied file differs.
        Conflict: a schema of our name belongs to somebody else.
        DatabaseUnavailable: the server is too old, or the login may not do this.
        WrongUse: there is no such service login.
    """
    check_server(conn)
    carried = available() if carried is None else carried
    done: list[Migration] = []
    while missing := pending(conn, carried):
        if _apply(conn, missing[0]):
            done.append(missing[0])
    if None in applied(conn).values():
        _record_hashes(conn, carried)
    if service_login is not None:
        _admit(conn, service_login)
    return done


def check_server(conn: Conn) -> None:
    """
    Is this a PostgreSQL that we can live in?

    Raises:
        DatabaseUnavailable: PostgreSQL is older than 16, or the database cannot hold every text.
        MissingExtension: no pgvector, one older than 0.8, or one where nothing of ours looks for it.
    """
    if conn.info.server_version < POSTGRES * 10000:
        raise DatabaseUnavailable(
            f"the server is PostgreSQL {conn.info.server_version // 10000}, memsvc needs {POSTGRES} or later",
            mend="upgrade the server, or unset MEMSVC_DATABASE_URL to use the embedded one",
        )
    encoding = conn.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise DatabaseUnavailable(
            f"the database is encoded as {encoding}, memsvc needs UTF8",
            mend="createdb --encoding=UTF8 --template=template0 NAME, and name that one",
        )
    _check_vector(conn)


def _check_vector(conn: Conn) -> None:
    row = conn.execute(SQL["vector_versions"]).fetchone()
    usable, installed, schema = row if row is not None else (None, None, None)
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
    if schema is not None and schema not in VECTOR_SCHEMAS:
        raise MissingExtension(
            f"pgvector is in schema {schema}; memsvc looks for it in {' and '.join(VECTOR_SCHEMAS)}",
            mend="create schema if not exists extensions; alter extension vector set schema extensions",
        )


def _apply(conn: Conn, migration: Migration) -> bool:
    """Apply one file unless another runner was faster."""
    try:
        with conn.transaction():
            conn.execute(SQL["take_time"])
            conn.execute(SQL["lock"])
            if migration.version in applied(conn):
                return False
            conn.execute(shim())
            conn.execute(migration.text.encode())
            if migration.version not in applied(conn):
                raise MigrationDrift(f"migration {migration.file_name} does not record itself")
    except psycopg.errors.InsufficientPrivilege as exc:
        raise _not_allowed(f"apply {migration.file_name}", exc) from exc
    except psycopg.errors.DuplicateSchema as exc:
        raise Conflict(reason(exc), mend="rename that schema, or use another database") from exc
    return True


def _record_hashes(conn: Conn, carried: Sequence[Migration]) -> None:
    try:
        with conn.transaction():
            conn.execute(SQL["take_role"], {"roles": OWNER})
            conn.execute(
                SQL["record_hashes"],
                {"versions": [m.version for m in carried], "hashes": [m.sha256 for m in carried]},
            )
    except psycopg.errors.InsufficientPrivilege as exc:
        raise _not_allowed("record what another tool applied", exc) from exc


def _admit(conn: Conn, login: str) -> None:
    """Let a login act as memsvc_service. It inherits nothing: without taking the role it can do nothing."""
    grant = sql.SQL("grant memsvc_service to {} with inherit false, set true").format(sql.Identifier(login))
    try:
        if not _one(conn, "may_act", {"login": login}):
            conn.execute(grant)
    except psycopg.errors.UndefinedObject as exc:
        raise WrongUse(f"there is no login {login!r}", mend="create it, or name another") from exc
    except psycopg.errors.InsufficientPrivilege as exc:
        raise _not_allowed(f"grant memsvc_service to {login!r}", exc) from exc


def shim() -> bytes:
    """What Supabase has and plain Postgres lacks: it does nothing where schema auth is there."""
    return (Path(__file__).parent / "shim.sql").read_bytes()


def _not_allowed(what: str, exc: psycopg.Error) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"this login may not {what}: {reason(exc)}",
        mend="set MEMSVC_ADMIN_DATABASE_URL to a login that may create roles, schemas and extensions",
    )


def _says(path: Path, migration: Migration) -> bool:
    """Does the file say the same? A checkout may have turned its line ends."""
    return path.is_file() and path.read_bytes().replace(b"\r\n", b"\n") == migration.text.encode()


def _one(conn: Conn, query: str, values: dict[str, str] | None = None) -> bool:
    row = conn.execute(SQL[query], values).fetchone()
    return row is not None and bool(row[0])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
