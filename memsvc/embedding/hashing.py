"""An embedder that hashes words: the same everywhere, needs no model, knows no meaning. For tests."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import islice

from memsvc.embedding import spans
from memsvc.embedding.embedder import Span, Vector
from memsvc.errors import WrongUse

_WORD = re.compile(r"\S+")
_WINDOW = 256


class HashingEmbedder:
    """
    Places a text by its lower-cased words and their character trigrams; a token is a word between blanks.

    Raises:
        WrongUse: a dimension below one.
    """

    max_tokens = _WINDOW

    def __init__(self, dimension: int) -> None:
        if dimension < 1:
            raise WrongUse(f"a vector cannot have {dimension} dimensions")
        self.dimension = dimension
        self.model = f"hash:{dimension}"

    def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """One vector of unit length for each text, made of its first 256 words."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> Vector:
        """The same vector as that of a passage."""
        vector = [0.0] * self.dimension
        for feature in _features(text):
            place, sign = _hashed(feature)
            vector[place % self.dimension] += sign
        return _unit(vector)

    def spans(self, text: str, *, room: int = 0, limit: int | None = None) -> list[Span]:
        """The spans, or the first `limit` of them, of at most 256 words, less `room`."""
        return list(islice(spans.cover(text, _words, self.max_tokens - room), limit))

    def count_tokens(self, text: str) -> int:
        """The number of words."""
        return sum(1 for _ in _WORD.finditer(text))


def _words(text: str) -> list[Span]:
    return [word.span() for word in _WORD.finditer(text)]


def _features(text: str) -> Iterator[str]:
    for word in text[: _WINDOW * spans.CHARACTERS_PER_TOKEN].lower().split()[:_WINDOW]:
        yield f"={word}"  # no trigram begins so: a word of three letters is not its own trigram
        padded = f"<{word}>"
        yield from (padded[start : start + 3] for start in range(len(padded) - 2))


def _hashed(feature: str) -> tuple[int, float]:
    """A large number and a sign that depend on nothing but the feature."""
    digest = blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=9).digest()
    return int.from_bytes(digest[:8], "big"), 1.0 if digest[8] & 1 else -1.0


def _unit(vector: Vector) -> Vector:
    length = math.sqrt(sum(value * value for value in vector))
    if not length:  # no words, or features that cancel each other out: any direction will do, no direction will not
        return [1.0, *vector[1:]]
    return [value / length for value in vector]
