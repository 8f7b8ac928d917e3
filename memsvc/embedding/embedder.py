"""What an embedder is, and how one is chosen by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Vector = list[float]
Span = tuple[int, int]


class Embedder(Protocol):
    """
    Turns texts into vectors of unit length, so that the inner product is the cosine.

    `model` names what made the vectors, so that vectors of different models never meet: model, variant and, where
    it matters, its settings. `dimension` is the vectors' length, `max_tokens` the model's window.
    """

    model: str
    dimension: int
    max_tokens: int

    def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """Vectors of stored texts, in their order."""
        ...

    def embed_query(self, text: str) -> Vector:
        """The vector of a question; some models prefix it."""
        ...

    def spans(self, text: str, *, room: int = 0) -> list[Span]:
        """
        Character ranges (end excluded) that cover the text and each fit the model's window, less `room` tokens.

        A text that fits gives one span; an empty one gives none. Spans do not overlap and leave out only white space.
        """
        ...

    def count_tokens(self, text: str) -> int:
        """How many of the window's tokens the text takes, special tokens not counted."""
        ...
