"""Exported values as JSON can hold them, with nothing lost."""

from __future__ import annotations

from collections.abc import Mapping

from memsvc.memory.kept import keep


def raw(value: object) -> object:
    """Text that JSON or Postgres cannot hold (bytes that are no UTF-8, NUL) as {"hex": ...}, reals as {"real": ...}."""
    if isinstance(value, str):
        value = value.encode("utf-8", errors="surrogatepass")
    if isinstance(value, bytes):
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError:
            return {"hex": value.hex()}
        return {"hex": value.hex()} if "\x00" in text else text
    if isinstance(value, float):
        return {"real": repr(value)}
    return value


def extra(columns: Mapping[str, object]) -> dict[str, object]:
    """Columns that have no place of their own: secrets are cut out of their texts, everything else is raw."""
    return {name: _extra(value) for name, value in columns.items()}


def _extra(value: object) -> object:
    whole = raw(value)
    return keep(whole.encode()).text if isinstance(whole, str) else whole
