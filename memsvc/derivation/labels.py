"""The labels and headings under which a session output lists its statements, and what each says about them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memsvc.model.memory import Kind, Status


@dataclass(frozen=True)
class Label:
    """
    A label as met in a text.

    `kind` is what the statements below it are; `doubt` the status of those that do not show another, None for no doubt.
    `name` is empty where the label says nothing beyond the kind. `silent`: the text on its line is no statement.
    """

    kind: Kind
    name: str = ""
    doubt: Status | None = None
    silent: bool = False


_NAMES: dict[Kind, tuple[str, ...]] = {
    "preference": (
        *("preference signals", "preference signal", "user preferences", "user preference", "preferences"),
        *("präferenzen", "benutzerpräferenzen", "nutzerpräferenzen", "vorlieben", "vorlieben des nutzers"),
        *("ユーザーの好み", "ユーザー設定", "好み", "用户偏好"),
    ),
    "knowledge": (
        *("reusable knowledge", "key steps and knowledge", "key steps", "key learnings", "key facts", "key findings"),
        *("learnings", "knowledge", "what worked"),
        *("wiederverwendbares wissen", "erkenntnisse", "wissen", "was funktioniert hat"),
        *("再利用可能な知識", "知識", "学び", "学んだこと", "可复用的知识"),
    ),
    "failure": (
        *("failures and how to do differently", "failures", "failure modes", "pitfalls", "mistakes"),
        *("what did not work", "what didn't work"),
        *("fehlschläge", "fehlschläge und was anders zu machen ist", "fallstricke", "was nicht funktioniert hat"),
        *("失敗", "失敗と対策", "失敗と改善点", "落とし穴", "失败"),
    ),
    "reference": (
        *("references", "reference", "evidence", "pointers", "sources"),
        *("referenzen", "verweise", "quellen", "belege", "参照", "参考", "参考资料"),
    ),
}
_KNOWN: dict[str, Label] = {
    **{name: Label(kind) for kind, names in _NAMES.items() for name in names},
    "rollout context": Label("note", "", silent=True),
    "open questions": Label("note", "open questions", "question"),
    "open question": Label("note", "open questions", "question"),
    "offene fragen": Label("note", "offene Fragen", "question"),
    "未解決の質問": Label("note", "未解決の質問", "question"),
    "assumptions": Label("note", "assumptions", "assumption"),
    "annahmen": Label("note", "Annahmen", "assumption"),
    "仮定": Label("note", "仮定", "assumption"),
    "hypotheses": Label("note", "hypotheses", "assumption"),
}
_LONGEST = 80
_REMARK = re.compile(r"\([^()]{1,60}\)$")
_SENTENCE = re.compile(r"[.!?;]\s|[\"“”«»`|<>]")
# Words that begin a plain sentence as often as a list.
_GENERIC = frozenset(
    {
        *("open question", "reference", "evidence", "preferences", "knowledge", "mistakes", "sources"),
        *("vorlieben", "erkenntnisse", "wissen", "quellen", "belege", "好み", "知識", "失敗", "参照", "参考", "失败"),
    }
)


def known(words: str, *, bare: bool = False) -> tuple[Label, str] | None:
    """The known label with which the line begins, and what follows its colon. `bare`: a lone label needs no colon."""
    head, colon, _ = words[:_LONGEST].replace("：", ":").partition(":")
    name = _plain(head)
    label = _KNOWN.get(name)
    if label is None or not (colon or (bare and len(words) <= _LONGEST)):
        return None
    rest = words[len(head) + len(colon) :].removeprefix("**").strip()
    return None if rest and name in _GENERIC else (label, rest)


def unknown(words: str) -> Label | None:
    """A short line that ends with a colon heads a list as well, whatever it says."""
    if len(words) > _LONGEST:
        return None
    title = words.strip("*_ ")
    if not title.endswith((":", "：")) and not words.endswith((":", "：")):
        return None
    name = title.rstrip(":：").strip("*_ ")
    return Label("note", name) if name and not _SENTENCE.search(name) else None


def _plain(head: str) -> str:
    return _REMARK.sub("", head.strip("*_ \t")).strip("*_ \t").casefold()
