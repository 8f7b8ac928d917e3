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
from threading import Event, Thread
from typing import Any

import psycopg
import pytest

from memsvc.db.pool import Conn, Pool
from memsvc.errors import Conflict, DatabaseUnavailable, EmbedderUnavailable, WrongUse
from memsvc.ledger import jobs
from memsvc.model.job import EMBED, JobKey, Lease
from memsvc.model.principal import DEFAULT_TENANT, LOCAL_SOURCE, OWNER
from memsvc.pipeline import worker
from memsvc.pipeline.attempt import Handler, Work
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
    seen: list[int] = []

    done = worker.run(
        working(pool, lambda lease, lost: writes(lease.job_key)),
        once=True,
        stop=Event(),
        after_each=lambda so_far: seen.append(so_far.completed),
    )

    assert (done, seen) == (Done(completed=3), [1, 2, 3])
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

    with App(Settings(data_dir=tmp_path, database_url=dsn, embedder="no such"), host="here") as app:
        with pytest.raises(WrongUse, match="no such"):
            work.work(app, once=True, stop=Event())
        assert work.due(app) == 1

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
        assert work.due(app) == 0
    assert rows(pool, "select count(*) from memsvc.chunk_embeddings") == [(1,)]


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
