"""Rows of Codex's early memory tables as rows of their successors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from memsvc.model.export import JobRow, OutputRow, Rejected, Scalar
from memsvc_importers.codex_columns import Table
from memsvc_importers.codex_database import Database
from memsvc_importers.codex_early_tables import LEDGERS, LOCKS


def store(database: Database, table: Table) -> str:
    """The store of an early table: the file's, and the name of the table."""
    return f"{database.store}.{table.name}"


def outputs(database: Database, table: Table) -> Iterator[OutputRow | Rejected]:
    """
    Each memory as the output of its session, oldest first.

    A store has one output a session: what a session has in a second scope goes to a second store, and so on. The tables
    say only when a memory was written, so that is taken for the time of the session as well.
    """
    seen: Counter[str] = Counter()
    for row in database.read(table):
        if isinstance(row, Rejected):
            yield row
            continue
        values = {name: value for name, value in row.values.items() if name != "invalidated_at"}
        thread_id: str = values["thread_id"]
        seen[thread_id] += 1
        yield OutputRow(
            store=store(database, table) + (f".{seen[thread_id]}" if seen[thread_id] > 1 else ""),
            generated_at=values["source_updated_at"],
            rollout_slug=None,
            selected_for_phase2=0,
            selected_for_phase2_source_updated_at=None,
            extra=row.extra,
            **values,
        )


def jobs(database: Database) -> Iterator[JobRow | Rejected]:
    """The jobs of both phases: `memory_phase1` and `memory_phase2`, by session and scope, and by scope."""
    for table in LEDGERS:
        for row in database.read(table):
            if isinstance(row, Rejected):
                yield row
                continue
            key = "/".join(row.values[name] for name in table.key)
            values = {name: value for name, value in row.values.items() if name not in table.key}
            kind = table.name.removesuffix("_jobs")
            yield JobRow(store=database.store, kind=kind, job_key=key, extra=row.extra, **values)


def locks(database: Database) -> Iterator[Rejected]:
    """What was locked or to be done when the export was taken: there is no table for it."""
    for table in LOCKS:
        yield from database.set_aside(table, "Codex gave up this table in February 2026, and memsvc has none for it")


def folder(extra: Mapping[str, Scalar | bytes]) -> bytes | None:
    """The working folder of a session, where the extra columns of its memory tell."""
    found = extra.get("cwd") or (extra.get("scope_key") if extra.get("scope_kind") == "cwd" else None)
    return found.encode() if isinstance(found, str) else found if isinstance(found, bytes) else None
