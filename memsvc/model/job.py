"""Jobs and the proof of owning one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

EMBED: Final = "memory_embed"


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
