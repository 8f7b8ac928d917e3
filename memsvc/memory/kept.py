"""What Postgres can keep of an imported text, with its secrets cut out; the original bytes where that differs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from memsvc.model.report import SecretPlace
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


def as_text(value: str) -> str:
    """A key or a reason as it may be stored and shown."""
    return keep(value.encode("utf-8", errors="replace")).text


def without_secrets(kept: Kept) -> Kept:
    """The same text, its original bytes without the secrets; none where cutting them gives another text."""
    if kept.original is None or not kept.findings:
        return kept
    cut = redacted(kept.original)
    again = keep(cut)
    exact = again.original is None or again.findings or again.text != kept.text
    return replace(kept, original=None if exact else cut)


def redacted(original: bytes) -> bytes:
    """The bytes with `[REDACTED_SECRET]` in place of each secret, whatever else they hold."""
    text, findings = redact(original.decode("utf-8", errors="surrogateescape"))
    return text.encode("utf-8", errors="surrogateescape") if findings else original


def secrets(table: str, key: str, columns: Mapping[str, Kept]) -> list[SecretPlace]:
    """Where in the columns of one row secrets were."""
    return [
        SecretPlace(table, key, column, finding.line, finding.rule)
        for column, kept in columns.items()
        for finding in kept.findings
    ]
