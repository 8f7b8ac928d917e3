"""Sources: which known home an export belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.errors import AmbiguousSource, Conflict, WrongUse
from memsvc.model.export import Identity
from memsvc.model.scope import is_storable

SQL = queries.load(__file__)

# It is shown in every table, and is part of the name of the source's own project.
LONGEST_LABEL_BYTES = 200


@dataclass(frozen=True)
class Source:
    """One imported home under its label."""

    id: UUID
    importer: str
    label: str
    home: str | None


def identify(conn: Conn, importer: str, identity: Identity, *, label: str | None, host: str, path: str) -> Source:
    """
    The source of this export, made if it is new; holds the importer's lock until the transaction ends.

    A label decides. Else it is the one source of that importer that shares a thread and the home of its rollout
    paths; where an export or a source has no rollout path, a shared thread is enough. A source of which nothing has
    arrived yet is that of the same home, or of an import from the same `path`.

    Raises:
        AmbiguousSource: several known sources fit.
        Conflict: the label belongs to another importer.
        WrongUse: the label is blank, too long, or no text.
    """
    if label is not None and not (label.strip() and is_storable(label, longest=LONGEST_LABEL_BYTES)):
        raise WrongUse(
            f"a source's label is some text of at most {LONGEST_LABEL_BYTES} bytes",
            mend="name the source with --source LABEL, or leave that out",
        )
    conn.execute(SQL["lock_sources"], {"importer": importer})
    found = _labelled(conn, importer, label) if label is not None else _matching(conn, importer, identity, path)
    if found is not None:
        return found
    return _add(conn, importer, label or _free_label(conn, importer), identity.home, host)


def lock(conn: Conn, source: Source) -> None:
    """Keep every other import of the source out until the transaction ends."""
    lock_id(conn, source.id)


def lock_id(conn: Conn, source_id: UUID) -> None:
    """The same for a source of which only the id is known."""
    conn.execute(SQL["lock_source"], {"source_id": source_id})


def saw_export(conn: Conn, source: Source, identity: Identity) -> None:
    """Remember how new the newest export of the source was, and where its home is if that was not known."""
    conn.execute(
        SQL["saw_export"],
        {"source_id": source.id, "exported_at": identity.exported_at, "home": identity.home},
    )


def is_newest(conn: Conn, source: Source, identity: Identity) -> bool:
    """Is this export at least as new as any that the source has had?"""
    row = conn.execute(SQL["is_newest"], {"source_id": source.id, "exported_at": identity.exported_at}).fetchone()
    return row is not None and bool(row[0])


def _labelled(conn: Conn, importer: str, label: str) -> Source | None:
    with conn.cursor(row_factory=class_row(Source)) as cursor:
        found = cursor.execute(SQL["labelled"], {"label": label}).fetchone()
    if found is not None and found.importer != importer:
        raise Conflict(
            f"the source {label!r} was imported with {found.importer!r}, not with {importer!r}",
            mend="choose another label with --source",
        )
    return found


def _matching(conn: Conn, importer: str, identity: Identity, path: str) -> Source | None:
    if not identity.thread_ids:
        return None
    with conn.cursor(row_factory=class_row(Source)) as cursor:
        found = cursor.execute(
            SQL["matching"],
            {"importer": importer, "home": identity.home, "thread_ids": sorted(identity.thread_ids), "path": path},
        ).fetchall()
    if len(found) > 1:
        labels = ", ".join(source.label for source in found)
        raise AmbiguousSource(
            f"the export fits several sources: {labels}", mend="name the one that is meant with --source LABEL"
        )
    return found[0] if found else None


def _free_label(conn: Conn, importer: str) -> str:
    taken = {row[0] for row in conn.execute(SQL["labels"]).fetchall()}
    label, number = importer, 1
    while label in taken:
        number += 1
        label = f"{importer}-{number}"
    return label


def _add(conn: Conn, importer: str, label: str, home: str | None, host: str) -> Source:
    with conn.cursor(row_factory=class_row(Source)) as cursor:
        added = cursor.execute(
            SQL["add"], {"importer": importer, "label": label, "home": home, "host": host}
        ).fetchone()
    assert added is not None  # noqa: S101 - an insert without conflict clause returns its row
    return added


@dataclass(frozen=True)
class Summary:
    """One source as a person wants to see it."""

    label: str
    importer: str
    home: str | None
    exported_at: datetime | None
    outputs: int
    memories: int


def summaries(conn: Conn) -> list[Summary]:
    """Every source with how much came from it; memories are those that are current."""
    with conn.cursor(row_factory=class_row(Summary)) as cursor:
        return cursor.execute(SQL["summaries"]).fetchall()
