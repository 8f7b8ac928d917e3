"""
The statements of what Codex consolidates: MEMORY.md, with a task group for each project, and memory_summary.md, with a
profile of the user and an index of the memories.

Both are written by a model and checked by nobody, so they are read by one set of rules and no text is refused: a list
under headings that are not known becomes notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from memsvc.derivation import outline, topics
from memsvc.derivation.labels import Label
from memsvc.derivation.lines import Line
from memsvc.derivation.outline import Element, Field, Heading, Item, Labelled, Paragraph, Run
from memsvc.derivation.references import NOWHERE, References, folders
from memsvc.derivation.status import judge
from memsvc.model.memory import Kind, Place, Statement

RULES = "codex-files-1"
"""Name and version of the rule set. It is recorded with each memory that the rules make, and changes when they do."""

_STORES = {"memories": "v1", "memories_v2": "v2"}
_NAMES = ("MEMORY.md", "memory_summary.md")
_VERSION = re.compile(r"\ufeff?v\d+[ \t\r]*(?:\n|$)")
_GROUP = re.compile(r"task group\s*:\s*", re.IGNORECASE)
_NUMBER = re.compile(r"task\s+#?(\d{1,6})\b", re.IGNORECASE)
_HEAD = re.compile(r"(?:scope|applies_to|reuse_rule)[ \t]*:")
_APPLIES_TO = re.compile(r"^applies_to[ \t]*:.*?\bcwd[ \t]*=[ \t]*([^;\n]*)", re.MULTILINE)
_TASKS_NAMED = re.compile(r"\s*\[((?:task\s+)?#?\d{1,6}(?:\s*,\s*(?:task\s+)?#?\d{1,6})*+)\]\.?\s*$", re.IGNORECASE)
_INDEXED = re.compile(r"(desc|description|learnings?)[ \t]*:\s*", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_FILE_STEM = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\w{4}(?:-\S*)?")
_MOST_BRACKETS = 8
_SEPARATORS = " \t\n—–-:;,()[]`"

_INDEX = "what's in memory"
_OLDER = "older memory topics"
_PLAIN = Label("note")
# These of memory_summary.md belong to no heading above them.
_CHAPTERS = frozenset({"user profile", "general tips", _INDEX})
_SECTIONS = {"general tips": Label("knowledge", "General Tips")}


@dataclass(frozen=True)
class Entry:
    """A statement, the folders that it applies to (none: not told), and what it is said to come from."""

    statement: Statement
    folders: tuple[str, ...]
    references: References


@dataclass(slots=True)
class _Part:
    """What stands under one heading or label; `opened_by` is that heading, `path` those above it and itself."""

    path: tuple[Heading, ...]
    label: Label = _PLAIN
    opened_by: Heading | None = None
    group: int | None = None
    elements: list[Field | Item | Paragraph] = field(default_factory=list)

    @property
    def name(self) -> str:
        return _name(self.path[-1]) if self.path else ""

    @property
    def task(self) -> Heading | None:
        return next((heading for heading in self.path if heading.task is not None), None)

    @property
    def below_index(self) -> tuple[Heading, ...] | None:
        """The headings below that of the index; None outside it."""
        at = next((at for at, heading in enumerate(self.path) if _name(heading) == _INDEX), None)
        return None if at is None else self.path[at + 1 :]


@dataclass(slots=True)
class _Task:
    keywords: str = ""
    references: References = NOWHERE


@dataclass
class _Group:
    """What a task group says of itself: its tasks by the line of their heading, those lines by the tasks' numbers."""

    folders: tuple[str, ...] = ()
    tasks: dict[int, _Task] = field(default_factory=dict)
    lines: dict[int, int] = field(default_factory=dict)

    @cached_property
    def everything(self) -> References:
        """What all its tasks come from."""
        return References.all(task.references for task in self.tasks.values())

    def named(self, numbers: Sequence[int]) -> References:
        """What the tasks of these numbers come from; of no number, what all of them do."""
        known = [self.tasks[self.lines[number]] for number in numbers if number in self.lines]
        return References.all(task.references for task in known) if known else self.everything

    def applies_to(self, references: References) -> tuple[str, ...]:
        """The group's own folder; where it has none or several, those of the sessions."""
        return self.folders if len(self.folders) == 1 else references.folders or self.folders


