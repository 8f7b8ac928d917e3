"""Codex's two kinds move as Codex moves them: every situation that is known of its own ledger, one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from memsvc.db.pool import Conn
from memsvc.ledger import jobs
from memsvc.ledger.kinds import policies
from memsvc.model.job import CONSOLIDATE_GLOBAL, STAGE1, Lease
from tests.ledger import ledger
from tests.ledger.ledger import NEVER, change, claimed, column, enqueue, pass_time

HOUR = timedelta(hours=1)
MOMENT = timedelta(microseconds=1)
Before = Callable[[Conn], object]


def offer(conn: Conn, watermark: int, name: str = "t") -> int:
    return enqueue(conn, name, kind=STAGE1, watermark=watermark)


def taken(conn: Conn, *, lease_for: timedelta = HOUR) -> Lease:
    return claimed(conn, kind=STAGE1, worker_id="first", lease_for=lease_for)


# What was there before another claim is tried; each began with watermark 100.


def nothing(conn: Conn) -> None:
    pass


def live_lease(conn: Conn) -> None:
    offer(conn, 100)
    taken(conn)


def lease_that_ends_now(conn: Conn) -> None:
    offer(conn, 100)
    taken(conn, lease_for=NEVER)


def lease_that_ends_in_a_moment(conn: Conn) -> None:
    offer(conn, 100)
    taken(conn, lease_for=MOMENT)


def dead_lease_with_one_retry(conn: Conn) -> None:
    offer(conn, 100)
    taken(conn, lease_for=-HOUR)
    change(conn, "t", retry_remaining=1)


def back_off(conn: Conn) -> None:
    offer(conn, 100)
    jobs.fail(conn, taken(conn), "broken", retry_in=HOUR)


def back_off_that_ends_now(conn: Conn) -> None:
    back_off(conn)
    pass_time(conn, HOUR)


def exhausted(conn: Conn) -> None:
    offer(conn, 100)
    for _ in range(3):
        jobs.fail(conn, taken(conn), "broken", retry_in=HOUR)
        pass_time(conn, HOUR)


def done(conn: Conn) -> None:
    offer(conn, 100)
    jobs.complete(conn, taken(conn))


def done_after_a_failure(conn: Conn) -> None:
    back_off_that_ends_now(conn)
    jobs.complete(conn, taken(conn))


@dataclass(frozen=True)
class Claimed:
    """The claim succeeds, with this watermark and so many retries left."""

    watermark: int
    retries: int


NOT_CLAIMED = None


@pytest.mark.parametrize(
    ("before", "offered", "expected"),
    [
        (nothing, 100, Claimed(100, 3)),
        (live_lease, 100, NOT_CLAIMED),
        (live_lease, 200, NOT_CLAIMED),
        (live_lease, 50, NOT_CLAIMED),
        (lease_that_ends_in_a_moment, 100, NOT_CLAIMED),
        (lease_that_ends_now, 100, Claimed(100, 3)),
        (lease_that_ends_now, 50, Claimed(50, 3)),
        (dead_lease_with_one_retry, 100, Claimed(100, 1)),
        (dead_lease_with_one_retry, 200, Claimed(200, 3)),
        (back_off, 100, NOT_CLAIMED),
        (back_off, 50, NOT_CLAIMED),
        (back_off, 101, Claimed(101, 3)),
        (back_off_that_ends_now, 100, Claimed(100, 2)),
        (back_off_that_ends_now, 50, Claimed(50, 2)),
        (back_off_that_ends_now, 101, Claimed(101, 3)),
        (exhausted, 100, NOT_CLAIMED),
        (exhausted, 50, NOT_CLAIMED),
        (exhausted, 101, Claimed(101, 3)),
        (done, 100, NOT_CLAIMED),
        (done, 50, NOT_CLAIMED),
        (done, 101, Claimed(101, 3)),
        (done_after_a_failure, 100, NOT_CLAIMED),
        (done_after_a_failure, 101, Claimed(101, 3)),
    ],
    ids=lambda given: getattr(given, "__name__", str(given)),
)
def test_claiming_a_session(conn: Conn, before: Before, offered: int, expected: Claimed | None) -> None:
    before(conn)
    offer(conn, offered)

    leases = ledger.claim(conn, kinds=[STAGE1], worker_id="second")

    found = [Claimed(lease.input_watermark, lease.retry_remaining) for lease in leases]
    assert found == ([] if expected is None else [expected])


@pytest.mark.parametrize("before", [live_lease, back_off, exhausted, done], ids=lambda before: before.__name__)
@pytest.mark.parametrize("offered", [50, 100])
def test_an_offer_that_is_not_newer_changes_nothing_where_it_cannot_be_claimed(
    conn: Conn, before: Before, offered: int
) -> None:
    before(conn)
    as_it_was = conn.execute("select * from memsvc.jobs").fetchall()

    assert offer(conn, offered) == 0

    assert conn.execute("select * from memsvc.jobs").fetchall() == as_it_was


def test_a_session_without_its_watermark_is_a_mistake(conn: Conn) -> None:
    with pytest.raises(ValueError, match=f"{STAGE1} t comes without"):
        enqueue(conn, "t", kind=STAGE1)


def test_two_sessions_run_at_a_time_and_a_dead_lease_frees_its_place(conn: Conn) -> None:
    for number, name in enumerate(("a", "b", "c")):
        offer(conn, 100 + number, name)
    first = ledger.claim(conn, kinds=[STAGE1], lease_for=HOUR, limit=5)
    assert [lease.job_key for lease in first] == ["a", "b"]
    assert ledger.claim(conn, kinds=[STAGE1]) == []

    change(conn, "a", lease_until=ledger.now(conn))

    assert [lease.job_key for lease in ledger.claim(conn, kinds=[STAGE1], limit=5)] != []
    assert ledger.claim(conn, kinds=[STAGE1]) == []


def test_newer_input_during_the_work_is_worked_on_next(conn: Conn) -> None:
    offer(conn, 100)
    lease = taken(conn)
    assert offer(conn, 200) == 1

    jobs.complete(conn, lease)

    assert column(conn, "t", "status", "last_success_watermark", "input_watermark") == ("pending", 100, 200)
    again = taken(conn)
    assert (again.input_watermark, again.retry_remaining) == (200, 3)


def test_a_failure_costs_a_retry_that_success_does_not_give_back(conn: Conn) -> None:
    back_off_that_ends_now(conn)

    jobs.complete(conn, taken(conn))

    columns = ("status", "retry_remaining", "last_error", "lease_until", "last_success_watermark", "input_watermark")
    assert column(conn, "t", *columns) == ("done", 2, None, None, 100, 100)


def test_the_owners_token_stays_when_the_job_has_ended(conn: Conn) -> None:
    offer(conn, 100)
    lease = taken(conn)

    jobs.complete(conn, lease)

    assert column(conn, "t", "ownership_token", "worker_id") == (lease.ownership_token, "first")


def test_a_failed_session_waits_as_long_as_codex_does(conn: Conn) -> None:
    assert policies(conn, [STAGE1, CONSOLIDATE_GLOBAL])[STAGE1].retry_in == HOUR
    assert policies(conn, [CONSOLIDATE_GLOBAL])[CONSOLIDATE_GLOBAL].retry_in == HOUR


# The global job.

SIX_HOURS = timedelta(hours=6)


def ask(conn: Conn, watermark: int) -> int:
    return enqueue(conn, "global", kind=CONSOLIDATE_GLOBAL, watermark=watermark)


def consolidating(conn: Conn, *, lease_for: timedelta = HOUR) -> Lease:
    return claimed(conn, kind=CONSOLIDATE_GLOBAL, lease_for=lease_for)


def is_claimable(conn: Conn) -> bool:
    with conn.transaction(force_rollback=True):
        return bool(ledger.claim(conn, kinds=[CONSOLIDATE_GLOBAL]))


def test_the_global_watermark_is_a_counter_that_began_as_a_time(conn: Conn) -> None:
    marks = []
    for value in (1_700_000_000, 1_600_000_000, 1_700_000_001, 1_800_000_000):
        ask(conn, value)
        marks.append(column(conn, "global", "input_watermark"))

    assert marks == [1_700_000_000, 1_700_000_001, 1_700_000_002, 1_800_000_000]
    assert column(conn, "global", "status", "retry_remaining") == ("pending", 3)


def test_asking_while_it_runs_leaves_it_running_and_keeps_its_time(conn: Conn) -> None:
    ask(conn, 100)
    lease = consolidating(conn)

    ask(conn, 100)

    columns = ("status", "input_watermark", "lease_until")
    assert column(conn, "global", *columns) == ("running", 101, lease.lease_until)


def test_asking_passes_the_back_off_and_keeps_the_error(conn: Conn) -> None:
    ask(conn, 100)
    jobs.fail(conn, consolidating(conn), "failed_agent", retry_in=HOUR)
    assert not is_claimable(conn)

    ask(conn, 100)

    columns = ("status", "retry_at", "retry_remaining", "last_error")
    assert column(conn, "global", *columns) == ("pending", None, 3, "failed_agent")
    assert column(conn, "global", "finished_at") is not None
    assert is_claimable(conn)


def test_a_success_is_enough_for_six_hours(conn: Conn) -> None:
    ask(conn, 100)
    jobs.complete(conn, consolidating(conn))
    ask(conn, 100)
    assert column(conn, "global", "status") == "pending"

    pass_time(conn, SIX_HOURS - MOMENT)
    assert not is_claimable(conn)
    ask(conn, 100)
    assert not is_claimable(conn)

    pass_time(conn, MOMENT)
    assert is_claimable(conn)


def test_what_was_asked_for_while_it_ran_waits_for_the_six_hours_too(conn: Conn) -> None:
    ask(conn, 100)
    lease = consolidating(conn)
    ask(conn, 100)

    jobs.complete(conn, lease)

    assert not is_claimable(conn)
    pass_time(conn, SIX_HOURS)
    assert is_claimable(conn)


def test_a_failure_has_no_rest_and_is_never_the_last(conn: Conn) -> None:
    ask(conn, 100)
    left = []
    for _ in range(5):
        jobs.fail(conn, consolidating(conn), "failed_agent", retry_in=HOUR)
        left.append(column(conn, "global", "status", "retry_remaining", "stop_reason"))
        assert not is_claimable(conn)
        pass_time(conn, HOUR)

    assert left == [("error", remaining, None) for remaining in (2, 1, 0, 0, 0)]
    assert is_claimable(conn)


def test_a_crash_costs_no_retry_and_no_rest(conn: Conn) -> None:
    ask(conn, 100)
    consolidating(conn, lease_for=NEVER)

    lease = consolidating(conn)

    assert (lease.retry_remaining, lease.input_watermark) == (3, 100)


@pytest.mark.parametrize(
    ("before", "completed_with", "expected"),
    [(None, None, 100), (None, 500, 500), (None, 50, 100), (700, 500, 700)],
)
def test_the_completion_watermark_never_goes_back(
    conn: Conn, before: int | None, completed_with: int | None, expected: int
) -> None:
    ask(conn, 100)
    change(conn, "global", last_success_watermark=before)

    jobs.complete(conn, consolidating(conn), watermark=completed_with)

    columns = ("status", "last_success_watermark", "last_error", "lease_until")
    assert column(conn, "global", *columns) == ("done", expected, None, None)
