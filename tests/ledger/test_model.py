"""
The ledger against a model of it that fits in the head: whatever is called in whatever order, both agree.

Real Postgres, one transaction a run, in which the database's clock stands still: time passes by moving every instant of
the ledger into the past. Spans are whole minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

import psycopg
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from memsvc.db.pool import Conn, Pool
from memsvc.errors import LeaseLost
from memsvc.ledger import control, jobs, kinds
from memsvc.ledger.control import Row
from memsvc.model.job import CONSOLIDATE_GLOBAL, STAGE1, Lease, policy
from memsvc.model.principal import LOCAL_SOURCE, OWNER
from tests.ledger.ledger import KIND, enqueue, pass_time

MINUTE = timedelta(minutes=1)
POLICIES = {
    kind: replace(policy(kind), max_attempts=4, longest_lease=10 * MINUTE, max_running=cap, rests_for=rests * MINUTE)
    for kind, cap, rests in ((KIND, None, 0), (STAGE1, 2, 0), (CONSOLIDATE_GLOBAL, None, 360))
}
KINDS, NAMES = st.sampled_from(sorted(POLICIES)), st.sampled_from("abc")
MINUTES = st.integers(0, 15)
WAITS = st.sampled_from([0, 1, 7, 60])


@dataclass
class Job:
    """One live job; instants are minutes of the model's clock."""

    kind: str
    name: str
    input: int
    not_before: int
    status: str = "pending"
    retries: int = 3
    attempts: int = 0
    success: int | None = None
    token: str | None = None
    started: int = 0
    lease_until: int | None = None
    retry_at: int | None = None
    stop: str | None = None

    @property
    def due(self) -> int | None:
        if self.status == "done" or self.stop:
            return None
        if self.status == "running":
            return self.lease_until
        if self.status == "error":
            return max(self.retry_at or 0, self.not_before)
        return self.not_before

    def is_due(self, clock: int) -> bool:
        return self.due is not None and self.due <= clock


class Model:
    """What the ledger should do."""

    def __init__(self) -> None:
        self.clock = 1000
        self.jobs: dict[tuple[str, str], Job] = {}

    def enqueue(self, kind: str, name: str, mark: int) -> None:
        job = self.jobs.get((kind, name))
        if job is None:
            self.jobs[kind, name] = Job(kind, name, mark, self.clock)
            return
        if not POLICIES[kind].dated:
            mark = max(mark, job.input + 1)
        newer = mark > job.input
        if job.success is not None and mark <= job.success:
            return
        if not newer and not job.is_due(self.clock) and not (job.status == "done" and job.retries > 0):
            return
        job.input = mark
        if newer:
            job.retries = max(job.retries, 3)
            job.attempts = job.attempts if job.status == "running" else 0
        if job.status == "done":
            job.not_before = max(job.not_before, self.clock)
        elif job.status == "error":
            job.not_before = self.clock
        job.status = "running" if job.status == "running" else "pending"
        job.retry_at = job.stop = None

    def claim(self, kind: str, limit: int) -> list[Job]:
        """The jobs that are to be leased now; what has no attempts left is stopped."""
        own = POLICIES[kind]
        live = [j for j in self.jobs.values() if j.kind == kind and j.status == "running" and not j.is_due(self.clock)]
        if own.max_running is not None:
            limit = min(limit, own.max_running - len(live))
        taken: list[Job] = []
        due = [job for job in self.jobs.values() if job.kind == kind and job.is_due(self.clock)]
        for job in sorted(due, key=lambda job: (job.due, job.name)):
            if len(taken) >= limit:
                break
            job.attempts += 1
            job.retry_at = None
            if job.attempts > own.max_attempts:
                self.fail(job, job.input, None)
            else:
                job.status = "running"
                taken.append(job)
        return taken

    def fail(self, job: Job, mark: int, wait: int | None) -> None:
        job.lease_until, job.not_before = None, self.clock
        if job.input > mark:
            job.status, job.attempts, job.retry_at = "pending", 0, None
            return
        job.status = "error"
        last = job.retries <= 1 and POLICIES[job.kind].gives_up
        job.stop = "poison" if wait is None else "exhausted" if last else None
        job.retry_at = None if wait is None or last else self.clock + wait
        job.retries = max(job.retries - 1, 0)

    def complete(self, job: Job, mark: int) -> None:
        job.status = "pending" if job.input > mark else "done"
        job.not_before = self.clock + POLICIES[job.kind].rests_for // MINUTE
        job.lease_until, job.attempts = None, 0
        job.success = max(job.success or mark, mark)

    def holds(self, lease: Lease) -> Job | None:
        job = self.jobs[lease.kind, lease.job_key]
        return job if job.status == "running" and job.token == lease.ownership_token else None


