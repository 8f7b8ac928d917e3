"""The embedded server: started once, left running, found again, and really gone when it is stopped."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from memsvc.db import binaries, embedded, socket_folder, unprivileged
from memsvc.errors import DatabaseUnavailable, WrongMajorVersion
from memsvc.settings import Settings
from tests.conftest import embedded_in

NOBODY = 65534
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
ROOT_INSIDE = ("unshare", "--user", "--map-root-user")
CALL = """
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from memsvc.db import embedded
from memsvc.errors import MemsvcError
from memsvc.settings import load
try:
    print(getattr(embedded, sys.argv[1])(replace(load(), data_dir=Path(sys.argv[2]))))
except MemsvcError as exc:
    sys.exit(f"{exc.code}: {exc}; {exc.mend}")
"""

# Only the user changes, not the program: the interpreter may lie where nobody else may look.
AS_NOBODY = """
import os, sys
from dataclasses import replace
from pathlib import Path
from typing import Any
import psycopg
from memsvc.db import binaries, embedded
from memsvc.settings import load
settings = replace(load(), data_dir=Path(sys.argv[1]) / "data")
server = binaries.bin_dir(settings) / "postgres"
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
if not os.access(server, os.X_OK):
    sys.exit(77)
try:
    url = embedded.start(settings)
    assert embedded.start(settings) == url
    with psycopg.connect(url) as conn:
        conn.execute("create table kept as select 42 as answer")
    os.kill(embedded.status(settings).pid, 9)
    with psycopg.connect(embedded.start(settings)) as conn:
        print(conn.execute("select answer from kept").fetchone(), os.stat(settings.data_dir / "postgres").st_uid)
finally:
    print(embedded.stop(settings))
"""


@contextmanager
def passable_folder(prefix: str = "memsvc-test-") -> Iterator[Path]:
    """A folder that every user can pass through: pytest's own are closed to whom root may start the server as."""
    with tempfile.TemporaryDirectory(prefix=prefix, dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with passable_folder() as folder:
        yield folder


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Settings]:
    """Settings whose data folder does not exist yet."""
    settings = embedded_in(tmp_path / "data")
    yield settings
    _end(settings)


@pytest.fixture
def closed_to_nobody_else() -> Iterator[Path]:
    """A folder that the user nobody owns and can reach: pytest's own folders are closed to other users."""
    folder = Path("/tmp") / f"memsvc-test-{os.getpid()}"
    folder.mkdir(0o700)
    try:
        os.chown(folder, NOBODY, NOBODY)
        yield folder
        assert not _processes(embedded_in(folder / "data"))
    finally:
        _kill_all(embedded_in(folder / "data"))
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def made() -> Iterator[Path]:
    """A data folder to copy: its server is stopped and holds one row."""
    with passable_folder() as folder:
        settings = embedded_in(folder / "data")
        try:
            with psycopg.connect(embedded.start(settings)) as conn:
                conn.execute("create table kept as select 42 as answer")
        finally:
            _end(settings)
        yield settings.data_dir


@pytest.fixture
def settings(made: Path, fresh: Settings) -> Settings:
    """Settings of a stopped server that holds one row."""
    _copy(made, fresh.data_dir)
    return fresh


def test_first_start_makes_the_database_and_the_second_finds_it(fresh: Settings) -> None:
    assert embedded.status(fresh).version is None
    first = embedded.start(fresh)
    assert embedded.start(fresh) == first
    now = embedded.status(fresh)
    assert (now.running, now.url, now.folder) == (True, first, fresh.data_dir / "postgres")
    assert now.version is not None
    assert now.version.startswith(str(binaries.major_version(binaries.bin_dir(fresh))))
    with psycopg.connect(first) as conn:
        assert (conn.info.dbname, conn.info.encoding) == ("memsvc", "utf-8")
        conn.execute("create extension vector")


def test_settings_of_the_server(settings: Settings) -> None:
    wanted = {
        "listen_addresses": "",
        "unix_socket_permissions": "0700",
        "autovacuum_naptime": "5s",
        "shared_buffers": "128MB",
        "max_connections": "100",
        "fsync": "on",
        "jit": "off",
        "TimeZone": "UTC",
        "max_wal_size": "1GB",
        "server_encoding": "UTF8",
    }
    with psycopg.connect(embedded.start(settings)) as conn:
        query = "select name, current_setting(name) from pg_settings where name = any(%s)"
        assert dict(conn.execute(query, [list(wanted)]).fetchall()) == wanted
        assert conn.execute("select lower('ÄÉЖ')").fetchone() == ("äéж",)


