"""
How the job ledger keeps up: buffers of a claim, jobs a second against other queues and a bare loop, bloat.

It starts a server of its own in a temporary folder. Throughput is measured in rounds, in each of which every contender
empties a queue of its own, in shuffled order; a ratio is the median of the rounds', with the lowest and the highest.
PgQueuer and procrastinate take part where they are installed. Read ratios, not times: the machine decides the times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from memsvc.db import embedded, migrate
from memsvc.db import pool as pools
from memsvc.db.pool import Pool
from memsvc.ledger import jobs
from memsvc.model.job import JobKey
from memsvc.model.principal import DEFAULT_TENANT, LOCAL_SOURCE, OWNER
from memsvc.settings import Settings

KIND = "bench"
LEASE_FOR = timedelta(minutes=5)
BATCH = 100


@dataclass(frozen=True)
class Size:
    """How much is measured: rows and rounds."""

    done: int = 1_000_000
    backlog: int = 100_000
    rounds: int = 5
    batched: int = 5_000
    single: int = 1_000
    held: int = 80_000
    recycled: int = 50_000
    transitions: int = 1_000_000


QUICK = Size(
    done=100_000, backlog=20_000, rounds=3, batched=2_000, single=300, held=8_000, recycled=5_000, transitions=60_000
)


@dataclass(frozen=True)
class Metric:
    """One reading; `low` and `high` are those of the rounds, `peer` is what it is compared with."""

    metric: str
    value: float
    goal: float | None
    low: float | None = None
    high: float | None = None
    peer: str | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0].strip())
    parser.add_argument("--quick", action="store_true", help="smaller queues, ends within a minute or so")
    parser.add_argument("--json", action="store_true", help="one object a metric")
    parser.add_argument("--only", default="L1,L2,L3,L4,L5,L6", help="such as L1,L5")
    options = parser.parse_args()
    size, wanted = QUICK if options.quick else Size(), set(options.only.split(","))
    with _server() as url:
        for names, measure in ((("L1",), buffers), (("L2", "L3", "L4"), throughput), (("L5",), held), (("L6",), bloat)):
            if wanted & set(names):
                with _database(url) as dsn:
                    for metric in measure(dsn, size):
                        _print(metric, as_json=options.json)


def _print(metric: Metric, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(vars(metric)), flush=True)
        return
    span = "" if metric.low is None else f"  ({metric.low:.2f} to {metric.high:.2f})"
    goal = "" if metric.goal is None else f"  goal {metric.goal}"
    peer = "" if metric.peer is None else f"  against {metric.peer}"
    print(f"{metric.metric:58} {metric.value:10.2f}{span}{goal}{peer}", flush=True)


# Where


@contextmanager
def _server() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder))
        try:
            yield embedded.start(settings)
        finally:
            embedded.stop(settings)


@contextmanager
def _database(url: str) -> Iterator[str]:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("drop database if exists bench with (force)")
        admin.execute("create database bench")
    dsn = make_conninfo(url, dbname="bench")
    with migrate.connect(dsn) as conn:
        migrate.migrate(conn)
    yield dsn


def _fill(dsn: str, status: str, count: int, *, kind: str = KIND) -> None:
    """So many jobs, as enqueue and complete would leave them."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("set session_replication_role = replica")  # the rows refer to what is there
        admin.execute(
            "insert into memsvc.jobs (tenant_id, source_id, store, kind, job_key, status, retry_remaining,"
            " input_watermark, not_before)"
            " select %s, %s, 'memsvc', %s, %s || to_char(n, 'FM0000000'), %s, 3, 1, now()"
            " from generate_series(1, %s) n",
            [DEFAULT_TENANT, LOCAL_SOURCE, kind, f"{status} {time.monotonic_ns()} ", status, count],
        )
        admin.execute("vacuum analyze memsvc.jobs")


