"""
What a session output consists of: headings, fields, labels, list items and paragraphs.

It is Markdown as language models write it, so nothing is required: a list needs no blank line before it, a fence that
nobody closes ends where the next section starts, and every line lands in one element.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from memsvc.derivation import labels
from memsvc.derivation.fences import Fence, Fences
from memsvc.derivation.labels import Label
from memsvc.derivation.lines import Line, lines

_BULLET = re.compile(r"\s*+([-*+•◦‣▪●–—](?=\s|$)|\d{1,9}[.)](?=\s|$)|・)\s*+")
_TASK = re.compile(r"task(?:\s+#?\d{1,6}\b)?(?:\s*[:.)]\s*|\s+[–—-]\s+|\s*$)|task\s+#?\d{1,6}\s+", re.IGNORECASE)
_FIELD = re.compile(r"\**(task|task_group|task_outcome|[Oo]utcome)\**[ \t]*:\**(.*)", re.DOTALL)
_OUTCOME = re.compile(r"(?:success|partial|fail|failed|failure|uncertain|unknown)\.?", re.IGNORECASE)
_RULE_MARKS = frozenset("-*_=")


@dataclass(slots=True)
class Run:
    """Lines that belong together. `gap` holds blank lines that are part of it only if more follows."""

    first: Line
    last: Line
    texts: list[str] = field(default_factory=list)
    gap: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, line: Line, text: str) -> Run:
        """A run that starts on this line, of which `text` counts."""
        return cls(line, line, [text] if text else [])

    def add(self, line: Line) -> None:
        """Append a line that is not blank, and the blank ones before it."""
        if not self.texts:
            self.first = line
        self.texts += [*self.gap, line.text]
        self.gap.clear()
        self.last = line

    @property
    def text(self) -> str:
        """What the run says: line endings normalised, ends trimmed, else unchanged."""
        return "\n".join(self.texts).strip()


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of dashes. It separates and says nothing."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; `task` is the name of the task that it opens, None when it opens none."""

    line: Line
    level: int
    title: str
    task: str | None


@dataclass(frozen=True, slots=True)
class Field:
    """One of the lines `task`, `task_group`, `task_outcome` (also written `Outcome`)."""

    line: Line
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Labelled:
    """A label, and the text that follows on its line or directly below; `level` is 0 where it is no heading."""

    label: Label
    run: Run
    level: int = 0


