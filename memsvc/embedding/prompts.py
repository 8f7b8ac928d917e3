"""The words that a model wants before a text, as sentence-transformers writes them down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_QUERY = ("query",)
_PASSAGE = ("document", "passage", "corpus")


@dataclass(frozen=True)
class Prompts:
    """What goes before a question and before a stored text; empty for most models."""

    query: str = ""
    passage: str = ""


NO_PROMPTS = Prompts()


def choose(named: Mapping[str, str | None], default: str | None = None) -> Prompts:
    """The first prompt that is not empty under the names in use, else the one under the name `default`."""
    fallback = (named.get(default) if default else None) or ""

    def first(names: tuple[str, ...]) -> str:
        return next((prompt for name in names if (prompt := named.get(name))), fallback)

    return Prompts(query=first(_QUERY), passage=first(_PASSAGE))
