"""The world that the tests of policies, constraints and candidate search are made in."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.conftest import copied
from tests.db.world import fill


@pytest.fixture(scope="session")
def world(server: str, template: str) -> Iterator[str]:
    """A database with two tenants of equal ids that many tests read and none changes for good."""
    with copied(server, template) as conninfo:
        with psycopg.connect(conninfo) as conn:
            fill(conn)
        yield conninfo
