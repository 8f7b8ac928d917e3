"""
How well founded a statement is, judged by its words alone.

A session output is what a model wrote, so nothing in it is a fact. A line that gives the words of the user or of a tool
is reported; one that asks is a question; one that hedges, supposes or tells of an error is an assumption; the rest is
an inference. Where two of them fit, the weaker one is taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memsvc.derivation import quotes
from memsvc.derivation.cues import HEDGES, SUPPOSED_OR_REFUTED
from memsvc.model.memory import Kind, Status

_FENCE = re.compile(r"^[ \t]*+(?:```|~~~)", re.MULTILINE)
_ARROW = re.compile(r"->|→|=>|⇒")
_LONGEST_JUDGED = 20_000  # characters; what is longer is a document, and its end changes nothing
_QUESTION_OPENINGS = re.compile(
    r"[\W_]*+(?:open question|offene frage|unclear (?:whether|if|why|how|what|which)"
    r"|unklar,? (?:ob|warum|wie|was|welche))",
    re.IGNORECASE,
)
_CLOSERS = "\"'”’»)]}*_ \t\n"


@dataclass(frozen=True)
class Judgement:
    """The status, and the words of the user or of a tool that the text gives (None: it gives none)."""

    status: Status
    quote: str | None


def judge(text: str, *, kind: Kind, doubt: Status | None = None) -> Judgement:
    """
    Judge a statement by its prose; fenced code is left aside.

    `doubt` is what the place of the statement suggests (the outcome of its task, the label above it). It says how sure
    the writer was, so it does not touch the words that he quotes.
    """
    fence = _FENCE.search(text)
    prose = (text[: fence.start()] if fence else text)[:_LONGEST_JUDGED]
    quote = quotes.users_words(prose, anywhere=kind == "preference") or quotes.tools_words(prose)
    status = _status(quotes.masked(prose), quoted=quote is not None)
    return Judgement(status or doubt or "inference", quote)


def _status(bare: str, *, quoted: bool) -> Status | None:
    if _is_question(bare):
        return "question"
    # Behind the arrow stands what quoted words suggest: that may be a guess while the words are not.
    told = _ARROW.split(bare, maxsplit=1)[0] if quoted else bare
    if SUPPOSED_OR_REFUTED.found_in(bare) or HEDGES.found_in(told):
        return "assumption"
    return "reported" if quoted else None


def _is_question(bare: str) -> bool:
    return bare.rstrip(_CLOSERS).endswith(("?", "？", "؟")) or bool(_QUESTION_OPENINGS.match(bare))
