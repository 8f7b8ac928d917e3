"""
How fast an import is, next to what bounds it: Postgres taking in the same bytes, SQLite reading them, the model alone.

I1: session outputs that are new (read, kept, written) / a logged COPY of the same rows into an equal indexed table.
I2: a whole import again, unchanged / reading its outputs from SQLite and hashing them.
I3: embedding through the worker / the bare model over the same texts; and jobs of which work was lost on kill -9.
Beside them, without a goal: a whole first import, which derives memories, and the outputs again, row by row.

Rounds are interleaved: each measures everything once, on rows of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg

from memsvc import importer
from memsvc.db import embedded
from memsvc.memory import outputs, scopes, sources
from memsvc.model.export import Identity, OutputRow
from memsvc.model.scope import ProjectIdentity
from memsvc.pipeline.batches import batches
from memsvc.service import work
from memsvc.service.app import App
from memsvc.service.imports import ImportRequest, run_import
from memsvc.settings import Settings

if TYPE_CHECKING:
    from memsvc.embedding.embedder import Embedder, Vector

WORDS = """
orchard kiln ledger lease migration worker parser cursor index token retry branch commit schema fixture timeout
socket proxy cache queue render encode decode verify rollback replica shard snapshot the a of in with before after
when because must never always prefers wants asked failed passed again slowly quickly
"""
CHOICE = WORDS.split()
TABLE = """
create table stage1_outputs (
    thread_id TEXT PRIMARY KEY, source_updated_at INTEGER NOT NULL, raw_memory TEXT NOT NULL,
    rollout_summary TEXT NOT NULL, rollout_slug TEXT, generated_at INTEGER NOT NULL, usage_count INTEGER,
    last_usage INTEGER, selected_for_phase2 INTEGER NOT NULL DEFAULT 0, selected_for_phase2_source_updated_at INTEGER)
"""
GOALS = {"I1": 0.5, "I2": 0.8, "I3": 0.9, "I3 lost": 1}
WAIT = 120  # seconds for a worker to show its first results


@dataclass
class Measured:
    """Seconds of each step, and values without a peer, round by round."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)

    def time(self, name: str, step: Callable[[], object]) -> None:
        begun = time.perf_counter()
        step()
        self.add(name, time.perf_counter() - begun)

    def ratio(self, ours: str, peer: str) -> list[float]:
        """How many times as fast as the peer, round by round."""
        pairs = zip(self.values.get(ours, ()), self.values.get(peer, ()), strict=True)
        return [theirs / mine for mine, theirs in pairs]


class Recording:
    """An embedder that remembers which texts it was given."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self.texts: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        self.texts += texts
        return self._inner.embed_passages(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0].strip())
    parser.add_argument("--rows", type=int, default=2000, help="session outputs a round (default 2000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--embed-rows", type=int, default=20, help="session outputs that are embedded (default 20)")
    parser.add_argument("--embedder", default="builtin")
    parser.add_argument("--quick", action="store_true", help="300 rows, one round, ends within a minute")
    parser.add_argument("--json", action="store_true", help="one object a metric")
    options = parser.parse_args()
    rows, rounds, embedded_rows = (300, 1, 4) if options.quick else (options.rows, options.rounds, options.embed_rows)
    measured = Measured()
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder), options.embedder) as app:
        for number in range(rounds):
            export = _export(Path(folder, f"{number}"), number, rows)
            _import_rounds(app, export, measured, f"round-{number}")
            _embedding(app, _export(Path(folder, f"embed-{number}"), 1000 + number, embedded_rows), measured)
        _killed(app, _export(Path(folder, "kill"), 9999, 8), measured)
    _report(measured, rows, as_json=options.json)


@contextmanager
def _server(folder: Path, embedder: str) -> Iterator[App]:
    settings = Settings(data_dir=folder / "data", embedder=embedder)
    try:
        with App(settings) as starting:
            assert starting.pool is not None
            url = starting.database_url
        # Named as a server of somebody's own, so that the worker of the last step finds it too.
        with App(Settings(data_dir=settings.data_dir, database_url=url, embedder=embedder)) as app:
            yield app
    finally:
        embedded.stop(settings)


def _export(folder: Path, seed: int, rows: int) -> Path:
    """A memories_1.sqlite of Codex's shape: front matter, task blocks, bullets; 3 to 8 kB a memory."""
    folder.mkdir()
    made = random.Random(seed)
    with closing(sqlite3.connect(folder / "memories_1.sqlite")) as conn:
        conn.execute(TABLE)
        for number in range(rows):
            values = (f"{seed}-{number}", 1_790_000_000 + number, _memory(made), _sentence(made, 150), 1_790_000_009)
            conn.execute(
                "insert into stage1_outputs (thread_id, source_updated_at, raw_memory, rollout_summary, generated_at)"
                " values (?, ?, ?, ?, ?)",
                values,
            )
        conn.commit()
    return folder