def test_second_start_is_fast(settings: Settings) -> None:
    embedded.start(settings)
    took = []
    for _ in range(10):
        begun = time.perf_counter()
        embedded.start(settings)
        took.append(time.perf_counter() - begun)
    assert min(took) < 0.05


def test_ten_processes_start_one_server(fresh: Settings) -> None:
    starters = [_popen("start", fresh) for _ in range(10)]
    answers = [starter.communicate(timeout=120) for starter in starters]
    assert [starter.returncode for starter in starters] == [0] * 10, answers
    assert len({url for url, _ in answers}) == 1
    parents = {_parent(pid) for pid in _processes(fresh)}
    assert len(parents & set(_processes(fresh))) == 1


def test_killed_server_starts_again_at_once_with_its_rows(settings: Settings) -> None:
    with psycopg.connect(embedded.start(settings), autocommit=True) as conn:
        conn.execute("create table written as select 7 as answer")
        _kill(settings)
        assert _answer(embedded.start(settings), "written") == 7
        with pytest.raises(psycopg.OperationalError):
            conn.execute("select 1")


def test_start_waits_for_the_orphans_of_a_killed_server(settings: Settings) -> None:
    embedded.start(settings)
    postmaster = _pid(settings)
    orphan = next(pid for pid in _processes(settings) if pid != postmaster)
    os.kill(orphan, signal.SIGSTOP)
    _kill(settings)
    starter = _popen("start", settings)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            starter.wait(1.5)
    finally:
        os.kill(orphan, signal.SIGCONT)
    url, errors = starter.communicate(timeout=60)
    assert starter.returncode == 0, errors
    assert _answer(url.strip()) == 42


def test_stop_after_a_kill_has_nothing_to_stop(settings: Settings) -> None:
    embedded.start(settings)
    _kill(settings)
    _until(lambda: not _processes(settings))
    assert embedded.stop(settings) is False
    assert embedded.status(settings).running is False
    assert _answer(embedded.start(settings)) == 42


def test_stale_pid_file_is_no_server(settings: Settings) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    _claim_to_run(settings, gone.pid)
    assert embedded.status(settings).running is False
    assert _answer(embedded.start(settings)) == 42


def test_pid_of_a_foreign_process_is_no_server(settings: Settings) -> None:
    with subprocess.Popen(["sleep", "600"]) as foreign:
        try:
            _claim_to_run(settings, foreign.pid)
            assert embedded.status(settings).running is False
            assert embedded.stop(settings) is False
            assert _answer(embedded.start(settings)) == 42
            assert foreign.poll() is None
        finally:
            foreign.kill()


def test_zombie_is_no_server(settings: Settings) -> None:
    with subprocess.Popen(["true"]) as zombie:  # waited for at the end only
        _until(lambda: b") Z " in Path(f"/proc/{zombie.pid}/stat").read_bytes())
        _claim_to_run(settings, zombie.pid)
        assert embedded.status(settings).running is False
        assert embedded.stop(settings) is False
        assert _answer(embedded.start(settings)) == 42


def test_cut_pid_file_is_no_server(settings: Settings) -> None:
    for content in ("", "not a number\n", "12\n"):
        (_data(settings) / "postmaster.pid").write_text(content)
        assert _answer(embedded.start(settings)) == 42
        assert embedded.stop(settings) is True


def test_copied_folder_gets_a_server_of_its_own(settings: Settings, tmp_path: Path) -> None:
    original = embedded.start(settings)
    copied = embedded_in(tmp_path / "copied")
    _copy(settings.data_dir, copied.data_dir)
    shutil.rmtree(copied.data_dir / "postgres" / "run")
    try:
        assert embedded.status(copied).running is False
        assert embedded.start(copied) != original
        assert embedded.stop(copied) is True
        assert embedded.status(settings).running is True
    finally:
        _end(copied)


def test_moved_folder_is_served_where_it_is_now(settings: Settings, tmp_path: Path) -> None:
    embedded.start(settings)
    moved = embedded_in(settings.data_dir.rename(tmp_path / "moved"))
    try:
        assert _answer(embedded.start(moved)) == 42
    finally:
        _end(moved)


def test_removed_socket_comes_back(settings: Settings) -> None:
    embedded.start(settings)
    shutil.rmtree(settings.data_dir / "postgres" / "run")
    assert _answer(embedded.start(settings)) == 42


def test_dropped_database_is_made_again(settings: Settings) -> None:
    url = embedded.start(settings)
    with psycopg.connect(url.replace("/memsvc?", "/postgres?"), autocommit=True) as conn:
        conn.execute("drop database memsvc with (force)")
    with psycopg.connect(embedded.start(settings)) as conn:
        assert conn.info.dbname == "memsvc"


