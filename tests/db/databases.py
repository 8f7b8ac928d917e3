"""Databases and logins of a test's own, beside the migrated ones that every test gets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import LiteralString
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from memsvc.db.pool import Pool

PASSWORD = "p@ss/w:rd"

MakeLogin = Callable[..., str]


@contextmanager
def new_database(
    server: str, *, name: str | None = None, owner: str | None = None, options: LiteralString = ""
) -> Iterator[str]:
    """A database without anything of ours, for as long as it is needed."""
    name = name or f"memsvc_empty_{uuid4().hex}"
    database = sql.Identifier(name)
    belonging = sql.SQL("owner {}").format(sql.Identifier(owner)) if owner else sql.SQL("")
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {} {} {}").format(database, belonging, sql.SQL(options)))
        try:
            yield make_conninfo(server, dbname=name)
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(database))


def create_login(server: str, attributes: LiteralString = "", *, name: str | None = None) -> str:
    """A login that is nothing but what the attributes say; its name comes back."""
    name = name or f"memsvc_login_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as admin:
        made = sql.SQL("create role {} login password {} {}")
        admin.execute(made.format(sql.Identifier(name), sql.Literal(PASSWORD), sql.SQL(attributes)))
    return name


@contextmanager
def logins(server: str) -> Iterator[MakeLogin]:
    """Makes logins, and drops them at the end: the databases where they got something must be gone by then."""
    made: list[str] = []

    def make(attributes: LiteralString = "", *, name: str | None = None) -> str:
        made.append(create_login(server, attributes, name=name))
        return made[-1]

    yield make
    with psycopg.connect(server, autocommit=True) as admin:
        for name in made:
            admin.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
            admin.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def as_login(conninfo: str, login: str) -> str:
    """The same database for another login."""
    return make_conninfo(conninfo, user=login, password=PASSWORD)


@contextmanager
def opened(conninfo: str) -> Iterator[Pool]:
    """A pool that is closed at the end."""
    pool = Pool(conninfo)
    try:
        yield pool
    finally:
        pool.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another process or thread is about to do."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
