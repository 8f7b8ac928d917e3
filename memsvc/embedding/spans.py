"""Where to cut a text so that each piece fits a model's window."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from memsvc.embedding.embedder import Span
from memsvc.errors import WrongUse

Tokenise = Callable[[str], list[Span]]
"""Gives the character range of each token of a text, in order and without special tokens."""

# Bounds the memory a tokeniser takes for a text of any length. Prose has 4 to 5 characters to the token, so a piece
# this long is always cut by its tokens; only runs that are one token each (a key, blanks) reach it.
CHARACTERS_PER_TOKEN = 80
# One character can be several tokens (a Hangul syllable is three), and a span holds at least one.
LEAST_TOKENS = 8

_SOLID = re.compile(r"\S")
_BLANK_LINE = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"[.!?…][)\]\"'»”’]*\Z")
_WIDE_SENTENCE_END = re.compile(r"[。！？．][）」』”’]*\Z")  # no blank follows these
_PARAGRAPH, _LINE, _SENTENCE, _WORD, _MARK, _INSIDE_WORD = 5, 4, 3, 2, 1, 0


def cover(text: str, tokenise: Tokenise, budget: int) -> Iterator[Span]:
    """
    Spans of at most `budget` tokens each, counted on the span alone, that leave out only white space.

    Takes time in proportion to the text, and memory for one window of it.

    Raises:
        WrongUse: the budget is too small to hold every character.
    """
    if budget < LEAST_TOKENS:
        raise WrongUse(f"{budget} tokens are left of the window, fewer than {LEAST_TOKENS}")
    start = _next_solid(text, 0)
    while start < len(text):
        window_end = _window_end(text, start, budget * CHARACTERS_PER_TOKEN)
        window = text[start:window_end]
        planned = split(window, tokenise(window), budget)
        if window_end < len(text) and len(planned) > 1:
            planned.pop()  # the window ends it, not the text: it may well take more
        end = start
        for first, last in planned:
            end = _fitting_end(text, start + first, start + last, tokenise, budget)
            yield start + first, end
            if end < start + last:
                break
        start = _next_solid(text, end)


def split(text: str, tokens: Sequence[Span], budget: int) -> list[Span]:
    """
    Spans of at most `budget` of these tokens each, that leave out only white space.

    Cuts where a paragraph, else a line, a sentence or a word ends, else beside a punctuation mark, if that leaves a
    span at least half full. Tokens that share a character stay together, even when they are more than the budget.
    """
    separable = _separable(tokens)
    spans: list[Span] = []
    start = first = 0
    while len(tokens) - first > budget:
        cut = _best_cut(text, tokens, separable, first, budget)
        if cut is None:
            break
        spans.append((start, tokens[cut][0]))
        start, first = tokens[cut][0], cut
    spans.append((start, len(text)))
    return [trimmed for span in spans if (trimmed := _trim(text, span)) is not None]


def count(text: str, tokenise: Tokenise, window: int) -> int:
    """
    How many tokens a text has, counted in windows of so many characters.

    Exact unless white space is further apart than a window is long.
    """
    total, start = 0, _next_solid(text, 0)
    while start < len(text):
        end = _window_end(text, start, window)
        total += len(tokenise(text[start:end]))
        start = _next_solid(text, end)
    return total


def _separable(tokens: Sequence[Span]) -> list[bool]:
    """For each token, whether the text can be cut before it without cutting another token."""
    separable = [False] * len(tokens)
    reached = 0
    for index, (before, after) in enumerate(pairwise(tokens), start=1):
        reached = max(reached, before[1])
        separable[index] = after[0] >= reached
    return separable


def _best_cut(text: str, tokens: Sequence[Span], separable: list[bool], first: int, budget: int) -> int | None:
    """The token that begins the next span, or None if nothing more can be cut."""
    half, full = max(first + 1, first + budget // 2), first + budget
    for candidates in (range(half, full + 1), range(first + 1, half)):
        allowed = [index for index in candidates if separable[index]]
        if allowed:
            return max(allowed, key=lambda index: (_rank(text, tokens[index - 1][1], tokens[index][0]), index))
    return next((index for index in range(full + 1, len(tokens)) if separable[index]), None)


def _rank(text: str, before: int, after: int) -> int:
    """How good a place to cut lies between one token's end and the next one's start."""
    gap = text[before:after]
    ending = text[max(0, before - 4) : before]
    if "\n" in gap:
        return _PARAGRAPH if _BLANK_LINE.search(gap) else _LINE
    if _WIDE_SENTENCE_END.search(ending):
        return _SENTENCE
    if not gap:
        return _INSIDE_WORD if text[before - 1].isalnum() and text[after].isalnum() else _MARK
    return _SENTENCE if _SENTENCE_END.search(ending) else _WORD


def _fitting_end(text: str, start: int, end: int, tokenise: Tokenise, budget: int) -> int:
    """Where to end a span so that it keeps to the budget: half a word can have more tokens than it adds."""
    while len(tokens := tokenise(text[start:end])) > budget:
        shorter = start + split(text[start:end], tokens, budget)[0][1]
        if shorter == end:
            break
        end = shorter
    return end


def _window_end(text: str, start: int, size: int) -> int:
    """The last white space at most `size` characters on, or just so far where there is none; starts at a word."""
    if len(text) - start <= size:
        return len(text)
    return start + len(text[start : start + size].rsplit(maxsplit=1)[0])


def _next_solid(text: str, start: int) -> int:
    """Where the next character that is not white space stands, or the text's end."""
    found = _SOLID.search(text, start)
    return found.start() if found else len(text)


def _trim(text: str, span: Span) -> Span | None:
    """The span without white space at its ends, or None if nothing is left."""
    solid = text[span[0] : span[1]].strip()
    if not solid:
        return None
    start = _next_solid(text, span[0])
    return start, start + len(solid)
