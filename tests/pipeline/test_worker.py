"""The worker: what it does with a job that works, fails, is lost, or outlives the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import psycopg
import pytest

from memsvc.db import embedded
from memsvc.db.pool import Conn, Pool
from memsvc.embedding.embedder import Vector
from memsvc.embedding.hashing import HashingEmbedder
from memsvc.errors import Conflict, DatabaseUnavailable, EmbedderUnavailable, WrongUse
from memsvc.ledger import control, explain, jobs
from memsvc.ledger.control import Row
from memsvc.model.job import EMBED, JobKey, Lease
from memsvc.model.principal import DEFAULT_TENANT, LOCAL_SOURCE, OWNER
from memsvc.pipeline import worker
from memsvc.pipeline.attempt import Handler, Work
from memsvc.pipeline.wake import Wake
from memsvc.pipeline.worker import Done
from memsvc.service import remember, work
from memsvc.service.app import App
from memsvc.settings import Settings

KIND = "test_kind"
MEMSVC = str(Path(sys.executable).parent / "memsvc")
SECRET = "what the user told nobody else"


def nothing(conn: Conn) -> None:
    """A result that writes nothing."""


def writes(name: str) -> Callable[[Conn], None]:
    """A result that can be seen."""

    def write(conn: Conn) -> None:
        conn.execute(
            "insert into memsvc.embedding_models (tenant_id, name, dimension, max_tokens) values (%s, %s, 1, 1)",
            [DEFAULT_TENANT, name],
        )

    return write


def written(pool: Pool) -> list[str]:
    return [name for (name,) in rows(pool, "select name from memsvc.embedding_models order by name")]


def rows(pool: Pool, query: str) -> list[Any]:
    with pool.transaction(OWNER) as conn:
        return conn.execute(query.encode()).fetchall()


def enqueue(pool: Pool, *names: str) -> None:
    with pool.transaction(OWNER) as conn:
        jobs.enqueue(conn, [(JobKey(LOCAL_SOURCE, KIND, name), None) for name in names])


def working(pool: Pool, handler: Handler, *, lease_for: timedelta = timedelta(minutes=5)) -> Work:
    return Work(pool, OWNER, {KIND: handler}, "the worker", lease_for)


def run(
    pool: Pool,
    handler: Handler,
    *,
    once: bool = True,
    stop: Event | None = None,
    lease_for: timedelta = timedelta(minutes=5),
) -> Done:
    return worker.run(working(pool, handler, lease_for=lease_for), once=once, stop=stop or Event())


def expire(pool: Pool) -> None:
    """Bend time: every lease ends now."""
    rows(pool, "update memsvc.jobs set lease_until = now() where status = 'running' returning 1")


def take_over(pool: Pool) -> Lease:
    expire(pool)
    with pool.transaction(OWNER) as conn:
        (lease,) = jobs.claim(conn, [KIND], worker_id="another", lease_for=timedelta(minutes=5))
    return lease


# Working until nothing is due.


def test_once_works_until_nothing_is_due(pool: Pool) -> None:
    enqueue(pool, "a", "b", "c")

    assert run(pool, lambda lease, lost: writes(lease.job_key)) == Done(completed=3)

    assert written(pool) == ["a", "b", "c"]
    assert rows(pool, "select distinct status, worker_id from memsvc.jobs") == [("done", "the worker")]


def test_once_with_nothing_due_does_nothing(pool: Pool) -> None:
    assert run(pool, lambda lease, lost: pytest.fail("nothing is due")) == Done()


def test_newer_input_that_arrives_meanwhile_is_worked_on_too(pool: Pool) -> None:
    enqueue(pool, "a")
    marks: list[int] = []

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        marks.append(lease.input_watermark)
        if len(marks) == 1:
            enqueue(pool, "a", "b")
        return nothing

    assert run(pool, handler) == Done(completed=3)
    assert sorted(marks) == [1, 1, 2]


def test_the_slow_part_has_no_transaction_open(pool: Pool) -> None:
    enqueue(pool, "a")

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        open_ones = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in%'"
        assert rows(pool, open_ones) == [(0,)]
        return nothing

    assert run(pool, handler) == Done(completed=1)


# What fails.


def test_a_failing_handler_is_recorded_and_tried_again_later(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    enqueue(pool, "a", "b")

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        if lease.job_key == "a":
            raise ValueError(f"cannot read: {SECRET}")
        return writes(lease.job_key)

    done = run(pool, handler)

    assert done == Done(completed=1, failed=1)
    assert written(pool) == ["b"]
    ((status, remaining, wait, error),) = rows(
        pool, "select status, retry_remaining, retry_at - finished_at, last_error from memsvc.jobs where job_key = 'a'"
    )
    assert (status, remaining) == ("error", 2)
    assert timedelta(seconds=5) <= wait <= timedelta(seconds=10)
    assert error.startswith("ValueError in handler, test_worker.py:")
    assert rows(pool, "select error from memsvc.job_attempts where outcome = 'error'") == [(error,)]
    assert f"job failed: {KIND} a: ValueError" in caplog.text
    assert "raise ValueError" in caplog.text
    assert SECRET not in caplog.text


def test_an_error_of_our_own_says_what_it_says(pool: Pool) -> None:
    enqueue(pool, "a")

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        raise Conflict("the model 'x' is recorded with 3 dimensions")

    assert run(pool, handler) == Done(failed=1)
    assert rows(pool, "select last_error from memsvc.jobs") == [
        ("conflict: the model 'x' is recorded with 3 dimensions",)
    ]


def test_a_refused_write_fails_the_job_and_leaves_nothing(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    enqueue(pool, "a")

    def write(conn: Conn) -> None:
        writes("half")(conn)
        conn.execute(
            "insert into memsvc.memories (tenant_id, scope_id, kind, status, origin, text, text_sha256, author_id,"
            " source_id) select %s, id, 'no kind', 'reported', 'agent', %s, '', %s, %s from memsvc.scopes",
            [DEFAULT_TENANT, SECRET, OWNER.principal_id, LOCAL_SOURCE],
        )

    assert run(pool, lambda lease, lost: write) == Done(failed=1)
    assert written(pool) == []
    assert rows(pool, "select status, retry_remaining, last_error from memsvc.jobs") == [
        ("error", 2, "CheckViolation 23514 memory_kind_known")
    ]
    assert SECRET not in caplog.text


def test_a_statement_that_takes_too_long_fails_the_job(pool: Pool) -> None:
    enqueue(pool, "a")

    def write(conn: Conn) -> None:
        conn.execute("set local statement_timeout = '20ms'")
        conn.execute("select pg_sleep(5)")

    assert run(pool, lambda lease, lost: write) == Done(failed=1)
    assert rows(pool, "select last_error from memsvc.jobs") == [("QueryCanceled 57014",)]


def test_a_job_that_never_works_stops_as_exhausted(pool: Pool) -> None:
    enqueue(pool, "a")

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        raise ZeroDivisionError

    for _ in range(3):
        assert run(pool, handler) == Done(failed=1)
        rows(pool, "update memsvc.jobs set retry_at = now() where retry_at is not null returning 1")

    assert run(pool, handler) == Done()
    assert rows(pool, "select status, stop_reason, due_at from memsvc.jobs") == [("error", "exhausted", None)]


def test_without_its_model_a_worker_gives_the_job_back(pool: Pool) -> None:
    enqueue(pool, "a", "b")

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        raise EmbedderUnavailable("the built-in model is not installed")

    with pytest.raises(EmbedderUnavailable):
        run(pool, handler)

    assert rows(pool, "select distinct status, retry_remaining, attempts from memsvc.jobs") == [("pending", 3, 0)]
    assert rows(pool, "select outcome from memsvc.job_attempts") == [("released",)]


def test_a_model_that_cannot_be_reached_is_waited_for(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    enqueue(pool, "a")
    stop, leases = Event(), list[Lease]()

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        leases.append(lease)
        if len(leases) == 1:
            raise EmbedderUnavailable("example.org does not answer")
        stop.set()
        return writes(lease.job_key)

    assert run(pool, handler, once=False, stop=stop) == Done(completed=1)
    assert [(lease.attempts, lease.retry_remaining) for lease in leases] == [(1, 3), (1, 3)]
    assert written(pool) == ["a"]
    assert "embedder-unavailable: example.org does not answer" in caplog.text


# The lease.


def test_a_lease_lost_in_the_slow_part_writes_nothing(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    enqueue(pool, "a")
    taken: list[Lease] = []

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        taken.append(take_over(pool))
        return writes("too late")

    assert run(pool, handler) == Done(lost=1)

    assert written(pool) == []
    assert "lease lost: test_kind a" in caplog.text
    assert rows(pool, "select status, worker_id, ownership_token from memsvc.jobs") == [
        ("running", "another", taken[0].ownership_token)
    ]
    with pool.transaction(OWNER) as conn:
        jobs.complete(conn, taken[0])


def test_a_lease_lost_during_the_write_rolls_it_back(pool: Pool) -> None:
    enqueue(pool, "a")

    def write(conn: Conn) -> None:
        writes("too late")(conn)
        take_over(pool)

    assert run(pool, lambda lease, lost: write) == Done(lost=1)
    assert written(pool) == []


def test_a_failure_after_the_lease_was_lost_is_not_recorded(pool: Pool) -> None:
    enqueue(pool, "a")

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        take_over(pool)
        raise ValueError

    assert run(pool, handler) == Done(lost=1)
    assert rows(pool, "select status, worker_id, retry_remaining, last_error from memsvc.jobs") == [
        ("running", "another", 3, None)
    ]


def test_slow_work_keeps_its_lease(pool: Pool) -> None:
    enqueue(pool, "a")
    lease_for = timedelta(seconds=0.6)

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        deadline = time.monotonic() + 3 * lease_for.total_seconds()
        while time.monotonic() < deadline:
            with pool.transaction(OWNER) as conn:
                assert jobs.claim(conn, [KIND], worker_id="another", lease_for=lease_for) == []
            time.sleep(0.05)
        return writes("in time")

    assert run(pool, handler, lease_for=lease_for) == Done(completed=1)
    assert written(pool) == ["in time"]
    assert rows(pool, "select outcome, worker_id from memsvc.job_attempts") == [("done", "the worker")]
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("heartbeat")] == []


def test_the_heartbeat_ends_with_work_that_fails(pool: Pool) -> None:
    enqueue(pool, "a")

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        assert [thread.name for thread in threading.enumerate() if thread.name.startswith("heartbeat")]
        raise ValueError

    assert run(pool, handler) == Done(failed=1)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("heartbeat")] == []


# Being told to stop.


def test_stop_finishes_the_job_under_way_and_begins_no_other(pool: Pool) -> None:
    enqueue(pool, "a", "b")
    stop = Event()

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        stop.set()
        return writes(lease.job_key)

    assert run(pool, handler, once=False, stop=stop) == Done(completed=1)
    assert written(pool) == ["a"]
    assert rows(pool, "select job_key, status from memsvc.jobs order by 1") == [("a", "done"), ("b", "pending")]


def test_told_to_stop_before_it_begins_it_claims_nothing(pool: Pool) -> None:
    enqueue(pool, "a")
    stop = Event()
    stop.set()

    assert run(pool, lambda lease, lost: nothing, stop=stop) == Done()
    assert rows(pool, "select status from memsvc.jobs") == [("pending",)]


def test_it_waits_for_jobs_until_told_to_stop(pool: Pool) -> None:
    stop = Event()
    idle = Thread(target=enqueue, args=(pool, "a"))

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        stop.set()
        return writes(lease.job_key)

    idle.start()
    assert run(pool, handler, once=False, stop=stop) == Done(completed=1)
    idle.join()
    assert written(pool) == ["a"]


def given_back(pool: Pool, handler: Handler) -> tuple[Done, float]:
    """Run a worker with a grace of a tenth of a second, which is told to stop as soon as it is at its job."""
    stop = Event()

    def at_work(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        stop.set()
        return handler(lease, lost)

    began = time.monotonic()
    done = worker.run(working(pool, at_work), once=False, stop=stop, grace=timedelta(seconds=0.1))
    return done, time.monotonic() - began


def test_what_is_not_finished_in_the_grace_is_given_back(pool: Pool) -> None:
    enqueue(pool, "a")

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        assert lost.wait(30), "it is told"
        return writes("too late")

    done, _ = given_back(pool, handler)

    assert done == Done(released=1)
    assert written(pool) == []
    assert rows(pool, "select status, attempts, retry_remaining from memsvc.jobs") == [("pending", 0, 3)]
    assert rows(pool, "select outcome from memsvc.job_attempts") == [("released",)]


def test_a_handler_that_does_not_listen_holds_up_neither_the_end_nor_the_job(pool: Pool) -> None:
    enqueue(pool, "a")
    ended = Event()

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        ended.wait(30)
        return writes("too late")

    done, took = given_back(pool, handler)

    assert done == Done(released=1)
    assert took < 10
    assert rows(pool, "select status from memsvc.jobs") == [("pending",)]
    ended.set()
    for thread in threading.enumerate():
        if thread.name.startswith("worker"):
            thread.join(10)
    assert written(pool) == []


def test_a_handler_that_gives_up_when_it_is_told_costs_the_job_nothing(pool: Pool) -> None:
    enqueue(pool, "a")

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        lost.wait(30)
        raise RuntimeError("told to stop")

    assert given_back(pool, handler)[0] == Done(released=1)
    assert rows(pool, "select status, retry_remaining, last_error from memsvc.jobs") == [("pending", 3, None)]


def test_a_lost_lease_tells_its_handler(pool: Pool) -> None:
    enqueue(pool, "a")

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        take_over(pool)
        assert lost.wait(30)
        return writes("too late")

    assert run(pool, handler, lease_for=timedelta(seconds=0.3)) == Done(lost=1)
    assert written(pool) == []


def test_a_cancelled_job_tells_its_handler(pool: Pool) -> None:
    enqueue(pool, "a")

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        with pool.transaction(OWNER) as conn:
            assert len(control.cancel(conn, [Row(LOCAL_SOURCE, "memsvc", KIND, "a")])) == 1
        assert lost.wait(30)
        raise RuntimeError

    assert run(pool, handler, lease_for=timedelta(seconds=0.3)) == Done(lost=1)
    assert rows(pool, "select status, stop_reason, retry_remaining from memsvc.jobs") == [("error", "cancelled", 3)]


def test_an_interrupted_attempt_gives_its_job_back(pool: Pool) -> None:
    enqueue(pool, "a")

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(pool, handler)
    assert rows(pool, "select status, attempts from memsvc.jobs") == [("pending", 0)]


# Several at a time.


def test_so_many_jobs_of_a_kind_are_under_way_at_a_time(pool: Pool) -> None:
    enqueue(pool, *"abcdef")
    together = Barrier(3)

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        together.wait(timeout=30)
        return writes(lease.job_key)

    assert worker.run(working(pool, handler), once=True, stop=Event(), concurrency=3) == Done(completed=6)
    assert written(pool) == list("abcdef")


def test_a_slow_kind_does_not_hold_up_another(pool: Pool) -> None:
    with pool.transaction(OWNER) as conn:
        jobs.enqueue(conn, [(JobKey(LOCAL_SOURCE, kind, "a"), None) for kind in ("slow", "quick")])
    quick_done = Event()

    def slow(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        assert quick_done.wait(30)
        return writes("slow")

    def quick(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        quick_done.set()
        return writes("quick")

    task = Work(pool, OWNER, {"slow": slow, "quick": quick}, "the worker")
    assert worker.run(task, once=True, stop=Event()) == Done(completed=2)


def test_once_also_does_what_one_kind_makes_for_another(pool: Pool) -> None:
    enqueue(pool, "a")

    def first(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        time.sleep(0.3)  # the other kind has nothing to do meanwhile

        def write(conn: Conn) -> None:
            jobs.enqueue(conn, [(JobKey(LOCAL_SOURCE, "second", "b"), None)])

        return write

    handlers: dict[str, Handler] = {"second": lambda lease, lost: writes("second"), KIND: first}
    assert worker.run(Work(pool, OWNER, handlers, "the worker"), once=True, stop=Event()) == Done(completed=2)


# Being woken.


def listeners(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return explain.workers(conn)


def test_new_work_wakes_an_idle_worker(dsn: str, pool: Pool) -> None:
    stop, begun = Event(), list[float]()

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        begun.append(time.monotonic())
        stop.set()
        return nothing

    def idle() -> None:
        worker.run(working(pool, handler), once=False, stop=stop)

    thread = Thread(target=idle)
    thread.start()
    until(lambda: listeners(dsn) == 1)
    enqueue(pool, "a")
    thread.join(30)

    assert len(begun) == 1
    assert listeners(dsn) == 0


def test_a_wait_ends_with_a_call(pool: Pool) -> None:
    with Wake(pool, "somewhere", name="the sleeper") as wake:
        until(lambda: rows(pool, "select pg_notify('somewhere', '')") == [("",)] and wake.calls > 0)
        wake.wait(timedelta(days=1), since=wake.calls - 1)
        calls = wake.calls
        Thread(target=wake.call).start()
        wake.wait(timedelta(days=1), since=calls)


class Deaf(Pool):
    """A pool whose server gives no connection to listen on, as some poolers do not."""

    @contextmanager
    def listening(self, channel: str, *, name: str) -> Iterator[Conn]:
        raise psycopg.errors.FeatureNotSupported("LISTEN")
        yield  # it is a generator all the same


def test_where_nothing_can_be_heard_work_is_looked_for(dsn: str, pool: Pool) -> None:
    deaf, stop = Deaf(dsn), Event()
    Thread(target=enqueue, args=(pool, "a")).start()

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        stop.set()
        return writes("found")

    assert run(deaf, handler, once=False, stop=stop) == Done(completed=1)
    deaf.close()
    assert written(pool) == ["found"]


# A database that goes away.


def cut_off(dsn: str) -> None:
    """End every connection of memsvc, as a restart of the server would."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )


def test_connections_lost_in_the_slow_part_do_no_harm(dsn: str, pool: Pool) -> None:
    enqueue(pool, "a")
    lease_for = timedelta(seconds=0.6)

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        for _ in range(3):
            cut_off(dsn)
            time.sleep(lease_for.total_seconds() / 2)
        return writes("in time")

    assert run(pool, handler, lease_for=lease_for) == Done(completed=1)
    assert written(pool) == ["in time"]


def test_a_database_that_goes_away_is_no_failure_of_the_job(dsn: str, pool: Pool) -> None:
    enqueue(pool, "a")
    stop, leases = Event(), list[Lease]()

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        leases.append(lease)

        def write(conn: Conn) -> None:
            writes("done")(conn)
            if len(leases) == 1:
                cut_off(dsn)
                Thread(target=expire, args=(pool,)).start()
                conn.execute("select 1")
            stop.set()

        return write

    done = run(pool, handler, once=False, stop=stop)

    assert done == Done(completed=1)
    assert written(pool) == ["done"]
    assert [(lease.attempts, lease.retry_remaining) for lease in leases] == [(1, 3), (2, 3)]
    assert rows(pool, "select status, retry_remaining, last_error from memsvc.jobs") == [("done", 3, None)]
    assert rows(pool, "select outcome from memsvc.job_attempts order by started_at") == [("lost",), ("done",)]


