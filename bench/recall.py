"""
What recall finds and what it costs when a store is large: candidate search against an exact scan, in scopes of every
size, and the fused order against vectors alone.

Rows are mixed from the turns of real dialogues (locomo10.json of snap-research/locomo, CC BY-NC 4.0, named with --data
and not part of this project): each is the blend of two turns in its words and in its vector. Questions of the same
dialogues ask. Dialogues 0 to 4 alone are used.

V1: recall@10 inside a scope against the exact order, for scopes drawn at random and scopes about one topic.
V2: median time of candidate search against the exact scan of the same scope.
V4: median time of the whole recall against vectors alone with their rows, and how much of the ten best stays when no
word is too common to look up.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID, uuid4

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from memsvc.db import embedded, migrate
from memsvc.db.pool import Conn
from memsvc.embedding import indexes, vectors
from memsvc.memory import scopes
from memsvc.model.memory import text_hash
from memsvc.model.scope import ProjectIdentity
from memsvc.service.app import App
from memsvc.settings import Settings

DIALOGUES = range(5)
SESSION = 20
# Scopes by name: their share of all rows, and whether they are about one topic. What is left is a scope of its own.
SHARES = {
    "random 0.1 %": (0.001, False),
    "random 1 %": (0.01, False),
    "random 10 %": (0.1, False),
    "topic 0.7 %": (0.007, True),
    "topic 12.5 %": (0.125, True),
}
REST, ALL = "the rest", "all 100 %"
FOUND = 10
CANDIDATES = 50
HOUR = timedelta(hours=1)
# How far a row lies from its blend: neighbours of real turns are as near as neighbours of rows then.
NOISE = 0.45

Matrix = NDArray[np.float32]

MEMORIES: LiteralString = """
copy given (id, scope_id, text, text_sha256, session, ordinal, vector) from stdin"""
ROWS: LiteralString = """
insert into memsvc.memories (
    tenant_id, id, scope_id, kind, status, origin, text, text_sha256, author_id, source_id, session, ordinal, said_at)
select s.tenant_id, g.id, g.scope_id, 'note', 'reported', 'human', g.text, g.text_sha256, p.id, s.id, g.session,
    g.ordinal, now() - random() * interval '2 years'
from given g, memsvc.sources s, memsvc.principals p
where s.importer = 'memsvc' and p.tenant_id = s.tenant_id and p.kind = 'person'
"""
CHUNKS: LiteralString = """
insert into memsvc.chunks (tenant_id, scope_id, memory_id, view, starts_at, ends_at, text_sha256)
select m.tenant_id, m.scope_id, m.id, 'own', 0, length(m.text), m.text_sha256
from memsvc.memories m join given using (id)
"""
VECTORS: LiteralString = """
insert into memsvc.chunk_embeddings (
    tenant_id, scope_id, model, memory_id, view, starts_at, ends_at, dimension, embedding)
