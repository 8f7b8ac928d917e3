"""
How well recall finds the turns that answer a question: LoCoMo, through `remember` and `recall`, without a language
model.

The data file (locomo10.json of snap-research/locomo, CC BY-NC 4.0) is not part of this project: name it with --data.
Weights are fitted on dialogues 0 to 4; 7 to 9 are for the final reading.

Metrics, in percent: hit@k (some evidence among the first k), R@k (share of the evidence among the first k), MRR.
Sessions are ranked by their best turn. What recency costs is measured by moving the conversations, which are years old
and get nothing from it, to where the last turn was said today. What it is good for is measured on statements of our
own: two that differ in one value, said at different times, must come newest first; each value is the newer one once, so
that without recency half of them would.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import psycopg

from memsvc.db import embedded
from memsvc.model.memory import text_hash
from memsvc.service import work
from memsvc.service.app import App
from memsvc.service.recall import RecallRequest, recall
from memsvc.service.remember import RememberRequest, remember
from memsvc.settings import Settings

EVIDENCE = re.compile(r"D\d+:\d+")
DEPTH = 20
# Deep enough that the turns come from ten sessions.
SESSION_DEPTH = 100
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}


@dataclass(frozen=True)
class Turn:
    """One thing said; `key` is LoCoMo's dia_id. What is said outside a conversation has no place in one."""

    key: str
    session: str | None
    ordinal: int | None
    speaker: str | None
    text: str
    said_at: datetime


@dataclass(frozen=True)
class Question:
    text: str
    category: int
    evidence: frozenset[str]


@dataclass
class Scores:
    """Ranks of the evidence, question by question."""

    hits: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    shares: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    reciprocal: list[float] = field(default_factory=list)

    def add(self, found: Sequence[str], wanted: frozenset[str]) -> None:
        for k in (1, 5, 10, 20):
            self.hits[k].append(bool(wanted & set(found[:k])))
            self.shares[k].append(len(wanted & set(found[:k])) / len(wanted))
        first = next((place for place, key in enumerate(found, start=1) if key in wanted), None)
        self.reciprocal.append(1 / first if first else 0.0)

    def extend(self, other: Scores) -> None:
        for mine, theirs in ((self.hits, other.hits), (self.shares, other.shares)):
            for k, values in theirs.items():
                mine[k] += values
        self.reciprocal += other.reciprocal


@dataclass
class Measured:
    """One dialogue: turns as they are and as if the last had been said today, and sessions; by category."""

    turns: dict[int, Scores] = field(default_factory=lambda: defaultdict(Scores))
    moved: dict[int, Scores] = field(default_factory=lambda: defaultdict(Scores))
    sessions: dict[int, Scores] = field(default_factory=lambda: defaultdict(Scores))


@dataclass(frozen=True)
class Metric:
    """
    One value for each question, between 0 and 1; goal and peer are in percent.

    Peers: Q1 and Q4 Postgres' own ts_rank over any word; Q2 and Q3 what memini publishes with the same model (MRR of
    sessions by BM25), but R@5 of sessions with one vector a session; Q5 recency as an equal list of rank fusion.
    """

    name: str
    values: Sequence[float]
    goal: float | None = None
    peer: float | None = None

    def percent(self) -> tuple[float, float, float]:
        """The mean and the ends of its 95 % interval."""
        mean = statistics.fmean(self.values)
        half = 1.96 * statistics.pstdev(self.values) / len(self.values) ** 0.5
        return round(100 * mean, 1), round(100 * (mean - half), 1), round(100 * (mean + half), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0].strip())
    parser.add_argument("--data", type=Path, required=True, help="locomo10.json")
    parser.add_argument("--dialogues", default="0-4", help="such as 0-4 or 7,8,9 (default 0-4)")
    parser.add_argument("--store", type=Path, help="keep the database there and use it again")
    parser.add_argument("--embedder", default="builtin")
    parser.add_argument("--quick", action="store_true", help="one dialogue, ends within a minute or two")
    parser.add_argument("--misses", type=int, default=0, help="show so many questions that were missed")
    parser.add_argument("--json", action="store_true", help="one object a metric")
    options = parser.parse_args()
    chosen = [0] if options.quick else _numbers(options.dialogues)
    dialogues = json.loads(options.data.read_text(encoding="utf-8"))
    with _store(options.store, options.embedder) as app:
        measured = [_measure(app, number, dialogues[number], options.misses) for number in chosen]
        newer_first = _newer_first(app)
    _report(_metrics(measured, newer_first), as_json=options.json)


@contextmanager
def _store(folder: Path | None, embedder: str) -> Iterator[App]:
    with tempfile.TemporaryDirectory() as temporary:
        settings = Settings(data_dir=(folder or Path(temporary)).absolute(), embedder=embedder)
        with App(settings) as starting:
            assert starting.pool is not None
            url = starting.database_url
        try:
            # Named as a server of somebody's own, so that embedding is left to the batch below.
            with App(Settings(data_dir=settings.data_dir, database_url=url, embedder=embedder)) as app:
                yield app
        finally:
            embedded.stop(settings)


