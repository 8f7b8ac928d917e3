"""What an importer is, and how one is found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, cast

from memsvc.errors import UnknownImporter
from memsvc.model.export import Identity, Row

GROUP = "memsvc.importers"


class Export(Protocol):
    """One opened export. It is a private copy: what happens to the original meanwhile does not matter."""

    @property
    def identity(self) -> Identity:
        """What tells this home from others."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """What a person should know about the export, one sentence each; complete once `rows` is exhausted."""
        ...

    @property
    def stores(self) -> Sequence[str]:
        """The stores found in it, such as `v1`; empty when there is no memory table at all."""
        ...

    def rows(self) -> Iterator[Row]:
        """Threads first, then outputs oldest first, then jobs, progress and files; rejected rows where they are met."""
        ...


class Importer(Protocol):
    """Reads one kind of export. It sees no database, decides nothing about scope and writes nothing."""

    name: str

    def digest(self, path: Path) -> bytes | None:
        """
        A hash over everything that `open` would read, in its place; None where there is no telling.

        Two exports with one digest give the same rows and warnings.
        """
        ...

    def open(self, path: Path) -> AbstractContextManager[Export]:
        """
        Take a private copy of the export and open it; the copy is gone when the context ends.

        Raises:
            BadExport: there is nothing at the path that this importer reads.
        """
        ...


def find(name: str) -> Importer:
    """
    The importer of that name.

    Raises:
        UnknownImporter: none is installed under the name.
    """
    found = entry_points(group=GROUP)
    for entry in found:
        if entry.name == name:
            return cast(Importer, entry.load()())
    known = ", ".join(sorted(entry.name for entry in found)) or "none"
    raise UnknownImporter(f"no importer is called {name!r}; known are: {known}")