def test_once_does_not_wait_for_a_database_that_goes_away(dsn: str, pool: Pool) -> None:
    enqueue(pool, "a")

    def write(conn: Conn) -> None:
        cut_off(dsn)
        conn.execute("select 1")

    with pytest.raises(psycopg.OperationalError):
        run(pool, lambda lease, lost: write)

    assert rows(pool, "select status, retry_remaining, last_error from memsvc.jobs") == [("running", 3, None)]
    assert rows(pool, "select 1 from memsvc.job_attempts") == []


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (psycopg.OperationalError("the connection is lost"), True),
        (DatabaseUnavailable("no server"), True),
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.ConnectionFailure(), True),
        (psycopg.errors.TooManyConnections(), True),
        (psycopg.errors.DiskFull(), True),
        (psycopg.errors.IoError(), True),
        (psycopg.errors.QueryCanceled(), False),
        (psycopg.errors.DeadlockDetected(), False),
        (psycopg.errors.UniqueViolation(), False),
        (OSError(), False),
    ],
    ids=lambda given: str(given) if isinstance(given, bool) else type(given).__name__,
)
def test_only_an_absent_database_is_no_failure(pool: Pool, error: Exception, away: bool) -> None:
    enqueue(pool, "a")

    def handler(lease: Lease, lost: Event) -> Callable[[Conn], None]:
        raise error

    if away:
        with pytest.raises(type(error)):
            run(pool, handler)
        assert rows(pool, "select status, retry_remaining from memsvc.jobs") == [("running", 3)]
    else:
        assert run(pool, handler) == Done(failed=1)
        assert rows(pool, "select status, retry_remaining from memsvc.jobs") == [("error", 2)]


