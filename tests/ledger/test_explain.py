"""Why a job is not running: each cause is named, with what ends it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import timedelta

import pytest

from memsvc.db.pool import Conn
from memsvc.ledger import control, jobs, kinds, listing
from memsvc.ledger.control import Row
from memsvc.ledger.explain import Explanation, explain
from memsvc.ledger.listing import Filter, Job
from memsvc.model.job import CONSOLIDATE_GLOBAL, Policy
from memsvc.model.principal import LOCAL_SOURCE
from tests.ledger.ledger import KIND, MINUTE, NEVER, claim, claimed, enqueue, imported, now

HOUR = timedelta(hours=1)


def found(conn: Conn, name: str = "a", *, store: str = "memsvc", kind: str = KIND) -> Job:
    (job,), _ = listing.jobs(conn, Filter(kind=kind, job_key=name, store=store), limit=5)
    return job


def why(
    conn: Conn, name: str = "a", *, store: str = "memsvc", kind: str = KIND, workers: int | None = 1
) -> Explanation:
    return explain(conn, found(conn, name, store=store, kind=kind), workers=workers)


def done(conn: Conn) -> None:
    enqueue(conn, "a")
    jobs.complete(conn, claimed(conn))


def failed(conn: Conn) -> None:
    enqueue(conn, "a")
    jobs.fail(conn, claimed(conn), "no such file", retry_in=HOUR)


def exhausted(conn: Conn) -> None:
    enqueue(conn, "a")
    for _ in range(3):
        jobs.fail(conn, claimed(conn), "no such file", retry_in=NEVER)


def poisoned(conn: Conn) -> None:
    enqueue(conn, "a")
    jobs.fail(conn, claimed(conn), "no such file", retry_in=None)


def cancelled(conn: Conn) -> None:
    enqueue(conn, "a")
    control.cancel(conn, [Row(LOCAL_SOURCE, "memsvc", KIND, "a")])


def leased(conn: Conn) -> None:
    enqueue(conn, "a")
    claimed(conn, worker_id="host:7")


def left_behind(conn: Conn) -> None:
    enqueue(conn, "a")
    claimed(conn, worker_id="host:7", lease_for=NEVER)


def due(conn: Conn) -> None:
    enqueue(conn, "a")


def switched_off(conn: Conn) -> None:
    enqueue(conn, "a")
    kinds.settle(conn, KIND, Policy(enabled=False))


def capped(conn: Conn) -> None:
    enqueue(conn, "b")
    claimed(conn, worker_id="host:7")
    enqueue(conn, "a")
    kinds.settle(conn, KIND, Policy(max_running=1))


RETRY = f"memsvc jobs retry {KIND} a --source local"


@pytest.mark.parametrize(
    ("before", "code", "says", "mend"),
    [
        (done, "up-to-date", "nothing newer", None),
        (failed, "back-off", "2 retries left: no such file", RETRY),
        (exhausted, "exhausted", "no such file", RETRY),
        (poisoned, "poison", "no such file", RETRY),
        (cancelled, "cancelled", "cancelled", RETRY),
        (leased, "leased", "host:7 is at it", f"memsvc jobs cancel {KIND} a --source local"),
        (left_behind, "left-behind", "host:7 left it behind", None),
        (due, "due", "the next free worker", None),
        (switched_off, "switched-off", KIND, f"update memsvc.job_kinds set enabled = true where kind = '{KIND}'"),
        (capped, "cap-reached", "1 of 1 places of the kind are taken, by host:7", None),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_each_cause_is_named_with_what_ends_it(
    conn: Conn, before: Callable[[Conn], None], code: str, says: str, mend: str | None
) -> None:
    before(conn)

    explanation = why(conn)

    assert (explanation.code, explanation.mend) == (code, mend)
    assert says in explanation.why


def test_a_cause_that_passes_says_when(conn: Conn) -> None:
    failed(conn)
    assert why(conn).until == now(conn) + HOUR

    capped_until = now(conn) + MINUTE
    enqueue(conn, "b", kind="other")
    claimed(conn, kind="other", worker_id="host:7")
    enqueue(conn, "c", kind="other")
    kinds.settle(conn, "other", Policy(max_running=1))
    explanation = why(conn, "c", kind="other")
    assert explanation.until == capped_until
    assert [(holder.worker_id, holder.job_key) for holder in explanation.holders] == [("host:7", "b")]


def test_a_rest_after_a_success_is_no_back_off(conn: Conn) -> None:
    enqueue(conn, "a", kind=CONSOLIDATE_GLOBAL)
    jobs.complete(conn, claimed(conn, kind=CONSOLIDATE_GLOBAL))
    enqueue(conn, "a", kind=CONSOLIDATE_GLOBAL)

    explanation = why(conn, kind=CONSOLIDATE_GLOBAL)

    assert (explanation.code, explanation.until) == ("rests", now(conn) + timedelta(hours=6))


def test_without_a_worker_the_command_that_starts_one_is_named(conn: Conn) -> None:
    due(conn)

    assert why(conn, workers=0).mend == f"memsvc worker --kinds {KIND}"
    nobody = why(conn, workers=None)
    assert nobody.mend is None
    assert f"no worker of this version does jobs of the kind {KIND}" in nobody.why


def test_history_is_explained_and_its_twin_named(conn: Conn) -> None:
    imported(conn, "a", "running")
    imported(conn, "b", "done")
    assert why(conn, store="v1").mend == f"memsvc jobs retry {KIND} a --source local --store v1"
    assert why(conn, "b", store="v1").mend is None

    control.retry(conn, [Row(LOCAL_SOURCE, "v1", KIND, "a")])

    explanation = why(conn, store="v1")
    assert explanation.mend == f"memsvc jobs explain {KIND} a --source local --store memsvc"
    assert "its live twin is pending" in explanation.why
    assert {why(conn, name, store="v1").code for name in "ab"} == {"imported"}


@pytest.mark.parametrize("before", [failed, exhausted, poisoned, cancelled], ids=lambda before: before.__name__)
def test_the_command_that_is_named_moves_the_job_on(conn: Conn, before: Callable[[Conn], None]) -> None:
    before(conn)
    words = shlex.split(str(why(conn).mend))
    assert words[:5] == ["memsvc", "jobs", "retry", KIND, "a"]

    control.retry(conn, [found(conn).row])

    assert why(conn).code == "due"
    assert len(claim(conn)) == 1


def test_an_odd_key_is_quoted(conn: Conn) -> None:
    enqueue(conn, "it's; rm -rf /")
    jobs.fail(conn, claimed(conn), "broken", retry_in=None)

    words = shlex.split(str(why(conn, "it's; rm -rf /").mend))

    assert words[4] == "it's; rm -rf /"


# Listing.


def test_pages_show_every_job_once_in_the_order_of_keys(conn: Conn) -> None:
    enqueue(conn, *(f"job {number:02}" for number in range(7)))
    imported(conn, "old", "error")
    imported(conn, "weird \x01 ünïcode", "queued", store="v2")
    seen: list[str] = []
    cursor = None
    for _ in range(10):
        page, cursor = listing.jobs(conn, Filter(), limit=2, cursor=cursor)
        seen += [job.job_key for job in page]
        if cursor is None:
            break

    assert seen == [f"job {number:02}" for number in range(7)] + ["old", "weird \x01 ünïcode"]


def test_filters_narrow_the_listing(conn: Conn) -> None:
    enqueue(conn, "a", "b")
    jobs.complete(conn, claimed(conn))
    enqueue(conn, "c", kind="other")
    imported(conn, "d", "error")

    def names(wanted: Filter) -> list[str]:
        return [job.job_key for job in listing.jobs(conn, wanted, limit=50)[0]]

    assert names(Filter(live=True)) == ["c", "a", "b"]
    assert names(Filter(live=False)) == ["d"]
    assert names(Filter(kind=KIND, live=True)) == ["a", "b"]
    assert names(Filter(status="done")) == ["a"]
    assert names(Filter(source="elsewhere")) == []
    assert names(Filter(store="v1")) == ["d"]
    assert [row.job_key for row in listing.not_done(conn, Filter(kind=KIND))] == ["b", "d"]
