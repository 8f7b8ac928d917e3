"""Jobs, the proof of owning one, and what holds for each kind of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

EMBED: Final = "memory_embed"
STAGE1: Final = "memory_stage1"
CONSOLIDATE_GLOBAL: Final = "memory_consolidate_global"

RETRIES: Final = 3


def embed_with(model: str) -> str:
    """The kind of the jobs that bring one model what it lacks; EMBED alone is for whichever model is at hand."""
    return f"{EMBED}:{model}"


@dataclass(frozen=True)
class JobKey:
    """What names one live job of a tenant."""

    source_id: UUID
    kind: str
    job_key: str


@dataclass(frozen=True)
class Lease:
    """
    Proof of owning a job until `lease_until`, by the database's clock.

    `attempts` counts the leases on this input, this one included; `retry_remaining` the failures that are still
    allowed.
    """

    source_id: UUID
    kind: str
    job_key: str
    ownership_token: str
    worker_id: str
    lease_until: datetime
    input_watermark: int
    attempts: int
    retry_remaining: int


@dataclass(frozen=True)
class Policy:
    """
    What holds for the jobs of a kind.

    The first four may be set anew by a row of memsvc.job_kinds. `max_running` is the most leases that live at a time,
    None for any number. `max_attempts` is the most leases on one input, lost ones included. `longest_lease` is how long
    one lease may be kept alive in all.

    `dated`: the watermark is the input's own, so that an older or equal one is nothing new; else the ledger counts.
    `gives_up`: the last failure stops the job. `retry_in` is how long a failure waits, None for a growing pause;
    `rests_for` how long a success is enough.
    """

    enabled: bool = True
    max_running: int | None = None
    max_attempts: int = 20
    longest_lease: timedelta = timedelta(hours=6)
    dated: bool = False
    gives_up: bool = True
    retry_in: timedelta | None = None
    rests_for: timedelta = timedelta(0)


# Codex's two kinds go by its own rules and figures; every other kind goes by the defaults.
POLICIES: Final = {
    STAGE1: Policy(max_running=2, dated=True, retry_in=timedelta(hours=1)),
    CONSOLIDATE_GLOBAL: Policy(gives_up=False, retry_in=timedelta(hours=1), rests_for=timedelta(hours=6)),
}
DEFAULT_POLICY: Final = Policy()


def policy(kind: str) -> Policy:
    """What holds for a kind where nobody has set anything."""
    return POLICIES.get(kind, DEFAULT_POLICY)
