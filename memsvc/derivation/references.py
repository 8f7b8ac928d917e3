"""What a line of consolidated memory is said to come from: sessions, summaries of sessions, working folders."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

_SUMMARY = re.compile(r"\brollout_summaries/([^\s)\]`'\",;]{1,300}?\.md)\b")
_THREAD = re.compile(r"\bthread_id\s*[=:]\s*`?([^\s)\]`'\",;]+)`?")
_FOLDER = re.compile(r"\bcwd\s*=\s*([^,;)\n]+)")
_MOST = 50  # what is said to come from more than that comes from nowhere in particular
_BETWEEN_FOLDERS = re.compile(r"[,|]|\s(?:and|or|plus)\s")


@dataclass(frozen=True)
class References:
    """Thread ids, names of files in rollout_summaries/, working folders: each once, in order, the first 50 of each."""

    threads: tuple[str, ...] = ()
    summaries: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> References:
        """What the text names."""
        named = (_once(pattern.findall(text)) for pattern in (_THREAD, _SUMMARY, _FOLDER))
        return cls(*named)

    @classmethod
    def all(cls, given: Iterable[References]) -> References:
        """What any of them names."""
        kept = list(given)
        return cls(
            _once(name for one in kept for name in one.threads),
            _once(name for one in kept for name in one.summaries),
            _once(name for one in kept for name in one.folders),
        )

    @staticmethod
    def cut(text: str) -> str:
        """The text without the sessions and summaries that it names."""
        return _SUMMARY.sub("", _THREAD.sub("", text))


NOWHERE = References()


def folders(written: str) -> tuple[str, ...]:
    """The folders of a list in words; a part that names none counts as well, since it widens what is meant."""
    return _once(part.strip(" \t`'\"<>") for part in _BETWEEN_FOLDERS.split(written))


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(islice(dict.fromkeys(name.strip() for name in names if name.strip()), _MOST))
