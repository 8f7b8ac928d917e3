"""
The `key: value` lines between `---` fences with which a raw memory begins.

They look like YAML and are not: values are free text with colons, quotes and braces. So each line is split at its first
colon and nothing is validated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from memsvc.derivation.lines import Line, lines

_KNOWN = frozenset(
    {"description", "task", "task_group", "task_outcome", "cwd", "keywords", "rollout_summary_file", "rollout_path"}
)
_FENCE = re.compile(r"-{3,}+")
_KEY_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_-]{0,40})[ \t]*:(.*)", re.DOTALL)
_BULLET = re.compile(r"[-*+][ \t]+")
_BLOCK_SCALARS = frozenset({">", "|", ">-", "|-", ">+", "|+"})


@dataclass
class Entry:
    """One key's value and the lines it stands on, both ends included."""

    first: Line
    last: Line
    parts: list[str]

    @property
    def value(self) -> str:
        """The value as written, its lines joined by newlines and its ends trimmed."""
        return "\n".join(part for part in self.parts if part)


@dataclass(frozen=True)
class FrontMatter:
    """The entries found, the first of each key; the body starts at offset `ends_at`, which is line `next_line`."""

    entries: Mapping[str, Entry]
    ends_at: int = 0
    next_line: int = 1

    def value(self, key: str) -> str:
        """The value of the key; empty when there is none."""
        entry = self.entries.get(key)
        return entry.value if entry else ""


@dataclass
class _Reading:
    fenced: bool = False
    closed: Line | None = None
    after_blank: bool = False
    entries: dict[str, Entry] = field(default_factory=dict)
    latest: tuple[str, Entry] | None = None

    def take(self, line: Line) -> bool:
        """Whether the front matter goes on behind this line."""
        words = line.text.strip()
        if not words:
            self.after_blank = True
            return self.fenced or not self.entries
        taken = self._fence(line, words) or self._entry(line, words) or self._continuation(line, words)
        self.after_blank = False
        return taken and self.closed is None

    def _fence(self, line: Line, words: str) -> bool:
        if not _FENCE.fullmatch(words):
            return False
        if self.fenced or self.entries:
            self.closed = line
        self.fenced = True
        return True

    def _entry(self, line: Line, words: str) -> bool:
        match = None if line.text[:1].isspace() else _KEY_LINE.match(words)
        # Behind a blank line any prose could follow a fence that nobody closed; so could it without an opening one.
        if not match or (match[1] not in _KNOWN and (self.after_blank or not self.fenced)):
            return False
        value = match[2].strip()
        entry = Entry(line, line, [] if value in _BLOCK_SCALARS else [value])
        self.entries.setdefault(match[1], entry)
        self.latest = (match[1], entry)
        return True

    def _continuation(self, line: Line, words: str) -> bool:
        if self.latest is None or self.after_blank:
            return False
        key, entry = self.latest
        item = _BULLET.match(words)
        if not line.text[:1].isspace() and not (item and key == "keywords"):
            return False
        entry.parts.append(words[item.end() :] if item else words)
        entry.last = line
        return True

    def end(self) -> Line | None:
        return self.closed or (self.latest[1].last if self.latest else None)


def read(text: str) -> FrontMatter:
    """
    The front matter of the text; without entries when it has none.

    A missing closing fence ends it at the first line that is no entry, and a missing opening one is no hindrance where
    the first line carries a known key. Text between fences without any known key is not front matter.
    """
    reading = _Reading()
    for line in lines(text):
        if not reading.take(line):
            break
    end = reading.end()
    if end is None or not _KNOWN & reading.entries.keys():
        return FrontMatter({})
    return FrontMatter(reading.entries, ends_at=min(end.ends_at + 1, len(text)), next_line=end.number + 1)
