"""Principals: who is calling, as the database sees it."""

from __future__ import annotations

from typing import Literal, cast

from memsvc.db import queries
from memsvc.db.pool import Conn
from memsvc.errors import Refused

SQL = queries.load(__file__)

PrincipalKind = Literal["person", "agent", "service"]


def kind_of_caller(conn: Conn) -> PrincipalKind:
    """
    Is the caller a person, an agent or a service?

    Raises:
        Refused: the database does not know the caller.
    """
    row = conn.execute(SQL["kind_of_caller"]).fetchone()
    if row is None:
        raise Refused("the database does not know who is calling", mend="memsvc doctor")
    return cast(PrincipalKind, row[0])
