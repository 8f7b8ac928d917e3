"""Work: the jobs of the ledger, done by this process."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from memsvc.ledger import jobs
from memsvc.model.job import EMBED, Lease
from memsvc.pipeline import embed, worker
from memsvc.pipeline.worker import Done, Handler, Work
from memsvc.service.app import App


def handlers(app: App) -> dict[str, Handler]:
    """What this process can do, by kind of job."""

    def embed_memories(lease: Lease) -> Callable[..., None]:
        return embed.handle(app.pool, app.actor, app.embedder, lease)

    return {EMBED: embed_memories}


def work(app: App, *, once: bool, stop: Event, after_each: Callable[[Done], None] | None = None) -> Done:
    """Do what is due: until nothing is, with `once`, else until `stop` is set."""
    return worker.run(_task(app), once=once, stop=stop, after_each=after_each)


def work_one(app: App) -> None:
    """Do the most urgent job that is due, if there is one; a failure is the ledger's to keep."""
    worker.work_one(_task(app), Done())


def _task(app: App) -> Work:
    return Work(app.pool, app.actor, handlers(app), worker.worker_id())


def due(app: App) -> int:
    """How many jobs are due that this process could do."""
    with app.pool.transaction(app.actor) as conn:
        return jobs.runnable(conn, [EMBED])
