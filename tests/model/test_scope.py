"""What names a project: the same for every way to write it, never a pattern."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsvc.model.principal import GLOBAL_SCOPE
from memsvc.model.scope import (
    LONGEST_NAME_BYTES,
    Alias,
    Scope,
    folders_above,
    identity,
    is_storable,
    normalised_folder,
    normalised_origin,
    project_folder,
    without_credentials,
)

PIECES = [
    "/",
    "//",
    "\\",
    "\\\\",
    "?",
    ".",
    "..",
    "C:",
    "c:\\",
    "UNC\\",
    "\\\\?\\",
    "mnt",
    "wsl$",
    "/mnt/c/",
    "İß",
    "Σ",
    " ",
    "a",
]
folders = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=8).map("".join)
SCHEMES = [
    "https://",
    "ssh://",
    "git@",
    "ada:x@",
    "host",
    "h",
    ":",
    ":22",
    "/",
    "//",
    ".git",
    "?",
    "#",
    "[::1]",
    " ",
    "é",
    "Q",
]
remotes = st.lists(st.sampled_from(SCHEMES) | st.text(max_size=3), max_size=8).map("".join)


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/Fruit/Orchard-API.git",
        "https://github.com/fruit/orchard-api",
        "https://ada:secret@github.com/fruit/orchard-api.git/",
        "https://github.com:443/fruit/orchard-api",
        "ssh://git@github.com/fruit/orchard-api.git",
        "ssh://git@github.com:22/fruit/orchard-api.git",
        "ssh://git@ssh.github.com:443/fruit/orchard-api.git",
        "https://github.com./fruit/orchard-api",
        "git@github.com:fruit/orchard-api.git",
        "github.com:fruit/orchard-api",
        "GIT@GITHUB.COM:FRUIT/ORCHARD-API.GIT".lower(),
        "git+ssh://git@github.com/fruit/orchard-api",
        "https://ada:p@ss:w@github.com/fruit/orchard-api",
        "https://github.com//fruit//orchard-api.git.git/",
        "https://github.com/fruit/orchard-api?token=1#readme",
    ],
)
def test_one_repository_has_one_name(url: str) -> None:
    assert normalised_origin(url) == "github.com/fruit/orchard-api"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/srv/git/x.git",
        "C:\\work\\x",
        "c:/work/x",
        "file:///srv/git/x",
        "../x",
        "https://",
        "file://host/x",
        "C:x",
        "h:x",
        "localhost:x",
        "ssh://127.0.0.1:2222/x",
        "ssh://[::1]/x",
        "ext::sh -c x",
        "https://host/.git",
        "https://host/" + "x" * LONGEST_NAME_BYTES,
    ],
)
def test_what_names_no_host_is_no_origin(url: str) -> None:
    assert normalised_origin(url) is None


@given(remotes)
def test_any_text_is_an_origin_or_not(url: str) -> None:
    found = normalised_origin(url)

    assert found is None or (found == found.lower() and "/" in found and is_storable(found))


@given(remotes)
def test_an_origin_is_normalised_once(url: str) -> None:
    found = normalised_origin(url)

    assert found is None or normalised_origin(f"https://{found}") == found


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ada:secret@git.example/a", "https://***@git.example/a"),
        ("https://token@git.example/a?key=1", "https://***@git.example/a?***"),
        ("ssh://git@git.example/a", "ssh://git@git.example/a"),
        ("git@git.example:a", "git@git.example:a"),
    ],
)
def test_a_shown_url_holds_no_secret(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/src/orchard/", "/src/orchard"),
        ("/src/Orchard", "/src/Orchard"),
        ("C:\\Users\\Ada\\Orchard\\", "c:\\users\\ada\\orchard"),
        ("c:/Users/Ada/Orchard", "c:\\users\\ada\\orchard"),
        ("\\\\server\\share\\Orchard", "\\\\server\\share\\orchard"),
        ("C:\\Straße", "c:\\straße"),
        ("\\\\?\\C:\\Work\\X", "c:\\work\\x"),
        ("\\\\.\\C:\\Work\\X", "c:\\work\\x"),
        ("\\\\?\\UNC\\Server\\Share\\X\\", "\\\\server\\share\\x"),
        ("/mnt/c/Work/X/", "c:\\work\\x"),
        ("\\\\wsl$\\Ubuntu\\mnt\\c\\Work\\X", "c:\\work\\x"),
        ("\\\\wsl$\\Ubuntu\\home\\Ada\\X\\", "\\\\wsl.localhost\\ubuntu\\home\\Ada\\X"),
        ("//WSL.localhost/Ubuntu/home/Ada/X", "\\\\wsl.localhost\\ubuntu\\home\\Ada\\X"),
        ("/mnt/cc/X", "/mnt/cc/X"),
        ("/mnt/C/X", "/mnt/C/X"),
        ("//src//Orchard", "/src/Orchard"),
        ("/src/Ra\u0308ume", "/src/R\u00e4ume"),
        ("/src/a ", "/src/a "),
        ("/src/\udcff", "/src/\\udcff"),
        ("/", "/"),
    ],
)
def test_folders_are_normalised_as_their_system_sees_them(given: str, expected: str) -> None:
    assert normalised_folder(given) == expected


@given(folders)
def test_a_folder_is_normalised_once(path: str) -> None:
    found = normalised_folder(path)

    assert normalised_folder(found) == found
    assert project_folder(path) in (found, None)


@given(folders)
def test_folders_above_end_and_are_all_different(path: str) -> None:
    found = folders_above(path)

    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    "path",
    [
        *("", ".", "src/x", "c:", "/", "//", "/mnt/c", "C:\\", "\\\\server\\share\\"),
        *("/root", "/home/ada/", "/Users/ada", "C:\\Users\\Ada", "/mnt/c/Users/Ada"),
        "/" + "x" * LONGEST_NAME_BYTES,
    ],
)
def test_homes_roots_and_relative_paths_are_no_projects(path: str) -> None:
    assert project_folder(path) is None
    assert identity(host="here", root=path, cwd=path).aliases == ()


def test_the_folders_above_reach_up_to_the_home_folder() -> None:
    assert folders_above("C:\\Users\\Ada\\Src\\X") == ("c:\\users\\ada\\src\\x", "c:\\users\\ada\\src")
    assert folders_above("/srv/x") == ("/srv/x", "/srv")


@pytest.mark.parametrize("name", ["", "a\x00b", "\udcff", "x" * (LONGEST_NAME_BYTES + 1)])
def test_what_cannot_be_kept_is_no_name(name: str) -> None:
    assert not is_storable(name)


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
