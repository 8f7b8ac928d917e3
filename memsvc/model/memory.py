"""A memory: one statement that can be recalled, corrected, superseded and forgotten."""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["preference", "knowledge", "failure", "reference", "task", "note"]
Status = Literal["fact", "reported", "inference", "assumption", "question"]
Origin = Literal["imported", "extracted", "agent", "human"]

KINDS: tuple[Kind, ...] = get_args(Kind)
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Place:
    """
    Where in a session output, or in a file of consolidated memory, a statement stands.

    `column` is the output's column, `content` for a file; `block` is the number of the task block, in a file that of
    the task group (None outside one). Lines count from 1, both ends included; `starts_at` and `ends_at` are character
    offsets into the stored text, end excluded.
    """

    column: Literal["raw_memory", "rollout_summary", "content"]
    block: int | None
    first_line: int
    last_line: int
    starts_at: int
    ends_at: int


@dataclass(frozen=True)
class Statement:
    """
    One statement found in a session output.

    `text` is what is recalled; `context` says what it is about (description, task), is searched and embedded with the
    text and shown beside it. `quote` is the user's or a tool's words that the line gives, None when it gives none.
    """

    text: str
    context: str
    kind: Kind
    status: Status
    place: Place
    quote: str | None = None


def text_hash(text: str) -> bytes:
    """
    sha-256 of the text without regard to how it was laid out: NFC, runs of white space as one blank, ends trimmed.

    Two lines with one hash say the same thing, letter for letter.
    """
    normalised = " ".join(unicodedata.normalize("NFC", text).split())
    return hashlib.sha256(normalised.encode()).digest()
