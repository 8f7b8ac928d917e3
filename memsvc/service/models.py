"""Models: which one embeds, whether it can be had, what others have left behind, and dropping those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import psycopg

from memsvc.db.pool import Conn
from memsvc.embedding import vectors
from memsvc.embedding.vectors import Beyond
from memsvc.errors import Conflict, EmbedderUnavailable, MemsvcError, NotFound, WrongUse
from memsvc.memory import scopes
from memsvc.pipeline.embed import MAX_CHUNKS
from memsvc.recall import search
from memsvc.service.app import App

DROPPED_AT_ONCE = 20_000


@dataclass(frozen=True)
class Current:
    """The model that the settings name: its name, or why it cannot be had and what mends that."""

    name: str | None
    trouble: str | None = None
    mend: str | None = None


@dataclass(frozen=True)
class Model:
    """A model; `embedded` of the `total` memories that recall searches have vectors of it. None: not known yet."""

    name: str
    dimension: int | None
    embedded: int
    total: int
    current: bool


@dataclass(frozen=True)
class ModelsResult:
    """The models by name, and what is wrong with the one that the settings name."""

    models: tuple[Model, ...]
    trouble: str | None
    mend: str | None


@dataclass(frozen=True)
class DropResult:
    """How many vectors went with the model, or with a dry run would go."""

    name: str
    vectors: int
    dry_run: bool


def current(app: App) -> Current:
    """The model that is in use. An endpoint is not asked whether it is there; `doctor` does that."""
    try:
        return Current(app.embedder.model)
    except (EmbedderUnavailable, WrongUse) as exc:
        return Current(None, str(exc), mended(exc))


def mended(exc: MemsvcError) -> str:
    """What makes the model available: what the error says, else another model."""
    return exc.mend or "set MEMSVC_EMBEDDER to a model that is there, or unset it to use the built-in one"


def ls(app: App) -> ModelsResult:
    """Every model that has vectors, and the one in use."""
    used = current(app)
    with app.pool.transaction(app.actor) as conn:
        return ModelsResult(listed(conn, used), used.trouble, used.mend)


def listed(conn: Conn, used: Current) -> tuple[Model, ...]:
    """The models by name, with their coverage of all that the caller may read."""
    readable: Sequence[UUID] = [scope.id for scope in scopes.readable(conn)]
    known = [
        Model(m.name, m.dimension, m.embedded, m.total, m.name == used.name) for m in vectors.models(conn, readable)
    ]
    if used.name is not None and not any(model.current for model in known):
        covered = search.coverage(conn, model=used.name, scopes=readable)
        known.append(Model(used.name, None, covered.embedded, covered.total, True))
    return tuple(sorted(known, key=lambda model: model.name))


def beyond(conn: Conn, used: Current) -> Beyond:
    """What the model in use has no vectors of because its output is too large."""
    return Beyond(0, 0) if used.name is None else vectors.beyond(conn, used.name, most=MAX_CHUNKS)


def beyond_note(found: Beyond) -> tuple[str, ...]:
    """A sentence on it for people, if there is any."""
    where = f"beyond the first {MAX_CHUNKS} chunks of their session output ({found.outputs} outputs)"
    return (f"{found.memories} memories lie {where} and are found by words only",) if found.memories else ()


def drop(app: App, name: str, *, dry_run: bool = False) -> DropResult:
    """
    Delete a model's vectors, a part at a time, then the model; what is interrupted goes on with the next call.

    Raises:
        NotFound: no such model has vectors here.
        WrongUse: it is the one in use.
        Conflict: a worker is embedding with it.
    """
    if name == current(app).name:
        raise WrongUse(
            f"{name} is the model in use: a worker would embed everything with it again",
            mend="set MEMSVC_EMBEDDER to another model first",
        )
    with app.pool.transaction(app.actor) as conn:
        if not vectors.is_known(conn, name):
            raise NotFound(f"no model {name!r} has vectors here", mend="memsvc models ls")
        count = vectors.count(conn, name)
    if not dry_run:
        while _drop_some(app, name):
            pass
    return DropResult(name, count, dry_run)


def _drop_some(app: App, name: str) -> int:
    try:
        with app.pool.transaction(app.actor) as conn:
            return vectors.drop_some(conn, name, most=DROPPED_AT_ONCE)
    except psycopg.errors.ForeignKeyViolation as exc:
        raise Conflict(f"a worker is embedding with {name}", mend="stop it, then drop the model again") from exc
