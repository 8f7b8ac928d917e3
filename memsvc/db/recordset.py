"""Many rows as one parameter: a JSON document for json_to_recordset, so that a batch is one statement."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from uuid import UUID

AT_ONCE = 5000


def recordset(rows: Iterable[Mapping[str, object]]) -> str:
    """The rows as JSON text; bytes become bytea's hex form, datetimes ISO 8601."""
    return json.dumps(list(rows), default=_plain, ensure_ascii=False)


def recordsets(rows: Iterable[Mapping[str, object]], *, at_once: int = AT_ONCE) -> Iterator[str]:
    """The rows in portions: none for no rows, and no statement so large that it takes too long."""
    left = iter(rows)
    while portion := list(islice(left, at_once)):
        yield recordset(portion)


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")
