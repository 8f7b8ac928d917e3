"""Every query is prepared against the migrated schema, and every query is used."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import psycopg
import pytest

import memsvc
from memsvc.db import queries
from memsvc.db.pool import Conn

ROOT = Path(str(memsvc.__file__)).parent
MODULES = sorted(
    path.with_suffix(".py")
    for path in ROOT.rglob("*.sql")
    if path.name != "shim.sql" and "_migrations" not in path.parts
)
CASES = [(path, name) for path in MODULES for name in queries.load(str(path))]
PARAMETER = re.compile(r"%\((\w+)\)s")


def numbered(query: str) -> str:
    """The query with $1, $2, ... for psycopg's named parameters, as it reaches the server."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return PARAMETER.sub(number, query.replace("%%", "%").replace("{limit}", "1")).rstrip(";")


@pytest.mark.parametrize(("path", "name"), CASES, ids=[f"{p.stem}:{n}" for p, n in CASES])
def test_query_fits_the_schema(conn: Conn, path: Path, name: str) -> None:
    query = numbered(queries.load(str(path))[name])

    try:
        conn.execute(f"prepare checked as {query}".encode())
    except psycopg.errors.InsufficientPrivilege:  # pragma: no cover - says which grant is missing
        pytest.fail(f"memsvc_service may not run {name} of {path.stem}.sql")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_query_is_used_and_every_used_query_exists(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    subscripts = {
        node.slice.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "SQL"
        and isinstance(node.slice, ast.Constant)
    }
    known = set(queries.load(str(path)))

    assert subscripts <= known
    assert known <= words, "a query that nothing names is dead"


def test_two_queries_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "twice.sql").write_text("-- name: a\nselect 1;\n-- name: a\nselect 2;\n")

    with pytest.raises(ValueError, match="stands twice"):
        queries.load(str(tmp_path / "twice.py"))


def test_no_sql_in_python() -> None:
    words = r"\b(select\b.+\bfrom|insert\s+into|update|delete\s+from)\s+memsvc\."
    statement = re.compile(words, re.IGNORECASE | re.DOTALL)
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not statement.search(node.value), f"{path}:{node.lineno}"