def _measure(app: App, number: int, dialogue: dict[str, Any], misses: int) -> Measured:
    scope = f"project:locomo-{number}"
    turns = list(_turns(dialogue["conversation"]))
    keys = _remember(app, scope, turns)
    questions = list(_questions(dialogue["qa"], {turn.key for turn in turns}))
    measured = Measured()
    for question in questions:
        found = _found(app, question.text, scope, keys, DEPTH)
        measured.turns[question.category].add(found, question.evidence)
        sessions = dict.fromkeys(map(_session, _found(app, question.text, scope, keys, SESSION_DEPTH)))
        measured.sessions[question.category].add([*sessions], frozenset(map(_session, question.evidence)))
        if misses and not question.evidence & set(found[:10]) and question.category != 5:
            misses -= 1
            print(f"missed: {question.text} wanted {sorted(question.evidence)}", file=sys.stderr)
    with _moved(app, keys, datetime.now(UTC) - max(turn.said_at for turn in turns)):
        for question in questions:
            measured.moved[question.category].add(_found(app, question.text, scope, keys, DEPTH), question.evidence)
    return measured


def _found(app: App, query: str, scope: str, keys: dict[str, str], limit: int) -> list[str]:
    hits = recall(app, RecallRequest(query, scope=scope, limit=limit)).hits
    return [keys[str(hit.id)] for hit in hits if str(hit.id) in keys]


def _session(key: str) -> str:
    return key.partition(":")[0]


@contextmanager
def _moved(app: App, keys: Iterable[str], by: timedelta) -> Iterator[None]:
    """As if the turns had been said so much later; the dates in what was embedded stay."""
    move = "update memsvc.memories set said_at = said_at + %s where id = any (%s::uuid[])"
    with psycopg.connect(app.database_url, autocommit=True) as conn:
        conn.execute(move, [by, list(keys)])
        try:
            yield
        finally:
            conn.execute(move, [-by, list(keys)])


# What is asked, what is said, and two values of which neither is older by nature.
CHANGING = (
    ("Which port does the staging server listen on?", "The staging server listens on port {}.", "8181", "9292"),
    ("Who is on call for the billing service?", "{} is on call for the billing service.", "Mara", "Ivan"),
    ("What is the upload limit of the public API?", "The upload limit of the public API is {}.", "20 MB", "50 MB"),
    ("Which queue library do we use?", "We use {} as our queue library.", "RabbitMQ", "Celery"),
    ("On which day is the weekly release?", "The weekly release is on {}.", "Tuesday", "Thursday"),
    ("How do I run the integration tests?", "Run the integration tests with {}.", "make it", "make verify"),
    ("What timeout does the crawler use?", "The crawler uses a timeout of {} seconds.", "15", "40"),
    ("Which branch do hotfixes start from?", "Hotfixes start from the branch {}.", "stable", "release"),
    ("Which region holds the backups?", "The backups are held in the region {}.", "eu-west", "eu-north"),
    ("How many reviewers does a change need?", "A change needs {} reviewers.", "two", "three"),
    ("Which formatter does the frontend use?", "The frontend uses the formatter {}.", "Biome", "Prettier"),
    ("Where is the design document kept?", "The design document is kept in {}.", "the wiki", "the repository"),
)
# Days since the older and the newer statement.
AGES = ((400, 20), (90, 5), (30, 3))


def _newer_first(app: App) -> list[float]:
    """Whether the newer of two statements comes first: each question, at each age, with each value as the newer one."""
    outcomes: list[float] = []
    for older_age, newer_age in AGES:
        for turned in (False, True):
            scope = f"project:latest-{older_age}-{'turned' if turned else 'plain'}"
            wanted: list[tuple[str, str, str]] = []
            said: list[Turn] = []
            for question, statement, one, other in CHANGING:
                older, newer = (statement.format(value) for value in ((other, one) if turned else (one, other)))
                wanted.append((question, older, newer))
                said += [_statement(older, older_age), _statement(newer, newer_age)]
            keys = _remember(app, scope, said)
            for question, older, newer in wanted:
                places = {key: place for place, key in enumerate(_found(app, question, scope, keys, DEPTH))}
                outcomes.append(places.get(newer, DEPTH) < places.get(older, DEPTH))
    return outcomes


def _statement(text: str, days: int) -> Turn:
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return Turn(text, None, None, None, text, midnight - timedelta(days=days))


