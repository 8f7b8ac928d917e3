"""What Markdown that Codex wrote says about a session: headers of rollout summaries, front matter of raw memories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

HEAD = 65_536  # bytes; far more than a header or a front matter takes

_EARLIEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Header:
    """The header of one rollout summary, under the names of the threads table; `updated_at` None: not a valid one."""

    thread_id: str
    columns: Mapping[str, bytes | int | datetime | None]
    updated_at: datetime | None


def header(head: bytes) -> Header | None:
    """The lines before the first blank one of a file in rollout_summaries/; None when they name no session."""
    lines = dict(_pairs(_until_blank(head)))
    named = lines.get(b"thread_id", b"").strip()
    with suppress(UnicodeDecodeError):
        if thread_id := named.decode():
            updated_at = _instant(lines.get(b"updated_at", b""))
            columns: dict[str, bytes | int | datetime | None] = {"id": named}
            columns |= {
                name: lines[name.encode()] for name in ("rollout_path", "cwd", "git_branch") if lines.get(name.encode())
            }
            if updated_at:
                columns["updated_at"] = updated_at
            return Header(thread_id, columns, updated_at)
    return None


def newest(headers: Iterable[Header | None]) -> dict[str, Header]:
    """The headers by session; of several for one session the one with the latest time."""
    found: dict[str, Header] = {}
    for one in headers:
        if one is None:
            continue
        other = found.get(one.thread_id)
        if other is None or (one.updated_at or _EARLIEST) > (other.updated_at or _EARLIEST):
            found[one.thread_id] = one
    return found


def cwd(raw_memory: bytes) -> bytes | None:
    """
    The working directory in the front matter of a raw memory, given its first bytes.

    The front matter looks like YAML and is not: values are free text, and the closing fence may be missing. None when
    there is none, or when the model wrote `unknown`.
    """
    for name, value in _pairs(_front_matter(raw_memory)):
        if name == b"cwd":
            found = value.strip()
            return None if found.lower() in (b"", b"unknown") else found
    return None


def _front_matter(raw_memory: bytes) -> Iterator[bytes]:
    lines = iter(raw_memory.lstrip().splitlines())
    if next(lines, b"").rstrip() != b"---":
        return
    for line in lines:
        if line.rstrip() == b"---" or line.startswith(b"#"):
            return
        yield line


def _until_blank(head: bytes) -> Iterator[bytes]:
    for line in head.split(b"\n"):
        if not line.strip():
            return
        yield line.removesuffix(b"\r")


def _pairs(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    for line in lines:
        name, colon, value = line.partition(b":")
        if colon:
            yield name.strip(), value.removeprefix(b" ")


def _instant(written: bytes) -> datetime | None:
    # Near the ends of the calendar a time with an offset has no counterpart in UTC.
    with suppress(ValueError, OverflowError):
        read = datetime.fromisoformat(written.strip().decode())
        if read.tzinfo is not None:
            return read.astimezone(UTC)
    return None
