"""Texts that UTF-8 can hold."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """The text with halves of surrogate pairs, which UTF-8 cannot hold, replaced one for one."""
    return _SURROGATE.sub("\ufffd", text)
