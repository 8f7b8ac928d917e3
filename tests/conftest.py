"""
A real Postgres for every test that needs one.

MEMSVC_TEST_DATABASE_URL points at a server (a login that may create databases); without it testcontainers starts one
where a container engine answers and has the image; else it is memsvc's own embedded server. The report's header says
which. MEMSVC_TEST_POSTGRES_BIN names the bin folder of the PostgreSQL that every embedded server of the run is made of.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from memsvc.db import embedded, migrate
from memsvc.db.pool import Conn, Pool
from memsvc.model.principal import OWNER
from memsvc.service.app import App
from memsvc.settings import Settings, load

GIVEN = os.environ.get("MEMSVC_TEST_DATABASE_URL")
IMAGE = "pgvector/pgvector:pg18"
TEMPLATE = f"memsvc_template_{os.getpid()}"

# What a developer has set for daily use must not reach the tests.
for name in [name for name in os.environ if name.startswith("MEMSVC_") and not name.startswith("MEMSVC_TEST_")]:
    del os.environ[name]
if os.environ.get("MEMSVC_TEST_POSTGRES_BIN"):
    os.environ["MEMSVC_POSTGRES_BIN"] = os.environ["MEMSVC_TEST_POSTGRES_BIN"]


def has_image() -> bool:
    """Does a container engine answer that has the image already? Nothing is pulled for a test run."""
    if not os.environ.get("DOCKER_HOST") and not Path("/var/run/docker.sock").exists():
        return False
    try:
        import docker

        client = docker.from_env(timeout=5)
        try:
            return bool(client.images.list(IMAGE))
        finally:
            client.close()
    except Exception:  # whatever an absent engine raises, it means no
        return False


def kind_of_server() -> str:
    if GIVEN:
        return "given"
    if os.environ.get("MEMSVC_POSTGRES_BIN"):
        return "embedded"
    return "container" if has_image() else "embedded"


KIND = kind_of_server()


def pytest_report_header() -> str:
    return f"database: {KIND} (MEMSVC_TEST_DATABASE_URL chooses another)"


def embedded_in(folder: Path) -> Settings:
    """Settings of an embedded server, made of the PostgreSQL that this run is about."""
    return replace(load(), data_dir=folder)


@contextmanager
def running_container() -> Iterator[str]:
    from testcontainers.community.postgres import PostgresContainer

    with PostgresContainer(IMAGE, driver=None) as container:
        yield container.get_connection_url()


@contextmanager
def running_embedded(folder: Path) -> Iterator[str]:
    settings = embedded_in(folder)
    try:
        yield embedded.start(settings)
    finally:
        embedded.stop(settings)
        shutil.rmtree((folder / "postgres").resolve())  # it may lie where nobody else cleans up


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A connection string to a server, with a login that may create databases."""
    if GIVEN:
        yield GIVEN
    elif KIND == "container":
        with running_container() as url:
            yield url
    else:
        with running_embedded(tmp_path_factory.mktemp("server")) as url:
            yield url


@pytest.fixture(scope="session")
def template(server: str) -> Iterator[str]:
    """The name of a migrated database to copy."""
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(TEMPLATE)))
        with migrate.connect(make_conninfo(server, dbname=TEMPLATE)) as conn:
            migrate.migrate(conn)
        yield TEMPLATE
        admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(TEMPLATE)))


@contextmanager
def copied(server: str, template: str) -> Iterator[str]:
    name = f"memsvc_test_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(
            sql.SQL("create database {} template {} strategy wal_log").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        try:
            yield make_conninfo(server, dbname=name)
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def dsn(server: str, template: str) -> Iterator[str]:
    """A migrated database of the test's own."""
    with copied(server, template) as conninfo:
        yield conninfo


@pytest.fixture(scope="session")
def shared_dsn(server: str, template: str) -> Iterator[str]:
    """A migrated database that no test commits to."""
    with copied(server, template) as conninfo:
        yield conninfo


@pytest.fixture
def conn(shared_dsn: str) -> Iterator[Conn]:
    """A transaction as the service would open it for the owner; it is rolled back."""
    pool = Pool(shared_dsn)
    try:
        with pool.transaction(OWNER) as connection:
            yield connection
            raise psycopg.Rollback
    finally:
        pool.close()


@pytest.fixture
def pool(dsn: str) -> Iterator[Pool]:
    """Connections to a migrated database of the test's own."""
    opened = Pool(dsn)
    yield opened
    opened.close()


@pytest.fixture
def app(dsn: str, tmp_path: Path) -> Iterator[App]:
    """The service on a database of the test's own, with the model that is for tests."""
    with App(Settings(data_dir=tmp_path, database_url=dsn, embedder="hash:64"), host="here") as opened:
        yield opened
