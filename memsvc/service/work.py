"""Work: the jobs of the ledger, done by this process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

import psycopg

from memsvc.db.pool import Conn
from memsvc.embedding import vectors
from memsvc.errors import EmbedderUnavailable, MemsvcError, WrongUse
from memsvc.ledger import overview
from memsvc.model.job import EMBED, Lease, embed_with
from memsvc.pipeline import embed, worker
from memsvc.pipeline.worker import Done, Handler, Work
from memsvc.service import indexes, models
from memsvc.service.app import App

logger = logging.getLogger(__name__)

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Embedded:
    """What embedding in the foreground came to; `notes` say what has no vectors, why, and what mends it."""

    completed: int
    failed: int
    notes: tuple[str, ...]


def handlers(app: App, progress: Progress = lambda _: None) -> dict[str, Handler]:
    """
    What this process can do, by kind of job: what came in, and then what its model lacks.

    Raises:
        WrongUse: no embedder has the name that is set; no job is claimed for finding that out.
        EmbedderUnavailable: the model is not there.
    """
    embedder = app.embedder

    def embed_memories(lease: Lease) -> Callable[[Conn], None]:
        return embed.handle(app.pool, app.actor, embedder, lease, progress=progress)

    return {EMBED: embed_memories, embed_with(embedder.model): embed_memories}


def work(app: App, *, once: bool, stop: Event, progress: Progress = lambda _: None) -> Done:
    """
    Do what is due: until nothing is, with `once`, else until `stop` is set.

    `progress` is told now and then how many more memories have been embedded.
    """
    done = worker.run(_task(app, progress), once=once, stop=stop)
    indexes.build_if_allowed(app)
    return done


def work_one(app: App) -> None:
    """Do the most urgent job that is due, if there is one; what cannot be done now is left to the next worker."""
    try:
        worker.work_one(_task(app), Done())
    except (MemsvcError, psycopg.Error) as exc:
        logger.error("a job is left to the next worker: %s", worker.account(exc))  # noqa: TRY400


def embed_all(app: App, *, stop: Event, progress: Progress = lambda _: None) -> Embedded:
    """Embed whatever has no vectors; without a model that is left to the workers, and said."""
    try:
        done = work(app, once=True, stop=stop, progress=progress)
    except (EmbedderUnavailable, WrongUse) as exc:
        left = f"not embedded, found by words only: {exc}"
        return Embedded(0, 0, (f"{left} (mend: {models.mended(exc)}; then memsvc worker --once)",))
    with app.pool.transaction(app.actor) as conn:
        beyond = models.beyond(conn, models.current(app))
        troubles = [job for job in overview.troubles(conn) if job.live and job.kind.startswith(EMBED)]
    notes = [f"not embedded: {job.job_key}: {job.last_error or job.status}" for job in troubles]
    if troubles:
        notes.append("failed jobs are tried again after a pause: memsvc worker --once; memsvc status shows them")
    return Embedded(done.completed, done.failed, (*notes, *models.beyond_note(beyond)))


def missing(app: App) -> int | None:
    """How many memories the model has no vectors of; None where there is no model to ask about."""
    used = models.current(app)
    if used.name is None:
        return None
    with app.pool.transaction(app.actor) as conn:
        return vectors.missing(conn, used.name)


def _task(app: App, progress: Progress = lambda _: None) -> Work:
    return Work(
        app.pool,
        app.actor,
        lambda: handlers(app, progress),
        worker.worker_id(),
        refill=lambda: embed.refill(app.pool, app.actor, app.embedder),
    )