def _memory(made: random.Random) -> str:
    parts = [f"---\ndescription: {_sentence(made, 12)}\ntask: {_sentence(made, 5)}\ncwd: /src/bench\n---\n"]
    size, wanted = 0, made.randint(3000, 8000)
    while size < wanted:
        bullets = "".join(f"- {_sentence(made, made.randint(10, 30))}\n" for _ in range(6))
        parts.append(f"\n### Task: {_sentence(made, 6)}\n\nReusable knowledge:\n{bullets}")
        size += len(parts[-1])
    return "".join(parts)


def _sentence(made: random.Random, words: int) -> str:
    return " ".join(f"{made.choice(CHOICE)}{made.randint(0, 999) if made.random() < 0.1 else ''}" for _ in range(words))


def _import_rounds(app: App, export: Path, measured: Measured, label: str) -> None:
    source, scope = _source(app, label)
    measured.time("outputs first", lambda: _outputs(app, export, source, scope))
    with psycopg.connect(app.database_url, autocommit=True) as conn:
        copied = _copied(conn, source)
        measured.time("COPY", lambda: _copy(conn, copied))
        conn.execute("drop table public.equal")
    measured.add("bytes", sum(map(len, copied)))
    measured.time("outputs again", lambda: _outputs(app, export, source, scope))
    measured.time("SQLite", lambda: _read_and_hash(export))
    whole = ImportRequest("codex", export, source=f"{label}-whole")
    measured.time("import first", lambda: run_import(app, whole))
    measured.time("import again", lambda: run_import(app, whole))


def _source(app: App, label: str) -> tuple[UUID, UUID]:
    with app.pool.transaction(app.actor) as conn:
        none = Identity(frozenset(), None, None)
        source = sources.identify(conn, "codex", none, label=label, host=app.host, path=label)
        project = scopes.ensure_project(conn, ProjectIdentity(()), name="bench", alternative="bench")
        return source.id, project.id


def _outputs(app: App, export: Path, source: UUID, scope: UUID) -> None:
    """What an import does with outputs, batch by batch, but for deriving memories."""
    with importer.find("codex").open(export) as opened:
        for batch in batches(row for row in opened.rows() if isinstance(row, OutputRow)):
            rows = [row for row in batch if isinstance(row, OutputRow)]
            with app.pool.transaction(app.actor) as conn:
                outputs.upsert(conn, source, rows, scopes={row.thread_id: scope for row in rows}, from_newest=True)


def _copied(conn: psycopg.Connection[Any], source: UUID) -> list[bytes]:
    query = f"copy (select * from memsvc.stage1_outputs where source_id = '{source}') to stdout"
    conn.execute("create table public.equal (like memsvc.stage1_outputs including all)")
    with conn.cursor().copy(query.encode()) as copy:
        return [bytes(block) for block in copy]


def _copy(conn: psycopg.Connection[Any], blocks: Sequence[bytes]) -> None:
    with conn.cursor().copy("copy public.equal from stdin") as copy:
        for block in blocks:
            copy.write(block)