def test_long_path_gets_a_short_socket_that_everybody_finds(made: Path, tmp_path: Path) -> None:
    settings = embedded_in(tmp_path / ("long" * 20) / "a, b % c")
    settings.data_dir.parent.mkdir()
    _copy(made, settings.data_dir)
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    try:
        url = embedded.start(settings)
        sockets = _sockets(settings)
        assert _answer(url) == 42
        assert settings.data_dir not in sockets.parents
        assert _is_closed_to_others(sockets)
        assert _run("start", settings, XDG_RUNTIME_DIR=str(runtime)) == url
        assert embedded.stop(settings) is True
        assert not sockets.exists()
    finally:
        _end(settings)


def test_folder_name_with_quotes_and_spaces(made: Path) -> None:
    with passable_folder('it\'s "ä" %41 ') as short:
        settings = embedded_in(short / "data")
        _copy(made, settings.data_dir)
        try:
            assert _answer(embedded.start(settings)) == 42
            assert settings.data_dir in _sockets(settings).parents
        finally:
            _end(settings)


def test_link_in_the_place_of_the_socket_folder_is_refused(settings: Settings, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o755)
    (settings.data_dir / "postgres" / "run").symlink_to(elsewhere)
    with pytest.raises(DatabaseUnavailable, match="run is not a folder of the user"):
        embedded.start(settings)
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755


@ONLY_ROOT
def test_socket_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(0o700)
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(DatabaseUnavailable, match="is not a folder of the user"):
        socket_folder.make(folder, unprivileged.ours())


@ONLY_ROOT
def test_data_of_another_user_is_refused(settings: Settings) -> None:
    folder = settings.data_dir / "postgres"
    os.chown(folder, NOBODY, NOBODY)
    before = _listing(folder)
    with pytest.raises(DatabaseUnavailable, match=f"belongs to the user with uid {NOBODY}"):
        embedded.start(settings)
    assert _listing(folder) == before
    os.chown(folder, 0, 0)


def test_other_major_version_is_refused_and_nothing_touched(settings: Settings) -> None:
    (_data(settings) / "PG_VERSION").write_text("13\n")
    before = _listing(settings.data_dir)
    with pytest.raises(WrongMajorVersion, match=r"PostgreSQL 13.*are \d\d") as refused:
        embedded.start(settings)
    assert _listing(settings.data_dir) == before
    assert "memsvc backup" in (refused.value.mend or "")


def test_folder_with_something_else_is_refused(fresh: Settings) -> None:
    _data(fresh).mkdir(parents=True)
    (_data(fresh) / "letter.txt").write_text("dear")
    with pytest.raises(DatabaseUnavailable, match="holds something that is no database"):
        embedded.start(fresh)
    assert (_data(fresh) / "letter.txt").read_text() == "dear"


def test_server_stays_when_its_starter_ends(settings: Settings) -> None:
    url = _run("start", settings)  # hangs here if the server held the pipes
    assert _answer(url) == 42
    assert os.getsid(_pid(settings)) not in (os.getsid(0), os.getpid())
    assert _parent(_pid(settings)) != os.getpid()


def test_permissions_outside_stay_as_they_are(fresh: Settings, tmp_path: Path) -> None:
    fresh.data_dir.mkdir()
    fresh.data_dir.chmod(0o751)
    tmp_path.chmod(0o715)
    above = [fresh.data_dir, *fresh.data_dir.parents, Path.home(), Path(binaries.bin_dir(fresh))]
    before = [_owner_and_mode(path) for path in above]
    embedded.start(fresh)
    embedded.stop(fresh)
    assert [_owner_and_mode(path) for path in above] == before
    assert _is_closed_to_others(fresh.data_dir / "postgres")


@pytest.mark.parametrize("victim", ["starter", "initdb"])
def test_killed_initdb_leaves_a_folder_that_starts(fresh: Settings, victim: str) -> None:
    unfinished = fresh.data_dir / "postgres" / "data.unfinished"
    starter = _popen("start", fresh)
    _until((unfinished / "postgresql.conf").exists)
    if victim == "initdb":
        for pid in _with_word(str(unfinished)):
            os.kill(pid, signal.SIGKILL)
    starter.kill()
    starter.communicate()
    assert not (_data(fresh) / "PG_VERSION").exists()
    with psycopg.connect(embedded.start(fresh)) as conn:
        assert conn.info.dbname == "memsvc"
    assert not unfinished.exists()


