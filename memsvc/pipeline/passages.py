"""The texts that are embedded: a memory under what it is about, and the window of it and its neighbours. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from memsvc.embedding.embedder import Embedder
from memsvc.embedding.vectors import Turn, Unembedded, Window

# Of a long neighbour only the part that is nearest counts.
NEIGHBOUR_CHARACTERS = 400


def heading(embedder: Embedder, memory: Unembedded) -> str:
    """Speaker and date (UTC) where known, then what the memory is about; at most half of the model's window."""
    said = ", ".join(filter(None, (memory.speaker, _day(memory.observed_at))))
    return _cut(embedder, ": ".join(filter(None, (said, memory.context))))


def window(embedder: Embedder, around: Window) -> str | None:
    """
    The memory between its neighbours, under date and context; None where it has none.

    None too for a memory that takes half of the model's window by itself: its neighbours would be cut off.
    """
    if around.before is None and around.after is None:
        return None
    own = _spoken(Turn(around.id, around.speaker, around.text))
    if embedder.count_tokens(own) > embedder.max_tokens // 2:
        return None
    before = _spoken(around.before, last=NEIGHBOUR_CHARACTERS) if around.before else ""
    after = _spoken(around.after, first=NEIGHBOUR_CHARACTERS) if around.after else ""
    about = _cut(embedder, ": ".join(filter(None, (_day(around.observed_at), around.context))))
    return about + "\n".join(filter(None, (before, own, after)))


def _spoken(turn: Turn, *, first: int | None = None, last: int | None = None) -> str:
    text = turn.text[:first] if last is None else turn.text[-last:]
    return f"{turn.speaker}: {text}" if turn.speaker else text


def _day(instant: datetime | None) -> str | None:
    return f"{instant.astimezone(UTC):%d %B %Y}" if instant else None


def _cut(embedder: Embedder, whole: str) -> str:
    spans = embedder.spans(whole, room=embedder.max_tokens // 2, limit=1)
    return f"{whole[spans[0][0] : spans[0][1]]}: " if spans else ""
