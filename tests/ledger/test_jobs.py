"""Every transition of a live job, and what must not move one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Barrier, Thread
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import class_row

from memsvc.db.pool import Conn, Pool
from memsvc.errors import LeaseLost
from memsvc.ledger import jobs, overview
from memsvc.model.job import JobKey, Lease
from memsvc.model.principal import DEFAULT_TENANT, GLOBAL_SCOPE, LOCAL_SOURCE, OWNER, Actor

KIND = "test_kind"
MINUTE = timedelta(minutes=1)
NEVER = timedelta(0)


@dataclass(frozen=True)
class Job:
    """A row of the ledger, as far as the transitions change it."""

    status: str
    scope_id: UUID | None
    worker_id: str | None
    ownership_token: str | None
    started_at: datetime | None
    finished_at: datetime | None
    lease_until: datetime | None
    retry_at: datetime | None
    retry_remaining: int
    last_error: str | None
    input_watermark: int | None
    last_success_watermark: int | None
    priority: int
    not_before: datetime | None
    stop_reason: str | None
    attempts: int
    due_at: datetime | None


def key(name: str, kind: str = KIND) -> JobKey:
    return JobKey(LOCAL_SOURCE, kind, name)


def enqueue(conn: Conn, *names: str, priority: int = 0, kind: str = KIND) -> int:
    return jobs.enqueue(conn, [(key(name, kind), None) for name in names], priority=priority)


def claim(
    conn: Conn, *, worker_id: str = "one", lease_for: timedelta = MINUTE, limit: int = 1, kinds: Iterable[str] = (KIND,)
) -> list[Lease]:
    return jobs.claim(conn, list(kinds), worker_id=worker_id, lease_for=lease_for, limit=limit)


def claimed(conn: Conn, *, worker_id: str = "one", lease_for: timedelta = MINUTE) -> Lease:
    (lease,) = claim(conn, worker_id=worker_id, lease_for=lease_for)
    return lease


def names(leases: Iterable[Lease]) -> list[str]:
    return [lease.job_key for lease in leases]


def job(conn: Conn, name: str = "a", *, store: str = "memsvc") -> Job:
    columns = sql.SQL(", ").join(map(sql.Identifier, Job.__dataclass_fields__))
    query = sql.SQL("select {} from memsvc.jobs where kind = %s and job_key = %s and store = %s").format(columns)
    with conn.cursor(row_factory=class_row(Job)) as cursor:
        found = cursor.execute(query, [KIND, name, store]).fetchone()
    assert found is not None
    return found


def change(conn: Conn, name: str = "a", **columns: object) -> None:
    """Move a row, which is how time is bent."""
    sets = sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(c), sql.Placeholder(c)) for c in columns)
    query = sql.SQL("update memsvc.jobs set {} where job_key = %(name)s and store = 'memsvc'").format(sets)
    assert conn.execute(query, {**columns, "name": name}).rowcount == 1


def history(conn: Conn, name: str = "a") -> list[tuple[Any, ...]]:
    return conn.execute(
        "select outcome, worker_id, error from memsvc.job_attempts where job_key = %s order by outcome, worker_id",
        [name],
    ).fetchall()


def now(conn: Conn) -> datetime:
    (found,) = conn.execute("select now()").fetchone() or (None,)
    assert isinstance(found, datetime)
    return found


# Enqueue: absent, done, error and stopped become pending; pending and running stay.


def test_an_absent_job_becomes_pending_and_due_at_once(conn: Conn) -> None:
    assert jobs.enqueue(conn, [(key("a"), GLOBAL_SCOPE)], priority=2) == 1

    found = job(conn)
    assert (found.status, found.retry_remaining, found.input_watermark, found.attempts) == ("pending", 3, 1, 0)
    assert (found.priority, found.scope_id) == (2, GLOBAL_SCOPE)
    assert found.due_at == now(conn)
    assert history(conn) == []


def test_a_pending_job_keeps_its_time_and_takes_the_higher_priority(conn: Conn) -> None:
    later = now(conn) + MINUTE
    enqueue(conn, "a", priority=1)
    change(conn, not_before=later)

    enqueue(conn, "a", priority=5)
    enqueue(conn, "a", priority=0)

    found = job(conn)
    assert (found.status, found.due_at, found.input_watermark, found.priority) == ("pending", later, 3, 5)


def test_a_running_job_stays_with_its_owner_and_learns_of_newer_input(conn: Conn) -> None:
    enqueue(conn, "a")
    lease = claimed(conn)
    change(conn, retry_remaining=1)

    enqueue(conn, "a")

    found = job(conn)
    assert (found.status, found.ownership_token) == ("running", lease.ownership_token)
    assert (found.lease_until, found.due_at) == (lease.lease_until, lease.lease_until)
    assert (found.input_watermark, found.retry_remaining, found.attempts) == (2, 3, 1)


def test_a_done_job_begins_anew_with_the_priority_that_is_asked_for_now(conn: Conn) -> None:
    enqueue(conn, "a", priority=9)
    jobs.complete(conn, claimed(conn))

    enqueue(conn, "a", priority=1)

    found = job(conn)
    assert (found.status, found.priority, found.due_at) == ("pending", 1, now(conn))
    assert (found.input_watermark, found.last_success_watermark, found.retry_remaining) == (2, 1, 3)
    assert names(claim(conn)) == ["a"]


def test_newer_input_passes_the_back_off(conn: Conn) -> None:
    enqueue(conn, "a")
    jobs.fail(conn, claimed(conn), "broken", retry_in=MINUTE)

    enqueue(conn, "a")

    found = job(conn)
    assert (found.status, found.retry_at, found.retry_remaining, found.attempts) == ("pending", None, 3, 0)
    assert names(claim(conn)) == ["a"]


@pytest.mark.parametrize("reason", ["exhausted", "poison", "cancelled"])
def test_newer_input_reopens_a_stopped_job(conn: Conn, reason: str) -> None:
    enqueue(conn, "a")
    change(conn, status="error", stop_reason=reason, retry_remaining=0, not_before=None)
    assert claim(conn) == []

    enqueue(conn, "a")

    found = job(conn)
    assert (found.status, found.stop_reason, found.retry_remaining) == ("pending", None, 3)
    assert names(claim(conn)) == ["a"]


def test_equal_keys_in_one_call_are_one_job(conn: Conn) -> None:
    assert enqueue(conn, "a", "b", "a", "a") == 2

    assert job(conn, "a").input_watermark == 1
    assert names(claim(conn, limit=10)) == ["a", "b"]


def test_nothing_to_enqueue_is_nothing_done(conn: Conn) -> None:
    assert enqueue(conn) == 0


def test_two_that_enqueue_the_same_keys_in_opposite_order_do_not_deadlock(pool: Pool) -> None:
    rounds, keys = 12, [f"{number:04}" for number in range(400)]
    barrier, errors = Barrier(2), list[Exception]()

    def add(given: list[str]) -> None:
        try:
            for _ in range(rounds):
                barrier.wait(timeout=30)
                with pool.transaction(OWNER) as conn:
                    enqueue(conn, *given)
        except Exception as exc:
            errors.append(exc)
            barrier.abort()

    threads = [Thread(target=add, args=(given,)) for given in (keys, keys[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert errors == []
    with pool.transaction(OWNER) as conn:
        (marks,) = conn.execute("select array_agg(distinct input_watermark) from memsvc.jobs").fetchone() or ([],)
    assert marks == [2 * rounds]


# Claim: what is due, the most urgent first.


def test_claiming_nothing_gives_nothing(conn: Conn) -> None:
    enqueue(conn, "a")

    assert claim(conn, kinds=["another_kind"]) == []
    assert claim(conn, kinds=[]) == []
    assert job(conn).status == "pending"


def test_a_lease_says_what_was_claimed_and_until_when(conn: Conn) -> None:
    enqueue(conn, "a")

    lease = claimed(conn, worker_id="host:1", lease_for=timedelta(seconds=90))

    found = job(conn)
    assert (lease.source_id, lease.kind, lease.job_key, lease.worker_id) == (LOCAL_SOURCE, KIND, "a", "host:1")
    assert (lease.input_watermark, lease.attempts, lease.retry_remaining) == (1, 1, 3)
    assert lease.lease_until == now(conn) + timedelta(seconds=90)
    assert (found.status, found.started_at, found.worker_id) == ("running", now(conn), "host:1")
    assert UUID(lease.ownership_token).version == 4
    assert history(conn) == []


def test_higher_priority_comes_first_then_what_has_been_due_for_longest(conn: Conn) -> None:
    moment = now(conn)
    for name, priority, due_for in [("late", 0, 1), ("early", 0, 9), ("urgent", 1, 0), ("urgent-early", 1, 2)]:
        enqueue(conn, name, priority=priority)
        change(conn, name, not_before=moment - timedelta(seconds=due_for))

    one_by_one = [name for _ in range(4) for name in names(claim(conn))]

    assert one_by_one == ["urgent-early", "urgent", "early", "late"]
    assert claim(conn) == []


def test_a_batch_is_the_most_urgent_ones_in_order(conn: Conn) -> None:
    for number, name in enumerate(["c", "a", "e", "b", "d"]):
        enqueue(conn, name, priority=number)

    leases = claim(conn, limit=3)

    assert names(leases) == ["d", "b", "e"]
    assert len({lease.ownership_token for lease in leases}) == 3
    assert names(claim(conn, limit=3)) == ["a", "c"]


def test_kinds_are_asked_in_their_order(conn: Conn) -> None:
    enqueue(conn, "a", "b", kind="first")
    enqueue(conn, "c", kind="second", priority=9)
    enqueue(conn, "d", kind="second", priority=8)

    assert names(claim(conn, kinds=["first", "second"], limit=3)) == ["a", "b", "c"]
    assert names(claim(conn, kinds=["first", "second"], limit=3)) == ["d"]


def test_a_job_is_not_claimed_before_its_time(conn: Conn) -> None:
    enqueue(conn, "a")
    change(conn, not_before=now(conn) + timedelta(microseconds=1))
    assert claim(conn) == []
    assert jobs.runnable(conn, [KIND]) == 0

    change(conn, not_before=now(conn))

    assert jobs.runnable(conn, [KIND]) == 1
    assert names(claim(conn)) == ["a"]


def test_a_failed_job_is_claimed_from_its_retry_time_on(conn: Conn) -> None:
    enqueue(conn, "a")
    jobs.fail(conn, claimed(conn), "broken", retry_in=timedelta(microseconds=1))
    assert claim(conn) == []

    change(conn, retry_at=now(conn))
    lease = claimed(conn)

    found = job(conn)
    assert (lease.attempts, lease.retry_remaining) == (2, 2)
    assert (found.status, found.retry_at, found.last_error, found.finished_at) == ("running", None, None, None)


def test_a_live_lease_keeps_others_out(conn: Conn) -> None:
    enqueue(conn, "a")
    claimed(conn, lease_for=timedelta(microseconds=1))

    assert claim(conn, worker_id="two") == []


def test_a_lease_that_ends_now_is_over(conn: Conn) -> None:
    enqueue(conn, "a")
    first = claimed(conn, worker_id="one", lease_for=NEVER)
    assert first.lease_until == now(conn)
    assert overview.expired_leases(conn) == 1

    second = claimed(conn, worker_id="two")

    assert second.ownership_token != first.ownership_token
    assert (second.worker_id, second.attempts, second.retry_remaining) == ("two", 2, 3)
    assert history(conn) == [("lost", "one", "the lease expired")]
    assert overview.expired_leases(conn) == 0


def test_each_lost_lease_has_its_own_row_in_the_history(conn: Conn) -> None:
    enqueue(conn, "a")
    tokens = [claimed(conn, worker_id=f"{number}", lease_for=NEVER).ownership_token for number in range(4)]

    rows = conn.execute(
        "select ownership_token, worker_id, outcome from memsvc.job_attempts order by worker_id"
    ).fetchall()

    assert rows == [(token, f"{number}", "lost") for number, token in enumerate(tokens[:3])]


def test_a_job_that_is_being_completed_is_not_taken(pool: Pool) -> None:
    with pool.transaction(OWNER) as conn:
        enqueue(conn, "a")
        lease = claimed(conn, lease_for=NEVER)

    with pool.transaction(OWNER) as owner, pool.transaction(OWNER) as other:
        jobs.complete(owner, lease)
        assert claim(other, worker_id="two") == []

    with pool.transaction(OWNER) as conn:
        assert job(conn).status == "done"
        assert history(conn) == [("done", "one", None)]


# The owner's calls: heartbeat, complete, fail, release.


def test_heartbeat_extends_the_lease_by_the_databases_clock(conn: Conn) -> None:
    enqueue(conn, "a")
    lease = claimed(conn, lease_for=timedelta(seconds=1))

    jobs.heartbeat(conn, lease, lease_for=timedelta(hours=2))

    found = job(conn)
    assert found.lease_until == found.due_at == now(conn) + timedelta(hours=2)
    assert (found.status, found.ownership_token, found.attempts) == ("running", lease.ownership_token, 1)
    jobs.complete(conn, lease)


def test_an_expired_lease_that_nobody_took_is_still_the_owners(conn: Conn) -> None:
    enqueue(conn, "a")
    lease = claimed(conn, lease_for=-MINUTE)

    jobs.heartbeat(conn, lease, lease_for=MINUTE)

    assert claim(conn, worker_id="two") == []


def test_complete_ends_the_job(conn: Conn) -> None:
    enqueue(conn, "a")
    jobs.fail(conn, claimed(conn), "broken", retry_in=NEVER)

    jobs.complete(conn, claimed(conn))

    found = job(conn)
    assert (found.status, found.due_at, found.lease_until, found.finished_at) == ("done", None, None, now(conn))
    assert (found.last_success_watermark, found.last_error, found.attempts) == (1, None, 0)
    assert history(conn) == [("done", "one", None), ("error", "one", "broken")]
    assert claim(conn) == []


def test_newer_input_while_running_makes_it_pending_again(conn: Conn) -> None:
    enqueue(conn, "a")
    lease = claimed(conn)
    enqueue(conn, "a")

    jobs.complete(conn, lease)

    found = job(conn)
    assert (found.status, found.due_at, found.lease_until) == ("pending", now(conn), None)
    assert (found.last_success_watermark, found.input_watermark, found.retry_remaining) == (1, 2, 3)
    again = claimed(conn)
    assert (again.input_watermark, again.attempts) == (2, 1)
    jobs.complete(conn, again)
    assert job(conn).status == "done"


def test_success_never_lowers_the_watermark(conn: Conn) -> None:
    enqueue(conn, "a")
    change(conn, last_success_watermark=7)

    jobs.complete(conn, claimed(conn))

    assert job(conn).last_success_watermark == 7


def test_fail_costs_a_retry_and_waits(conn: Conn) -> None:
    enqueue(conn, "a")

    jobs.fail(conn, claimed(conn), "broken", retry_in=MINUTE)

    found = job(conn)
    assert (found.status, found.last_error, found.retry_remaining, found.stop_reason) == ("error", "broken", 2, None)
    assert found.retry_at == found.due_at == now(conn) + MINUTE
    assert (found.lease_until, found.finished_at) == (None, now(conn))
    assert history(conn) == [("error", "one", "broken")]


def test_a_job_without_retries_left_stops_as_exhausted(conn: Conn) -> None:
    enqueue(conn, "a")

    for remaining in (3, 2, 1):
        lease = claimed(conn)
        assert lease.retry_remaining == remaining
        jobs.fail(conn, lease, "broken", retry_in=NEVER)

    found = job(conn)
    assert (found.status, found.stop_reason, found.retry_remaining) == ("error", "exhausted", 0)
    assert (found.due_at, found.retry_at) == (None, None)
    assert claim(conn) == []
    assert [row[0] for row in history(conn)] == ["error"] * 3


def test_a_crash_costs_no_retry(conn: Conn) -> None:
    enqueue(conn, "a")
    for _ in range(5):
        claimed(conn, lease_for=NEVER)

    lease = claimed(conn)

    assert (lease.attempts, lease.retry_remaining) == (6, 3)


def test_a_failure_of_the_old_input_does_not_hold_up_the_new(conn: Conn) -> None:
    enqueue(conn, "a")
    lease = claimed(conn)
    enqueue(conn, "a")

    jobs.fail(conn, lease, "broken", retry_in=MINUTE)

    found = job(conn)
    assert (found.status, found.due_at, found.retry_at) == ("pending", now(conn), None)
    assert (found.retry_remaining, found.last_error, found.last_success_watermark) == (3, "broken", None)
    assert history(conn) == [("error", "one", "broken")]
    again = claimed(conn)
    assert (again.input_watermark, again.attempts, again.retry_remaining) == (2, 1, 3)


def test_a_last_failure_with_newer_input_does_not_stop_the_job(conn: Conn) -> None:
    enqueue(conn, "a")
    lease = claimed(conn)
    change(conn, input_watermark=2, retry_remaining=1)

    jobs.fail(conn, lease, "broken", retry_in=MINUTE)

    found = job(conn)
    assert (found.status, found.stop_reason, found.due_at) == ("pending", None, now(conn))


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("a\x00b", "a\ufffdb"),
        ("half a pair \ud83d", "half a pair ?"),
        ("x" * 5000, "x" * 2000),
        ("", ""),
    ],
)
def test_any_error_text_can_be_stored(conn: Conn, given: str, stored: str) -> None:
    enqueue(conn, "a")

    jobs.fail(conn, claimed(conn), given, retry_in=NEVER)

    assert job(conn).last_error == stored
    assert history(conn) == [("error", "one", stored)]


def test_release_gives_the_job_back_at_no_cost(conn: Conn) -> None:
    enqueue(conn, "a")
    lease = claimed(conn)

    jobs.release(conn, lease)

    found = job(conn)
    assert (found.status, found.due_at, found.lease_until) == ("pending", now(conn), None)
    assert (found.retry_remaining, found.attempts, found.input_watermark) == (3, 0, 1)
    assert history(conn) == [("released", "one", None)]
    assert claimed(conn, worker_id="two").attempts == 1


# Proof of ownership: without it nothing moves.

CALLS: Mapping[str, Callable[[Conn, Lease], None]] = {
    "heartbeat": lambda conn, lease: jobs.heartbeat(conn, lease, lease_for=timedelta(hours=1)),
    "complete": jobs.complete,
    "fail": lambda conn, lease: jobs.fail(conn, lease, "too late", retry_in=NEVER),
    "release": jobs.release,
}


def wrong_token(conn: Conn) -> Lease:
    return replace(claimed(conn), ownership_token=str(uuid4()))


def another_job(conn: Conn) -> Lease:
    return replace(claimed(conn), job_key="b")


def completed(conn: Conn) -> Lease:
    lease = claimed(conn)
    jobs.complete(conn, lease)
    return lease


def completed_with_newer_input(conn: Conn) -> Lease:
    lease = claimed(conn)
    enqueue(conn, "a")
    jobs.complete(conn, lease)
    return lease


def failed(conn: Conn) -> Lease:
    lease = claimed(conn)
    jobs.fail(conn, lease, "broken", retry_in=MINUTE)
    return lease


def released(conn: Conn) -> Lease:
    lease = claimed(conn)
    jobs.release(conn, lease)
    return lease


def taken_over(conn: Conn) -> Lease:
    lease = claimed(conn, lease_for=NEVER)
    claimed(conn, worker_id="two")
    return lease


def taken_over_and_completed(conn: Conn) -> Lease:
    lease = claimed(conn, lease_for=NEVER)
    jobs.complete(conn, claimed(conn, worker_id="two"))
    return lease


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    "lost",
    [
        wrong_token,
        another_job,
        completed,
        completed_with_newer_input,
        failed,
        released,
        taken_over,
        taken_over_and_completed,
    ],
)
def test_a_lost_lease_changes_nothing(
    conn: Conn, lost: Callable[[Conn], Lease], call: Callable[[Conn, Lease], None]
) -> None:
    enqueue(conn, "a")
    lease = lost(conn)
    before = (job(conn), history(conn))

    with pytest.raises(LeaseLost, match=f"{KIND} {lease.job_key}"):
        call(conn, lease)

    assert (job(conn), history(conn)) == before


def test_a_lease_is_no_proof_in_another_tenant(dsn: str, pool: Pool) -> None:
    other = Actor(uuid4(), uuid4())
    scope = uuid4()
    with psycopg.connect(dsn) as admin:
        admin.execute("insert into memsvc.tenants (id, name) values (%s, 'other')", [other.tenant_id])
        admin.execute(
            "insert into memsvc.principals (tenant_id, id, kind, name) values (%s, %s, 'person', 'other')",
            [other.tenant_id, other.principal_id],
        )
        admin.execute(
            "insert into memsvc.scopes (tenant_id, id, kind, name) values (%s, %s, 'global', 'global')",
            [other.tenant_id, scope],
        )
        admin.execute(
            "insert into memsvc.grants (tenant_id, principal_id, scope_id, rights) values (%s, %s, %s, 'admin')",
            [other.tenant_id, other.principal_id, scope],
        )
    with pool.transaction(OWNER) as conn:
        enqueue(conn, "a")
        lease = claimed(conn, lease_for=NEVER)

    with pool.transaction(other) as conn:
        assert claim(conn) == []
        assert jobs.runnable(conn, [KIND]) == 0
        for call in CALLS.values():
            with pytest.raises(LeaseLost):
                call(conn, lease)

    with pool.transaction(OWNER) as conn:
        jobs.complete(conn, lease)


# What an import brought is history.

ODD = ["pending", "running", "done", "error", "RUNNING", "", "queued", "läuft 🏃"]


@pytest.mark.parametrize("store", ["v1", "v2", "state_5"])
def test_imported_rows_are_never_claimed_nor_counted(conn: Conn, store: str) -> None:
    past = now(conn) - timedelta(days=400)
    for status in ODD:
        for retry_remaining, instant in ((3, past), (0, past), (-2, None)):
            conn.execute(
                "insert into memsvc.jobs (tenant_id, source_id, store, kind, job_key, status, ownership_token,"
                " lease_until, retry_at, retry_remaining, not_before)"
                " values (%s, %s, %s, %s, %s, %s, null, %s, %s, %s, %s)",
                [
                    *(DEFAULT_TENANT, LOCAL_SOURCE, store, KIND, f"{status}/{retry_remaining}", status),
                    *(instant, instant, retry_remaining, instant),
                ],
            )
    before = conn.execute("select * from memsvc.jobs where store = %s order by job_key", [store]).fetchall()
    assert len(before) == 3 * len(ODD)

    assert claim(conn, limit=100) == []
    assert jobs.runnable(conn, [KIND]) == 0
    assert overview.expired_leases(conn) == 0
    assert {count.live for count in overview.counts(conn)} == {False}
    assert conn.execute("select count(due_at) from memsvc.jobs").fetchone() == (0,)

    enqueue(conn, "running/3")
    lease = claimed(conn, lease_for=NEVER)
    assert overview.expired_leases(conn) == 1
    jobs.complete(conn, lease)
    assert conn.execute("select * from memsvc.jobs where store = %s order by job_key", [store]).fetchall() == before
    assert [count for count in overview.counts(conn) if count.live] == [overview.Count(KIND, "done", True, 1)]


# What a claim costs.


def scans(plan: dict[str, Any]) -> Iterable[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from scans(child)


@pytest.mark.parametrize("runnable", [5, 20_000])
def test_a_claim_reads_one_row_whatever_is_done_or_waiting(dsn: str, pool: Pool, runnable: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin:
        for status, count in (("done", 20_000), ("pending", runnable)):
            admin.execute(
                "insert into memsvc.jobs (tenant_id, source_id, store, kind, job_key, status, retry_remaining,"
                " input_watermark, not_before)"
                " select %s, %s, 'memsvc', %s, %s || n, %s, 3, 1, now() from generate_series(1, %s) n",
                [DEFAULT_TENANT, LOCAL_SOURCE, KIND, status, status, count],
            )
        admin.execute("analyze memsvc.jobs")

    with pool.transaction(OWNER) as conn:
        values = {"kind": KIND, "worker_id": "one", "lease_for": MINUTE, "longest_lease": MINUTE}
        query = sql.SQL("explain (analyze, format json) " + jobs.SQL["claim"]).format(limit=1)
        (answer,) = conn.execute(query, values).fetchone() or ("",)
        raise psycopg.Rollback

    plans = answer if isinstance(answer, list) else json.loads(answer)
    nodes = list(scans(plans[0]["Plan"]))
    (scan,) = [node for node in nodes if node.get("Index Name") == "jobs_due"]
    assert (scan["Actual Rows"], scan["Actual Loops"]) == (1, 1)
    assert not [node for node in nodes if node["Node Type"] in ("Seq Scan", "Bitmap Heap Scan")]
