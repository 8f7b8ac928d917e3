"""Which words in a line of prose are quoted, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Iterator

_MARKS = (
    r"(?<!\w)\"(?=[^\s\"])([^\"\n]*[^\"\s])\"(?!\w)"
    r"|“([^“”\n]+)”|„([^„“”\n]+)[“”]|«([^«»\n]+)»|»([^«»\n]+)«|「([^「」\n]+)」|『([^『』\n]+)』"
)
_QUOTED = re.compile(_MARKS)
_CODE = re.compile(r"`([^`\n]+)`")
_CODE_OR_QUOTED = re.compile(rf"{_CODE.pattern}|{_MARKS}")

_USER = r"(?:\b(?:users?|nutzer(?:in)?|benutzer(?:in)?|anwender(?:in)?|utilisateur|usuario)\b|ユーザー|用户)"
_SAID = (
    r"(?:said|says|asked|asks|wrote|writes|requested|requests|told|replied|answered|insisted|complained|stated|noted"
    r"|mentioned|pasted|typed|clarified|confirmed|corrected|specified|demanded|objected|explained|responded|instructed"
    r"|emphasi[sz]ed|reminded|called|put it|sagte?|schrieb|fragte|bat|meinte|verlangte|antwortete|nannte)\b"
)
_USERS_NOUN = (
    r"(?:words|requests?|feedback|message|answer|reply|correction|instructions?|quote|prompt|comment|question)"
)
_USER_BEFORE = re.compile(
    rf"{_USER}[^.!?\n]{{0,80}}?\b{_SAID}[^.!?\n]{{0,60}}$"
    rf"|{_USER}(?:[’']s)?(?: \w+){{0,2}}? {_USERS_NOUN}(?: was| were)?\s*[:(,]?\s*$|{_USER}\s*[:：(]\s*$",
    re.IGNORECASE,
)
_USER_BEHIND = re.compile(
    rf"[\s,.:;()–—-]*(?:{_SAID} (?:the |der |die )?{_USER}|(?:the |der |die )?{_USER} {_SAID})", re.IGNORECASE
)
# Japanese says who before the quote and that it was said behind it; Chinese has no blanks between.
_JAPANESE_USER_BEFORE = re.compile(r"(?:ユーザー|利用者)(?:さん)?(?:は|が|も|から)[^。！？\n]{0,60}$")
_JAPANESE_SAID_BEHIND = re.compile(
    r"\s*と(?:の)?(?:言|述べ|頼|依頼|指示|書|要求|要望|回答|答|指摘|質問|尋ね|伝え|主張|希望|お願い)"
)
_CHINESE_USER_BEFORE = re.compile(
    r"用户(?:[^。！？\n]{0,20}?)(?:说|要求|写道|写|问|表示|指出|回答|强调)(?:[^。！？\n]{0,10})[：:，,]?\s*$"
)
_TOOL_BEFORE = re.compile(
    r"(?:\b(?:outputs?|stdout|stderr|traceback|exception|ausgabe|fehlermeldung|fehler)\s*(?:was|is|reads?|said|war)?\s*:"
    r"|\boutput (?:was|is|read|said)|\bprinted|\berror(?: message)?(?: (?:was|is|of|said))?\s*:?"
    r"|\b(?:failed|fails|failing|exited|died|crashed|aborted) with(?: the)?(?: error| message)?\s*:?)\s*$",
    re.IGNORECASE,
)
_OUTPUT_BEHIND = re.compile(
    r"[ \t]*+(?:output|stdout|stderr|printed|ausgabe)[ \t]*+:[ \t]*+(?=[^\s`\"])", re.IGNORECASE
)
_LINE_OR_ARROW_ENDS = re.compile(r"->|→|=>|\n|$")
_ANY_MARK = re.compile(r"[\"“„«»「『`]")
_NEAR = 160  # characters before a quote in which its speaker is looked for


def users_words(prose: str, *, anywhere: bool = False) -> str | None:
    """The first words that the prose gives as the user's; `anywhere`: whatever it quotes is the user's."""
    if not _ANY_MARK.search(prose):
        return None
    hidden = _CODE.sub(_blot, prose)
    for match in _QUOTED.finditer(hidden):
        if anywhere or _are_users(hidden, match):
            return prose[match.start(match.lastindex or 0) : match.end(match.lastindex or 0)].strip() or None
    return None


def _are_users(prose: str, quote: re.Match[str]) -> bool:
    before, end = _before(prose, quote), quote.end()
    return bool(
        _USER_BEFORE.search(before)
        or _USER_BEHIND.match(prose, end)
        or _CHINESE_USER_BEFORE.search(before)
        or (_JAPANESE_USER_BEFORE.search(before) and _JAPANESE_SAID_BEHIND.match(prose, end))
    )


def tools_words(prose: str) -> str | None:
    """The first words that the prose gives as what a tool printed."""
    return next(_tools_words(prose), None) if _ANY_MARK.search(prose) else None


def masked(prose: str) -> str:
    """The prose with everything quoted or set as code blotted out: what the writer says in words of his own."""
    return _QUOTED.sub(_blot, _CODE.sub(_blot, prose)) if _ANY_MARK.search(prose) else prose


def _tools_words(prose: str) -> Iterator[str]:
    for match in _CODE_OR_QUOTED.finditer(prose):
        words: str = match[match.lastindex or 0].strip()
        if any(map(str.isalnum, words)) and _TOOL_BEFORE.search(_before(prose, match)):
            yield words
        if output := _OUTPUT_BEHIND.match(prose, match.end()):
            end = _LINE_OR_ARROW_ENDS.search(prose, output.end())
            yield prose[output.end() : end.start() if end else None].strip()


def _before(prose: str, match: re.Match[str]) -> str:
    return prose[max(match.start() - _NEAR, 0) : match.start()].rpartition("\n")[2]


def _blot(match: re.Match[str]) -> str:
    return "x" * len(match[0])
