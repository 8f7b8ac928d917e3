"""Show: one memory as it stands, with what supports it."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from memsvc.errors import NotFound
from memsvc.memory import remembered
from memsvc.memory.remembered import Evidence, StoredMemory
from memsvc.service.app import App


@dataclass(frozen=True)
class ShowResult:
    """A memory and its evidence, oldest first."""

    memory: StoredMemory
    evidence: tuple[Evidence, ...]


def show(app: App, memory_id: str) -> ShowResult:
    """
    Read one memory.

    Raises:
        NotFound: there is none of that id that the caller may read.
    """
    unknown = NotFound(f"there is no memory {memory_id}", mend="memsvc recall shows the full ids")
    try:
        wanted = UUID(memory_id)
    except ValueError:
        raise unknown from None
    with app.pool.transaction(app.actor) as conn:
        found = remembered.get(conn, wanted)
        if found is None:
            raise unknown
        return ShowResult(found, tuple(remembered.evidence(conn, wanted)))
