"""
Secrets that are known by their name: what is assigned to a password, a token or a key.

A name is a weak sign, for prose, code and documentation use the same names. So the value must look like a literal: one
in quotes, one set without blanks as in a shell or a query string, or one that no word and no identifier looks like.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass

from memsvc.redaction.placeholders import MARK, is_placeholder
from memsvc.redaction.shapes import Found

RULE = "assignment"

_STRONG = (
    *("password", "passwort", "kennwort", "passwd", "passphrase", "pass phrase", "pass_phrase", "pass-phrase"),
    *("pwd", "secret", "credential", "credentials", "pass"),
)
_WEAK = ("token", "key")
_KEY_OF = re.compile(
    r"(?:api|access|private|secret|signing|encryption|auth|master|account|storage|service[_-]?role|webhook)[ _-]?$"
)
_SIGN = (
    r"[\\\"'`\])*]{0,8}[ \t]{0,40}"
    r"(?::[ \t]*[a-z_][\w.]{0,40}[ \t]*(?==[ \t]*[\"']))?"  # a type between the name and a literal
    r"(?P<sign>:=|=>|={1,3}|:(?![:/])|(?<=[ \t])(?:is|ist|lautet):?(?=[ \t])|>|(?<=[ \t])(?=[^\s-]))"
    r"[ \t]{0,40}(?:\*\*[ \t]?)?"
)
_PATTERNS = {word: re.compile(rf"(?P<name>{re.escape(word)}\d{{0,2}}){_SIGN}") for word in (*_STRONG, *_WEAK)}
# What the words begin with: where that is missing, so is the word.
_STEMS = ("pass", "kennwort", "pwd", "secret", "credential", *_WEAK)
_LITERAL = re.compile(
    r"[fFbBrRuU]{0,2}(?P<mark>\\{0,3}[\"'`])(?P<value>(?:(?!(?P=mark))(?:\\.|[^\n\\])){1,4096})(?P=mark)"
)
_BARE = re.compile(rf"(?P<mark>\\{{0,3}}[\"'`])?(?P<value>(?:(?!{re.escape(MARK)})[^\s\"'`<>&;,])+)")
_PUNCTUATION = ".:!?)]}\\"
_BEHIND_A_VALUE = _PUNCTUATION + "\"'`*_ \t\r"
_ELSEWHERE = re.compile(r"/|~/|\.{1,2}/|[A-Za-z]:\\|[a-z][a-z0-9+.-]{1,20}://|sha\d{1,3}[:-]", re.IGNORECASE)
_CALL = re.compile(r"[A-Za-z_][\w.]*+(?:::\w++)*+[(\[{]")
_WORDS = re.compile(r"[A-Za-z]+\d{0,3}(?:[-_.:/]+(?:[A-Za-z]+\d{0,3}|\d{1,4}))*[-_.]*")
_ALGORITHM = re.compile(
    r"(?:sha|md|aes|rsa|hs|rs|es|ed|hmac|base|utf|oauth|argon|pbkdf|scrypt|bcrypt|v)\d{1,5}", re.IGNORECASE
)
_SIGNS = frozenset("@#$%^*!+~")
_EMAIL = re.compile(r"[\w.+-]+@[\w.-]+\.[A-Za-z]+")
_CASE_CHANGE = re.compile(r"[a-z][A-Z]")
_NAME_CHARACTERS = f"{string.ascii_letters}{string.digits}_-"
_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_LONGEST_NAME = 64


@dataclass(frozen=True)
class _Name:
    """
    A name, `text`, to which something is assigned at `value_at`, by `sign`, which is empty behind a command's flag.

    `strong`: it is a name of passwords; the others are often given to other things. `shell`: it is written as in a
    shell or a query string, where values are no variables. `tight`: the sign is an equals sign without blanks.
    """

    text: str
    starts_at: int
    value_at: int
    sign: str
    strong: bool
    shell: bool
    tight: bool


@dataclass(frozen=True)
class _Assignment:
    """A value for a name; `follows` is what stands behind it on its line."""

    name: _Name
    quoted: bool
    value: str
    follows: str

    def is_secret(self) -> bool:
        if is_placeholder(self.value) or _ELSEWHERE.match(self.value):
            return False
        if len(self.value) < (4 if self.name.strong else 8):
            return False
        if self.name.sign == ">":
            return self.follows.startswith("</") and (self.name.strong or _is_random(self.value))
        return self._is_literal() if self.quoted else self._is_bare()

    def _is_literal(self) -> bool:
        if any(map(str.isspace, self.value)):
            return self.name.strong and self.name.shell
        return self.name.strong or _is_random(self.value) or (self.value.isalpha() and len(self.value) >= 16)

    def _is_bare(self) -> bool:
        if len(self.value) < 6 or _CALL.match(self.value) or self.follows.startswith("("):
            return False
        return (
            _is_random(self.value) or (self.name.tight and self._is_set()) or (self.name.strong and self._is_password())
        )

    def _is_set(self) -> bool:
        """In a call, name=name passes a variable on; in a connection string the same is the password itself."""
        if self.name.shell:
            return True
        passed_on = self.value == self.name.text or self.follows.startswith((",", ")"))
        return self.name.strong and "." not in self.value and not passed_on

    def _is_password(self) -> bool:
        """People's passwords are words with a number behind or signs in between."""
        if self.value.isdigit() or (_SIGNS.intersection(self.value) and not _EMAIL.fullmatch(self.value)):
            return True
        alone = self.name.sign != "=" or not self.follows.strip(_BEHIND_A_VALUE)
        numbered = self.value.isalnum() and any(map(str.isdigit, self.value))
        return alone and numbered and not _ALGORITHM.fullmatch(self.value)


