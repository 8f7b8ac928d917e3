"""Values that stand where a secret would stand and are none."""

from __future__ import annotations

import re

MARK = "[REDACTED_SECRET]"
"""What a secret is replaced by; the word that Codex uses."""

_REFERENCE = re.compile(
    r"^(?:[<{]|\$[({]|\$[A-Z_][A-Z0-9_]*(?=$|[/:.])|\$[a-z_]+$|%[sd(]|%\w+%$|[%@#]\{|!\w+$)"
    r"|\$\{|\{\{|\{[a-z_.]{1,60}\}"
)
_BLOTTED = re.compile(r"\.\.\.|…|\*{3}|•{2}|x{4,}|X{4,}|#{4,}|_{4,}|-{6,}")
_TYPES = "any bool boolean bytes false int integer nil none null number object str string true undefined"
_WORDS = frozenset(
    f"{_TYPES} api apikey bar bearer change_me changeme default disabled dummy empty enabled env example fake foo"
    " hidden invalid key masked missing no omitted optional pass passwd password placeholder private pw pwd redacted"
    " required sample secret tbd test text todo token unknown unset user username value variable yes".split()
)
_INVITATION = re.compile(
    r"(?:your|my|some|the|an?|example|dummy|fake|sample|test|placeholder|insert|change|replace|put|enter)"
    r"[-_ ][a-z_ -]+",
    re.IGNORECASE,
)


def is_placeholder(value: str) -> bool:
    """Whether the value only shows where a secret belongs: a variable, a template, stars, a type, `your-key`."""
    if MARK in value or not any(map(str.isalnum, value)) or len(set(value)) == 1:
        return True
    if _REFERENCE.search(value) or _BLOTTED.search(value):
        return True
    return value.casefold() in _WORDS or bool(_INVITATION.fullmatch(value))
