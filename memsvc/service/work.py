"""Work: the jobs of the ledger, done by this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Event

import psycopg

from memsvc.db.pool import Conn
from memsvc.embedding import vectors
from memsvc.errors import EmbedderUnavailable, MemsvcError, WrongUse
from memsvc.ledger import overview
from memsvc.model.job import EMBED, Lease, embed_with
from memsvc.pipeline import attempt, embed, worker
from memsvc.pipeline.attempt import Handler, Work
from memsvc.pipeline.worker import GRACE, Done
from memsvc.service import indexes, models
from memsvc.service.app import App

logger = logging.getLogger(__name__)

Progress = Callable[[int], None]

KINDS = (EMBED,)  # what this program can do
PROBE = "is the model there?"


@dataclass(frozen=True)
class Embedded:
    """What embedding in the foreground came to; `notes` say what has no vectors, why, and what mends it."""

    completed: int
    failed: int
    notes: tuple[str, ...]


def work(
    app: App,
    *,
    once: bool,
    stop: Event,
    progress: Progress = lambda _: None,
    kinds: Sequence[str] = KINDS,
    concurrency: int = 1,
    grace: timedelta = GRACE,
) -> Done:
    """
    Do what is due, `concurrency` jobs of each kind at a time: until nothing is, with `once`, else until `stop` is set,
    after which a job has `grace` to come to its end.

    `progress` is told now and then how many more memories have been embedded.

    Raises:
        WrongUse: nothing can be done that way, or no embedder has the name that is set; no job is claimed for that.
        EmbedderUnavailable: with `once`, the model is not there.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise WrongUse(f"no worker can do jobs of the kind {unknown[0]!r}", mend=f"choose from {', '.join(KINDS)}")
    if concurrency < 1:
        raise WrongUse(f"{concurrency} jobs at a time get nothing done", mend="--concurrency 1")
    return worker.run(_task(app, kinds, progress), once=once, stop=stop, concurrency=concurrency, grace=grace)


def work_one(app: App) -> None:
    """Do the most urgent job that is due, if there is one; what cannot be done now is left to the next worker."""
    try:
        held = attempt.take(_task(app, KINDS), EMBED)
        if held is not None:
            attempt.see_through(held)
    except (MemsvcError, psycopg.Error) as exc:
        logger.error("a job is left to the next worker: %s", attempt.account(exc))  # noqa: TRY400


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


def _task(app: App, kinds: Sequence[str], progress: Progress = lambda _: None) -> Work:
    def embed_memories(lease: Lease, lost: Event) -> Callable[[Conn], None]:  # noqa: ARG001 - it ends soon enough
        try:
            return embed.handle(app.pool, app.actor, app.embedder, lease, progress=progress)
        except EmbedderUnavailable as exc:
            app.embedder.embed_query(PROBE)  # where that fails too, it is the model, and the job is given back
            raise MemsvcError(f"the model takes other texts, but not these: {exc}") from exc

    def refill(kind: str) -> int:
        """What the model lacks; when that is nothing, its vectors may want an index."""
        found = embed.refill(app.pool, app.actor, app.embedder) if kind == EMBED else 0
        if not found:
            indexes.build_if_allowed(app)
        return found

    known: dict[str, Handler] = {EMBED: embed_memories}
    return Work(
        app.pool,
        app.actor,
        {kind: known[kind] for kind in kinds},
        worker.worker_id(),
        # What came in, and then what the model lacks.
        claims=lambda kind: (EMBED, embed_with(app.embedder.model)) if kind == EMBED else (kind,),
        refill=refill,
    )
