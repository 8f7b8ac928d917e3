"""Sessions: rows of Codex's threads table, and what else is known of those that have none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from memsvc.model.export import Rejected, ThreadRow
from memsvc_importers import codex_markdown
from memsvc_importers.codex_database import Database
from memsvc_importers.codex_markdown import Header
from memsvc_importers.codex_survey import Survey
from memsvc_importers.codex_tables import THREADS

_HOME = re.compile(r"(?s)(.+)[\\/](?:archived_)?sessions[\\/]")


def in_state(state: Database | None) -> Iterator[ThreadRow | Rejected]:
    """The rows of the threads table, by id."""
    if state is None:
        return
    for row in state.read(THREADS):
        if isinstance(row, Rejected):
            yield row
        else:
            thread_id: str = row.values["id"]
            yield ThreadRow(thread_id, "state", {**row.values, "id": thread_id.encode()}, row.extra)


def elsewhere(
    thread_ids: Iterable[str],
    headers: Mapping[str, Header],
    databases: Sequence[Database],
    folders: Mapping[str, bytes],
    *,
    deleted: Container[str],
) -> Iterator[ThreadRow]:
    """One row for each of the ids, from the header of its rollout summary, a folder known of it, or its raw memory."""
    for thread_id in sorted(thread_ids):
        if found := headers.get(thread_id):
            yield ThreadRow(thread_id, "summary", found.columns, deleted=thread_id in deleted)
        else:
            cwd = folders.get(thread_id) or _from_memory(thread_id, databases)
            columns = {"id": thread_id.encode(), **({"cwd": cwd} if cwd else {})}
            yield ThreadRow(thread_id, "front_matter", columns, deleted=thread_id in deleted)


def deleted(state: Database | None, found: Survey) -> frozenset[str]:
    """The sessions that the threads table lacks because Codex has deleted them."""
    # Codex sets a broken state database aside and fills a new one in the background; an empty one is at its beginning.
    if state is None or not (state.is_sound and state.has_rows(THREADS) and state.is_filled()):
        return frozenset()
    return found.surely_deleted if state.lacks_wal else found.without_thread


def home(rollout_paths: Iterable[object]) -> str | None:
    """The folder that most rollout paths lie in, which is the Codex home on the machine that wrote them."""
    homes = Counter(found for path in rollout_paths if isinstance(path, bytes) and (found := _home(path)))
    return min(homes, key=lambda name: (-homes[name], name), default=None)


def _from_memory(thread_id: str, databases: Sequence[Database]) -> bytes | None:
    starts = (database.start_of_memory(thread_id, codex_markdown.HEAD) for database in databases)
    return next(filter(None, map(codex_markdown.cwd, starts)), None)


def _home(path: bytes) -> str | None:
    match = _HOME.match(path.decode(errors="replace"))
    return match[1] if match else None