def _read_and_hash(export: Path) -> None:
    with closing(sqlite3.connect(export / "memories_1.sqlite")) as conn:
        for row in conn.execute("select * from stage1_outputs order by source_updated_at, generated_at, thread_id"):
            digest = hashlib.sha256()
            for value in row:
                digest.update(str(value).encode())
            digest.digest()


def _embedding(app: App, export: Path, measured: Measured) -> None:
    inner = app.embedder
    inner.embed_passages(["warm"])
    _put_off(app)
    run_import(app, ImportRequest("codex", export, source=export.name))
    recording = Recording(inner)
    app.__dict__["embedder"] = recording
    try:
        measured.time("worker", lambda: work.work(app, once=True, stop=Event()))
    finally:
        app.__dict__["embedder"] = inner
    measured.time("model", lambda: inner.embed_passages(recording.texts))
    measured.add("texts", len(recording.texts))


def _killed(app: App, export: Path, measured: Measured) -> None:
    """Kill a worker in the middle of its work; what it held is what it loses."""
    _put_off(app)
    run_import(app, ImportRequest("codex", export, source=export.name))
    environment = {**os.environ, "MEMSVC_DATABASE_URL": app.database_url, "MEMSVC_EMBEDDER": app.settings.embedder}
    command = [sys.executable, "-c", "from memsvc.faces.cli import main; main()", "worker", "--once"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + WAIT
        while _jobs(app, "done") < 1 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    if not _jobs(app, "done"):
        sys.exit(f"the worker that was to be killed had done nothing within {WAIT} seconds")
    measured.add("lost", _jobs(app, "running"))
    measured.add("left", _jobs(app, "pending"))


def _put_off(app: App) -> None:
    """What earlier steps brought in is not to be embedded now; without its job the worker would make it a new one."""
    with psycopg.connect(app.database_url, autocommit=True) as conn:
        conn.execute(
            "update memsvc.jobs set not_before = now() + interval '1 day' where store = 'memsvc' and status = 'pending'"
        )


def _jobs(app: App, status: str) -> int:
    """How many jobs of the export in whose midst the worker is killed have come to this."""
    with app.pool.transaction(app.actor) as conn:
        row = conn.execute(
            "select count(*) from memsvc.jobs where store = 'memsvc' and status = %s"
            " and source_id = (select id from memsvc.sources where label = 'kill')",
            [status],
        ).fetchone()
    return int(row[0]) if row else 0


def _report(measured: Measured, rows: int, *, as_json: bool) -> None:
    values = measured.values
    _line("I1 first import of outputs / COPY", measured.ratio("outputs first", "COPY"), GOALS["I1"], "COPY", as_json)
    _line("I2 import again / SQLite + sha256", measured.ratio("import again", "SQLite"), GOALS["I2"], "SQLite", as_json)
    _line("I3 worker / bare model", measured.ratio("worker", "model"), GOALS["I3"], "model", as_json)
    _line("I3 jobs lost on kill -9 (at most)", values["lost"], GOALS["I3 lost"], None, as_json)
    for name in ("outputs first", "COPY", "outputs again", "SQLite", "import first", "import again"):
        _line(f"rows/s: {name}", [rows / seconds for seconds in values[name]], None, None, as_json)
    for name in ("worker", "model"):
        rates = [texts / seconds for texts, seconds in zip(values["texts"], values[name], strict=True)]
        _line(f"texts/s: {name}", rates, None, None, as_json)
    _line("jobs left to do when killed", values["left"], None, None, as_json)


def _line(metric: str, found: Sequence[float], goal: float | None, peer: str | None, as_json: bool) -> None:
    value, low, high = (round(one, 3) for one in (statistics.median(found), min(found), max(found)))
    if as_json:
        print(json.dumps({"metric": metric, "value": value, "goal": goal, "low": low, "high": high, "peer": peer}))
    else:
        print(f"{metric:38} {value:10.2f}   ({low:.2f} to {high:.2f}){f'   goal {goal}' if goal is not None else ''}")


if __name__ == "__main__":
    main()
