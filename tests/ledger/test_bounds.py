"""Nothing goes on for ever: caps, attempts, wall time, history; and nothing is stuck for ever either."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier
from typing import Any

import psycopg
import pytest

from memsvc.db.pool import Conn, Pool
from memsvc.errors import LeaseLost
from memsvc.ledger import control, jobs, kinds, listing
from memsvc.ledger.control import Row
from memsvc.ledger.listing import Filter
from memsvc.model.job import CONSOLIDATE_GLOBAL, STAGE1, Lease, Policy, policy
from memsvc.model.principal import LOCAL_SOURCE, OWNER
from tests.ledger.ledger import (
    KIND,
    MINUTE,
    NEVER,
    change,
    claim,
    claimed,
    column,
    enqueue,
    history,
    imported,
    now,
    pass_time,
)

HOUR = timedelta(hours=1)


def settle(conn: Conn, kind: str = KIND, **figures: Any) -> None:
    kinds.settle(conn, kind, replace(policy(kind), **figures))


# Settings of a kind.


def test_without_settings_the_programs_own_figures_hold(conn: Conn) -> None:
    assert kinds.policies(conn, [KIND, STAGE1]) == {KIND: Policy(), STAGE1: policy(STAGE1)}


def test_what_is_set_holds_and_can_be_set_again(conn: Conn) -> None:
    settle(conn, STAGE1, max_running=7, max_attempts=2, longest_lease=MINUTE)
    assert kinds.policies(conn, [STAGE1])[STAGE1] == replace(
        policy(STAGE1), max_running=7, max_attempts=2, longest_lease=MINUTE
    )

    settle(conn, STAGE1, enabled=False, max_running=None)
    assert kinds.policies(conn, [STAGE1])[STAGE1] == replace(policy(STAGE1), enabled=False, max_running=None)


@pytest.mark.parametrize(
    "figures", [{"max_running": 0}, {"max_running": -1}, {"max_attempts": -1}, {"longest_lease": timedelta(0)}]
)
def test_a_setting_that_nothing_could_move_under_is_refused(conn: Conn, figures: dict[str, Any]) -> None:
    (name,) = figures
    with pytest.raises(psycopg.errors.CheckViolation, match=f"{name}_positive"):
        settle(conn, KIND, **figures)


def test_a_kind_that_is_switched_off_is_not_claimed(conn: Conn) -> None:
    enqueue(conn, "a")
    lease = claimed(conn)
    enqueue(conn, "b")
    settle(conn, enabled=False)
    assert claim(conn) == []

    jobs.heartbeat(conn, lease, lease_for=MINUTE)
    jobs.complete(conn, lease)
    settle(conn)

    assert [lease.job_key for lease in claim(conn)] == ["b"]


# Caps.


def test_a_cap_leaves_so_many_places(conn: Conn) -> None:
    settle(conn, max_running=3)
    enqueue(conn, *"abcde")
    first = claim(conn, limit=2)
    assert len(first) == 2

    second = claim(conn, limit=5)

    assert len(second) == 1
    assert claim(conn) == []
    jobs.complete(conn, first[0])
    assert len(claim(conn, limit=5)) == 1


def test_the_cap_of_one_kind_is_not_anothers(conn: Conn) -> None:
    settle(conn, max_running=1)
    enqueue(conn, *"ab")
    enqueue(conn, *"cd", kind="other")

    assert [lease.job_key for lease in claim(conn, kinds=[KIND, "other"], limit=9)] == ["a", "c", "d"]


def test_a_cap_that_is_lowered_below_what_runs_lets_nothing_begin(conn: Conn) -> None:
    enqueue(conn, *"abcd")
    running = claim(conn, limit=3)
    settle(conn, max_running=1)
    assert claim(conn) == []

    jobs.complete(conn, *running)

    assert len(claim(conn)) == 1


def test_a_cap_is_exact_however_many_claim_at_once(pool: Pool) -> None:
    claimers, cap, rounds = 8, 3, 6
    with pool.transaction(OWNER) as conn:
        settle(conn, max_running=cap)
        enqueue(conn, *(f"{number:03}" for number in range(200)))
    barrier = Barrier(claimers)

    def one(number: int) -> list[Lease]:
        barrier.wait(timeout=30)
        with pool.transaction(OWNER) as conn:
            return claim(conn, worker_id=str(number), limit=1 + number % 2)

    with ThreadPoolExecutor(claimers) as threads:
        for _ in range(rounds):
            leases = [lease for found in threads.map(one, range(claimers)) for lease in found]
            assert len(leases) == cap
            with pool.transaction(OWNER) as conn:
                jobs.complete(conn, *leases)


def test_opposite_orders_of_capped_kinds_do_not_deadlock(pool: Pool) -> None:
    with pool.transaction(OWNER) as conn:
        for kind in ("x", "y"):
            settle(conn, kind, max_running=50)
            enqueue(conn, *(f"{number}" for number in range(60)), kind=kind)
    barrier = Barrier(4)

    def one(order: list[str]) -> int:
        taken = 0
        for _ in range(20):
            barrier.wait(timeout=30)
            with pool.transaction(OWNER) as conn:
                taken += len(claim(conn, kinds=order, limit=2))
        return taken

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(one, [["x", "y"], ["y", "x"]] * 2)) == 100


def test_an_expired_lease_of_a_capped_kind_cannot_be_revived(conn: Conn) -> None:
    settle(conn, max_running=1)
    enqueue(conn, "a", "b")
    dead = claimed(conn, lease_for=NEVER)

    with pytest.raises(LeaseLost):
        jobs.heartbeat(conn, dead, lease_for=MINUTE)

    assert len(claim(conn, limit=9)) == 1
    assert claim(conn) == []


# Attempts at one input.


def test_a_job_that_kills_its_workers_stops_as_poison(conn: Conn) -> None:
    settle(conn, max_attempts=3)
    enqueue(conn, "a")
    for _ in range(3):
        claimed(conn, lease_for=NEVER)

    assert claim(conn) == []

    assert column(conn, "a", "status", "stop_reason", "due_at") == ("error", "poison", None)
    assert column(conn, "a", "last_error") == "3 attempts at this input came to no end"
    assert [outcome for outcome, _, _ in history(conn, "a")].count("lost") == 3


def test_poison_does_not_stand_before_the_others(conn: Conn) -> None:
    settle(conn, max_attempts=1)
    enqueue(conn, "a", "b", "c", "d")
    claim(conn, limit=2, lease_for=NEVER)

    leases = claim(conn, limit=2)

    assert [lease.job_key for lease in leases] == ["c", "d"]
    assert column(conn, "a", "stop_reason") == column(conn, "b", "stop_reason") == "poison"


@pytest.mark.parametrize("kind", [KIND, STAGE1, CONSOLIDATE_GLOBAL])
def test_attempts_are_bounded_for_every_kind(conn: Conn, kind: str) -> None:
    enqueue(conn, "a", kind=kind, watermark=100)
    for _ in range(policy(kind).max_attempts):
        claimed(conn, kind=kind, lease_for=NEVER)

    assert claim(conn, kinds=[kind]) == []
    assert column(conn, "a", "stop_reason") == "poison"


def test_newer_input_has_all_attempts_again(conn: Conn) -> None:
    settle(conn, max_attempts=1)
    enqueue(conn, "a")
    claimed(conn, lease_for=NEVER)
    assert claim(conn) == []

    enqueue(conn, "a")

    assert claimed(conn).attempts == 1


def test_a_failure_that_time_cannot_mend_stops_at_once(conn: Conn) -> None:
    enqueue(conn, "a")

    jobs.fail(conn, claimed(conn), "unreadable", retry_in=None)

    columns = ("status", "stop_reason", "last_error", "due_at")
    assert column(conn, "a", *columns) == ("error", "poison", "unreadable", None)


def test_newer_input_outlives_the_poison_of_the_old(conn: Conn) -> None:
    enqueue(conn, "a")
    lease = claimed(conn)
    enqueue(conn, "a")

    jobs.fail(conn, lease, "unreadable", retry_in=None)

    assert column(conn, "a", "status", "stop_reason") == ("pending", None)
    assert claimed(conn).input_watermark == 2


# Wall time of a lease.


def test_no_heartbeat_reaches_beyond_the_longest_lease(conn: Conn) -> None:
    settle(conn, longest_lease=HOUR)
    enqueue(conn, "a")
    lease = claimed(conn, lease_for=MINUTE)
    pass_time(conn, HOUR - 2 * MINUTE)

    jobs.heartbeat(conn, lease, lease_for=5 * MINUTE)

    assert column(conn, "a", "lease_until") == column(conn, "a", "started_at") + HOUR == now(conn) + 2 * MINUTE


def test_after_its_longest_time_a_lease_is_lost(conn: Conn) -> None:
    settle(conn, longest_lease=HOUR)
    enqueue(conn, "a")
    lease = claimed(conn)
    pass_time(conn, HOUR)

    with pytest.raises(LeaseLost):
        jobs.heartbeat(conn, lease, lease_for=MINUTE)

    assert claimed(conn, worker_id="two").attempts == 2
    with pytest.raises(LeaseLost):
        jobs.complete(conn, lease)


def test_a_claim_is_no_longer_than_the_longest_lease(conn: Conn) -> None:
    settle(conn, longest_lease=MINUTE)
    enqueue(conn, "a")

    assert claimed(conn, lease_for=HOUR).lease_until == now(conn) + MINUTE


# History.


def test_a_job_that_is_given_back_again_and_again_is_one_line_of_history(conn: Conn) -> None:
    enqueue(conn, "a")
    for _ in range(50):
        jobs.release(conn, claimed(conn))
    assert [outcome for outcome, _, _ in history(conn, "a")] == ["released"]
    assert column(conn, "a", "attempts", "retry_remaining") == (0, 3)


def test_what_is_given_back_after_another_end_is_written_again(pool: Pool) -> None:
    def step(*, fails: bool) -> None:
        with pool.transaction(OWNER) as conn:
            lease = claimed(conn)
            if fails:
                jobs.fail(conn, lease, "broken", retry_in=NEVER)
            else:
                jobs.release(conn, lease)

    with pool.transaction(OWNER) as conn:
        enqueue(conn, "a")
    for fails in (False, False, True, False, False, True):
        step(fails=fails)

    with pool.transaction(OWNER) as conn:
        assert [outcome for outcome, _, _ in history(conn, "a")] == ["released", "error", "released", "error"]


def test_a_batch_is_completed_together_or_not_at_all(pool: Pool) -> None:
    with pool.transaction(OWNER) as conn:
        enqueue(conn, *"abc")
        leases = claim(conn, limit=3)
    stolen = replace(leases[1], ownership_token="another")

    with pytest.raises(LeaseLost, match=f"{KIND} b"), pool.transaction(OWNER) as conn:
        jobs.complete(conn, leases[0], stolen, leases[2])

    with pool.transaction(OWNER) as conn:
        assert [column(conn, name, "status") for name in "abc"] == ["running"] * 3
        jobs.complete(conn, *leases)
        assert [column(conn, name, "status") for name in "abc"] == ["done"] * 3
        assert conn.execute("select count(*) from memsvc.job_attempts").fetchone() == (3,)


# Retry and cancel.


def live(name: str, kind: str = KIND) -> Row:
    return Row(LOCAL_SOURCE, "memsvc", kind, name)


@pytest.mark.parametrize("reason", ["exhausted", "poison", "cancelled"])
def test_retry_opens_what_was_stopped(conn: Conn, reason: str) -> None:
    enqueue(conn, "a")
    change(conn, "a", status="error", stop_reason=reason, retry_remaining=0, attempts=20, not_before=None)

    assert control.retry(conn, [live("a")]) == [live("a")]

    lease = claimed(conn)
    assert (lease.attempts, lease.retry_remaining, lease.input_watermark) == (1, 3, 1)


def test_retry_passes_the_back_off_and_the_rest(conn: Conn) -> None:
    enqueue(conn, "a")
    jobs.fail(conn, claimed(conn), "broken", retry_in=HOUR)
    enqueue(conn, "global", kind=CONSOLIDATE_GLOBAL)
    jobs.complete(conn, claimed(conn, kind=CONSOLIDATE_GLOBAL))
    enqueue(conn, "global", kind=CONSOLIDATE_GLOBAL)
    assert claim(conn, kinds=[KIND, CONSOLIDATE_GLOBAL]) == []

    control.retry(conn, [live("a"), live("global", CONSOLIDATE_GLOBAL)])

    leases = claim(conn, kinds=[KIND, CONSOLIDATE_GLOBAL], limit=2)
    assert [lease.job_key for lease in leases] == ["a", "global"]


def test_retry_leaves_alone_what_is_due_running_or_done(conn: Conn) -> None:
    enqueue(conn, "done")
    jobs.complete(conn, claimed(conn))
    enqueue(conn, "running")
    claimed(conn)
    enqueue(conn, "due")
    before = conn.execute("select * from memsvc.jobs order by job_key").fetchall()

    assert control.retry(conn, [live(name) for name in ("done", "running", "due", "absent")]) == []

    assert conn.execute("select * from memsvc.jobs order by job_key").fetchall() == before


def test_retry_of_history_makes_a_live_twin_and_leaves_the_row(conn: Conn) -> None:
    imported(conn, "t", "error", store="v1", input_watermark=90, last_success_watermark=70)
    imported(conn, "t", "running", store="v2", input_watermark=95, last_success_watermark=80)
    imported(conn, "other", "done")
    query = "select * from memsvc.jobs where store <> 'memsvc' order by store, job_key"
    before = conn.execute(query).fetchall()
    rows = listing.not_done(conn, Filter(kind=KIND, live=False))
    assert [(row.store, row.job_key) for row in rows] == [("v1", "t"), ("v2", "t")]

    assert control.retry(conn, rows) == [live("t")]

    assert conn.execute(query).fetchall() == before
    lease = claimed(conn)
    assert (lease.job_key, lease.input_watermark, lease.retry_remaining, lease.attempts) == ("t", 95, 3, 1)
    assert column(conn, "t", "last_success_watermark") == 80
    assert control.retry(conn, rows) == [], "its twin is at it"
    jobs.complete(conn, lease)
    assert control.retry(conn, rows) == [], "its twin has done it"


@pytest.mark.parametrize("watermark", [None, 0, -5])
def test_a_twin_of_odd_history_can_be_worked_on(conn: Conn, watermark: int | None) -> None:
    imported(conn, "t", "läuft 🏃", retry_remaining=-2, input_watermark=watermark)

    control.retry(conn, listing.not_done(conn, Filter(kind=KIND, live=False)))

    jobs.complete(conn, claimed(conn))
    assert column(conn, "t", "status") == "done"


def test_cancel_stops_what_waits_and_what_runs(conn: Conn) -> None:
    enqueue(conn, "running")
    lease = claimed(conn)
    enqueue(conn, "waits")
    jobs.fail(conn, claimed(conn, worker_id="two"), "broken", retry_in=HOUR)
    enqueue(conn, "pending")

    stopped = control.cancel(conn, listing.not_done(conn, Filter(kind=KIND, live=True)))

    assert {row.job_key for row in stopped} == {"running", "waits", "pending"}
    for name in ("running", "waits", "pending"):
        assert column(conn, name, "status", "stop_reason", "due_at") == ("error", "cancelled", None)
    assert claim(conn) == []
    assert history(conn, "running") == [("cancelled", "one", None)]
    for call in (jobs.complete, jobs.release):
        with pytest.raises(LeaseLost):
            call(conn, lease)


def test_cancel_leaves_alone_what_has_ended_and_history(conn: Conn) -> None:
    enqueue(conn, "done")
    jobs.complete(conn, claimed(conn))
    enqueue(conn, "stopped")
    jobs.fail(conn, claimed(conn), "unreadable", retry_in=None)
    imported(conn, "old", "running")
    before = conn.execute("select * from memsvc.jobs order by job_key").fetchall()

    assert control.cancel(conn, [live("done"), live("stopped"), Row(LOCAL_SOURCE, "v1", KIND, "old")]) == []

    assert conn.execute("select * from memsvc.jobs order by job_key").fetchall() == before


def test_newer_input_opens_a_cancelled_job(conn: Conn) -> None:
    enqueue(conn, "a")
    control.cancel(conn, [live("a")])

    enqueue(conn, "a")

    assert claimed(conn).job_key == "a"


# Wake-up.


def test_enqueue_tells_those_who_listen(dsn: str, pool: Pool) -> None:
    with psycopg.connect(dsn, autocommit=True) as listener:
        listener.execute(f"listen {jobs.CHANNEL}".encode())
        with pool.transaction(OWNER) as conn:
            enqueue(conn, "a", "b")
            enqueue(conn, "c", kind="other")
        heard = [notice.payload for notice in listener.notifies(timeout=10, stop_after=2)]

    assert sorted(heard) == ["other", KIND]
