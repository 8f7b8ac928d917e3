"""What an import did, in numbers that add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["inserted", "updated", "unchanged", "older"]

NAMED_SECRETS = 100


@dataclass
class Tally:
    """Rows of one kind, by what became of them."""

    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    older: int = 0
    rejected: int = 0

    def count(self, outcome: Outcome) -> None:
        """One more row with this outcome."""
        setattr(self, outcome, getattr(self, outcome) + 1)


@dataclass
class MemoryTally:
    """Memories derived from the imported outputs: new ones, those that stayed, and those whose line is gone."""

    inserted: int = 0
    unchanged: int = 0
    retired: int = 0


@dataclass(frozen=True)
class RejectedRow:
    """A row that no table can take: which, and why. Its raw values are in import_rejects."""

    table: str
    key: str
    reason: str


@dataclass(frozen=True)
class SecretPlace:
    """Where a secret was cut out and by which rule; never what it was. Lines count from 1."""

    table: str
    key: str
    column: str
    line: int
    rule: str


@dataclass(frozen=True)
class Upserted:
    """What became of some rows, in their order, and the secrets that were cut out of those written."""

    outcomes: Sequence[Outcome]
    secrets: Sequence[SecretPlace]


@dataclass
class IngestReport:
    """
    The result of an import; `source` is None when there was nothing to import.

    After a dry run it says what the import would have done. `redacted` counts all secrets cut out, `secrets` names the
    places of the first hundred.
    """

    source: str | None = None
    dry_run: bool = False
    stores: tuple[str, ...] = ()
    outputs: Tally = field(default_factory=Tally)
    jobs: Tally = field(default_factory=Tally)
    threads: Tally = field(default_factory=Tally)
    files: Tally = field(default_factory=Tally)
    memories: MemoryTally = field(default_factory=MemoryTally)
    rejected: list[RejectedRow] = field(default_factory=list)
    redacted: int = 0
    secrets: list[SecretPlace] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def found(self, secrets: Sequence[SecretPlace]) -> None:
        """Count secrets that were cut out; the first hundred are named."""
        self.redacted += len(secrets)
        self.secrets.extend(secrets[: NAMED_SECRETS - len(self.secrets)])
