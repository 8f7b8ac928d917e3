"""
How well recall finds the turns that answer a question: LoCoMo, through `remember` and `recall`, without a language
model.

The data file (locomo10.json of snap-research/locomo, CC BY-NC 4.0) is not part of this project: name it with --data.
Weights are fitted on dialogues 0 to 4; 7 to 9 are for the final reading.

Metrics, in percent: hit@k (some evidence among the first k), R@k (share of the evidence among the first k), MRR.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

from memsvc.db import embedded
from memsvc.model.memory import text_hash
from memsvc.service import work
from memsvc.service.app import App
from memsvc.service.recall import RecallRequest, recall
from memsvc.service.remember import RememberRequest, remember
from memsvc.settings import Settings

EVIDENCE = re.compile(r"D\d+:\d+")
DEPTH = 20
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}


@dataclass(frozen=True)
class Turn:
    """One thing said; `key` is LoCoMo's dia_id."""

    key: str
    session: int
    ordinal: int
    speaker: str
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

    hits: dict[int, list[bool]] = field(default_factory=lambda: {k: [] for k in (1, 5, 10)})
    shares: dict[int, list[float]] = field(default_factory=lambda: {k: [] for k in (5, 10, 20)})
    reciprocal: list[float] = field(default_factory=list)

    def add(self, found: Sequence[str], wanted: frozenset[str]) -> None:
        for k, hits in self.hits.items():
            hits.append(bool(wanted & set(found[:k])))
        for k, shares in self.shares.items():
            shares.append(len(wanted & set(found[:k])) / len(wanted))
        first = next((place for place, key in enumerate(found, start=1) if key in wanted), None)
        self.reciprocal.append(1 / first if first else 0.0)


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
    _report(measured, as_json=options.json)


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


def _measure(app: App, number: int, dialogue: dict[str, Any], misses: int) -> dict[int, Scores]:
    scope = f"project:locomo-{number}"
    turns = list(_turns(dialogue["conversation"]))
    keys = _remember(app, scope, number, turns)
    scores: dict[int, Scores] = {}
    for question in _questions(dialogue["qa"], {turn.key for turn in turns}):
        result = recall(app, RecallRequest(question.text, scope=scope, limit=DEPTH))
        found = [keys[str(hit.id)] for hit in result.hits if str(hit.id) in keys]
        scores.setdefault(question.category, Scores()).add(found, question.evidence)
        if misses and not question.evidence & set(found[:10]) and question.category != 5:
            misses -= 1
            print(f"missed: {question.text} wanted {sorted(question.evidence)}", file=sys.stderr)
    return scores


def _remember(app: App, scope: str, number: int, turns: Iterable[Turn]) -> dict[str, str]:
    keys: dict[str, str] = {}
    # Outside a folder of no known project a scope must exist: the first turn makes it, under the name of its folder.
    folder = Path(f"locomo-{number}")
    _ensure_scope(app, scope)
    for turn in turns:
        result = remember(
            app,
            RememberRequest(
                turn.text,
                scope=scope,
                folder=folder,
                session=str(turn.session),
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
                yield Turn(turn["dia_id"], session, ordinal, turn["speaker"], text, said_at)


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


def _report(measured: Sequence[dict[int, Scores]], *, as_json: bool) -> None:
    def together(categories: Iterable[int]) -> Scores:
        whole = Scores()
        for scores in measured:
            for category in categories:
                if category in scores:
                    part = scores[category]
                    for k, hits in part.hits.items():
                        whole.hits[k] += hits
                    for k, shares in part.shares.items():
                        whole.shares[k] += shares
                    whole.reciprocal += part.reciprocal
        return whole

    four, five = together((1, 2, 3, 4)), together(CATEGORIES)
    rows: list[tuple[str, Sequence[float | bool], float | None]] = [
        ("Q1 hit@5, categories 1-4", four.hits[5], 76),
        ("Q1 hit@10, categories 1-4", four.hits[10], 84),
        ("Q1 MRR, categories 1-4", four.reciprocal, 59),
        ("R@10, categories 1-4", four.shares[10], None),
        ("Q2 hit@5, five categories", five.hits[5], 73),
        ("Q2 hit@10, five categories", five.hits[10], 83),
        ("Q2 MRR, five categories", five.reciprocal, 54),
        *((f"R@10, {name}", together((c,)).shares[10], 55 if c == 1 else None) for c, name in CATEGORIES.items()),
    ]
    for name, values, goal in rows:
        value = round(100 * statistics.fmean(values), 1) if values else None
        if as_json:
            metric = {"metric": name, "value": value, "goal": goal, "low": None, "high": None, "peer": None}
            print(json.dumps(metric))
        else:
            print(f"{name:32} {value}{f'   (goal {goal})' if goal else ''}   n={len(values)}")


if __name__ == "__main__":
    main()
