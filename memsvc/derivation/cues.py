"""Words that betray how sure a writer is, in the languages that people have used so far."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import product

_WORD = re.compile(r"\w+")


class Cues:
    """`words` and `phrases` count as whole words, in any case; `parts` anywhere, for scripts without blanks."""

    def __init__(self, words: frozenset[str], phrases: tuple[str, ...], parts: tuple[str, ...] = ()) -> None:
        self._words, self._parts = words, parts
        # By first word, so that of a hundred phrases only the few that can occur are looked for.
        self._phrases: defaultdict[str, list[str]] = defaultdict(list)
        for phrase in phrases:
            self._phrases[phrase.partition(" ")[0]].append(f" {phrase} ")

    def found_in(self, text: str) -> bool:
        """Whether any of them occurs in the text."""
        words = _WORD.findall(text.casefold())
        if not self._words.isdisjoint(words) or any(part in text for part in self._parts):
            return True
        possible = [phrase for head in self._phrases.keys() & words for phrase in self._phrases[head]]
        spaced = f" {' '.join(words)} " if possible else ""
        return any(phrase in spaced for phrase in possible)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.casefold().split())


def _pairs(heads: str, tails: str) -> tuple[str, ...]:
    """Each head with each tail; they are separated by commas."""
    return tuple(f"{head} {tail}" for head, tail in product(heads.split(", "), tails.split(", ")))


HEDGES = Cues(
    words=_words(
        """
        probably maybe perhaps possibly might seem seems seemed seeming seemingly likely unlikely appears appeared
        apparently presumably supposedly suspect suspects suspected assume assumes assumed assuming assumption guess
        guesses guessed tentative tentatively uncertain unsure unverified unconfirmed
        vermutlich vermute vermuten vermutet wahrscheinlich vielleicht möglicherweise eventuell evtl anscheinend
        scheinbar scheint scheinen offenbar angeblich könnte könnten dürfte dürften mutmaßlich ungeprüft
        probablement semble quizá quizás probablemente parece forse probabilmente talvez provavelmente
        misschien waarschijnlijk prawdopodobnie возможно вероятно наверное кажется
        """
    ),
    phrases=(
        *_pairs("not, not yet", "sure, verified, confirmed, proven"),
        *_pairs("may", "be, have, not, also, need, still"),
        *_pairs("i, we", "think, believe"),
        *("appear to", "could be", "could have been", "peut être", "sans doute", "tal vez", "być może", "может быть"),
    ),
    parts=(
        "おそらく",
        "恐らく",
        "たぶん",
        "多分",
        "かもしれ",
        "と思われ",
        "らしい",
        "可能",
        "也许",
        "大概",
        "或许",
        "似乎",
        "아마",
    ),
)

SUPPOSED_OR_REFUTED = Cues(
    words=_words(
        """
        would hypothetical hypothetically imagine disproved refuted misdiagnosed mistaken
        würde würden wäre wären hätte hätten
        """
    ),
    phrases=(
        *_pairs("if, if the, if a", "user, users"),
        *_pairs("if we, if i, if they, if he, if she, if it, if you", "had, were"),
        *_pairs("could, should, might", "have"),
        *_pairs("suppose, supposing", "that, we, the"),
        *_pairs("turned out, turned out to be, turns out to be, proved", "false, wrong, untrue, incorrect, not"),
        *_pairs("was, were", "wrong, false, incorrect, a red herring, not the cause, not the real cause"),
        *_pairs(
            "first, initially, at first, wrongly, mistakenly, incorrectly",
            "blamed, suspected, thought, assumed, believed",
        ),
        *_pairs("falls, wenn", "der nutzer, der benutzer, der anwender, die nutzerin"),
        *_pairs("zuerst, zunächst", "vermutet, verdächtigt, angenommen"),
        *_pairs("stellte sich als", "falsch, unwahr, irrtum"),
        *("in theory", "not the root cause", "ruled out", "no longer true", "war falsch", "war ein irrtum"),
    ),
)
