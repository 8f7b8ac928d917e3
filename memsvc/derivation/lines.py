"""A text line by line, each line with its place in the text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from memsvc.derivation import citations


class Line(NamedTuple):
    """
    One line. `number` counts from 1; the offsets count characters, the newline is outside and a `\\r` before it inside.

    `text` is what there is to read: without line ending, byte order mark and citation blocks, a lone `\\r` as newline.
    """

    number: int
    starts_at: int
    ends_at: int
    text: str


def lines(text: str, *, at: int = 0, number: int = 1) -> Iterator[Line]:
    """The lines from offset `at` on, where the line `number` starts. Only `\\n` ends a line."""
    cuts = deque(citations.find(text))
    while at <= len(text):
        ends_at = text.find("\n", at)
        if ends_at < 0:
            ends_at = len(text)
        shown = _without(cuts, text, at, ends_at) if cuts else text[at:ends_at]
        if at == 0:
            shown = shown.removeprefix("\ufeff")
        yield Line(number, at, ends_at, shown.rstrip("\r").replace("\r", "\n"))
        at, number = ends_at + 1, number + 1


def _without(cuts: deque[tuple[int, int]], text: str, at: int, ends_at: int) -> str:
    pieces: list[str] = []
    while cuts and cuts[0][0] < ends_at:
        starts, stops = cuts[0]
        pieces.append(text[at : max(at, starts)])
        at = max(at, min(stops, ends_at))
        if stops > ends_at:
            return "".join(pieces)
        cuts.popleft()
    return "".join([*pieces, text[at:ends_at]])