def store_of(path: str) -> str | None:
    """The store that a file of a Codex home consolidates, by its path in the home; None for any other file."""
    folder, _, name = path.partition("/")
    return _STORES.get(folder) if name in _NAMES else None


def derive(text: str) -> list[Entry]:
    """
    The statements of a MEMORY.md or memory_summary.md of any era, in the order in which they stand.

    A statement depends on its own lines, the headings above it and the head of its task group alone: a line inserted
    elsewhere changes nothing but its place.
    """
    version = _VERSION.match(text)
    at, number = (version.end(), 2) if version and version[0].endswith("\n") else (0, 1)
    if version and at == 0:
        return []
    parts = list(_parts(outline.elements(text, at=at, number=number)))
    groups = _groups(parts)
    return [entry for part in parts for entry in _of_part(text, part, groups[part.group])]


def _parts(elements: Iterable[Element]) -> Iterator[_Part]:
    part, groups = _Part(()), 0
    for element in elements:
        match element:
            case Heading():
                yield part
                groups += element.level == 1
                is_chapter = _name(element) in _CHAPTERS
                group = None if is_chapter else groups if element.level == 1 else part.group
                path = (element,) if is_chapter else (*_above(part.path, element.level), element)
                part = _Part(path, _SECTIONS.get(_name(element), _PLAIN), element, group)
            case Labelled():
                yield part
                path = _above(part.path, element.level) if element.level else part.path
                part = _Part(path, element.label, None, part.group)
                part.elements.append(Paragraph(element.run))
            case Field() | Item() | Paragraph():
                part.elements.append(element)
            case _:
                pass
    yield part


def _above(path: tuple[Heading, ...], level: int) -> tuple[Heading, ...]:
    return tuple(heading for heading in path if heading.level < level)


def _groups(parts: Iterable[_Part]) -> dict[int | None, _Group]:
    groups: dict[int | None, _Group] = {}
    for part in parts:
        group = groups.setdefault(part.group, _Group())
        if part.task is not None:
            line = part.task.line.number
            group.lines.setdefault(_number(part.task, len(group.tasks) + 1), line)
            _tell(group.tasks.setdefault(line, _Task()), part)
        for element in part.elements:
            if isinstance(element, Paragraph) and (told := _APPLIES_TO.search(element.run.text)):
                group.folders = group.folders or folders(told[1])
    return groups


def _number(heading: Heading, otherwise: int) -> int:
    written = _NUMBER.search(heading.line.text)
    return int(written[1]) if written else otherwise


def _tell(task: _Task, part: _Part) -> None:
    """What the two lists below the head of a task say of it."""
    told = [element.run.text for element in part.elements if not isinstance(element, Field)]
    if part.name == "rollout_summary_files":
        task.references = References.all([task.references, *map(References.of, told)])
    elif part.name == "keywords" and told and not _FILE_STEM.fullmatch(told[0]):
        task.keywords = told[0]


def _of_part(text: str, part: _Part, group: _Group) -> Iterator[Entry]:
    task = group.tasks[part.task.line.number] if part.task else None
    if part.opened_by and part.opened_by.task and task:
        yield from _of_task(part, part.opened_by, task, group)
    if part.name == "rollout_summary_files":
        return
    for element in part.elements[1 if part.name == "keywords" else 0 :]:
        if isinstance(element, Field):
            if element.key == "task":
                yield from _entry(part, group, element.value, "task", element.line, element.line)
        elif part.below_index is not None and isinstance(element, Item):
            yield from _of_index(text, part, part.below_index, element.run)
        elif not (isinstance(element, Paragraph) and (_HEAD.match(element.run.text) or part.label.silent)):
            yield from _entry(part, group, element.run.text, part.label.kind, element.run.first, element.run.last)


def _of_task(part: _Part, heading: Heading, task: _Task, group: _Group) -> Iterator[Entry]:
    title = heading.task or ""
    if not topics.says_nothing(title) and not _FILE_STEM.fullmatch(title):
        context = topics.context(title, [_group_name(part)], keywords=task.keywords)
        statement = _statement(part, title, context, "task", heading.line, heading.line)
        yield Entry(statement, group.applies_to(task.references), task.references)


