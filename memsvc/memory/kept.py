"""What Postgres can keep of an imported text, with its secrets cut out; the original bytes where that differs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from memsvc.redaction.redact import Finding, redact

# Postgres has no NUL in text. Its picture takes the same one character, so that every other offset stays.
NUL_PICTURE = "␀"


@dataclass(frozen=True)
class Kept:
    """
    A text as it is stored.

    `original` is None when the stored text gives the same bytes back. `findings` say where a secret was, never what.
    """

    text: str
    sha256: bytes
    original: bytes | None
    findings: tuple[Finding, ...] = ()


# What stands for a column that holds no text.
NOTHING = Kept("", b"", None)


def keep(original: bytes) -> Kept:
    """The text to store for these bytes: invalid UTF-8 becomes U+FFFD, NUL its picture, a secret [REDACTED_SECRET]."""
    decoded = original.decode("utf-8", errors="replace").replace("\x00", NUL_PICTURE)
    text, findings = redact(decoded)
    exact = text.encode() == original
    return Kept(text, hashlib.sha256(original).digest(), None if exact else original, tuple(findings))