# The service's own use of it.


def test_an_unknown_embedder_costs_no_job_anything(dsn: str, pool: Pool, tmp_path: Path) -> None:
    with App(Settings(data_dir=tmp_path, database_url=dsn, embedder="hash:8"), host="here") as app:
        remember.remember(app, remember.RememberRequest("kept", scope="global"))

    with (
        App(Settings(data_dir=tmp_path, database_url=dsn, embedder="no such"), host="here") as app,
        pytest.raises(WrongUse, match="no such"),
    ):
        work.work(app, once=True, stop=Event())

    assert rows(pool, "select status, retry_remaining, attempts from memsvc.jobs") == [("pending", 3, 0)]


def test_what_cannot_be_embedded_now_is_left_to_the_next_worker(
    dsn: str, pool: Pool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with App(Settings(data_dir=tmp_path, database_url=dsn, embedder="no such"), host="here") as app:
        remember.remember(app, remember.RememberRequest("kept", scope="global"))
        work.work_one(app)

    assert "wrong-use: no embedder is called 'no such'" in caplog.text
    with App(Settings(data_dir=tmp_path, database_url=dsn, embedder="hash:8"), host="here") as app:
        work.work_one(app)
    assert rows(pool, "select count(*) from memsvc.chunk_embeddings") == [(1,)]


class Picky(HashingEmbedder):
    """Refuses one text, as an endpoint does that finds it too long; with `away` it refuses all."""

    away = False

    def embed_query(self, text: str) -> Vector:
        if self.away or "indigestible" in text:
            raise EmbedderUnavailable("example.org answered 400: it does not take the request")
        return super().embed_query(text)


def test_a_text_that_the_model_refuses_fails_and_does_not_hold_up_the_others(app: App) -> None:
    app.__dict__["embedder"] = Picky(8)
    remembered(app, "indigestible")
    remembered(app, "plain")

    assert work.work(app, once=True, stop=Event()) == Done(completed=1, failed=1)

    assert rows(app.pool, "select status, retry_remaining from memsvc.jobs order by 1") == [("done", 3), ("error", 2)]
    ((error,),) = rows(app.pool, "select last_error from memsvc.jobs where status = 'error'")
    assert (
        error
        == "failed: the model takes other texts, but not these: example.org answered 400: it does not take the request"
    )


def test_a_model_that_refuses_everything_is_an_outage(app: App) -> None:
    embedder = Picky(8)
    embedder.away = True
    app.__dict__["embedder"] = embedder
    remembered(app, "plain")

    for _ in range(30):
        with pytest.raises(EmbedderUnavailable):
            work.work(app, once=True, stop=Event())

    assert rows(app.pool, "select status, retry_remaining, attempts from memsvc.jobs") == [("pending", 3, 0)]
    assert rows(app.pool, "select outcome from memsvc.job_attempts") == [("released",)]


# Real processes.


@contextmanager
def started(dsn: str, folder: Path, *words: str, embedder: str) -> Iterator[subprocess.Popen[str]]:
    """`memsvc WORDS` in a session of its own; killed if it is still there at the end."""
    environment = {
        **os.environ,
        "MEMSVC_DATABASE_URL": dsn,
        "MEMSVC_DATA_DIR": str(folder / "data"),
        "MEMSVC_EMBEDDER": embedder,
    }
    process = subprocess.Popen(
        [MEMSVC, *words],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(condition: Callable[[], bool], *, within: float = 30) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def is_gone(session: int) -> bool:
    """Is nobody left of the process and those that it started?"""
    try:
        os.killpg(session, 0)
    except ProcessLookupError:
        return True
    return False


def remembered(app: App, text: str) -> None:
    remember.remember(app, remember.RememberRequest(text, scope="global"))


def statuses(app: App) -> list[Any]:
    return rows(app.pool, f"select status from memsvc.jobs where kind = '{EMBED}'")


LONG = "\n\n".join(f"The {number}th harbour has a lighthouse of {number * 7} steps." for number in range(600))


def test_sigterm_ends_an_idle_worker_promptly(app: App, dsn: str, tmp_path: Path) -> None:
    remembered(app, "the harbour")
    with started(dsn, tmp_path, "worker", "--json", embedder="hash:64") as process:
        until(lambda: statuses(app) == [("done",)])
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)

    assert time.monotonic() - began < 5
    assert (process.returncode, err) == (0, "")
    assert json.loads(out) == {"completed": 1, "failed": 0, "lost": 0, "released": 0}
    assert is_gone(process.pid)


def test_sigterm_lets_a_worker_finish_the_job_under_way(app: App, dsn: str, tmp_path: Path) -> None:
    remembered(app, LONG)
    remembered(app, "one more")
    with started(dsn, tmp_path, "worker", "--json", embedder="builtin") as process:
        until(lambda: ("running",) in statuses(app))
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (0, "")
    assert json.loads(out) == {"completed": 1, "failed": 0, "lost": 0, "released": 0}
    assert sorted(statuses(app)) == [("done",), ("pending",)]
    assert rows(app.pool, "select count(*) > 20 from memsvc.chunk_embeddings") == [(True,)]
    assert is_gone(process.pid)


def test_a_worker_killed_while_embedding_leaves_the_job_to_the_next(app: App, dsn: str, tmp_path: Path) -> None:
    remembered(app, LONG)
    with started(dsn, tmp_path, "worker", embedder="builtin") as process:
        until(lambda: statuses(app) == [("running",)])
        process.kill()
        process.wait()

    assert statuses(app) == [("running",)]
    assert rows(app.pool, "select 1 from memsvc.chunk_embeddings") == []
    with started(dsn, tmp_path, "worker", "--once", "--json", embedder="hash:64") as early:
        out, _ = early.communicate(timeout=60)
    assert json.loads(out)["completed"] == 0, "the lease of the dead still lives"

    expire(app.pool)
    with started(dsn, tmp_path, "worker", "--once", "--json", embedder="hash:64") as late:
        out, err = late.communicate(timeout=60)

    assert (late.returncode, err) == (0, "")
    assert json.loads(out) == {"completed": 1, "failed": 0, "lost": 0, "released": 0}
    assert rows(app.pool, "select outcome from memsvc.job_attempts order by started_at") == [("lost",), ("done",)]
    assert rows(app.pool, "select status, retry_remaining from memsvc.jobs") == [("done", 3)]
    assert rows(app.pool, "select count(*) > 20 from memsvc.chunk_embeddings") == [(True,)]


@pytest.mark.slow
def test_a_worker_outlives_its_database_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "own")
    url = embedded.start(settings)
    try:
        with App(settings) as starting, starting.pool.transaction(OWNER):
            pass  # it is migrated
        with started(url, tmp_path, "worker", "--json", embedder="hash:64") as process:
            until(lambda: listeners(url) == 1)
            embedded.stop(settings)
            embedded.start(settings)
            with App(Settings(data_dir=tmp_path, database_url=url), host="here") as app:
                remembered(app, "kept")
                until(lambda: statuses(app) == [("done",)], within=90)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=60)
    finally:
        embedded.stop(settings)

    assert (process.returncode, json.loads(out)["completed"]) == (0, 1)
    assert is_gone(process.pid)