def _empty(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("truncate memsvc.job_attempts, memsvc.jobs")


# L1: what one claim touches, which no clock and no neighbour changes.


def buffers(dsn: str, size: Size) -> Iterator[Metric]:
    few_done, few_waiting = 10_000, 100
    read: dict[tuple[int, int], float] = {}
    for done, waiting in ((few_done, few_waiting), (size.done, few_waiting), (few_done, size.backlog)):
        _empty(dsn)
        _fill(dsn, "done", done)
        _fill(dsn, "pending", waiting)
        read[done, waiting] = _buffers_of_a_claim(dsn)
    base = read[few_done, few_waiting]
    yield Metric("L1 buffers of a claim", base, None)
    yield Metric(f"L1 {size.done} done / {few_done}", read[size.done, few_waiting] / base, 1.25)
    yield Metric(f"L1 {size.backlog} waiting / {few_waiting}", read[few_done, size.backlog] / base, 1.5)


def _buffers_of_a_claim(dsn: str) -> float:
    pool = Pool(dsn)
    values = {"kind": KIND, "worker_id": "w", "lease_for": LEASE_FOR, "longest_lease": LEASE_FOR}
    readings: list[int] = []
    for _ in range(5):
        with pool.transaction(OWNER) as conn:
            query = sql.SQL("explain (analyze, buffers, format json) " + jobs.SQL["claim"]).format(limit=1)
            ((plan,),) = conn.execute(query, values).fetchall()
            top = plan[0]["Plan"]
            readings.append(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
            raise psycopg.Rollback
    pool.close()
    return statistics.median(readings)


# L2 to L4: jobs a second. Each contender is given a queue of so many jobs, and empties it.

Contender = Callable[[str, int], float]


def _ours(dsn: str, count: int, *, batch: int, workers: int = 1) -> float:
    _empty(dsn)
    _fill(dsn, "pending", count)
    pool = Pool(dsn)

    def work(number: int) -> None:
        while True:
            with pool.transaction(OWNER, durable=False) as conn:  # as the worker does
                leases = jobs.claim(conn, [KIND], worker_id=str(number), lease_for=LEASE_FOR, limit=batch)
            if not leases:
                return
            with pool.transaction(OWNER) as conn:
                jobs.complete(conn, *leases)

    with pool.transaction(OWNER):
        pass
    began = time.perf_counter()
    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(work, range(workers)))
    took = time.perf_counter() - began
    pool.close()
    return count / took


def _bare(dsn: str, count: int, *, batch: int) -> float:
    """The same statements from a bare loop on one connection: no pool, no values, no policy that is looked up."""
    _empty(dsn)
    _fill(dsn, "pending", count)
    values = {"kind": KIND, "worker_id": "w", "lease_for": LEASE_FOR, "longest_lease": LEASE_FOR}
    claim = sql.SQL(jobs.SQL["claim"]).format(limit=batch)
    acting = {
        "tenant_id": str(OWNER.tenant_id),
        "principal_id": str(OWNER.principal_id),
        "statement_timeout": "30000",
        "lock_timeout": "10000",
        "idle_timeout": "60000",
        "durable": True,
    }
    names = ("source_id", "kind", "job_key", "ownership_token", "worker_id", "lease_until", "input_watermark")
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=0) as conn:
        began = time.perf_counter()
        while True:
            with conn.transaction():
                conn.execute(pools.SQL["begin"], acting | {"durable": False})
                found = conn.execute(claim, values).fetchall()
            if not found:
                break
            rows = [dict(zip(names, map(str, row), strict=False)) | {"rests_for": "0"} for row in found]
            with conn.transaction():
                conn.execute(pools.SQL["begin"], acting)
                conn.execute(jobs.SQL["complete"], {"leases": json.dumps(rows), "watermark": None})
        return count / (time.perf_counter() - began)


def _pgqueuer(dsn: str, count: int) -> float:
    pgqueuer = import_module("pgqueuer")  # by name: they are nobody's dependency
    drivers, types, queues = (import_module(f"pgqueuer.{name}") for name in ("db", "types", "queries"))

    async def run() -> float:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            driver = drivers.PsycopgDriver(conn)
            queries = queues.Queries(driver)
            if not await queries.schema_is_installed():
                await queries.install()
            await queries.enqueue(["fetch"] * count, [None] * count, [0] * count)
            queue = pgqueuer.PgQueuer(driver)

            async def fetch(job: Any) -> None: ...

            queue.entrypoint("fetch")(fetch)
            began = time.perf_counter()
            await queue.run(batch_size=BATCH, mode=types.QueueExecutionMode.drain, dequeue_timeout=timedelta(seconds=0))
            return count / (time.perf_counter() - began)

    return asyncio.run(run())


def _procrastinate(dsn: str, count: int) -> float:
    procrastinate = import_module("procrastinate")

    async def run() -> float:
        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn))
        async with app.open_async():
            if not await app.check_connection_async():
                await app.schema_manager.apply_schema_async()

            async def nothing() -> None: ...

            await app.task(name="nothing")(nothing).batch_defer_async(*({} for _ in range(count)))
            began = time.perf_counter()
            await app.run_worker_async(wait=False, concurrency=8, install_signal_handlers=False)
            return count / (time.perf_counter() - began)

    return asyncio.run(run())


