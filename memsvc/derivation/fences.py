"""Fenced code: where it opens, and whether anything closes it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OPENING = re.compile(r"(`{3,}+)[^`]*+$|(~{3,}+)")
_CLOSING_LINES = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[ \t\r]*+$", re.MULTILINE)
_LONGEST = 16  # longer fences count as this long, so that there are few lengths to look through


@dataclass(frozen=True)
class Fence:
    """An open fence. When nothing in the rest of the text closes it, `closes` is False."""

    mark: str
    closes: bool

    def closed_by(self, words: str) -> bool:
        """Whether the line, trimmed, closes this fence."""
        return len(words) >= len(self.mark) and words == self.mark[0] * len(words)


class Fences:
    """The fences of one text."""

    def __init__(self, text: str) -> None:
        self._last: dict[tuple[str, int], int] = {}
        for match in _CLOSING_LINES.finditer(text):
            self._last[_kind(match[1])] = match.start()

    def opened_by(self, words: str, at: int) -> Fence | None:
        """The fence that opens on the line, trimmed, which starts at offset `at`; None if it opens none."""
        if not words.startswith(("```", "~~~")):
            return None
        match = _OPENING.match(words)
        if not match:
            return None
        mark: str = match[1] or match[2]
        return Fence(mark, self._closed_behind(mark, at))

    def _closed_behind(self, mark: str, at: int) -> bool:
        char, length = _kind(mark)
        return any(self._last.get((char, longer), -1) > at for longer in range(length, _LONGEST + 1))


def _kind(mark: str) -> tuple[str, int]:
    return mark[0], min(len(mark), _LONGEST)
