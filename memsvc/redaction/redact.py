"""
Secrets in a text, found and cut out.

What has the shape of a known kind of secret is one wherever it stands. What is assigned to a telling name is one unless
it looks like a word, a variable or a placeholder.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from memsvc.redaction import names, shapes
from memsvc.redaction.placeholders import MARK
from memsvc.redaction.shapes import Found

RULES = "secrets-1"
"""Name and version of the rule set; it changes when the rules do."""


@dataclass(frozen=True)
class Finding:
    """A secret: the rule that found it, its character offsets (end excluded) and the line it starts on, from 1."""

    rule: str
    starts_at: int
    ends_at: int
    line: int


def find(text: str) -> list[Finding]:
    """The secrets in the text, in order, none overlapping. Offsets refer to the text as given."""
    found: list[Found] = []
    # A secret may have hidden the beginning of the next one; so look again until all is quiet.
    while new := _search(_cut(text, found)):
        merged = _merged([*found, *_in_original(new, found)])
        if merged == found:
            break
        found = merged
    return list(_with_lines(text, found))


def redact(text: str) -> tuple[str, list[Finding]]:
    """The text with `[REDACTED_SECRET]` in place of each secret, and where they stood in it. Once is enough."""
    findings = find(text)
    return _cut(text, [(one.starts_at, one.ends_at, one.rule) for one in findings]), findings


def _search(text: str) -> list[Found]:
    return _merged([*shapes.find(text), *names.find(text)])


def _merged(found: Iterable[Found]) -> list[Found]:
    """One for those that overlap, named by the rule that starts first; of those, by the one listed first."""
    merged: list[Found] = []
    for starts_at, ends_at, rule in sorted(found, key=lambda one: one[0]):
        if merged and starts_at < merged[-1][1]:
            first = merged[-1]
            merged[-1] = (first[0], max(first[1], ends_at), first[2])
        else:
            merged.append((starts_at, ends_at, rule))
    return merged


def _cut(text: str, found: Iterable[Found]) -> str:
    pieces: list[str] = []
    at = 0
    for starts_at, ends_at, _ in found:
        pieces += [text[at:starts_at], MARK]
        at = ends_at
    return "".join([*pieces, text[at:]])


def _in_original(new: Iterable[Found], cut: Sequence[Found]) -> Iterator[Found]:
    """Offsets in the text without `cut`, as offsets in the text with it."""
    shifts = [0, *accumulate(ends_at - starts_at - len(MARK) for starts_at, ends_at, _ in cut)]
    marks = [starts_at - shift for (starts_at, _, _), shift in zip(cut, shifts, strict=False)]
    for starts_at, ends_at, rule in new:
        before, behind = bisect_right(marks, starts_at), bisect_right(marks, ends_at - 1)
        yield starts_at + shifts[before], ends_at + shifts[behind], rule


def _with_lines(text: str, found: Iterable[Found]) -> Iterator[Finding]:
    line, at = 1, 0
    for starts_at, ends_at, rule in found:
        line += text.count("\n", at, starts_at)
        at = starts_at
        yield Finding(rule, starts_at, ends_at, line)