@dataclass(frozen=True, slots=True)
class Item:
    """A list item with all that is nested in it; `indent` is the column of its marker."""

    run: Run
    indent: int


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Text outside lists."""

    run: Run


Element = Rule | Heading | Field | Labelled | Item | Paragraph


def elements(text: str, *, at: int = 0, number: int = 1) -> Iterator[Element]:
    """The elements of the text from offset `at` on, where the line `number` starts."""
    outline = _Outline(Fences(text))
    for line in lines(text, at=at, number=number):
        yield from outline.take(line)
    yield from outline.close()


@dataclass(slots=True)
class _Outline:
    fences: Fences
    fence: Fence | None = None
    opened: Labelled | Item | Paragraph | None = None

    def take(self, line: Line) -> Iterator[Element]:
        """The elements that end with this line or before it."""
        words = line.text.strip()
        if not words:
            self._leave_gap(line)
        elif self._in_fence(words) or self._opens_fence(line, words) or self._is_nested(line):
            self._extend(line)
        else:
            yield from self._begin(line, words)

    def close(self) -> Iterator[Element]:
        """The element that was open."""
        if self.opened:
            yield self.opened
        self.opened = self.fence = None

    def _leave_gap(self, line: Line) -> None:
        if self.opened:
            self.opened.run.gap.append(line.text)

    def _extend(self, line: Line) -> None:
        if self.opened:
            self.opened.run.add(line)
        else:
            self.opened = Paragraph(Run.begin(line, line.text))

    def _in_fence(self, words: str) -> bool:
        if self.fence is None:
            return False
        if self.fence.closed_by(words):
            self.fence = None
        elif not self.fence.closes and _opens_section(words):
            self.fence = None
            return False
        return True

    def _opens_fence(self, line: Line, words: str) -> bool:
        self.fence = self.fences.opened_by(words, line.starts_at)
        return self.fence is not None

    def _is_nested(self, line: Line) -> bool:
        if not isinstance(self.opened, Item):
            return False
        deeper = _indent(line.text) - self.opened.indent
        return deeper > 1 or (deeper == 1 and not _BULLET.match(line.text))

    def _begin(self, line: Line, words: str) -> Iterator[Element]:
        fresh = self.opened is None or bool(self.opened.run.gap)
        wrapped = not fresh and isinstance(self.opened, Paragraph)
        begun = _structure(line, words) or _bullet(line, wrapped=wrapped) or _label(line, words, fresh, wrapped)
        if begun is None and not fresh:
            self._extend(line)
            return
        yield from self.close()
        if isinstance(begun, Rule | Heading | Field):
            yield begun
        else:
            self._open(begun or Paragraph(Run.begin(line, line.text)), line)

    def _open(self, begun: Labelled | Item | Paragraph, line: Line) -> None:
        self.opened = begun
        if isinstance(begun, Item):
            self._opens_fence(line, begun.run.text)


def _structure(line: Line, words: str) -> Rule | Heading | Labelled | Field | None:
    return _rule(words) or _heading(line, words) or _field(line, words)


def _rule(words: str) -> Rule | None:
    mark = words[0]
    is_rule = mark in _RULE_MARKS and words.count(mark) > 2 and not words.strip(mark + " \t")
    return Rule() if is_rule else None


def _heading(line: Line, words: str) -> Heading | Labelled | None:
    title = words.lstrip("#")
    level = len(words) - len(title)
    if not 1 <= level <= 6 or not (title[:1].isspace() or not title):
        return None
    title = _unmarked(title.strip())
    found = labels.known(title, bare=True)
    if found:
        return Labelled(found[0], Run.begin(line, found[1]), level)
    task = _TASK.match(title)
    return Heading(line, level, title, title[task.end() :] if task else None)


def _unmarked(title: str) -> str:
    """Without the closing hashes and the bold marks around it."""
    bare = title.rstrip("#")
    if not bare or bare[-1].isspace():
        title = bare.rstrip()
    return title.strip("* ") if title.startswith("**") and title.endswith("**") else title


def _field(line: Line, words: str) -> Field | None:
    bullet = _BULLET.match(words)
    match = _FIELD.match(words, bullet.end() if bullet else 0)
    if not match:
        return None
    key, value = match[1].lower(), match[2].strip()
    # As a list item it must be unmistakable: "- task: ..." and "- Outcome: we shipped it" are things to remember.
    if bullet and (key == "task" or (key == "outcome" and not _OUTCOME.fullmatch(value))):
        return None
    return Field(line, "task_outcome" if key == "outcome" else key, value)


def _bullet(line: Line, *, wrapped: bool) -> Item | Labelled | None:
    """`wrapped`: the line follows prose, where a number and a dot, or a dash, may just be how a sentence goes on."""
    match = _BULLET.match(line.text)
    if not match or (wrapped and (match[1] in "–—" or (match[1][0].isdigit() and match[1][:-1] != "1"))):
        return None
    text = line.text[match.end() :]
    found = labels.known(text.strip())
    if found and not found[1]:
        return Labelled(found[0], Run.begin(line, ""))
    return Item(Run.begin(line, text), _indent(line.text))


def _label(line: Line, words: str, fresh: bool, wrapped: bool) -> Labelled | None:
    found = labels.known(words, bare=fresh)
    if found:
        return Labelled(found[0], Run.begin(line, found[1]))
    label = None if wrapped or line.text[0].isspace() else labels.unknown(words)
    return Labelled(label, Run.begin(line, "")) if label else None


def _opens_section(words: str) -> bool:
    return bool(labels.known(words)) or (words.startswith("#") and bool(_TASK.match(words.lstrip("# "))))


def _indent(text: str) -> int:
    margin = text[: len(text) - len(text.lstrip())]
    return len(margin.replace("\f", "").expandtabs(4))