def test_stop_ends_every_process_and_session(settings: Settings) -> None:
    with closing(psycopg.connect(embedded.start(settings))) as conn:
        conn.execute("select 1")  # leaves the session inside a transaction
        assert _processes(settings)
        assert embedded.stop(settings) is True
        assert not _processes(settings)
        with pytest.raises(psycopg.OperationalError):
            conn.execute("select 1")
    assert embedded.stop(settings) is False
    assert not (_data(settings) / "postmaster.pid").exists()


def test_stop_without_a_folder_makes_none(fresh: Settings) -> None:
    assert embedded.stop(fresh) is False
    assert embedded.status(fresh).running is False
    assert not fresh.data_dir.exists()


def test_server_started_by_hand_is_used_and_stopped(settings: Settings) -> None:
    embedded.start(settings)
    command = Path(f"/proc/{_pid(settings)}/cmdline").read_text().split("\0")[:-1]
    embedded.stop(settings)
    identity = unprivileged.identity(_data(settings))
    socket_folder.make(settings.data_dir / "postgres" / "run", identity)
    lent: dict[str, Any] = {"user": identity.uid, "group": identity.gid} if identity.is_another else {}
    with subprocess.Popen([*identity.prefix, *command], stderr=subprocess.DEVNULL, **lent) as by_hand:
        _until(lambda: embedded.status(settings).running)
        embedded.start(settings)
        assert _pid(settings) == by_hand.pid
        assert embedded.stop(settings) is True
        assert by_hand.wait(10) == 0


def test_failed_start_shows_the_end_of_the_log(settings: Settings) -> None:
    with (_data(settings) / "postgresql.conf").open("a") as configuration:
        configuration.write("no_such_parameter = 1\n")
    with pytest.raises(DatabaseUnavailable, match="no_such_parameter") as failed:
        embedded.start(settings)
    assert str(settings.data_dir) in str(failed.value)


def test_long_log_is_cut_while_the_server_writes_on(settings: Settings) -> None:
    embedded.start(settings)
    log = embedded.status(settings).log
    with log.open("ab") as file:
        file.write(b"x" * 6_000_000)
    embedded.start(settings)
    embedded.stop(settings)
    assert log.stat().st_size < 200_000
    assert b"database system is shut down" in log.read_bytes()


def test_statement_that_fails_stays_out_of_the_log(settings: Settings) -> None:
    with psycopg.connect(embedded.start(settings), autocommit=True) as conn:
        conn.execute("create table memories (text text check (length(text) < 5))")
        with pytest.raises(psycopg.errors.CheckViolation):
            conn.execute("insert into memories values ('a secret')")
    log = embedded.status(settings).log.read_text()
    assert "violates check constraint" in log
    assert "secret" not in log


@pytest.mark.parametrize(("options", "reason"), [("ro", "Read-only file system"), ("size=6m", "No space left")])
def test_disk_that_cannot_be_written_is_named(tmp_path: Path, options: str, reason: str) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    script = 'mount -t tmpfs -o "$1" tmpfs "$2" && shift 2 && exec "$@"'
    done = _inside(["--mount"], ["sh", "-c", script, "sh", options, mount], "start", mount)
    assert done.returncode == 1
    assert done.stderr.startswith("database-unavailable: ")
    assert str(mount) in done.stderr
    assert reason in done.stderr
    assert "MEMSVC_DATA_DIR" in done.stderr


def test_disk_that_filled_up_is_named(made: Path, tmp_path: Path) -> None:
    script = (
        'mount -t tmpfs -o size=120m tmpfs "$1" && cp -R "$2" "$1/data" && head -c 120m /dev/zero 2>&- >"$1/full"; '
    )
    script += 'shift 2 && exec "$@"'
    done = _inside(["--mount"], ["sh", "-c", script, "sh", tmp_path, made], "start", tmp_path / "data")
    assert done.returncode == 1
    assert done.stderr.startswith("database-unavailable: PostgreSQL ended while it was starting")
    assert f"in {tmp_path}/data/postgres, where no room is left" in done.stderr


def test_root_without_user_namespaces_is_told_what_to_do(tmp_path: Path) -> None:
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    done = _inside([], ["sh", "-c", script, "sh"], "start", tmp_path / "data")
    assert done.returncode == 1
    assert "database-unavailable: PostgreSQL does not run as root" in done.stderr
    assert "MEMSVC_DATABASE_URL" in done.stderr


