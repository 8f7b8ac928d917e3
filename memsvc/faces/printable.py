"""Text of memories is data: nothing in it may steer a terminal."""

from __future__ import annotations

import unicodedata

# Marks that turn the direction of what follows, so that a reader sees another order than is there.
DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """The text with control characters and direction marks shown as escapes; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(character if _is_harmless(character) else _escape(character) for character in text)


def _is_harmless(character: str) -> bool:
    if character in "\n\t":
        return True
    return unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp") and character not in DIRECTIONS


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
