"""Recall: a question in, the memories that answer it out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

from memsvc.errors import EmbedderUnavailable, WrongUse
from memsvc.model.memory import Kind, Status
from memsvc.recall import search
from memsvc.recall.search import Coverage, Hit, Wanted
from memsvc.service import models
from memsvc.service.app import App
from memsvc.service.where import searched

logger = logging.getLogger(__name__)

RECALL_WITHIN = timedelta(seconds=5)
LONGEST_QUERY = 20_000
MOST_HITS = 200
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class RecallRequest:
    """
    What to look for and where.

    `scope` is `all`, `global`, `client:NAME`, `project:IDENTITY` or a folder; without it the project of `folder`
    counts. `kinds`, `statuses`, `since` and `until` (when it was said) narrow the question; `include_hidden` widens
    it to sessions that Codex itself does not use. `max_tokens` is the room for the hits' texts, four characters a
    token.
    """

    query: str
    scope: str | None = None
    folder: Path | None = None
    limit: int = 8
    kinds: tuple[Kind, ...] = ()
    statuses: tuple[Status, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    include_hidden: bool = False
    max_tokens: int | None = None


@dataclass(frozen=True)
class RecallResult:
    """The hits, best first, the scopes that were searched, and how much of them could be found by meaning."""

    recall_id: UUID
    query: str
    scopes: tuple[str, ...]
    hits: tuple[Hit, ...]
    coverage: Coverage
    notes: tuple[str, ...]


def recall(app: App, request: RecallRequest) -> RecallResult:
    """
    Answer a question from memory.

    Raises:
        WrongUse: the query is empty or too long, or the limit is out of range.
        NotFound: there is no such scope.
    """
    query = _checked(request)
    vector, notes = _embedded(app, query)
    model = models.current(app).name or ""
    with app.pool.transaction(app.actor, statement_within=RECALL_WITHIN) as conn:
        where = searched(conn, request.scope, request.folder, host=app.host)
        hits, coverage = search.nearest(
            conn,
            query,
            vector,
            model=model,
            scopes=[scope.id for scope in where.scopes],
            limit=request.limit,
            wanted=Wanted(request.kinds, request.statuses, request.since, request.until, request.include_hidden),
        )
    if where.note:
        notes.append(where.note)
    if vector is not None and coverage.embedded < coverage.total:
        missing = coverage.total - coverage.embedded
        notes.append(f"{missing} of {coverage.total} memories have no vectors yet: they were found by their words only")
    fitting = hits if request.max_tokens is None else _fitting(hits, request.max_tokens)
    if len(fitting) < len(hits):
        notes.append(f"{len(hits) - len(fitting)} more did not fit into {request.max_tokens} tokens")
    return RecallResult(
        uuid4(), request.query, tuple(str(s) for s in where.scopes), tuple(fitting), coverage, tuple(notes)
    )


def _fitting(hits: Sequence[Hit], max_tokens: int) -> list[Hit]:
    """The best hits that fit, in their order; one that is too long makes way for shorter ones behind it."""
    room = max_tokens * CHARACTERS_PER_TOKEN
    fitting: list[Hit] = []
    for hit in hits:
        size = len(hit.text) + len(hit.context)
        if size <= room:
            fitting.append(hit)
            room -= size
    return fitting


def _checked(request: RecallRequest) -> str:
    query = request.query.replace("\x00", " ").encode(errors="replace").decode().strip()
    if not query:
        raise WrongUse("the query is empty", mend="ask for something in words")
    if len(query) > LONGEST_QUERY:
        raise WrongUse(
            f"the query has {len(query)} characters; {LONGEST_QUERY} is the most", mend="ask for less at a time"
        )
    if not 1 <= request.limit <= MOST_HITS:
        raise WrongUse(f"the limit is {request.limit}; it goes from 1 to {MOST_HITS}")
    if request.max_tokens is not None and request.max_tokens < 1:
        raise WrongUse(f"{request.max_tokens} tokens leave no room for an answer", mend="ask for 100 or more")
    if request.since and request.until and request.until <= request.since:
        raise WrongUse("until does not come after since")
    return query


def _embedded(app: App, query: str) -> tuple[list[float] | None, list[str]]:
    """The query's vector; without a model recall goes on by words, and says so."""
    try:
        return app.embedder.embed_query(query), []
    except (EmbedderUnavailable, WrongUse) as exc:
        logger.warning("recall without vectors: %s", exc)
        return None, [f"found by words only: {exc}"]
