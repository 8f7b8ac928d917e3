"""What a statement is about, for its context; and which lines say nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable

COMPARED = 1000
"""Characters of a title or an outcome that are looked at once for every statement below it."""

_LONGEST_TOPIC = 200  # characters that a title or a group has in a context
_LONGEST_KEYWORDS = 1000
_NOTHING = re.compile(r"[\W_]*(?:none|n/a|nothing|not applicable|keine)?[\W_]*", re.IGNORECASE)
_LONGEST_NOTHING = 40
_DOUBTFUL = re.compile(r"\b(?:uncertain|unclear|unknown|unverified)\b", re.IGNORECASE)


def context(text: str, topics: Iterable[str], *, keywords: str = "") -> str:
    """What the text is about, without what the text says anyway; the keywords stand last."""
    said = key(text[:COMPARED])
    shown = [topic[:COMPARED] for topic in topics if topic]
    about = ": ".join(dict.fromkeys(_short(topic) for topic in shown if key(topic) != said))
    return "; ".join(filter(None, [about, f"keywords: {keywords[:_LONGEST_KEYWORDS]}" if keywords else ""]))


def says_nothing(text: str) -> bool:
    """Whether the text is marks only, or a word for nothing."""
    return len(text) <= _LONGEST_NOTHING and _NOTHING.fullmatch(text) is not None


def is_doubtful(outcome: str) -> bool:
    """Whether an outcome, or a title that tells one, leaves open what is true."""
    return _DOUBTFUL.search(outcome[:COMPARED]) is not None


def key(text: str) -> str:
    """By which two titles are the same: letters alone, in any case and layout, with or without a full stop."""
    return " ".join(text.split()).casefold().rstrip(".")


def _short(topic: str) -> str:
    line = " ".join(topic.split())
    return line if len(line) <= _LONGEST_TOPIC else line[: _LONGEST_TOPIC - 1] + "…"