select m.tenant_id, m.scope_id, %(model)s, m.id, 'own', 0, length(m.text), vector_dims(g.vector), g.vector
from memsvc.memories m join given g using (id)
"""
FOUND_BY_VECTOR: LiteralString = """
select m.id, m.text, m.context, m.kind, m.status, m.recorded_at
from memsvc.vector_candidates(%(vector)s::halfvec, %(model)s, %(scopes)s::uuid[], %(candidates)s, '{}') v
join memsvc.memories m on m.id = v.memory_id
order by greatest(v.own, v.around) desc, m.id
limit 10
"""
EXACT: LiteralString = """
select m.id, m.text, m.context, m.kind, m.status, m.recorded_at
from (
    select e.memory_id, min(e.embedding <=> %(vector)s::halfvec) as distance
    from memsvc.chunk_embeddings e
    where e.tenant_id = memsvc.current_tenant() and e.scope_id = any (%(scopes)s::uuid[]) and e.model = %(model)s
    group by e.memory_id
    order by min(e.embedding <=> %(vector)s::halfvec), e.memory_id
    limit 10
) near
join memsvc.memories m on m.tenant_id = memsvc.current_tenant() and m.id = near.memory_id
order by near.distance, m.id
"""
FUSED: LiteralString = """
select m.id, m.text, m.context, m.kind, m.status, m.recorded_at
from memsvc.recall(%(query)s, %(vector)s::halfvec, %(model)s, %(scopes)s::uuid[], 10, '{}') r
join memsvc.memories m on m.id = r.memory_id
order by r.score desc, m.said_at desc, m.id
"""


@dataclass(frozen=True)
class Corpus:
    """
    What is stored and asked.

    `rows` are the stored vectors, one a row, of unit length; `texts` their words; `scope` the name of each row's scope.
    """

    rows: Matrix
    texts: list[str]
    scope: list[str]
    questions: list[str]
    asked: Matrix


@dataclass(frozen=True)
class Found:
    """What one way of asking found, question by question, and how long each took, in milliseconds."""

    ids: list[list[UUID]]
    took: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.took)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0].strip())
    parser.add_argument("--data", type=Path, required=True, help="locomo10.json")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--embedder", default="builtin")
    parser.add_argument("--store", type=Path, help="keep the database there and use it again")
    parser.add_argument("--quick", action="store_true", help="12,000 rows, 20 questions, one round")
    parser.add_argument("--json", action="store_true", help="one object a metric")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.questions, options.rounds = 12_000, 20, 1
    with _store(options.store, options.embedder) as app:
        corpus = _corpus(app, options.data, options.rows, options.questions)
        named = _filled(app, corpus)
        indexes.build(app.database_url, indexes.Model(app.embedder.model, app.embedder.dimension))
        with app.pool.transaction(app.actor, statement_within=HOUR, idle_within=HOUR) as conn:
            _report(list(_measured(conn, app.embedder.model, corpus, named, options.rounds)), as_json=options.json)


def _corpus(app: App, data: Path, size: int, questions: int) -> Corpus:
    """Blends of two turns each, the same ones for the same size."""
    chance = random.Random(1)
    generator = np.random.default_rng(1)
    dialogues = [json.loads(data.read_text(encoding="utf-8"))[number] for number in DIALOGUES]
    turns = [
        turn["text"]
        for dialogue in dialogues
        for name, session in dialogue["conversation"].items()
        if isinstance(session, list)
        for turn in session
        if turn.get("text", "").strip()
    ]
    asked = chance.sample([entry["question"] for dialogue in dialogues for entry in dialogue["qa"]], questions)
    known = _embedded(app, turns)
    pairs = generator.integers(0, len(turns), (size, 2))
    noise = generator.standard_normal((size, known.shape[1])).astype(np.float32)
    share = generator.uniform(0.55, 0.85, (size, 1)).astype(np.float32)
    blend = share * known[pairs[:, 0]] + (1 - share) * known[pairs[:, 1]] + NOISE / np.sqrt(known.shape[1]) * noise
    rows = _unit(blend)
    texts = [f"{_half(turns[a], chance)} {_half(turns[b], chance)} #{n}" for n, (a, b) in enumerate(pairs)]
    return Corpus(rows, texts, _scopes(rows, generator), asked, _embedded(app, asked, query=True))


def _scopes(rows: Matrix, generator: np.random.Generator) -> list[str]:
    """A topic is what lies nearest to one of the rows."""
    names = np.full(len(rows), REST, dtype=object)
    for name, (share, is_topic) in SHARES.items():
        free = np.flatnonzero(names == REST)
        wanted = int(share * len(rows))
        if is_topic:
            centre = rows[generator.choice(free)]
            chosen = free[np.argsort(-(rows[free] @ centre))[:wanted]]
        else:
            chosen = generator.choice(free, wanted, replace=False)
        names[chosen] = name
    return list(names)


def _embedded(app: App, texts: Sequence[str], *, query: bool = False) -> Matrix:
    if query:
        return _unit(np.asarray([app.embedder.embed_query(text) for text in texts], dtype=np.float32))
    found = [vector for at in range(0, len(texts), 8) for vector in app.embedder.embed_passages(texts[at : at + 8])]
    return _unit(np.asarray(found, dtype=np.float32))


def _unit(rows: Matrix) -> Matrix:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def _half(text: str, chance: random.Random) -> str:
    words = text.split()
    return " ".join(words[: max(1, round(len(words) * chance.uniform(0.4, 0.8)))])


def _filled(app: App, corpus: Corpus) -> dict[str, list[UUID]]:
    """The scopes by name, all of them together under ALL, filled once."""
    named: dict[str, list[UUID]] = {}
    with app.pool.transaction(app.actor) as conn:
        vectors.register(conn, app.embedder)
        for name in [*SHARES, REST]:
            key = name.replace(" ", "-").replace("%", "percent")
            scope = scopes.ensure_project(conn, ProjectIdentity(()), name=key, alternative=key)
            named[name] = [scope.id]
        is_new = conn.execute("select not exists (select from memsvc.memories)").fetchone() == (True,)
    if is_new:
        with migrate.connect(app.database_url) as admin:
            _fill(admin, app.embedder.model, corpus, named)
    return named | {ALL: [scope for one in named.values() for scope in one]}


def _fill(admin: Conn, model: str, corpus: Corpus, named: dict[str, list[UUID]]) -> None:
    admin.execute("set search_path = memsvc, extensions, public")
    admin.execute(
        "create temp table given (id uuid, scope_id uuid, text text, text_sha256 bytea, session text, ordinal bigint,"
        " vector halfvec)"
    )
    with admin.cursor() as cursor, cursor.copy(MEMORIES) as copy:
        for number, (text, scope, row) in enumerate(zip(corpus.texts, corpus.scope, corpus.rows, strict=True)):
            place = (str(number // SESSION), number % SESSION)
            copy.write_row(
                (uuid4(), named[scope][0], text, text_hash(text), *place, HalfVector(row.tolist()).to_text())
            )
    for statement in (ROWS, CHUNKS, VECTORS):
        admin.execute(statement, {"model": model})
    for table in ("memories", "chunks", "chunk_embeddings"):
        admin.execute(f"vacuum analyze memsvc.{table}".encode())


def _measured(
    conn: Conn, model: str, corpus: Corpus, named: dict[str, list[UUID]], rounds: int
) -> Iterator[dict[str, Any]]:
    """Every way asks every question in turn, so that a busy machine slows all alike."""
    given = [
        {"query": question, "vector": HalfVector(vector.tolist()).to_text(), "model": model, "candidates": CANDIDATES}
        for question, vector in zip(corpus.questions, corpus.asked, strict=True)
    ]
    for name, searched in named.items():
        exact, ours = _asked(conn, [EXACT, FOUND_BY_VECTOR], given, searched, rounds)
        shares = [_share(a, b) for a, b in zip(ours.ids, exact.ids, strict=True)]
        short = sum(len(a) < len(b) for a, b in zip(ours.ids, exact.ids, strict=True))
        yield _metric(f"V1 recall@10, {name}", statistics.fmean(shares), 0.98, f"{short} answers too short")
        yield _metric(f"V2 p50 / exact, {name}", ours.median / exact.median, 1.5, f"{ours.median:.1f} ms")
    dense, fused = _asked(conn, [FOUND_BY_VECTOR, FUSED], given, named[ALL], rounds)
    yield _metric("V4 fused / vectors alone", fused.median / dense.median, 6, f"{fused.median:.1f} ms")
    (uncapped,) = _asked(_uncapped(conn), [FUSED], given, named[ALL], 1)
    kept = statistics.fmean(_share(a, b) for a, b in zip(fused.ids, uncapped.ids, strict=True))
    yield _metric("V4 same ten as uncapped", kept, 0.95, f"{uncapped.median:.1f} ms uncapped")


def _asked(
    conn: Conn, ways: Sequence[LiteralString], given: Sequence[dict[str, Any]], searched: list[UUID], rounds: int
) -> list[Found]:
    found = [Found([], []) for _ in ways]
    for turn in range(rounds + 1):  # the first round warms up
        for values in given:
            for way, into in zip(ways, found, strict=True):
                started = time.perf_counter()
                rows = conn.execute(way, values | {"scopes": searched}).fetchall()
                if turn:
                    into.took.append(1000 * (time.perf_counter() - started))
                if turn == 1:
                    into.ids.append([row[0] for row in rows])
    return found


def _uncapped(conn: Conn) -> Conn:
    """The functions as they are, but for the cap on common words; gone with the transaction."""
    conn.execute("reset role")
    body = conn.execute("select pg_get_functiondef('memsvc.text_scores'::regproc)").fetchone()
    assert body is not None
    lifted, places = re.subn(r"\b5000[01]\b", "2000000000", body[0])
    assert places >= 2
    conn.execute(lifted.encode())
    conn.execute("set local role memsvc_service")
    return conn


def _share(found: Sequence[UUID], wanted: Sequence[UUID]) -> float:
    return len(set(found) & set(wanted)) / len(wanted) if wanted else 1.0


def _metric(name: str, value: float, goal: float, note: str) -> dict[str, Any]:
    return {
        "metric": name,
        "value": round(value, 3),
        "goal": goal,
        "low": None,
        "high": None,
        "peer": None,
        "note": note,
    }


def _report(metrics: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    for metric in metrics:
        if as_json:
            print(json.dumps(metric))
        else:
            print(f"{metric['metric']:32} {metric['value']:8} (goal {metric['goal']})   {metric['note']}")


@contextmanager
def _store(folder: Path | None, embedder: str) -> Iterator[App]:
    with tempfile.TemporaryDirectory() as temporary:
        settings = Settings(data_dir=(folder or Path(temporary)).absolute(), embedder=embedder)
        try:
            with App(settings) as app:
                yield app
        finally:
            embedded.stop(settings)


if __name__ == "__main__":
    main()
