"""Doctor: is everything as it must be, and if not, which command mends it?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import psycopg

from memsvc.db import checks, migrate
from memsvc.db.pool import Conn, reason
from memsvc.errors import EmbedderUnavailable, MemsvcError
from memsvc.service import indexes, status
from memsvc.service.app import App
from memsvc.service.models import mended
from memsvc.service.status import StatusResult, without_password

Finding = tuple[bool, str, str | None]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; `mend` is the command that puts it right, None where nothing is wrong."""

    name: str
    ok: bool
    detail: str
    mend: str | None


def doctor(app: App) -> list[Check]:
    """Look at everything, in the order in which things depend on each other; what cannot be looked at is left out."""
    checks_made = [_check("model", lambda: _model(app))]
    reached = _check("database", lambda: _database(app))
    checks_made.append(reached)
    if not reached.ok:
        return checks_made
    with migrate.connect(app.database_url) as conn:
        checks_made += list(_server(conn))
    if all(check.ok for check in checks_made if check.name == "migrations"):
        checks_made += list(_store(app))
    return checks_made


def _check(name: str, look: Callable[[], Finding]) -> Check:
    try:
        return Check(name, *look())
    except MemsvcError as exc:
        return Check(name, False, str(exc), exc.mend)
    except psycopg.Error as exc:
        return Check(name, False, reason(exc), None)


def _model(app: App) -> Finding:
    try:
        length = len(app.embedder.embed_query("is the model there?"))
    except EmbedderUnavailable as exc:
        return False, str(exc), mended(exc)
    return True, f"{app.embedder.model} gives {length} dimensions", None


def _database(app: App) -> Finding:
    with migrate.connect(app.database_url) as conn:
        version = conn.info.server_version
    kind = "embedded" if app.is_embedded else "given"
    return True, f"PostgreSQL {version // 10000}.{version % 10000}, {kind}: {without_password(app.database_url)}", None


def _server(conn: Conn) -> Iterator[Check]:
    yield _check("pgvector", lambda: _pgvector(conn))
    yield _check("migrations", lambda: _migrations(conn))


def _pgvector(conn: Conn) -> Finding:
    migrate.check_server(conn)
    return True, f"pgvector {checks.vector_version(conn)}", None


def _migrations(conn: Conn) -> Finding:
    missing = migrate.pending(conn)
    if missing:
        return False, f"{len(missing)} are missing, from {missing[0].version}_{missing[0].name} on", "memsvc migrate"
    return True, f"all {len(migrate.available())} are applied", None


def _store(app: App) -> Iterator[Check]:
    yield _check("service role", lambda: _service_role(app))
    yield _check("row-level security", lambda: _row_security(app))
    seen = cache(partial(status.status, app))  # asked once; what it raises is each check's own finding
    yield _check("jobs", lambda: _jobs(seen()))
    yield _check("coverage", lambda: _coverage(seen()))
    yield _check("vector indexes", lambda: _vector_indexes(app))


def _service_role(app: App) -> Finding:
    with app.pool.transaction(app.actor) as conn:
        known = checks.knows_caller(conn)
    if not known:
        return False, "the database does not know the caller", "memsvc migrate"
    return True, "transactions act as memsvc_service", None


def _row_security(app: App) -> Finding:
    with app.pool.transaction(app.actor) as conn:
        open_tables = checks.tables_without_row_security(conn)
    if open_tables:
        return (
            False,
            f"it is off on {', '.join(open_tables)}",
            f"alter table memsvc.{open_tables[0]} enable row level security",
        )
    return True, "on for every table", None


def _jobs(seen: StatusResult) -> Finding:
    failed = sum(row["error"] for row in seen.live_jobs.values())
    if seen.expired_leases or failed:
        mend = "memsvc jobs ls --live --status error" if failed else "memsvc worker --once"
        return False, f"{seen.expired_leases} left behind by a worker, {failed} in error", mend
    return True, "none is stuck", None


def _coverage(seen: StatusResult) -> Finding:
    covered = seen.coverage
    said = f"{covered.embedded} of {covered.total} memories can be found by meaning"
    if seen.beyond:
        said += f"; {seen.beyond} lie beyond the size that is embedded of one session output"
    others = [f"{other.embedded} with {other.name}" for other in seen.models if not other.current]
    if others:
        said += f" (vectors of other models: {', '.join(others)}; memsvc models drop takes them away)"
    if seen.model is None:
        return False, said, seen.model_mend
    if covered.embedded + seen.beyond < covered.total:
        return False, said, "memsvc worker --once"
    return True, said, None


def _vector_indexes(app: App) -> Finding:
    if models := indexes.due(app):
        return False, f"recall scans the many vectors of {', '.join(models)} one by one", "memsvc migrate"
    return True, "none is missing", None
