"""What holds for a kind of job: the program's own figures, and over them what an operator has set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.model.job import Policy, policy

SQL = queries.load(__file__)


def policies(conn: Conn, kinds: Sequence[str]) -> dict[str, Policy]:
    """What holds now for each of the kinds, in their order."""
    found = {kind: policy(kind) for kind in kinds}
    for kind, enabled, max_running, max_attempts, longest_lease in conn.execute(
        SQL["settings"], {"kinds": list(found)}, prepare=True
    ):
        of_kind = found[kind]
        found[kind] = replace(
            of_kind,
            enabled=enabled,
            max_running=max_running,
            max_attempts=max_attempts or of_kind.max_attempts,
            longest_lease=longest_lease or of_kind.longest_lease,
        )
    return found


def settle(conn: Conn, kind: str, wanted: Policy) -> None:
    """Let the four figures of a kind that can be set be those of `wanted`, for every worker, from its next claim on."""
    conn.execute(
        SQL["settle"],
        {
            "kind": kind,
            "enabled": wanted.enabled,
            "max_running": wanted.max_running,
            "max_attempts": wanted.max_attempts,
            "longest_lease": wanted.longest_lease,
        },
    )
