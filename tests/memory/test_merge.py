"""Which of two versions holds must not depend on the order in which they come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from memsvc.memory.merge import (
    JobVersion,
    OutputVersion,
    ThreadVersion,
    compare_jobs,
    compare_outputs,
    compare_threads,
)

START = datetime(2026, 11, 30, tzinfo=UTC)
instants = st.integers(0, 3).map(lambda days: START + timedelta(days=days))
hashes = st.sampled_from([b"a", b"b", b"c"])


@st.composite
def outputs(draw: st.DrawFn) -> OutputVersion:
    updated, generated, content, counters = draw(instants), draw(instants), draw(hashes), draw(hashes)
    row = f"{updated} {generated} {content!r} {counters!r}".encode()  # a row's hash covers all of it
    return OutputVersion(updated, generated, content, row)


@given(st.lists(outputs(), min_size=1, max_size=4))
def test_the_same_text_holds_in_every_order_of_imports(versions: list[OutputVersion]) -> None:
    ends = set()
    for order in permutations(versions):
        stored: OutputVersion | None = None
        for version in order:
            if compare_outputs(stored, version, from_newest=False) in ("inserted", "updated"):
                stored = version
        assert stored is not None
        ends.add((stored.source_updated_at, stored.generated_at, stored.content_sha256))

    assert len(ends) == 1


def version(updated: int, generated: int = 0, content: bytes = b"a", row: bytes = b"1") -> OutputVersion:
    return OutputVersion(START + timedelta(days=updated), START + timedelta(days=generated), content, row)


def test_outputs_by_update_then_generation_then_hash() -> None:
    assert compare_outputs(None, version(1), from_newest=True) == "inserted"
    assert compare_outputs(version(1), version(1), from_newest=True) == "unchanged"
    assert compare_outputs(version(1), version(2, row=b"2"), from_newest=False) == "updated"
    assert compare_outputs(version(2), version(1, 9, row=b"2"), from_newest=True) == "older"
    assert compare_outputs(version(1, 1), version(1, 2, row=b"2"), from_newest=False) == "updated"
    assert compare_outputs(version(1, 1), version(1, 1, b"b", b"2"), from_newest=False) == "updated"
    assert compare_outputs(version(1, 1, b"b"), version(1, 1, b"a", b"2"), from_newest=True) == "older"


def test_counters_and_flags_of_one_version_follow_the_newest_export() -> None:
    assert compare_outputs(version(1), version(1, row=b"2"), from_newest=True) == "updated"
    assert compare_outputs(version(1), version(1, row=b"2"), from_newest=False) == "older"


def job(started: int | None, finished: int | None, watermark: int | None, row: bytes) -> JobVersion:
    def at(day: int | None) -> datetime | None:
        return None if day is None else START + timedelta(days=day)

    return JobVersion(at(started), at(finished), watermark, row)


def test_jobs_by_later_start_or_finish_then_watermark_then_export() -> None:
    assert compare_jobs(None, job(1, 1, 1, b"1"), from_newest=False) == "inserted"
    assert compare_jobs(job(1, 2, 1, b"1"), job(3, None, 0, b"2"), from_newest=False) == "updated"
    assert compare_jobs(job(3, None, 1, b"1"), job(1, 2, 9, b"2"), from_newest=True) == "older"
    assert compare_jobs(job(1, 2, 1, b"1"), job(1, 2, 2, b"2"), from_newest=False) == "updated"
    assert compare_jobs(job(1, 2, None, b"1"), job(1, 2, 0, b"2"), from_newest=False) == "updated"
    assert compare_jobs(job(1, 2, 1, b"1"), job(1, 2, 1, b"2"), from_newest=True) == "updated"
    assert compare_jobs(job(1, 2, 1, b"1"), job(1, 2, 1, b"2"), from_newest=False) == "older"
    assert compare_jobs(job(1, 2, 1, b"1"), job(1, 2, 1, b"1"), from_newest=True) == "unchanged"


def test_a_trace_of_a_thread_never_replaces_its_row() -> None:
    row = ThreadVersion("state", START, b"1")
    trace = ThreadVersion("summary", START + timedelta(days=9), b"2")

    assert compare_threads(row, trace, from_newest=True) == "older"
    assert compare_threads(trace, row, from_newest=False) == "updated"
    assert compare_threads(ThreadVersion("front_matter", None, b"3"), trace, from_newest=False) == "updated"