def test_server_is_shared_with_a_process_in_other_namespaces(settings: Settings) -> None:
    started_inside = _inside(["--net"], [], "start", settings.data_dir)
    assert started_inside.returncode == 0, started_inside.stderr
    assert embedded.start(settings) == started_inside.stdout.strip()
    assert embedded.stop(settings) is True
    url = embedded.start(settings)
    assert _inside(["--net"], [], "start", settings.data_dir).stdout.strip() == url
    assert _inside(["--net"], [], "stop", settings.data_dir).stdout == "True\n"
    assert not _processes(settings)


def test_server_is_used_but_not_stopped_where_its_pid_is_not_seen(settings: Settings) -> None:
    url = embedded.start(settings)
    sandbox = ["--pid", "--fork", "--mount-proc"]
    assert _inside(sandbox, [], "start", settings.data_dir).stdout.strip() == url
    refused = _inside(sandbox, [], "stop", settings.data_dir)
    assert "another container or sandbox" in refused.stderr
    assert embedded.status(settings).running is True


@ONLY_ROOT
def test_ordinary_user_needs_no_namespace(closed_to_nobody_else: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, closed_to_nobody_else], capture_output=True, text=True, check=False
    )
    if done.returncode == 77:
        pytest.skip("the programs of PostgreSQL lie where an ordinary user may not look")
    assert done.stdout == f"(42,) {NOBODY}\nTrue\n", done.stderr


def _popen(verb: str, settings: Settings, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CALL, verb, settings.data_dir],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environ,
    )


def _run(verb: str, settings: Settings, **environ: str) -> str:
    process = _popen(verb, settings, **environ)
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return printed.strip()


def _inside(
    options: list[str], command: list[str | Path], verb: str, data_dir: Path
) -> subprocess.CompletedProcess[str]:
    if subprocess.run([*ROOT_INSIDE, *options, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespace can be made here")
    return subprocess.run(
        [*ROOT_INSIDE, *options, *command, sys.executable, "-c", CALL, verb, data_dir],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", source, target], check=True)


def _data(settings: Settings) -> Path:
    return settings.data_dir / "postgres" / "data"


def _pid(settings: Settings) -> int:
    return int((_data(settings) / "postmaster.pid").read_text().split("\n")[0])


def _sockets(settings: Settings) -> Path:
    return Path((_data(settings) / "postmaster.pid").read_text().split("\n")[4])


def _claim_to_run(settings: Settings, pid: int) -> None:
    """Leave the files of a server that was killed and whose pid means something else by now."""
    sockets = settings.data_dir / "postgres" / "run"
    sockets.mkdir(0o700)
    lines = [pid, _data(settings), int(time.time()), 5432, sockets, "", "  1234567     99", "ready   ", ""]
    (_data(settings) / "postmaster.pid").write_text("\n".join(map(str, lines)))
    (sockets / ".s.PGSQL.5432.lock").write_text("\n".join(map(str, lines[:5])))


def _kill(settings: Settings) -> None:
    os.kill(_pid(settings), signal.SIGKILL)


def _answer(url: str, table: str = "kept") -> int:
    with psycopg.connect(url) as conn:
        ((answer,),) = conn.execute(SQL("select answer from {}").format(Identifier(table)))
    assert isinstance(answer, int)
    return answer


def _processes(settings: Settings) -> list[int]:
    """The living processes of the server: all of them work inside its data folder."""
    return [pid for pid in _pids() if _link(pid, "cwd") == str(_data(settings))]


def _with_word(word: str) -> list[int]:
    return [pid for pid in _pids() if word.encode() in _words(pid)]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _link(pid: int, name: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/{name}").readlink())
    except OSError:
        return ""


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _listing(folder: Path) -> dict[Path, tuple[int, int, int, int]]:
    found = {}
    for path in (folder, *folder.rglob("*")):
        state = path.lstat()
        found[path] = (state.st_mode, state.st_uid, state.st_size, state.st_mtime_ns)
    return found


def _is_closed_to_others(folder: Path) -> bool:
    """Only its owner may enter, or the group that root lends to the server and nobody else has."""
    state = folder.stat()
    mode = stat.S_IMODE(state.st_mode)
    return state.st_uid == os.geteuid() and (mode == 0o700 or (state.st_gid == unprivileged.GROUP and mode & 7 == 0))


def _owner_and_mode(path: Path) -> tuple[int, int, int]:
    state = path.stat()
    return state.st_uid, state.st_gid, state.st_mode


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _end(settings: Settings) -> None:
    """Stop the server; kill what does not stop, and say so."""
    try:
        embedded.stop(settings)
    finally:
        left = _kill_all(settings)
    assert not left


def _kill_all(settings: Settings) -> list[int]:
    left = _processes(settings)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left
