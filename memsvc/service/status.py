"""Status: the ledger, the sources and the coverage at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memsvc.db.pool import Conn
from memsvc.ledger import overview
from memsvc.ledger.overview import Count, Trouble
from memsvc.memory import scopes, sources
from memsvc.memory.sources import Summary
from memsvc.recall import search
from memsvc.recall.search import Coverage
from memsvc.service import models
from memsvc.service.app import App
from memsvc.service.models import Model

STATUSES = ("pending", "running", "done", "error")


@dataclass(frozen=True)
class StatusResult:
    """
    What is in the store.

    `jobs` counts every job by kind and status, `live_jobs` memsvc's own; `expired_leases` are live jobs that a worker
    left behind. `troubles` are jobs in error, and imported ones that were running when they were exported.

    `coverage` is that of the model in use, `model`, which is None where it cannot be had: `model_trouble` then says
    why. `models` lists all that have vectors. `beyond` counts memories that get none, since their output is too large.
    """

    database_url: str
    embedded: bool
    jobs: dict[str, dict[str, int]]
    live_jobs: dict[str, dict[str, int]]
    expired_leases: int
    coverage: Coverage
    beyond: int
    model: str | None
    model_trouble: str | None
    model_mend: str | None
    models: tuple[Model, ...]
    sources: tuple[Summary, ...]
    troubles: tuple[Trouble, ...]


def status(app: App) -> StatusResult:
    """Look at the whole store."""
    used = models.current(app)
    with app.pool.transaction(app.actor) as conn:
        counts = overview.counts(conn)
        listed = models.listed(conn, used)
        return StatusResult(
            database_url=without_password(app.database_url),
            embedded=app.is_embedded,
            jobs=table(counts),
            live_jobs=table([count for count in counts if count.live]),
            expired_leases=overview.expired_leases(conn),
            coverage=_coverage(conn, listed),
            beyond=models.beyond(conn, used).memories,
            model=used.name,
            model_trouble=used.trouble,
            model_mend=used.mend,
            models=listed,
            sources=tuple(sources.summaries(conn)),
            troubles=tuple(overview.troubles(conn)),
        )


def _coverage(conn: Conn, listed: Sequence[Model]) -> Coverage:
    for model in listed:
        if model.current:
            return Coverage(model.embedded, model.total)
    return search.coverage(conn, model="", scopes=[scope.id for scope in scopes.readable(conn)])


def without_password(conninfo: str) -> str:
    """A connection string that may be shown: as it was given, but for the password."""
    if "://" not in conninfo:
        shown = {name: value for name, value in conninfo_to_dict(conninfo).items() if name != "password"}
        return make_conninfo("", **shown)
    parts = urlsplit(conninfo)
    user, at, place = parts.netloc.rpartition("@")
    query = urlencode(
        [(name, value) for name, value in parse_qsl(parts.query) if name != "password"], safe="/", quote_via=quote
    )
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{place}", query=query))


def table(counts: list[Count]) -> dict[str, dict[str, int]]:
    """Jobs by kind and status, every status named."""
    rows: dict[str, dict[str, int]] = {}
    for count in counts:
        row = rows.setdefault(count.kind, dict.fromkeys(STATUSES, 0))
        row[count.status] = row.get(count.status, 0) + count.jobs
    return rows
