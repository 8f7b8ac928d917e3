"""One hash of a whole row, by which an unchanged row is known without reading it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime


def row_sha256(values: Mapping[str, object]) -> bytes:
    """
    sha-256 over the named values in the order of their names.

    Each value goes in with its type and length, so that no two rows can run together into one.
    """
    parts: list[bytes] = []
    for name in sorted(values):
        for part in (name.encode(), _bytes(values[name])):
            parts += [len(part).to_bytes(8, "big"), part]
    return hashlib.sha256(b"".join(parts)).digest()


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return b"x" + value
    if isinstance(value, datetime):
        return b"t" + value.isoformat().encode()
    if isinstance(value, Mapping):
        return b"m" + row_sha256({str(key): item for key, item in value.items()})
    return f"{type(value).__name__[0]}{value}".encode("utf-8", errors="surrogatepass")