class LedgerMachine(RuleBasedStateMachine):
    """Calls to the ledger and to its model, side by side."""

    dsn: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.pool = Pool(self.dsn)
        self.stack.callback(self.pool.close)
        self.conn: Conn = self.stack.enter_context(self.pool.transaction(OWNER))
        self.model = Model()
        self.leases: list[Lease] = []

    def teardown(self) -> None:
        rollback = psycopg.Rollback()
        self.stack.__exit__(type(rollback), rollback, None)

    @initialize()
    def settle(self) -> None:
        for kind, wanted in POLICIES.items():
            kinds.settle(self.conn, kind, wanted)

    @rule(minutes=MINUTES)
    def time_passes(self, minutes: int) -> None:
        pass_time(self.conn, minutes * MINUTE)
        self.model.clock += minutes

    @rule(kind=KINDS, name=NAMES, mark=st.integers(1, 6))
    def input_arrives(self, kind: str, name: str, mark: int) -> None:
        enqueue(self.conn, name, kind=kind, watermark=mark)
        self.model.enqueue(kind, name, mark)

    @rule(kind=KINDS, limit=st.integers(1, 3), minutes=MINUTES)
    def claim(self, kind: str, limit: int, minutes: int) -> None:
        found = jobs.claim(self.conn, [kind], worker_id="w", lease_for=minutes * MINUTE, limit=limit)
        expected = self.model.claim(kind, limit)
        assert [(lease.job_key, lease.attempts, lease.retry_remaining, lease.input_watermark) for lease in found] == [
            (job.name, job.attempts, job.retries, job.input) for job in expected
        ]
        for lease, job in zip(found, expected, strict=True):
            job.token, job.started = lease.ownership_token, self.model.clock
            job.lease_until = self.model.clock + min(minutes, 10)
        self.leases += found

    def call(self, choice: int, act: Callable[[Lease], None], *, allowed: bool = True) -> tuple[Job, Lease] | None:
        """Do something with a lease, alive or not; None when it was lost, as the model said it would be."""
        lease = self.leases[choice % len(self.leases)]
        job = self.model.holds(lease)
        try:
            with self.conn.transaction():
                act(lease)
        except LeaseLost:
            assert job is None or not allowed
            return None
        assert job is not None
        return job, lease

    @precondition(lambda self: self.leases)
    @rule(choice=st.integers(0, 30), minutes=MINUTES)
    def heartbeat(self, choice: int, minutes: int) -> None:
        lease = self.leases[choice % len(self.leases)]
        job, clock = self.model.jobs[lease.kind, lease.job_key], self.model.clock
        revives = job.is_due(clock) and POLICIES[lease.kind].max_running is not None
        allowed = clock < job.started + 10 and not revives
        held = self.call(
            choice, lambda lease: jobs.heartbeat(self.conn, lease, lease_for=minutes * MINUTE), allowed=allowed
        )
        if held is not None:
            assert allowed
            held[0].lease_until = min(clock + minutes, job.started + 10)

    @precondition(lambda self: self.leases)
    @rule(choice=st.integers(0, 30))
    def complete(self, choice: int) -> None:
        held = self.call(choice, lambda lease: jobs.complete(self.conn, lease))
        if held is not None:
            self.model.complete(held[0], held[1].input_watermark)

    @precondition(lambda self: self.leases)
    @rule(choice=st.integers(0, 30), wait=st.none() | WAITS)
    def fail(self, choice: int, wait: int | None) -> None:
        retry_in = None if wait is None else wait * MINUTE
        held = self.call(choice, lambda lease: jobs.fail(self.conn, lease, "broken", retry_in=retry_in))
        if held is not None:
            self.model.fail(held[0], held[1].input_watermark, wait)

    @precondition(lambda self: self.leases)
    @rule(choice=st.integers(0, 30))
    def release(self, choice: int) -> None:
        held = self.call(choice, lambda lease: jobs.release(self.conn, lease))
        if held is not None:
            job = held[0]
            job.status, job.not_before, job.lease_until = "pending", self.model.clock, None
            job.attempts = max(job.attempts - 1, 0)

    @rule(kind=KINDS, name=NAMES)
    def cancel(self, kind: str, name: str) -> None:
        control.cancel(self.conn, [Row(LOCAL_SOURCE, "memsvc", kind, name)])
        job = self.model.jobs.get((kind, name))
        if job is not None and job.due is not None:
            job.status, job.stop, job.lease_until, job.retry_at = "error", "cancelled", None, None

    @rule(kind=KINDS, name=NAMES)
    def retry(self, kind: str, name: str) -> None:
        control.retry(self.conn, [Row(LOCAL_SOURCE, "memsvc", kind, name)])
        job = self.model.jobs.get((kind, name))
        if job is None:
            return
        if job.status == "error" or (job.status == "pending" and not job.is_due(self.model.clock)):
            job.status, job.not_before, job.retries, job.attempts = "pending", self.model.clock, 3, 0
            job.retry_at = job.stop = None

    @invariant()
    def ledger_is_as_the_model_says(self) -> None:
        found = self.conn.execute(
            "select kind, job_key, status, stop_reason, retry_remaining, attempts, input_watermark,"
            " last_success_watermark, (extract(epoch from due_at - now()) / 60)::integer from memsvc.jobs"
            " where store = 'memsvc' order by kind, job_key"
        ).fetchall()
        assert found == [
            (
                *(job.kind, job.name, job.status, job.stop, job.retries, job.attempts, job.input, job.success),
                None if job.due is None else job.due - self.model.clock,
            )
            for _, job in sorted(self.model.jobs.items())
        ]

    @invariant()
    def every_job_can_move(self) -> None:
        """By itself, as time passes; or, where it was stopped, by retry."""
        stuck = self.conn.execute(
            "select kind, job_key from memsvc.jobs where store = 'memsvc' and status <> 'done' and due_at is null"
        ).fetchall()
        if stuck:
            rows = [Row(LOCAL_SOURCE, "memsvc", kind, name) for kind, name in stuck]
            with self.conn.transaction(force_rollback=True):
                assert len(control.retry(self.conn, rows)) == len(rows)

    @invariant()
    def no_cap_is_passed(self) -> None:
        found = self.conn.execute(
            "select count(*) from memsvc.jobs where kind = %s and status = 'running' and lease_until > now()", [STAGE1]
        ).fetchone()
        assert found is not None
        assert found[0] <= 2


def test_the_ledger_does_what_its_model_does(shared_dsn: str) -> None:
    class Machine(LedgerMachine):
        dsn = shared_dsn

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
