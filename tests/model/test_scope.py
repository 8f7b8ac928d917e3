"""What names a project: the same for every way to write it, never a pattern."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsvc.model.principal import GLOBAL_SCOPE
from memsvc.model.scope import Alias, Scope, identity, normalised_folder, normalised_origin


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/Fruit/Orchard-API.git",
        "https://github.com/fruit/orchard-api",
        "https://ada:secret@github.com/fruit/orchard-api.git/",
        "https://github.com:443/fruit/orchard-api",
        "ssh://git@github.com/fruit/orchard-api.git",
        "ssh://git@github.com:22/fruit/orchard-api.git",
        "git@github.com:fruit/orchard-api.git",
        "github.com:fruit/orchard-api",
        "GIT@GITHUB.COM:FRUIT/ORCHARD-API.GIT".lower(),
        "git+ssh://git@github.com/fruit/orchard-api",
    ],
)
def test_one_repository_has_one_name(url: str) -> None:
    assert normalised_origin(url) == "github.com/fruit/orchard-api"


@pytest.mark.parametrize(
    "url", ["", "/srv/git/x.git", "C:\\work\\x", "c:/work/x", "file:///srv/git/x", "../x", "https://"]
)
def test_what_names_no_host_is_no_origin(url: str) -> None:
    assert normalised_origin(url) is None


@given(st.text())
def test_any_text_is_an_origin_or_not(url: str) -> None:
    found = normalised_origin(url)

    assert found is None or (found == found.lower() and "/" in found)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/src/orchard/", "/src/orchard"),
        ("/src/Orchard", "/src/Orchard"),
        ("C:\\Users\\Ada\\Orchard\\", "c:\\users\\ada\\orchard"),
        ("c:/Users/Ada/Orchard", "c:\\users\\ada\\orchard"),
        ("\\\\server\\share\\Orchard", "\\\\server\\share\\orchard"),
        ("/", "/"),
    ],
)
def test_folders_are_normalised_as_their_system_sees_them(given: str, expected: str) -> None:
    assert normalised_folder(given) == expected


def test_the_origin_is_the_strongest_mark_and_the_same_on_every_host() -> None:
    known = identity(host="here", git_origin="git@github.com:a/b.git", root="/src/b", cwd="/src/b/sub")

    assert known.aliases == (
        Alias("git_origin", "", "github.com/a/b"),
        Alias("root", "here", "/src/b"),
        Alias("cwd", "here", "/src/b/sub"),
    )
    assert known.name == "github.com/a/b"


def test_nothing_known_has_no_name() -> None:
    assert identity(host="here").name is None


def test_scopes_are_written_with_their_kind() -> None:
    assert str(Scope(GLOBAL_SCOPE, "global", "global")) == "global"
    assert str(Scope(GLOBAL_SCOPE, "project", "a/b")) == "project:a/b"
