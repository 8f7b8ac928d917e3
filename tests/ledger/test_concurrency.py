"""Many processes at one ledger: killed, stopped and woken again, they never hold one job twice and lose none."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import psycopg
import pytest

from memsvc.db.pool import Conn, Pool
from memsvc.errors import LeaseLost
from memsvc.ledger import jobs
from memsvc.model.job import JobKey, Lease
from memsvc.model.principal import DEFAULT_TENANT, LOCAL_SOURCE, OWNER

KIND = "test_kind"
SHORT = timedelta(seconds=0.5)
PROCESSES, JOBS = 8, 200

Body = Callable[[str, Connection], None]


@contextmanager
def process(body: Body, dsn: str) -> Iterator[tuple[BaseProcess, Connection]]:
    """A process of its own that runs `body`, and the pipe to it; killed if it is still there at the end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    started = context.Process(target=body, args=(dsn, theirs), daemon=True)
    started.start()
    theirs.close()
    try:
        yield started, ours
    finally:
        started.kill()
        started.join()
        ours.close()


def received(pipe: Connection, *, within: float = 60) -> Any:
    assert pipe.poll(within), "the other process says nothing"
    return pipe.recv()


def claim(pool: Pool, worker_id: str, *, lease_for: timedelta) -> Lease | None:
    with pool.transaction(OWNER) as conn:
        found = jobs.claim(conn, [KIND], worker_id=worker_id, lease_for=lease_for)
    return found[0] if found else None


def claimed(pool: Pool, worker_id: str, *, lease_for: timedelta, within: float = 30) -> Lease:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        lease = claim(pool, worker_id, lease_for=lease_for)
        if lease is not None:
            return lease
        time.sleep(0.02)
    pytest.fail("nothing came back to be claimed")


def enqueue(pool: Pool, *names: str) -> None:
    with pool.transaction(OWNER) as conn:
        jobs.enqueue(conn, [(JobKey(LOCAL_SOURCE, KIND, name), None) for name in names])


def write(conn: Conn, name: str) -> None:
    """A result that can be seen: a row that nothing else writes."""
    conn.execute(
        "insert into memsvc.embedding_models (tenant_id, name, dimension, max_tokens) values (%s, %s, 1, 1)",
        [DEFAULT_TENANT, name],
    )


def written(pool: Pool) -> list[str]:
    return [name for (name,) in rows(pool, "select name from memsvc.embedding_models order by name")]


def rows(pool: Pool, query: str) -> list[Any]:
    with pool.transaction(OWNER) as conn:
        return conn.execute(query.encode()).fetchall()


# What the other processes do.


def work_in_earnest(dsn: str, pipe: Connection) -> None:
    """
    Claim until everything is done; give some jobs back, let some fail.

    While a job is held, so is an advisory lock of its name: a second holder could not get that.
    """
    pool, chance = Pool(dsn), random.Random(os.getpid())
    held_twice = 0
    pipe.send("ready")
    pipe.recv()
    with psycopg.connect(dsn, autocommit=True) as holder:
        while rows(pool, "select 1 from memsvc.jobs where status <> 'done' limit 1"):
            lease = claim(pool, str(os.getpid()), lease_for=timedelta(minutes=1))
            if lease is None:
                time.sleep(0.01)
                continue
            (alone,) = holder.execute("select pg_try_advisory_lock(hashtext(%s))", [lease.job_key]).fetchone() or (0,)
            held_twice += not alone
            time.sleep(chance.random() / 500)
            holder.execute("select pg_advisory_unlock_all()")
            with pool.transaction(OWNER) as conn:
                match chance.randrange(8):
                    case 0:
                        jobs.release(conn, lease)
                    case 1 if lease.retry_remaining > 1:
                        jobs.fail(conn, lease, "by chance", retry_in=timedelta(0))
                    case _:
                        write(conn, lease.job_key)
                        jobs.complete(conn, lease)
    pool.close()
    pipe.send(held_twice)


def hold_until_killed(dsn: str, pipe: Connection) -> None:
    pool = Pool(dsn)
    pipe.send(claim(pool, "killed", lease_for=SHORT))
    with pool.transaction(OWNER) as conn:
        write(conn, "half done")
        pipe.send("writing")
        time.sleep(600)


