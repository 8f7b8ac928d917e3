"""Work: the jobs of the ledger, done by this process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event

import psycopg

from memsvc.db.pool import Conn
from memsvc.errors import MemsvcError
from memsvc.ledger import jobs
from memsvc.model.job import EMBED, Lease
from memsvc.pipeline import embed, worker
from memsvc.pipeline.worker import Done, Handler, Work
from memsvc.service import indexes
from memsvc.service.app import App

logger = logging.getLogger(__name__)


def handlers(app: App) -> dict[str, Handler]:
    """
    What this process can do, by kind of job.

    Raises:
        WrongUse: no embedder has the name that is set; no job is claimed for finding that out.
    """
    embedder = app.embedder

    def embed_memories(lease: Lease) -> Callable[[Conn], None]:
        return embed.handle(app.pool, app.actor, embedder, lease)

    return {EMBED: embed_memories}


def work(app: App, *, once: bool, stop: Event, after_each: Callable[[Done], None] | None = None) -> Done:
    """Do what is due: until nothing is, with `once`, else until `stop` is set."""
    done = worker.run(_task(app), once=once, stop=stop, after_each=after_each)
    indexes.build_if_allowed(app)
    return done


def work_one(app: App) -> None:
    """Do the most urgent job that is due, if there is one; what cannot be done now is left to the next worker."""
    try:
        worker.work_one(_task(app), Done())
    except (MemsvcError, psycopg.Error) as exc:
        logger.error("a job is left to the next worker: %s", worker.account(exc))  # noqa: TRY400


def _task(app: App) -> Work:
    return Work(app.pool, app.actor, handlers(app), worker.worker_id())


def due(app: App) -> int:
    """How many jobs are due that this process could do."""
    with app.pool.transaction(app.actor) as conn:
        return jobs.runnable(conn, [EMBED])