def find(text: str) -> Iterator[Found]:
    """The values assigned to names of secrets; they may overlap."""
    names = sorted(_names(text), key=lambda name: name.starts_at)
    # A bare value ends where the next name begins, so that no stretch of text is looked at twice.
    limits = [*(name.starts_at for name in names[1:]), len(text)]
    for name, limit in zip(names, limits, strict=False):
        yield from _value(text, name, limit)


def _names(text: str) -> Iterator[_Name]:
    lowered = _lowered(text)
    stems = tuple(stem for stem in _STEMS if stem in lowered)
    for word, pattern in _PATTERNS.items():
        if word.startswith(stems):
            yield from filter(None, (_name(text, lowered, word, match) for match in pattern.finditer(lowered)))


def _lowered(text: str) -> str:
    """In small letters, each at its place."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_SMALL)


def _name(text: str, lowered: str, word: str, match: re.Match[str]) -> _Name | None:
    starts_at = match.start()
    head = lowered[max(starts_at - _LONGEST_NAME, 0) : starts_at]
    if not match["sign"] and "--" not in head:
        return None
    unfit = (word == "key" and not _KEY_OF.search(head[-16:])) or (word == "pass" and not head.endswith(("_", "-")))
    if unfit or head.endswith("[redacted_"):
        return None
    whole = text[starts_at - len(head) : match.end("name")]
    before = whole.rstrip(_NAME_CHARACTERS)
    own = whole[len(before) :]
    sign = match["sign"]
    if not sign and not own.startswith("--"):
        return None
    tight = sign == "=" and match.end("sign") == match.end() and text[match.start("sign") - 1] not in " \t"
    shell = bool(sign) and (own.isupper() or own.startswith("--") or before.endswith(("?", "&")))
    strong = word in _STRONG or "secret" in own.lower() or not sign
    return _Name(own, starts_at, match.end(), sign, strong, shell, tight)


def _value(text: str, name: _Name, limit: int) -> Iterator[Found]:
    value = _LITERAL.match(text, name.value_at) or _BARE.match(text, name.value_at, limit)
    if not value:
        return
    quoted = value["mark"] is not None
    words = value["value"] if quoted else value["value"].rstrip(_PUNCTUATION)
    starts_at = value.start("value")
    ends_at = starts_at + len(words)
    follows = text[ends_at : ends_at + 80].partition("\n")[0]
    if _Assignment(name, quoted, words, follows).is_secret():
        yield starts_at, ends_at, RULE


def _is_random(value: str) -> bool:
    """Whether no word, identifier or version looks like this."""
    if len(value) >= 20 and len(_CASE_CHANGE.findall(value)) * 6 >= len(value):
        return True
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and not _WORDS.fullmatch(value)
