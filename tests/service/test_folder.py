"""What a folder says about its project, of repositories that git itself made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memsvc.errors import WrongUse
from memsvc.model.scope import Alias
from memsvc.service.folder import Marks, marks

ORIGIN = "git@git.example:Fruit/Pear.git"
PEAR = Alias("git_origin", "", "git.example/fruit/pear")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}
PERSON = ("-c", "user.name=Ada", "-c", "user.email=ada@example.invalid", "-c", "protocol.file.allow=always")


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *PERSON, "-C", str(folder), *words], check=True, capture_output=True, env=ENVIRONMENT)


def repository(folder: Path, origin: str | None = None) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    if origin:
        git(folder, "remote", "add", "origin", origin)
    return folder


def of(folder: Path) -> Marks:
    return marks(folder, host="here")


def own(folder: Path) -> tuple[tuple[str, str], ...]:
    return tuple((mark.kind, mark.value) for mark in of(folder).own.aliases)


def test_a_clone_has_its_origin_its_root_and_its_path(tmp_path: Path) -> None:
    repo = repository(tmp_path / "pear", ORIGIN)
    (repo / "a" / "b").mkdir(parents=True)

    found = of(repo / "a" / "b")

    root, cwd = Alias("root", "here", str(repo)), Alias("cwd", "here", str(repo))
    assert found.own.aliases == (PEAR, root, cwd)
    above = [Alias("cwd", "here", str(repo / "a" / "b")), Alias("cwd", "here", str(repo / "a"))]
    assert found.all == (PEAR, root, *above, cwd)


def test_a_linked_worktree_is_its_main_repository(tmp_path: Path) -> None:
    repo = repository(tmp_path / "pear", ORIGIN)
    git(repo, "worktree", "add", "-q", str(tmp_path / "elsewhere" / "tree"))
    tree = tmp_path / "elsewhere" / "tree"

    assert own(tree) == own(repo)
    assert Alias("cwd", "here", str(tree)) in of(tree).all
    assert Alias("cwd", "here", str(tree.parent)) not in of(tree).all


def test_a_submodule_is_a_project_of_its_own(tmp_path: Path) -> None:
    inner = repository(tmp_path / "inner")
    outer = repository(tmp_path / "outer", ORIGIN)
    git(outer, "submodule", "add", "-q", str(inner), "sub")

    assert own(outer / "sub") == (("root", str(outer / "sub")), ("cwd", str(outer / "sub")))
    git(outer / "sub", "remote", "set-url", "origin", "https://git.example/fruit/seed")
    assert own(outer / "sub")[0] == ("git_origin", "git.example/fruit/seed")
    assert of(outer / ".git" / "modules" / "sub").own == of(outer / "sub").own
    git(outer / "sub", "worktree", "add", "-q", str(tmp_path / "tree"))
    assert own(tmp_path / "tree") == own(outer / "sub")


def test_a_bare_repository_and_its_worktree_are_one_project(tmp_path: Path) -> None:
    repo = repository(tmp_path / "pear", ORIGIN)
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "-q", "--bare", str(repo), str(bare))

    assert own(bare) == own(bare / "objects") == (("root", str(bare)), ("cwd", str(bare)))
    git(bare, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert own(tmp_path / "tree") == own(bare)


def test_inside_dot_git_is_inside_the_repository(tmp_path: Path) -> None:
    repo = repository(tmp_path / "pear", ORIGIN)

    assert own(repo / ".git" / "objects") == own(repo)


def test_a_git_folder_that_lies_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "pear").mkdir()
    git(tmp_path / "pear", "init", "-q", "--separate-git-dir", str(tmp_path / "store"))
    git(tmp_path / "pear", "remote", "add", "origin", ORIGIN)

    assert own(tmp_path / "pear")[:2] == (("git_origin", PEAR.value), ("root", str(tmp_path / "pear")))


@pytest.mark.parametrize(
    ("remotes", "expected"),
    [
        ({}, None),
        ({"upstream": ORIGIN}, PEAR.value),
        ({"upstream": ORIGIN, "origin": "https://git.example/ada/pear"}, "git.example/ada/pear"),
        ({"upstream": ORIGIN, "fork": "https://git.example/ada/pear"}, None),
        ({"origin": "/srv/git/pear.git", "upstream": ORIGIN}, None),
        ({"origin": "file:///srv/git/pear.git"}, None),
        ({"origin": "../pear.git"}, None),
    ],
)
def test_origin_counts_or_the_only_remote(tmp_path: Path, remotes: dict[str, str], expected: str | None) -> None:
    repo = repository(tmp_path / "pear")
    for name, url in remotes.items():
        git(repo, "remote", "add", name, url)

    assert dict(own(repo)).get("git_origin") == expected
    assert dict(own(repo))["root"] == str(repo)


def test_the_first_url_counts_and_nothing_is_put_instead_of_it(tmp_path: Path) -> None:
    repo = repository(tmp_path / "pear", ORIGIN)
    git(repo, "remote", "set-url", "--add", "origin", "https://mirror.example/x")
    git(repo, "config", "url.https://other.example/.insteadOf", "git@git.example:")

    assert own(repo)[0] == ("git_origin", PEAR.value)


def test_a_partial_clones_extensions_do_not_matter(tmp_path: Path) -> None:
    repo = repository(tmp_path / "pear", ORIGIN)
    git(repo, "config", "core.repositoryformatversion", "1")
    git(repo, "config", "extensions.partialClone", "origin")

    assert own(repo)[0] == ("git_origin", PEAR.value)


def test_a_clone_of_a_local_path_is_the_project_of_its_root(tmp_path: Path) -> None:
    repo = repository(tmp_path / "pear", ORIGIN)
    git(tmp_path, "clone", "-q", str(repo), "copy")

    assert own(tmp_path / "copy") == (("root", str(tmp_path / "copy")), ("cwd", str(tmp_path / "copy")))


def test_the_nearest_repository_counts(tmp_path: Path) -> None:
    outer = repository(tmp_path / "outer", ORIGIN)
    inner = repository(outer / "vendor" / "inner")

    assert own(inner) == (("root", str(inner)), ("cwd", str(inner)))
    assert of(inner).above == ()
    assert own(outer / "vendor") == own(outer)


def test_a_link_is_the_folder_that_it_leads_to(tmp_path: Path) -> None:
    repo = repository(tmp_path / "pear")
    (repo / "src").mkdir()
    (tmp_path / "link").symlink_to(repo / "src")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    assert of(tmp_path / "link") == of(repo / "src")
    (repo / "file").touch()
    assert of(repo / "file").folder == str(repo)
    with pytest.raises(WrongUse, match="cannot be a folder"):
        of(tmp_path / "loop")


@pytest.mark.parametrize("word", ["a\x00b", "~no-such-person/x"])
def test_what_is_no_folder_is_wrong_use(word: str) -> None:
    with pytest.raises(WrongUse, match="cannot be a folder"):
        of(Path(word))


def test_home_and_the_root_are_no_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = repository(tmp_path / "home", ORIGIN)
    (home / "notes").mkdir()
    monkeypatch.setenv("HOME", str(home))

    assert of(home).all == of(Path("/")).all == of(Path("~")).all == ()
    assert own(home / "notes") == (("cwd", str(home / "notes")),)
    assert of(home / "notes").above == ()
    git(home, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert own(tmp_path / "tree")[1] == ("root", str(tmp_path / "tree"))


def test_another_systems_folder_is_read_as_it_is_written() -> None:
    found = of(Path("C:\\Users\\Ada\\Src\\Pear"))

    values = [mark.value for mark in found.all]
    assert values == ["c:\\users\\ada\\src\\pear", "c:\\users\\ada\\src"]


def test_a_folder_that_is_not_there_has_its_path(tmp_path: Path) -> None:
    assert own(tmp_path / "gone") == (("cwd", str(tmp_path / "gone")),)


@pytest.mark.parametrize("written", [b"", b"gitdir: /nowhere\n", b"gitdir: \xff\n", b"gitdir: ", b"nonsense"])
def test_a_broken_git_file_is_a_root_without_origin(tmp_path: Path, written: bytes) -> None:
    outer = repository(tmp_path / "outer", ORIGIN)
    (outer / "inner").mkdir()
    (outer / "inner" / ".git").write_bytes(written)

    found = of(outer / "inner")

    assert found.own.aliases[0] == Alias("root", "here", str(outer / "inner"))
    assert PEAR not in found.all


@pytest.mark.parametrize("lost", ["objects", "refs", "HEAD", "config"])
def test_a_repository_that_lost_a_part_is_a_root_still(tmp_path: Path, lost: str) -> None:
    repo = repository(tmp_path / "pear", ORIGIN)
    (repo / ".git" / lost).rename(tmp_path / "lost")

    assert Alias("root", "here", str(repo)) in of(repo).all
    assert (PEAR in of(repo).all) == (lost != "config")


@pytest.mark.parametrize("kind", ["folder", "unreadable", "loop", "fifo"])
def test_a_configuration_that_cannot_be_read(tmp_path: Path, kind: str) -> None:
    repo = repository(tmp_path / "pear", ORIGIN)
    config = repo / ".git" / "config"
    config.unlink()
    if kind == "folder":
        config.mkdir()
    elif kind == "unreadable":
        config.write_bytes(b"\xff[[[remote\n")
    elif kind == "loop":
        config.symlink_to(config)
    else:
        os.mkfifo(config)

    found = of(repo)

    assert found.own.aliases[0].kind == "root"
    assert found.repository is not None
    assert found.repository.reason == "the git configuration cannot be read"


def test_what_a_configuration_includes_is_not_read(tmp_path: Path) -> None:
    repo = repository(tmp_path / "pear")
    (tmp_path / "other").write_text(f'[remote "origin"]\nurl = {ORIGIN}\n')
    git(repo, "config", "include.path", str(tmp_path / "other"))

    assert own(repo)[0][0] == "root"


CONFIG = [
    b"[",
    b"]",
    b'"',
    b"remote",
    b'[remote "origin"]\n',
    b"url",
    b"=",
    b"\\\n",
    b"\\",
    b"\n",
    b"#",
    b"[core]",
    b"\xff",
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.lists(st.sampled_from(CONFIG) | st.binary(max_size=3), max_size=12).map(b"".join))
def test_no_configuration_is_too_broken(tmp_path: Path, written: bytes) -> None:
    git_folder = tmp_path / "pear" / ".git"
    git_folder.mkdir(parents=True, exist_ok=True)
    (git_folder / "config").write_bytes(written)

    assert Alias("root", "here", str(tmp_path / "pear")) in of(tmp_path / "pear").all