def throughput(dsn: str, size: Size) -> Iterator[Metric]:
    contenders: dict[str, tuple[Contender, int]] = {
        "memsvc, batch 100": (lambda d, n: _ours(d, n, batch=BATCH), size.batched),
        "memsvc, one by one": (lambda d, n: _ours(d, n, batch=1), size.single),
        "memsvc, 4 workers one by one": (lambda d, n: _ours(d, n, batch=1, workers=4), size.single),
        "bare loop, batch 100": (lambda d, n: _bare(d, n, batch=BATCH), size.batched),
        "bare loop, one by one": (lambda d, n: _bare(d, n, batch=1), size.single),
    }
    for module, name, peer, count in (
        ("pgqueuer", "PgQueuer, batch 100", _pgqueuer, size.batched),
        ("procrastinate", "procrastinate, concurrency 8", _procrastinate, size.single),
    ):
        if find_spec(module):
            contenders[name] = (peer, count)
        else:
            print(f"{module} is not installed and takes no part", file=sys.stderr)
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(size.rounds):
        for name in random.sample(sorted(contenders), len(contenders)):
            contender, count = contenders[name]
            rates[name].append(contender(dsn, count))
    for name, found in rates.items():
        yield Metric(f"jobs/s {name}", statistics.median(found), None, min(found), max(found))
    for metric, ours, peer_name, goal in (
        ("L2 batches", "memsvc, batch 100", "PgQueuer, batch 100", 2.0),
        ("L3 batches", "memsvc, batch 100", "bare loop, batch 100", 0.85),
        ("L3 one by one", "memsvc, one by one", "bare loop, one by one", 0.9),
        ("L4 four workers", "memsvc, 4 workers one by one", "procrastinate, concurrency 8", 2.5),
    ):
        if peer_name in rates:
            yield _ratio(metric, rates[ours], rates[peer_name], goal, peer_name)


def _ratio(metric: str, ours: Sequence[float], theirs: Sequence[float], goal: float, peer: str) -> Metric:
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return Metric(metric, statistics.median(ratios), goal, min(ratios), max(ratios), peer)


# L5: somebody holds an old snapshot, and vacuum can take nothing away.


def held(dsn: str, size: Size) -> Iterator[Metric]:
    _fill(dsn, "pending", size.held + 1_000)
    pool = Pool(dsn)
    clean = _claim_p50(pool)
    with psycopg.connect(dsn) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select count(*) from memsvc.jobs")
        _work_off(pool, size.held)
        after = _claim_p50(pool)
    pool.close()
    yield Metric("ms of a claim, clean", clean, None)
    yield Metric(f"L5 the same after {size.held} jobs under a held snapshot", after / clean, 1.5)


def _claim_p50(pool: Pool, *, samples: int = 300) -> float:
    took = []
    for _ in range(samples):
        with pool.transaction(OWNER) as conn:
            began = time.perf_counter()
            jobs.claim(conn, [KIND], worker_id="w", lease_for=LEASE_FOR)
            took.append(1000 * (time.perf_counter() - began))
            raise psycopg.Rollback
    return statistics.median(took)


def _work_off(pool: Pool, count: int) -> None:
    left = count
    while left > 0:
        with pool.transaction(OWNER) as conn:
            leases = jobs.claim(conn, [KIND], worker_id="w", lease_for=LEASE_FOR, limit=BATCH)
        if not leases:
            return
        with pool.transaction(OWNER) as conn:
            jobs.complete(conn, *leases)
        left -= len(leases)


# L6: the same jobs again and again: enqueue, claim, complete are three transitions.


def bloat(dsn: str, size: Size) -> Iterator[Metric]:
    pool = Pool(dsn)
    keys = [(JobKey(LOCAL_SOURCE, KIND, f"{number:07}"), None) for number in range(size.recycled)]
    _cycle(pool, keys)
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("vacuum analyze memsvc.jobs")
    before, rates = _bytes(dsn), list[float]()
    for _ in range(max(2, size.transitions // (3 * size.recycled))):
        began = time.perf_counter()
        _cycle(pool, keys)
        rates.append(size.recycled / (time.perf_counter() - began))
    pool.close()
    yield Metric("jobs/s enqueue, claim, complete", statistics.median(rates), None, min(rates), max(rates))
    yield Metric("L6 size after / before", _bytes(dsn) / before, 2.0)
    yield Metric("L6 throughput last / first", statistics.mean(rates[-2:]) / statistics.mean(rates[:2]), 0.95)


def _cycle(pool: Pool, keys: list[tuple[JobKey, None]]) -> None:
    for start in range(0, len(keys), 1_000):
        with pool.transaction(OWNER) as conn:
            jobs.enqueue(conn, keys[start : start + 1_000])
    _work_off(pool, len(keys))


def _bytes(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        ((found,),) = conn.execute("select pg_total_relation_size('memsvc.jobs')").fetchall()
    return int(found)


if __name__ == "__main__":
    main()