def complete_too_late(dsn: str, pipe: Connection) -> None:
    """Claim, write, and complete when told to; say how that ended."""
    pool = Pool(dsn)
    lease = claim(pool, "stopped", lease_for=SHORT)
    assert lease is not None
    try:
        with pool.transaction(OWNER) as conn:
            write(conn, "too late")
            pipe.send("writing")
            pipe.recv()
            jobs.complete(conn, lease)
        pipe.send("completed")
    except LeaseLost as exc:
        pipe.send(str(exc))
    pool.close()


# What must come of it.


def test_eight_processes_do_two_hundred_jobs_once_each(dsn: str, pool: Pool) -> None:
    names = [f"{number:03}" for number in range(JOBS)]
    enqueue(pool, *names)

    with ExitStack() as stack:
        pipes = [stack.enter_context(process(work_in_earnest, dsn))[1] for _ in range(PROCESSES)]
        assert [received(pipe) for pipe in pipes] == ["ready"] * PROCESSES
        for pipe in pipes:
            pipe.send("go")
        held_twice = [received(pipe) for pipe in pipes]

    assert held_twice == [0] * PROCESSES
    assert written(pool) == names
    assert rows(pool, "select status, count(*) from memsvc.jobs group by 1") == [("done", JOBS)]
    endings = rows(
        pool, "select job_key, count(*) from memsvc.job_attempts where outcome = 'done' group by 1 order by 1"
    )
    assert endings == [(name, 1) for name in names]
    ((leases, tokens, workers),) = rows(
        pool, "select count(*), count(distinct ownership_token), count(distinct worker_id) from memsvc.job_attempts"
    )
    assert leases == tokens
    assert leases > JOBS
    assert workers == PROCESSES
    overlapping = rows(
        pool,
        "select a.job_key from memsvc.job_attempts a join memsvc.job_attempts b"
        " on a.job_key = b.job_key and a.ownership_token < b.ownership_token"
        " and (a.started_at, a.ended_at) overlaps (b.started_at, b.ended_at)",
    )
    assert overlapping == []


def test_the_job_of_a_killed_process_is_done_by_another_after_the_lease(dsn: str, pool: Pool) -> None:
    enqueue(pool, "a")
    with process(hold_until_killed, dsn) as (victim, pipe):
        lost = received(pipe)
        assert received(pipe) == "writing"
        victim.kill()
        victim.join()

    taken = claimed(pool, "other", lease_for=timedelta(minutes=1))
    with pool.transaction(OWNER) as conn:
        write(conn, "done by another")
        jobs.complete(conn, taken)

    assert victim.exitcode == -signal.SIGKILL
    assert taken.ownership_token != lost.ownership_token
    assert (taken.attempts, taken.retry_remaining) == (2, 3)
    assert written(pool) == ["done by another"]
    assert rows(pool, "select status, last_success_watermark from memsvc.jobs") == [("done", 1)]
    history = rows(pool, "select outcome, worker_id, ownership_token from memsvc.job_attempts order by started_at")
    assert history == [("lost", "killed", lost.ownership_token), ("done", "other", taken.ownership_token)]
    ((started_at,),) = rows(pool, "select started_at from memsvc.job_attempts where worker_id = 'other'")
    assert started_at >= lost.lease_until


@pytest.mark.parametrize("completed", [False, True], ids=["still running", "completed"])
def test_a_process_that_slept_through_its_lease_writes_nothing(dsn: str, pool: Pool, completed: bool) -> None:
    enqueue(pool, "a")
    with process(complete_too_late, dsn) as (sleeper, pipe):
        assert received(pipe) == "writing"
        assert sleeper.pid is not None
        os.kill(sleeper.pid, signal.SIGSTOP)
        pipe.send("complete")
        taken = claimed(pool, "other", lease_for=timedelta(minutes=1))
        if completed:
            with pool.transaction(OWNER) as conn:
                write(conn, "in time")
                jobs.complete(conn, taken)
        os.kill(sleeper.pid, signal.SIGCONT)

        assert received(pipe) == f"the lease on {KIND} a is lost"

    assert written(pool) == (["in time"] if completed else [])
    assert rows(pool, "select status, worker_id from memsvc.jobs") == [("done" if completed else "running", "other")]
    assert rows(pool, "select outcome, worker_id from memsvc.job_attempts order by started_at") == [
        ("lost", "stopped"),
        *([("done", "other")] if completed else []),
    ]
    if not completed:
        with pool.transaction(OWNER) as conn:
            jobs.complete(conn, taken)
