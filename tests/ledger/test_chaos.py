"""
Workers as they are, in processes of their own, while everything around them breaks.

Whatever is killed or cut off: in the end every job is done, its result was written once, under the token that completed
it, and nothing is left running or due.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Event

import psycopg
import pytest

from memsvc.db import embedded, migrate
from memsvc.db.pool import Conn, Pool
from memsvc.ledger import jobs
from memsvc.model.job import JobKey, Lease
from memsvc.model.principal import LOCAL_SOURCE, OWNER
from memsvc.pipeline import worker
from memsvc.pipeline.attempt import Work
from memsvc.settings import Settings
from tests.conftest import embedded_in

KIND = "test_kind"
LEASE_FOR = timedelta(seconds=2)
WORKERS, JOBS = 3, 200
PATIENCE = 150.0  # seconds; on an idle machine a few are enough

# What the workers write: a row for each result, and nothing that would keep a second one out.
RESULTS = """
create table public.results (job_key text not null, watermark bigint not null, token text not null);
grant select, insert on public.results to memsvc_service;
"""
UNFINISHED = "select count(*) from memsvc.jobs where status <> 'done' and stop_reason is null"
DOUBLED = "select job_key, watermark from public.results group by job_key, watermark having count(*) > 1"
# Results that no completion stands for, and completions without a result.
UNPAIRED = """
select r.job_key, r.token, a.job_key, a.ownership_token
from public.results r
full join (select * from memsvc.job_attempts where outcome = 'done') a
    on a.job_key = r.job_key and a.ownership_token = r.token
where r.token is null or a.ownership_token is null
"""
NOT_DONE = """
select job_key, status, stop_reason, lease_until
from memsvc.jobs
where status <> 'done' or last_success_watermark <> input_watermark
"""


def work(dsn: str, skew: float) -> None:
    """A worker until it is killed; its own clock may be off by `skew` seconds."""
    now = time.time
    time.time = lambda: now() + skew
    chance = random.Random()

    def handle(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        lost.wait(chance.random() / 4)
        return lambda conn: record(conn, lease)

    task = Work(Pool(dsn), OWNER, {KIND: handle}, worker.worker_id(), lease_for=LEASE_FOR)
    worker.run(task, once=False, stop=Event(), concurrency=2)


def schedule(dsn: str, times: int) -> None:
    """Say again and again that there is new input, for all jobs at once and in any order."""
    pool = Pool(dsn)
    for _ in range(times):
        keys = [JobKey(LOCAL_SOURCE, KIND, f"job {number}") for number in range(20)]
        random.shuffle(keys)
        with pool.transaction(OWNER) as conn:
            jobs.enqueue(conn, [(key, None) for key in keys])
    pool.close()


def record(conn: Conn, lease: Lease) -> None:
    conn.execute(
        "insert into public.results values (%s, %s, %s)", [lease.job_key, lease.input_watermark, lease.ownership_token]
    )


@contextmanager
def started(body: Callable[..., None], *given: object) -> Iterator[BaseProcess]:
    process = multiprocessing.get_context("spawn").Process(target=body, args=given, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def workers(stack: ExitStack, dsn: str, number: int = WORKERS) -> list[BaseProcess]:
    skews = [0.0, 86_400.0, -86_400.0]
    return [stack.enter_context(started(work, dsn, skews[n % 3])) for n in range(number)]


def prepared(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(RESULTS)
    enqueue(dsn, *(f"job {number}" for number in range(JOBS)))


def enqueue(dsn: str, *names: str) -> None:
    pool = Pool(dsn)
    with pool.transaction(OWNER) as conn:
        jobs.enqueue(conn, [(JobKey(LOCAL_SOURCE, KIND, name), None) for name in names])
    pool.close()


def unfinished(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as admin:
        row = admin.execute(UNFINISHED).fetchone()
    assert row is not None
    return int(row[0])


def until_done(dsn: str, *, meanwhile: Callable[[], None] = lambda: None, every: float = 0.2) -> None:
    deadline = time.monotonic() + PATIENCE
    while unfinished(dsn):
        assert time.monotonic() < deadline, f"{unfinished(dsn)} jobs are not done"
        time.sleep(every)
        meanwhile()


def assert_all_is_well(dsn: str, *, done: int | None = JOBS) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin:
        assert admin.execute(NOT_DONE).fetchall() == []
        assert admin.execute(DOUBLED).fetchall() == []
        assert admin.execute(UNPAIRED).fetchall() == []
        if done is not None:
            assert admin.execute("select count(*) from public.results").fetchone() == (done,)


@pytest.mark.slow
def test_a_worker_killed_every_second_loses_nothing_and_doubles_nothing(dsn: str) -> None:
    prepared(dsn)
    with ExitStack() as stack:
        alive = workers(stack, dsn)

        def kill_one() -> None:
            victim = alive.pop(random.randrange(len(alive)))
            victim.kill()
            alive.extend(workers(stack, dsn, 1))

        until_done(dsn, meanwhile=kill_one, every=1)

    assert_all_is_well(dsn)
    with psycopg.connect(dsn, autocommit=True) as admin:
        (lost,) = admin.execute("select count(*) from memsvc.job_attempts where outcome = 'lost'").fetchone() or (0,)
    assert lost > 0, "nobody was killed while at work"


@pytest.mark.slow
def test_connections_that_are_cut_again_and_again(dsn: str) -> None:
    prepared(dsn)
    with ExitStack() as stack:
        workers(stack, dsn)
        cuts = iter(range(20))  # then the last jobs have their peace, since each cut costs a pause

        def cut() -> None:
            if next(cuts, None) is not None:
                with psycopg.connect(dsn, autocommit=True) as admin:
                    admin.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity"
                        " where datname = current_database() and pid <> pg_backend_pid()"
                    )

        until_done(dsn, meanwhile=cut)

    assert_all_is_well(dsn)


@pytest.mark.slow
def test_a_server_that_is_killed_twice(tmp_path: Path) -> None:
    settings = embedded_in(tmp_path / "data")
    try:
        dsn = embedded.start(settings)
        with migrate.connect(dsn) as admin:
            migrate.migrate(admin)
        prepared(dsn)
        with ExitStack() as stack:
            workers(stack, dsn)
            for left in (150, 75):
                while unfinished(dsn) > left:
                    time.sleep(0.05)
                kill_server(settings)
                assert embedded.start(settings) == dsn
            until_done(dsn)
        assert_all_is_well(dsn)
    finally:
        embedded.stop(settings)


def kill_server(settings: Settings) -> None:
    pid = embedded.status(settings).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_two_schedulers_at_once_leave_nothing_undone(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(RESULTS)
    with ExitStack() as stack:
        workers(stack, dsn)
        both = [stack.enter_context(started(schedule, dsn, 30)) for _ in range(2)]
        for scheduler in both:
            scheduler.join(PATIENCE)
            assert scheduler.exitcode == 0
        until_done(dsn)

    assert_all_is_well(dsn, done=None)
    with psycopg.connect(dsn, autocommit=True) as admin:
        assert admin.execute("select distinct input_watermark, last_success_watermark from memsvc.jobs").fetchall() == [
            (60, 60)
        ]
