"""What a column may hold, and how an exported row becomes values or the reason why it cannot."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from memsvc.model.export import Scalar

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = -62_135_596_800  # 0001-01-01 in seconds
_LAST = 253_402_300_799  # 9999-12-31 in seconds
_SHOWN = 80  # characters of a value in a reason
LONGEST_KEY = 1000  # bytes of one part of a key; an index entry of the database holds no more of two


class Text(bytes):
    """A TEXT value, byte for byte. A BLOB comes as plain bytes."""


Raw = bytes | int | float | None


class Unfit(Exception):
    """The row does not fit its table; the message says why."""


@dataclass(frozen=True)
class Column:
    """A column, what turns its exported value into ours, and whether it may be NULL."""

    name: str
    convert: Callable[[Raw], object]
    null: bool = False


@dataclass(frozen=True)
class Table:
    """
    A table of an export.

    A database without one of the `required` columns does not have the table. `absent` holds what takes the place of the
    other columns where the table lacks them; for those in `assumed`, a person should know. `order` lists columns.
    `renamed` gives the present names of columns that had another one. With `repeats`, rows may share a key.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    required: tuple[str, ...]
    order: tuple[str, ...]
    absent: Mapping[str, int | bytes | None] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    repeats: bool = False

    def present_name(self, name: str, there: Container[str]) -> str:
        """What a column of that name is called here; both names side by side are two columns."""
        present = self.renamed.get(name, name)
        return name if present in there else present


@dataclass(frozen=True)
class Fitted:
    """A row as values by column name, and the columns that the table is not known to have."""

    values: Mapping[str, Any]
    extra: Mapping[str, Scalar | bytes]


def fit(table: Table, raw: Mapping[str, Raw]) -> Fitted:
    """
    Turn an exported row into values.

    Raises:
        Unfit: a value is NULL where it must not be, of a wrong type, or an instant that does not exist; or a key is too
            long.
    """
    values: dict[str, object] = dict(table.absent)
    given = {table.present_name(name, raw): raw[name] for name in raw} if table.renamed.keys() & raw else dict(raw)
    for name in table.key:
        part = given.get(name)
        if isinstance(part, bytes) and len(part) > LONGEST_KEY:
            raise Unfit(f"{name} is longer than {LONGEST_KEY} bytes: {shown(part)}")
    for column in table.columns:
        if column.name in given:
            values[column.name] = _value(column, given.pop(column.name))
    return Fitted(values, {name: _scalar(value) for name, value in given.items()})


def key(table: Table, raw: Mapping[str, Raw]) -> str:
    """The key of a row as far as it can be shown and kept, parts joined by a slash; '' for NULL."""
    return "/".join(_shown_key(raw.get(name)) for name in table.key)


def text(raw: Raw) -> bytes:
    """Text or a blob, byte for byte."""
    if not isinstance(raw, bytes):
        raise Unfit("holds a number, not text")
    return bytes(raw)


def word(raw: Raw) -> str:
    """A key, a name or a token: text in UTF-8 that every database can compare."""
    if not isinstance(raw, Text):
        raise Unfit(f"holds {shown(raw)}, not text")
    try:
        decoded = raw.decode()
    except UnicodeDecodeError:
        raise Unfit(f"is not valid UTF-8: {shown(raw)}") from None
    if "\0" in decoded:
        raise Unfit(f"contains a NUL character: {shown(raw)}")
    return decoded


def whole(raw: Raw) -> int:
    """An integer."""
    if not isinstance(raw, int):
        raise Unfit(f"holds {shown(raw)}, not an integer")
    return raw


def instant(raw: Raw) -> datetime:
    """Seconds since 1970, in the years that a datetime has."""
    seconds = whole(raw)
    if _LAST < seconds <= _LAST * 1000:
        raise Unfit(f"holds {seconds}, which looks like milliseconds, not seconds")
    if not _FIRST <= seconds <= _LAST:
        raise Unfit(f"holds {seconds}, which is outside the years 1 to 9999")
    return _EPOCH + timedelta(seconds=seconds)


def shown(raw: Raw) -> str:
    """A value for a person, cut to a bounded length."""
    if not isinstance(raw, bytes):
        return repr(raw)
    kind = "text" if isinstance(raw, Text) else "a blob"
    start = bytes(raw[: _SHOWN + 1])
    try:
        value = repr(start.decode())
    except UnicodeDecodeError:
        value = repr(start)
    return f"{kind} {value if len(value) <= _SHOWN else value[: _SHOWN - 3] + '...'}"


def _value(column: Column, raw: Raw) -> object:
    if raw is None:
        if column.null:
            return None
        raise Unfit(f"{column.name} is NULL")
    try:
        return column.convert(raw)
    except Unfit as unfit:
        raise Unfit(f"{column.name} {unfit}") from None


def _scalar(raw: Raw) -> Scalar | bytes:
    if not isinstance(raw, bytes):
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return bytes(raw)


def _shown_key(raw: Raw) -> str:
    # The key of a rejected row goes into a Postgres text column, which takes no NUL.
    shown = raw.decode(errors="replace") if isinstance(raw, bytes) else raw
    whole = "" if shown is None else str(shown).replace("\0", "\ufffd")
    return whole.encode(errors="replace")[:LONGEST_KEY].decode(errors="ignore")
