"""Texts that embedders must cope with, and what holds for the spans of any text."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from memsvc.embedding.embedder import Embedder, Span

# What cuts go wrong on: blanks of many kinds, scripts without blanks, characters that are several tokens or none,
# words that are one token because they are too long, and special tokens spelled out.
PIECES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["\n\n", "\n", " ", "\r\n", "\t", "\u3000", "\u2028", ". ", "。", "word", "embeddings", "e\u0301"]),
    st.sampled_from(["[SEP]", "각하", "東京", "\x00", "\ufffd", "\u0301", "\ud800", "\U0001f600", "ß", "İ", "a" * 101]),
    st.sampled_from(["3.14", "foo_bar(baz)", "https://a.example/b?c=d", "0123456789abcdef" * 8]),
)
TEXTS = st.lists(PIECES, max_size=60).map("".join)


def pieces(text: str, found: list[Span]) -> list[str]:
    return [text[start:end] for start, end in found]


def check(text: str, found: list[Span]) -> None:
    """Ordered, not overlapping, and nothing but white space left out."""
    reached = 0
    for start, end in found:
        assert reached <= start < end
        assert not text[reached:start].strip()
        assert text[start:end] == text[start:end].strip()
        reached = end
    assert not text[reached:].strip()


def check_fit(text: str, found: list[Span], embedder: Embedder, budget: int) -> None:
    """Besides, none has more tokens than the budget."""
    check(text, found)
    assert max((embedder.count_tokens(piece) for piece in pieces(text, found)), default=0) <= budget


def prose(size: int) -> str:
    chance = random.Random(2)
    vocabulary = ["lease", "heartbeat", "the", "a", "of", "embedding", "foo_bar()", "/usr/lib/x.so", "3.14", "naïve"]
    return " ".join(
        chance.choice(vocabulary) + chance.choice(["", "", ".", ",", "\n", "\n\n"]) for _ in range(size // 8)
    )