def _entry(part: _Part, group: _Group, text: str, kind: Kind, first: Line, last: Line) -> Iterator[Entry]:
    text, numbers = _without_tasks(text)
    if topics.says_nothing(text):
        return
    own = References.of(text)
    task = group.tasks[part.task.line.number].references if part.task else group.named(numbers)
    references = own if own.threads or own.summaries else task
    above = [_group_name(part), (part.task.task or "") if part.task else "", _section(part), part.label.name]
    statement = _statement(part, text, topics.context(text, above), kind, first, last)
    yield Entry(statement, group.applies_to(references), references)


def _of_index(text: str, part: _Part, above: tuple[Heading, ...], run: Run) -> Iterator[Entry]:
    """A line of the index: a topic or the sentence of a session, and what is told of it in the lines below."""
    references = References.of(run.text)
    place = next((heading.title for heading in above if not _says_when(heading)), "")
    where = folders(place.removeprefix("cwd="))
    topic = _bare(run.texts[0] if run.texts else "")
    if topic and not _FILE_STEM.fullmatch(topic):
        context = topics.context(topic, [place])
        yield Entry(_statement(part, topic, context, "task", run.first, run.first), where, references)
    for nested, label in _nested(text, run):
        told = _INDEXED.match(nested.text)
        said = _bare(nested.text[told.end() :] if told else nested.text)
        if said:
            kind: Kind = "knowledge" if told and told[1].lower().startswith("learning") else label.kind
            context = topics.context(said, [place, topic, label.name])
            yield Entry(_statement(part, said, context, kind, nested.first, nested.last), where, references)


def _nested(text: str, run: Run) -> Iterator[tuple[Run, Label]]:
    """The lines below the first of a list item, as an outline of their own with places in the whole text."""
    if run.first.number == run.last.number:
        return
    at, lines_before, label = run.first.ends_at + 1, run.first.number, _PLAIN
    for element in outline.elements(text[at : run.last.ends_at]):
        label = element.label if isinstance(element, Labelled) else label
        if isinstance(element, Item | Paragraph | Labelled):
            first, last = (_moved(line, at, lines_before) for line in (element.run.first, element.run.last))
            yield replace(element.run, first=first, last=last), label


def _moved(line: Line, characters: int, lines: int) -> Line:
    return Line(line.number + lines, line.starts_at + characters, line.ends_at + characters, line.text)


def _statement(part: _Part, text: str, context: str, kind: Kind, first: Line, last: Line) -> Statement:
    unsure = part.task is not None and topics.is_doubtful(part.task.task or "")
    judged = judge(text, kind=kind, doubt=part.label.doubt or ("assumption" if unsure else None))
    place = Place("content", part.group, first.number, last.number, first.starts_at, last.ends_at)
    return Statement(text, context, kind, judged.status, place, judged.quote)


def _without_tasks(text: str) -> tuple[str, list[int]]:
    """The text without the `[Task n]` at its end, and those numbers."""
    numbers: list[int] = []
    for _ in range(_MOST_BRACKETS):
        if not (named := _TASKS_NAMED.search(text[-200:])):
            break
        numbers += map(int, re.findall(r"\d+", named[1]))
        text = text[: len(text) - len(named[0])]
    return text.strip(), numbers


def _bare(text: str) -> str:
    """A line of the index without what it refers to; empty where that was all."""
    bare = References.cut(text).strip()
    bare = bare.strip(_SEPARATORS) if bare != text.strip() else bare
    return "" if topics.says_nothing(bare) else bare


def _group_name(part: _Part) -> str:
    first = part.path[0] if part.path else None
    if first is None or first.level > 1 or first.task is not None:
        return ""
    return _GROUP.sub("", first.title, count=1)


def _section(part: _Part) -> str:
    """The nearest heading that says more than the group, the task and the label do."""
    last = part.path[-1] if part.path else None
    if last is None or last.level == 1 or last.task is not None or part.name in ("keywords", *_SECTIONS):
        return ""
    return last.title


def _says_when(heading: Heading) -> bool:
    return _name(heading) == _OLDER or bool(_DATE.fullmatch(heading.title))


def _name(heading: Heading) -> str:
    return heading.title.replace("’", "'").rstrip(":").strip().casefold()
