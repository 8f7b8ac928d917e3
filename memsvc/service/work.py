"""Work: the jobs of the ledger, done by this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import Event

import psycopg

from memsvc.db.pool import Conn
from memsvc.errors import EmbedderUnavailable, MemsvcError, WrongUse
from memsvc.ledger import jobs
from memsvc.model.job import EMBED, Lease
from memsvc.pipeline import attempt, embed, worker
from memsvc.pipeline.attempt import Handler, Work
from memsvc.pipeline.worker import GRACE, Done
from memsvc.service.app import App

logger = logging.getLogger(__name__)

KINDS = (EMBED,)  # what this program can do
PROBE = "is the model there?"


def handlers(app: App, kinds: Sequence[str] = KINDS) -> dict[str, Handler]:
    """
    What this process can do, by kind of job.

    Raises:
        WrongUse: there is no such kind, or no embedder has the name that is set: it is found out before any job is
            claimed.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise WrongUse(f"no worker can do jobs of the kind {unknown[0]!r}", mend=f"choose from {', '.join(KINDS)}")
    embedder = app.embedder

    def embed_memories(lease: Lease, lost: Event) -> Callable[[Conn], None]:  # noqa: ARG001 - it ends soon enough
        try:
            return embed.handle(app.pool, app.actor, embedder, lease)
        except EmbedderUnavailable as exc:
            embedder.embed_query(PROBE)  # where that fails too, it is the model, and the job is given back
            raise MemsvcError(f"the model takes other texts, but not these: {exc}") from exc

    known: dict[str, Handler] = {EMBED: embed_memories}
    return {kind: known[kind] for kind in kinds}


def work(
    app: App,
    *,
    once: bool,
    stop: Event,
    after_each: Callable[[Done], None] | None = None,
    kinds: Sequence[str] = KINDS,
    concurrency: int = 1,
    grace: timedelta = GRACE,
) -> Done:
    """
    Do what is due, `concurrency` jobs of each kind at a time: until nothing is, with `once`, else until `stop` is set,
    after which a job has `grace` to come to its end.

    Raises:
        WrongUse: nothing can be done that way.
    """
    if concurrency < 1:
        raise WrongUse(f"{concurrency} jobs at a time get nothing done", mend="--concurrency 1")
    task = _task(app, kinds)
    return worker.run(task, once=once, stop=stop, after_each=after_each, concurrency=concurrency, grace=grace)


def work_one(app: App) -> None:
    """Do the most urgent job that is due, if there is one; what cannot be done now is left to the next worker."""
    try:
        held = attempt.take(_task(app, KINDS), KINDS)
        if held is not None:
            attempt.see_through(held)
    except (MemsvcError, psycopg.Error) as exc:
        logger.error("a job is left to the next worker: %s", attempt.account(exc))  # noqa: TRY400


def _task(app: App, kinds: Sequence[str]) -> Work:
    return Work(app.pool, app.actor, handlers(app, kinds), worker.worker_id())


def due(app: App) -> int:
    """How many jobs are due that this process could do."""
    with app.pool.transaction(app.actor) as conn:
        return jobs.runnable(conn, KINDS)
