"""Which project a folder is: by its strongest known mark, kept when it moves, never mixed up with another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memsvc.errors import Conflict, NotFound, Refused, WrongUse
from memsvc.memory import scopes
from memsvc.model.principal import OWNER
from memsvc.model.scope import identity
from memsvc.service.app import App
from memsvc.service.recall import RecallRequest, recall
from memsvc.service.remember import RememberRequest, remember
from memsvc.service.scopes import AddRequest, AliasRequest, ResolveRequest, ResolveResult, add, alias, ls, resolve
from tests.service.test_folder import ORIGIN, git, repository
from tests.service.test_remember import agent

PEAR = "project:git.example/fruit/pear"
HARD = [
    "50%",
    "a_b",
    "back\\slash",
    'it\'s "quoted"',
    "a/b",
    "Case",
    "case",
    "end ",
    "🍐",
    "e\u0301",
    "\u00e9",
    "-x",
    "x" * 2000,
]


def said(app: App, folder: Path) -> str:
    return remember(app, RememberRequest(f"said in {folder}", folder=folder)).scope


def of(app: App, folder: Path) -> ResolveResult:
    return resolve(app, ResolveRequest(folder))


@pytest.fixture
def there(app: App) -> Iterator[App]:
    """The same store, from another machine."""
    with App(app.settings, actor=OWNER, host="there") as opened:
        yield opened


def test_clones_of_one_origin_are_one_project_on_all_hosts(app: App, there: App, tmp_path: Path) -> None:
    clones = [repository(tmp_path / name, ORIGIN) for name in ("one", "two")]

    assert {said(app, folder) for folder in clones} | {said(there, folder) for folder in clones} == {PEAR}


def test_a_moved_clone_keeps_its_project_and_is_known_by_its_new_place(app: App, tmp_path: Path) -> None:
    said(app, repository(tmp_path / "old", ORIGIN))
    new = (tmp_path / "old").rename(tmp_path / "new")

    assert said(app, new) == PEAR
    git(new, "remote", "remove", "origin")
    assert said(app, new) == PEAR


def test_a_renamed_origin_leaves_the_project_to_the_root(app: App, tmp_path: Path) -> None:
    repo = repository(tmp_path / "pear", ORIGIN)
    said(app, repo)
    git(repo, "remote", "set-url", "origin", "https://git.example/fruit/quince")

    found = of(app, repo)

    assert said(app, repo) == found.scope == PEAR
    assert [(mark.kind, mark.outcome) for mark in found.marks] == [
        ("git_origin", "unknown"), ("root", "decides"), ("cwd", "another-origin")
    ]  # fmt: skip
    assert "if the remote was renamed" in found.notes[0]
    quince = repository(tmp_path / "quince", "https://git.example/fruit/quince")
    assert said(app, quince) == "project:git.example/fruit/quince"


def test_a_known_origin_is_stronger_than_a_known_root(app: App, tmp_path: Path) -> None:
    repo = repository(tmp_path / "pear", ORIGIN)
    said(app, repo)
    add(app, AddRequest("project:quince"))
    alias(app, AliasRequest("project:quince", "https://git.example/fruit/quince"))
    git(repo, "remote", "set-url", "origin", "https://git.example/fruit/quince")

    assert said(app, repo) == "project:quince"
    assert [mark.outcome for mark in of(app, repo).marks] == ["decides", "weaker", "another-origin"]


def test_without_origin_the_old_folder_stays_the_projects(app: App, tmp_path: Path) -> None:
    scope = said(app, repository(tmp_path / "old"))
    new = (tmp_path / "old").rename(tmp_path / "new")

    assert of(app, new).scope is None
    assert of(app, tmp_path / "old").scope == scope
    alias(app, AliasRequest(scope, str(new)))
    assert said(app, new) == scope


def test_a_worktree_that_is_gone_leaves_its_memories_with_the_repository(app: App, tmp_path: Path) -> None:
    repo = repository(tmp_path / "pear")
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))

    assert said(app, tmp_path / "tree") == said(app, repo) == f"project:{repo}"


def test_two_folders_of_one_base_name_are_two_projects(app: App, tmp_path: Path) -> None:
    one, two = repository(tmp_path / "a" / "api"), repository(tmp_path / "b" / "api")

    assert said(app, one) != said(app, two)


def test_a_shared_path_does_not_carry_a_repository_into_another(app: App) -> None:
    def seen(origin: str | None) -> str:
        with app.pool.transaction(OWNER) as conn:
            known = identity(host="here", git_origin=origin, cwd="/workspace")
            return str(scopes.ensure_project(conn, known, name=known.name or "", alternative="x"))

    assert seen(ORIGIN) == PEAR
    assert seen("https://git.example/fruit/quince") == "project:git.example/fruit/quince"
    assert seen(None) == PEAR


def test_a_folder_that_becomes_a_repository_stays_its_project(app: App, tmp_path: Path) -> None:
    (tmp_path / "pear").mkdir()
    scope = said(app, tmp_path / "pear")
    git(tmp_path / "pear", "init", "-q")
    git(tmp_path / "pear", "remote", "add", "origin", ORIGIN)

    assert said(app, tmp_path / "pear") == scope


def test_one_folder_of_windows_and_wsl_is_one_project(app: App) -> None:
    scope = said(app, Path("C:\\Src\\Pear"))

    for word in ("c:/src/pear/", "\\\\?\\C:\\Src\\Pear", "/mnt/c/Src/Pear", "\\\\wsl$\\Ubuntu\\mnt\\c\\src\\pear"):
        assert remember(app, RememberRequest("x", scope=word)).scope == scope


def test_home_is_written_to_by_name_only(app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    for folder in (tmp_path, Path("/")):
        with pytest.raises(WrongUse, match="is no project"):
            said(app, folder)
        found = of(app, folder)
        assert (found.scope, found.would_create, found.marks) == (None, None, ())
        assert "belongs to no known project" in recall(app, RecallRequest("x", folder=folder)).notes[-1]


def test_resolve_says_what_would_be_made_and_makes_nothing(app: App, tmp_path: Path) -> None:
    repo = repository(tmp_path / "pear", "https://ada:secret@git.example/fruit/Pear.git")

    found = of(app, repo)

    assert found.git is not None
    assert (found.git.remote, found.git.origin) == ("origin", "git.example/fruit/pear")
    assert found.git.url == "https://***@git.example/fruit/Pear.git"
    assert found.would_create is not None
    assert (found.would_create.scope, found.would_create.allowed) == (PEAR, True)
    assert [row.scope for row in ls(app)] == ["global"]
    assert said(app, repo) == PEAR
    assert of(app, repo).would_create is None


def test_resolve_shows_an_agent_no_project_that_it_may_not_read(app: App, tmp_path: Path) -> None:
    repo = repository(tmp_path / "pear", ORIGIN)
    said(app, repo)

    with agent(app, rights=None) as as_agent:
        found = of(as_agent, repo)

        assert found.scope is None
        assert {mark.outcome for mark in found.marks} == {"unknown"}
        assert found.would_create is not None
        assert not found.would_create.allowed


def test_an_agent_remembers_in_a_known_project_at_a_new_place(app: App, tmp_path: Path) -> None:
    said(app, repository(tmp_path / "one", ORIGIN))
    with app.pool.transaction(OWNER) as conn:
        project = scopes.named(conn, "project", "git.example/fruit/pear")
    assert project is not None

    with agent(app, rights="write", scope_id=project.id) as as_agent:
        assert said(as_agent, repository(tmp_path / "two", ORIGIN)) == PEAR


def test_ls_shows_clients_aliases_and_counts(app: App, tmp_path: Path) -> None:
    add(app, AddRequest("client:acme"))
    add(app, AddRequest("project:pear", client="acme"))
    alias(app, AliasRequest("project:pear", ORIGIN))
    said(app, repository(tmp_path / "pear", ORIGIN))

    rows = ls(app)

    assert [(row.scope, row.client, row.memories) for row in rows] == [
        ("global", None, 0), ("client:acme", None, 0), ("project:pear", "acme", 1)
    ]  # fmt: skip
    assert [mark.kind for mark in rows[2].aliases] == ["git_origin", "root", "cwd"]


@pytest.mark.parametrize("name", HARD)
def test_names_are_exact(app: App, name: str) -> None:
    for kind in ("client", "project"):
        assert add(app, AddRequest(f"{kind}:{name}")).scope == f"{kind}:{name}"
        with pytest.raises(Conflict):
            add(app, AddRequest(f"{kind}:{name}"))

    assert remember(app, RememberRequest("x", scope=f"project:{name}")).scope == f"project:{name}"
    for other in [*HARD, f"{name} ", f" {name}", name.swapcase()]:
        if other != name:
            with pytest.raises(NotFound):
                remember(app, RememberRequest("x", scope=f"project:{other}"))


@pytest.mark.parametrize("name", [name for name in HARD if name != "x"])
def test_any_other_name_finds_its_project(app: App, name: str) -> None:
    add(app, AddRequest("project:p"))

    assert alias(app, AliasRequest("project:p", name)).created
    assert not alias(app, AliasRequest("project:p", name)).created
    assert remember(app, RememberRequest("x", scope=f"project:{name}")).scope == "project:p"


def test_a_named_folder_is_stronger_than_its_path_and_weaker_than_its_root(app: App, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    said(app, tmp_path / "plain")
    repo = repository(tmp_path / "repo")
    at_root = said(app, repo)
    add(app, AddRequest("project:p"))
    for folder in (tmp_path / "plain", repo):
        alias(app, AliasRequest("project:p", str(folder)))

    assert said(app, tmp_path / "plain" / "below") == "project:p"
    assert of(app, tmp_path / "plain").marks[0].matched == "explicit"
    assert said(app, repo) == at_root


@pytest.mark.parametrize("taken", [ORIGIN, "https://git.example/Fruit/Pear", "/src/pear", "nick", "project-b"])
def test_an_alias_is_one_projects_alone(app: App, taken: str) -> None:
    for name in ("project-a", "project-b"):
        add(app, AddRequest(f"project:{name}"))
    for word in (ORIGIN, "/src/pear", "nick"):
        alias(app, AliasRequest("project:project-b", word))

    with pytest.raises(Conflict, match="names project:project-b already"):
        alias(app, AliasRequest("project:project-a", taken))
    assert ls(app)[1].aliases == ()


@pytest.mark.parametrize(
    "scope",
    ["global", "planet:earth", "pear", "project:", "client:", "project:" + "x" * 2001, "project:\udcff", "client:a\0"],
)
def test_what_cannot_be_added(app: App, scope: str) -> None:
    with pytest.raises(WrongUse):
        add(app, AddRequest(scope))


def test_a_client_is_a_projects_and_exists(app: App) -> None:
    add(app, AddRequest("client:acme"))

    with pytest.raises(WrongUse, match="only a project"):
        add(app, AddRequest("client:other", client="acme"))
    for absent in ("ACME", "acme ", "%"):
        with pytest.raises(NotFound):
            add(app, AddRequest("project:p", client=absent))


@pytest.mark.parametrize("word", ["/", "~", "file:///srv/x", "https://localhost/x", "", "a\0b", "\udcff"])
def test_what_names_no_project(app: App, word: str) -> None:
    add(app, AddRequest("project:p"))

    with pytest.raises(WrongUse):
        alias(app, AliasRequest("project:p", word))


def test_only_projects_have_aliases(app: App) -> None:
    with pytest.raises(WrongUse, match="is no project"):
        alias(app, AliasRequest("global", "x"))
    with pytest.raises(NotFound):
        alias(app, AliasRequest("project:absent", "x"))


@pytest.mark.parametrize("rights", ["read", "write"])
def test_who_is_no_admin_adds_and_names_nothing(app: App, rights: str) -> None:
    add(app, AddRequest("project:p"))

    with agent(app, rights=rights) as as_agent:
        with pytest.raises(Refused):
            add(as_agent, AddRequest("project:q"))
        with pytest.raises(Refused):
            alias(as_agent, AliasRequest("project:p", "nick"))
        assert [row.scope for row in ls(as_agent)] == ["global", "project:p"]


@pytest.mark.parametrize("word", ["project:a\0b", "project:\udcff", "client:\udcff", "project:" + "x" * 9000])
def test_a_name_that_nothing_can_have_is_not_found(app: App, word: str) -> None:
    with pytest.raises(NotFound):
        recall(app, RecallRequest("x", scope=word))


def test_an_identity_is_a_name_in_any_of_its_forms(app: App, tmp_path: Path) -> None:
    said(app, repository(tmp_path / "pear", ORIGIN))

    for name in (ORIGIN, "https://git.example/fruit/pear", "git.example/Fruit/Pear", f"{tmp_path}/pear/"):
        assert recall(app, RecallRequest("x", scope=f"project:{name}")).scopes == (PEAR, "global")
