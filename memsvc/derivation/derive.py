"""
The statements of a session output.

Codex's raw memory is front matter and task blocks with labelled lists; its rollout summary is a title, the same blocks
and prose; older ones are free Markdown. All are read by one set of rules, and no text is refused: what has no known
form becomes notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from memsvc.derivation import frontmatter, outline, topics
from memsvc.derivation.frontmatter import FrontMatter
from memsvc.derivation.labels import Label
from memsvc.derivation.lines import Line
from memsvc.derivation.outline import Element, Field, Heading, Item, Labelled, Paragraph, Run
from memsvc.derivation.status import judge
from memsvc.model.memory import Kind, Place, Statement, Status

RULES = "codex-1"
"""Name and version of the rule set. It is recorded with each memory that the rules make, and changes when they do."""

_Column = Literal["raw_memory", "rollout_summary"]

_BLANK = "\ufeff \t\r\n\f\v"
_OUTCOME = re.compile(r"\b[Oo]utcome:[ \t]*(\w+)")


@dataclass(frozen=True, slots=True)
class _Document:
    """What the text says of itself before and between its task blocks."""

    column: _Column
    project: str
    about: str
    group: str
    outcome: str


@dataclass(slots=True)
class _Block:
    """A task with what is listed under it; `number` is None for what stands outside the tasks."""

    document: _Document
    number: int | None = None
    heading: Heading | None = None
    fields: dict[str, Field] = field(default_factory=dict)
    elements: list[Element] = field(default_factory=list)

    @property
    def title(self) -> str:
        return (self.heading.task if self.heading else None) or self._value("task")

    @property
    def group(self) -> str:
        return self._value("task_group") or self.document.group

    @property
    def place(self) -> str:
        """What the task belongs to: its group, where the text names none its project."""
        return self.group or self.document.project

    @property
    def outcome(self) -> str:
        return self._value("task_outcome")

    @property
    def doubt(self) -> Status | None:
        return "assumption" if topics.is_doubtful(self.outcome or self.document.outcome) else None

    def _value(self, key: str) -> str:
        return self.fields[key].value if key in self.fields else ""


def derive(raw_memory: str, rollout_summary: str, *, project: str = "") -> list[Statement]:
    """
    The statements of `raw_memory`, or of `rollout_summary` where that is blank, in the order in which they stand.

    `project` is what the session worked on, for the context of statements whose text names no group.

    Their places refer to that text as given. A list item or note depends on its own lines, the label above it and the
    head of its task alone: a line inserted elsewhere changes nothing but its place.
    """
    column: _Column = "raw_memory" if raw_memory.strip(_BLANK) else "rollout_summary"
    text = raw_memory if column == "raw_memory" else rollout_summary
    matter = frontmatter.read(text)
    document = _document(column, matter, project)
    blocks = list(_blocks(document, outline.elements(text, at=matter.ends_at, number=matter.next_line)))
    statements = list(_of_front_matter(document, matter, blocks))
    keywords = "" if statements else matter.value("keywords")
    for block in blocks:
        statements += [*_of_tasks(block, keywords), *_of_elements(block)]
    return sorted(_without_repeated_titles(statements, blocks), key=lambda statement: statement.place.starts_at)


def _document(column: _Column, matter: FrontMatter, project: str) -> _Document:
    about = matter.value("description") or matter.value("task")
    return _Document(column, project, about, matter.value("task_group"), matter.value("task_outcome"))


def _blocks(document: _Document, elements: Iterable[Element]) -> Iterator[_Block]:
    block, count = _Block(document), 0
    for element in elements:
        if isinstance(element, Heading) and _starts_block(element, block):
            yield block
            count += element.task is not None
            block = _started(element, block.document, count)
        elif isinstance(element, Field):
            block.fields.setdefault(element.key, element)
        else:
            block.elements.append(element)
        if block.number is None:
            block.document = _told_by(element, block.document)
    yield block


def _starts_block(heading: Heading, block: _Block) -> bool:
    ends_task = block.number is not None and block.heading is not None and heading.level <= block.heading.level
    return heading.task is not None or heading.level == 1 or ends_task


def _started(heading: Heading, document: _Document, count: int) -> _Block:
    if heading.task is not None:
        return _Block(document, count, heading)
    if heading.level == 1:
        document = replace(document, about=heading.title)
    return _Block(document, None, heading)


def _told_by(element: Element, document: _Document) -> _Document:
    """The outcome of the session stands in the rollout context, which is no statement, or on a line of its own."""
    if isinstance(element, Field) and element.key == "task_outcome":
        return replace(document, outcome=element.value)
    if isinstance(element, Labelled) and element.label.silent:
        outcome = _OUTCOME.search(element.run.text)
        return replace(document, outcome=outcome[1]) if outcome else document
    return document


def _of_front_matter(document: _Document, matter: FrontMatter, blocks: list[_Block]) -> Iterator[Statement]:
    head = _Block(document)
    description, task = matter.entries.get("description"), matter.entries.get("task")
    keywords, titles = matter.value("keywords"), _titles(blocks) or {topics.key(matter.value("task"))}
    if description and topics.key(description.value) not in titles:
        yield from _title(head, description.value, description.first, description.last, keywords=keywords)
    if task and not any(block.number for block in blocks):
        yield from _title(head, task.value, task.first, task.last, outcome=document.outcome, keywords=keywords)


def _of_tasks(block: _Block, keywords: str) -> Iterator[Statement]:
    heading, task = block.heading, block.fields.get("task")
    if heading and heading.level == 1 and heading.task is None:
        yield from _title(block, heading.title, heading.line, heading.line)
    if heading and heading.task:
        yield from _title(block, heading.task, heading.line, heading.line, outcome=block.outcome, keywords=keywords)
    elif task:
        yield from _title(block, task.value, task.line, task.line, outcome=block.outcome, keywords=keywords)


def _of_elements(block: _Block) -> Iterator[Statement]:
    label = plain = Label("note")
    section = block.heading.title if block.number is None and block.heading else ""
    for element in block.elements:
        match element:
            case Heading():
                section, label = element.title, plain
            case Labelled():
                section, label = "" if element.level else section, element.label
                if not label.silent:
                    yield from _listed(block, element.run, label.kind, section, label)
            case Item():
                yield from _listed(block, element.run, label.kind, section, label)
            case Paragraph():
                yield from _listed(block, element.run, "note", section, label)
            case _:
                pass


def _listed(block: _Block, run: Run, kind: Kind, section: str, label: Label) -> Iterator[Statement]:
    text = run.text
    if topics.says_nothing(text):
        return
    above = [block.place, block.document.about if block.number is None else block.title or block.document.about]
    judged = judge(text, kind=kind, doubt=label.doubt or block.doubt)
    yield Statement(
        text=text,
        context=topics.context(text, [*above, section, label.name]),
        kind=kind,
        status=judged.status,
        place=_place(block, run.first, run.last),
        quote=judged.quote,
    )


def _title(
    block: _Block, title: str, first: Line, last: Line, *, outcome: str = "", keywords: str = ""
) -> Iterator[Statement]:
    """The statement that a description or a title makes; its context is only what lies around it."""
    if not title:
        return
    judged = judge(title, kind="task", doubt=block.doubt)
    above = [block.place, "" if block.group else block.document.about]
    context = topics.context(title, above, keywords=keywords)
    ending = f" (outcome: {outcome.rstrip('.')})" if outcome else ""
    yield Statement(title + ending, context, "task", judged.status, _place(block, first, last), judged.quote)


def _place(block: _Block, first: Line, last: Line) -> Place:
    column = block.document.column
    return Place(column, block.number, first.number, last.number, first.starts_at, last.ends_at)


def _without_repeated_titles(statements: Iterable[Statement], blocks: Iterable[_Block]) -> Iterator[Statement]:
    seen = _titles(blocks)
    for statement in statements:
        outside = statement.kind == "task" and statement.place.block is None
        key = topics.key(statement.text) if outside else ""
        if not outside or key not in seen:
            yield statement
        if outside:
            seen.add(key)


def _titles(blocks: Iterable[_Block]) -> set[str]:
    return {topics.key(block.title) for block in blocks if block.number is not None}
