"""Who acts, and for which tenant."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True)
class Actor:
    """The tenant and the principal that a transaction acts for."""

    tenant_id: UUID
    principal_id: UUID


# The fixed rows that the migrations make for an installation without tenants of its own.
DEFAULT_TENANT = UUID("00000000-0000-4000-8000-000000000001")
GLOBAL_SCOPE = UUID("00000000-0000-4000-8000-000000000003")
LOCAL_SOURCE = UUID("00000000-0000-4000-8000-000000000004")
OWNER = Actor(DEFAULT_TENANT, UUID("00000000-0000-4000-8000-000000000002"))
