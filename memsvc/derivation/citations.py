"""Citation blocks that a session wrote into its text: bookkeeping of its client, never a statement."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TAG = re.compile(r"<(/?)oai-mem-citation>")
_PARTS = re.compile(r"\s*<(?:citation_entries|rollout_ids|thread_ids|/oai-mem-citation)>")
_BLANK_LINE = re.compile(r"\n[ \t\r]*+\n")


@dataclass
class _Search:
    text: str
    opened_at: int | None = None
    found: list[tuple[int, int]] = field(default_factory=list)

    def meet(self, tag: re.Match[str]) -> None:
        if tag[1]:
            self._close(tag.end())
            return
        self._give_up(tag.start())
        # The bare tag in prose is a mention; with one of its parts behind it, it is a block.
        if _PARTS.match(self.text, tag.end()):
            self.opened_at = tag.start()

    def finish(self) -> None:
        self._give_up(len(self.text))

    def _close(self, ends_at: int) -> None:
        if self.opened_at is not None:
            self.found.append((self.opened_at, ends_at))
        self.opened_at = None

    def _give_up(self, before: int) -> None:
        """A block that nothing closes ends with its paragraph."""
        if self.opened_at is not None:
            blank = _BLANK_LINE.search(self.text, self.opened_at, before)
            self._close(blank.start() if blank else before)


def find(text: str) -> list[tuple[int, int]]:
    """Where the `oai-mem-citation` blocks stand: character offsets, end excluded, in order, none overlapping."""
    search = _Search(text)
    for tag in _TAG.finditer(text):
        search.meet(tag)
    search.finish()
    return search.found
