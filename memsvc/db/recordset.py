"""Many rows as one parameter: a JSON document for json_to_recordset, so that a batch is one statement."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID


def recordset(rows: Iterable[Mapping[str, object]]) -> str:
    """The rows as JSON text; bytes become bytea's hex form, datetimes ISO 8601."""
    return json.dumps(list(rows), default=_plain, ensure_ascii=False)


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")
