"""One database of an export, opened on its private copy and read row by row."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from memsvc.errors import BadExport
from memsvc.model.export import Rejected
from memsvc_importers import codex_columns
from memsvc_importers.codex_columns import Fitted, Raw, Table, Text, Unfit
from memsvc_importers.codex_copy import Copied
from memsvc_importers.codex_early_tables import EARLY
from memsvc_importers.codex_tables import JOBS, OUTPUTS, PROGRESS, THREADS, WITHOUT_MEMORY

_KNOWN = tuple(table.name for table in (OUTPUTS, JOBS, PROGRESS, THREADS, *EARLY))
# What quick_check says of values that SQLite would not let in today; the rows are there, and judged one by one.
_ABOUT_VALUES = re.compile(r"\bvalue in \S|^CHECK constraint failed")

_PROBED = 10_000  # row ids; searching for more of them one by one takes too long
# SQLite quotes damaged names in its errors, and those that are not UTF-8 fail once more on their way into Python.
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)


class Database:
    """The tables of one copied database; `warn` takes what a person should know about it."""

    def __init__(self, copied: Copied, store: str, warn: Callable[[str], None]) -> None:
        self.name = copied.name
        self.store = store
        self.lacks_wal = copied.lacks_wal
        self.is_sound = copied.settled
        """Whether all rows of the file were read, as far as is known."""
        self._warn = warn
        self._conn = sqlite3.connect(copied.path, isolation_level=None)
        try:
            self._conn.text_factory = Text
            self._conn.execute("pragma trusted_schema = off")
            self.columns = self._columns()
            if not copied.settled:
                warn(f"{self.name} was written to all the time while it was copied: rows may be missing or mixed up")
            if self.columns:
                self._check()
        except UNREADABLE as exc:
            self._conn.close()
            raise BadExport(f"{self.name} cannot be read as a SQLite database: {_why(exc)}") from exc

    def close(self) -> None:
        """Close the connection; iterators that are still open end with it."""
        self._conn.close()

    def has(self, table: Table) -> bool:
        """Whether there is a table of that name, whatever its columns."""
        return table.name in self.columns

    def has_rows(self, table: Table) -> bool:
        """Whether there is at least one row; a table too damaged to tell counts as having some."""
        if not self.has(table):
            return False
        try:
            return bool(self._conn.execute(f"select exists (select 1 from {_quoted(table.name)})").fetchone()[0])  # noqa: S608
        except UNREADABLE:
            return True

    def read(self, table: Table, *, texts: bool = True) -> Iterator[Fitted | Rejected]:
        """
        The rows in the table's order, each as values or with the reason why not; of two with one key the first fits.

        Without `texts`, texts come empty where there are any, so that a large table can be looked over quickly.
        """
        if not self.has(table):
            return
        if missing := self._missing(table):
            yield from self.set_aside(table, f"the table has no column {missing}")
            return
        seen: set[tuple[object, ...]] = set()
        for raw in self._rows(table, texts=texts):
            try:
                fitted = codex_columns.fit(table, raw)
            except Unfit as unfit:
                yield self._rejected(table, raw, str(unfit))
                continue
            key = tuple(fitted.values[name] for name in table.key)
            if key in seen and not table.repeats:
                yield self._rejected(table, raw, "another row with the same key came before")
                continue
            seen.add(key)
            yield fitted

    def set_aside(self, table: Table, reason: str) -> Iterator[Rejected]:
        """All rows of a table as they are, each with the reason why none is taken."""
        if self.has(table):
            for raw in self._rows(table, texts=True):
                yield self._rejected(table, raw, reason)

    def is_filled(self) -> bool:
        """Whether Codex says that it has filled the threads table, or is of a version that says nothing of it."""
        try:
            return all(status == b"complete" for (status,) in self._conn.execute("select status from backfill_state"))
        except sqlite3.OperationalError:  # no such table
            return True
        except UNREADABLE:
            return False

    def start_of_memory(self, thread_id: str, length: int) -> bytes:
        """The first bytes of a session's raw_memory; nothing where there is none."""
        if not {"thread_id", "raw_memory"} <= set(self.columns.get("stage1_outputs", ())):
            return b""
        query = "select substr(cast(raw_memory as blob), 1, ?) from stage1_outputs where thread_id = ?"
        with suppress(*UNREADABLE):
            for (start,) in self._conn.execute(query, (length, thread_id)):
                return bytes(start or b"")
        return b""

    def _columns(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of every known table; a name that is not UTF-8 cannot be asked for and is left out."""
        there = {bytes(name) for (name,) in self._conn.execute("select name from sqlite_master where type = 'table'")}
        self.is_blank = not there
        self._warn_of_unknown(there)
        return {name: self._columns_of(name) for name in _KNOWN if name.encode() in there}

    def _warn_of_unknown(self, there: Iterable[bytes]) -> None:
        names = sorted(name.decode(errors="replace") for name in there)
        unknown = [name for name in names if name not in (*_KNOWN, *WITHOUT_MEMORY) and not name.startswith("sqlite_")]
        told = [f"{name} ({rows} rows)" for name in unknown if (rows := self._count(name)) != "0"]
        if told:
            self._warn(f"{self.name} holds tables that memsvc does not know; they were not read: {', '.join(told)}")

    def _count(self, table: str) -> str:
        try:
            return str(self._conn.execute(f"select count(*) from {_quoted(table)}").fetchone()[0])  # noqa: S608
        except UNREADABLE:
            return "unknown"

    def _columns_of(self, table: str) -> tuple[str, ...]:
        names: list[str] = []
        for row in self._conn.execute(f"pragma table_info({_quoted(table)})"):
            with suppress(UnicodeDecodeError):
                names.append(row[1].decode())
        return tuple(names)

    def _check(self) -> None:
        try:
            found = [
                bytes(line).decode(errors="replace") for (line,) in self._conn.execute("pragma quick_check(10000)")
            ]
        except UNREADABLE as exc:
            found = [_why(exc)]
        damage = [line for line in found if line != "ok" and not _ABOUT_VALUES.search(line)]
        if damage:
            self.is_sound = False
            first = " ".join(damage[0].split())[:200]
            cause = "; its -wal file is not there: copy both" if self.lacks_wal else ""
            self._warn(f"{self.name} is damaged ({first}): only the rows that can still be read are taken{cause}")

    def _missing(self, table: Table) -> str:
        """The needed columns that the table lacks; '' when it can be read."""
        there = self._named(table)
        missing = ", ".join(name for name in table.required if name not in there)
        if missing:
            self._warn(f"{self.name}: table {table.name} has no column {missing}: none of its rows could be taken")
        for name in table.assumed:
            if name not in there and not missing:
                self._warn(f"{self.name}: table {table.name} has no column {name}; {table.absent[name]!r} is assumed")
        return missing

    def _named(self, table: Table) -> Mapping[str, str]:
        """The table's columns by their present names."""
        names = self.columns[table.name]
        return {table.present_name(name, names): name for name in names}

    def _rows(self, table: Table, *, texts: bool) -> Iterator[Mapping[str, Raw]]:
        # Sorting numbers and fetching one row at a time keeps the texts out of SQLite's sorter, and loses to a damaged
        # page only the rows that lie on it.
        names = self.columns[table.name]
        texts_of = () if texts else _texts(table)
        columns = ", ".join(
            _without_text(name) if table.present_name(name, names) in texts_of else _quoted(name) for name in names
        )
        query = f"select {columns} from {_quoted(table.name)} where rowid = ?"  # noqa: S608
        lost, why = 0, ""
        for rowid in self._rowids(table):
            try:
                found = self._conn.execute(query, (rowid,)).fetchone()
            except UNREADABLE as exc:
                _not_misuse(exc)
                lost, why = lost + 1, _why(exc)
            else:
                if found is not None:
                    yield dict(zip(names, found, strict=True))
        if lost:
            self.is_sound = False
            self._warn(f"{self.name}: {lost} rows of {table.name} could not be read: {why}")

    def _rowids(self, table: Table) -> list[int]:
        name = _quoted(table.name)
        named = self._named(table)
        order = "".join(f"{_quoted(named[column])}, " for column in table.order if column in named)
        with suppress(*UNREADABLE):
            # An index that lags behind its table, as in a torn copy, would hide rows.
            ordered = f"select rowid from {name} not indexed order by {order}rowid"  # noqa: S608
            return [rowid for (rowid,) in self._conn.execute(ordered)]
        return self._salvaged(table)

    def _salvaged(self, table: Table) -> list[int]:
        """The row ids of a damaged table: from both of its ends, and in between whatever a search by id still finds."""
        before, why = self._walk(table, "asc")
        if why is None:
            return before
        behind = self._walk(table, "desc")[0][::-1]
        start = before[-1] + 1 if before else 1
        end = behind[0] if behind else start + _PROBED
        between = [rowid for rowid in range(start, min(end, start + _PROBED)) if self._is_there(table, rowid)]
        found = [*before, *between, *behind]
        self.is_sound = False
        self._warn(
            f"{self.name}: table {table.name} breaks off after {len(before)} rows: {why}; {len(found)} were found"
        )
        return found

    def _walk(self, table: Table, direction: str) -> tuple[list[int], str | None]:
        """Row ids in one direction up to where the table breaks off, and why it does."""
        rowids: list[int] = []
        name = _quoted(table.name)
        try:
            query = f"select rowid from {name} not indexed order by rowid {direction}"  # noqa: S608
            rowids.extend(rowid for (rowid,) in self._conn.execute(query))
        except UNREADABLE as exc:
            _not_misuse(exc)
            return rowids, _why(exc)
        return rowids, None

    def _is_there(self, table: Table, rowid: int) -> bool:
        with suppress(*UNREADABLE):
            query = f"select 1 from {_quoted(table.name)} where rowid = ?"  # noqa: S608
            return self._conn.execute(query, (rowid,)).fetchone() is not None
        return False

    def _rejected(self, table: Table, raw: Mapping[str, Raw], reason: str) -> Rejected:
        values = {name: bytes(value) if isinstance(value, Text) else value for name, value in raw.items()}
        return Rejected(self.store, table.name, codex_columns.key(table, raw), reason, values)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _texts(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns if column.convert is codex_columns.text)


def _without_text(name: str) -> str:
    column = _quoted(name)
    return f"case when typeof({column}) in ('text', 'blob') then '' else {column} end"


def _why(exc: Exception) -> str:
    return "a name in it is not UTF-8" if isinstance(exc, UnicodeDecodeError) else " ".join(str(exc).split())


def _not_misuse(exc: Exception) -> None:
    """A closed connection is a mistake of the caller, not damage in the export."""
    if isinstance(exc, sqlite3.ProgrammingError):
        raise exc