def _remember(app: App, scope: str, turns: Iterable[Turn]) -> dict[str, str]:
    """The keys of the turns by the ids of their memories."""
    keys: dict[str, str] = {}
    _ensure_scope(app, scope)
    for turn in turns:
        result = remember(
            app,
            RememberRequest(
                turn.text,
                scope=scope,
                session=turn.session,
                ordinal=turn.ordinal,
                speaker=turn.speaker,
                observed_at=turn.said_at,
                status="reported",
            ),
        )
        keys[str(result.id)] = turn.key
    work.work(app, once=True, stop=Event())
    return keys


def _ensure_scope(app: App, scope: str) -> None:
    from memsvc.memory import scopes
    from memsvc.model.scope import ProjectIdentity

    with app.pool.transaction(app.actor) as conn:
        name = scope.removeprefix("project:")
        scopes.ensure_project(conn, ProjectIdentity(()), name=name, alternative=name)


def _turns(conversation: dict[str, Any]) -> Iterator[Turn]:
    ordinal = 0
    seen: set[tuple[int, str, str]] = set()
    for session in range(1, 100):
        said_at = _instant(conversation.get(f"session_{session}_date_time", ""))
        for turn in conversation.get(f"session_{session}", []):
            caption = turn.get("blip_caption")
            text = " ".join(filter(None, [turn["text"], f"[shares a picture: {caption}]" if caption else ""])).strip()
            ordinal += 1
            key = (session, turn["speaker"], text_hash(text).hex())
            if text and key not in seen:
                yield Turn(turn["dia_id"], str(session), ordinal, turn["speaker"], text, said_at)


def _instant(given: str) -> datetime:
    """LoCoMo writes '1:56 pm on 8 May, 2023'."""
    try:
        return datetime.strptime(given.strip(), "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    except ValueError:
        return datetime(2023, 1, 1, tzinfo=UTC)


def _questions(given: Iterable[dict[str, Any]], known: set[str]) -> Iterator[Question]:
    for entry in given:
        evidence = frozenset(EVIDENCE.findall(" ".join(entry.get("evidence", [])))) & known
        if evidence:
            yield Question(entry["question"], entry["category"], evidence)


def _numbers(given: str) -> list[int]:
    found: list[int] = []
    for part in given.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _metrics(measured: Sequence[Measured], newer_first: Sequence[float]) -> Iterator[Metric]:
    def together(level: str, categories: Iterable[int]) -> Scores:
        whole = Scores()
        for dialogue in measured:
            for category in categories:
                whole.extend(getattr(dialogue, level)[category])
        return whole

    four, five = together("turns", (1, 2, 3, 4)), together("turns", CATEGORIES)
    sessions, moved = together("sessions", CATEGORIES), together("moved", CATEGORIES)
    yield Metric("Q1 hit@5, categories 1-4", four.hits[5], 76, 58.9)
    yield Metric("Q1 hit@10, categories 1-4", four.hits[10], 84, 66.0)
    yield Metric("Q1 MRR, categories 1-4", four.reciprocal, 59, 47.4)
    yield Metric("R@10, categories 1-4", four.shares[10], None, 59.4)
    yield Metric("Q2 hit@5, five categories", five.hits[5], 73, 59.7)
    yield Metric("Q2 hit@10, five categories", five.hits[10], 83, 69.9)
    yield Metric("Q2 MRR, five categories", five.reciprocal, 54, 42.4)
    yield Metric("Q3 R@5, sessions", sessions.shares[5], 88, 45.8)
    yield Metric("Q3 hit@10, sessions", sessions.hits[10], 97, 96.6)
    yield Metric("Q3 MRR, sessions", sessions.reciprocal, None, 79.4)
    for category, name in CATEGORIES.items():
        goal, peer = (55, 39.0) if category == 1 else (None, None)
        values = together("turns", (category,)).shares[10]
        yield Metric(f"{'Q4 ' if goal else ''}R@10, {name}", values, goal, peer)
    lost = [before - after for before, after in zip(five.shares[10], moved.shares[10], strict=True)]
    yield Metric("Q5 R@10 lost to recency (at most)", lost, 0.3, 3.7)
    yield Metric("Q5 newer of two statements first", newer_first)


def _report(metrics: Iterable[Metric], *, as_json: bool) -> None:
    if not as_json:
        print(f"{'metric':36}{'value':>7}{'95 %':>16}{'goal':>7}{'peer':>7}{'n':>6}")
    for metric in metrics:
        value, low, high = metric.percent() if metric.values else (None, None, None)
        if as_json:
            line = {"metric": metric.name, "value": value, "goal": metric.goal, "low": low, "high": high}
            print(json.dumps({**line, "peer": metric.peer}))
        else:
            interval, goal, peer = f"{low} - {high}", metric.goal or "", metric.peer or ""
            print(f"{metric.name:36}{value!s:>7}{interval:>16}{goal!s:>7}{peer!s:>7}{len(metric.values):>6}")


if __name__ == "__main__":
    main()
