"""Up, down and migrate: the database itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from memsvc.db import migrate as migrations
from memsvc.errors import WrongUse
from memsvc.service import indexes
from memsvc.service.app import App
from memsvc.service.status import without_password


@dataclass(frozen=True)
class UpResult:
    """Where the database is, whether it is our own, and what was applied to it just now."""

    database_url: str
    embedded: bool
    applied: tuple[str, ...]


@dataclass(frozen=True)
class DownResult:
    """`stopped` is False when nothing ran."""

    stopped: bool


@dataclass(frozen=True)
class MigrateResult:
    """
    The migrations that were applied and the models whose vectors got an index, or with a dry run those that would be;
    before the schema is there, no model can be named.
    """

    applied: tuple[str, ...]
    indexed: tuple[str, ...]
    dry_run: bool


def up(app: App) -> UpResult:
    """Start the embedded database and bring it up to date; of a given one, only see that it can be used."""
    with migrations.connect(app.database_url) as conn:
        if app.is_embedded:
            applied = migrations.migrate(conn)
        else:
            applied = []
            migrations.require_current(conn)
    return UpResult(without_password(app.database_url), app.is_embedded, _names(applied))


def down(app: App) -> DownResult:
    """
    Stop the embedded database and wait until it is gone.

    Raises:
        WrongUse: the database is one that was given, and not ours to stop.
    """
    if not app.is_embedded:
        raise WrongUse(
            "MEMSVC_DATABASE_URL names a server that memsvc did not start", mend="stop it where it was started"
        )
    from memsvc.db import embedded

    return DownResult(embedded.stop(app.settings))


def migrate(app: App, *, dry_run: bool = False) -> MigrateResult:
    """
    Apply what is missing, with the admin login where there is one, let the service's login act as memsvc_service, and
    build the indexes that the stored vectors have come to want.

    Raises:
        MigrationDrift, MissingExtension, DatabaseUnavailable: it cannot be done, and nothing is half done.
    """
    with migrations.connect(app.settings.admin_database_url or app.database_url) as conn:
        if dry_run:
            migrations.check_server(conn)
            missing = migrations.pending(conn)
            return MigrateResult(_names(missing), () if missing else tuple(indexes.due(app)), dry_run)
        applied = migrations.migrate(conn, service_login=_login(app))
    return MigrateResult(_names(applied), tuple(indexes.build(app)), dry_run)


def emit(folder: Path) -> list[Path]:
    """
    Write the migrations into a folder, for another tool to apply.

    Raises:
        WrongUse: a file is there with another text.
    """
    return migrations.emit(folder)


def _login(app: App) -> str | None:
    if app.is_embedded:
        return None
    with migrations.connect(app.database_url) as conn:
        return conn.info.user or str(conninfo_to_dict(app.database_url).get("user"))


def _names(applied: list[migrations.Migration]) -> tuple[str, ...]:
    return tuple(f"{m.version}_{m.name}" for m in applied)
