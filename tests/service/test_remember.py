"""Remember: once, where it belongs, with the status that its author may claim."""

from __future__ import annotations

import random
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from memsvc.errors import Conflict, NotFound, Refused, WrongUse
from memsvc.model.principal import DEFAULT_TENANT, GLOBAL_SCOPE, OWNER, Actor
from memsvc.service.app import App
from memsvc.service.remember import RememberRequest, RememberResult, remember
from memsvc.service.show import show


def said(app: App, text: str = "the kiln is hot", **fields: object) -> RememberResult:
    return remember(app, RememberRequest(text, **{"scope": "global", **fields}))  # type: ignore[arg-type]


def agent(app: App, *, rights: str | None, scope_id: UUID = GLOBAL_SCOPE) -> App:
    """The service as an agent would call it, with a grant or with none."""
    principal = uuid4()
    with app.pool.transaction(OWNER) as conn:
        conn.execute("reset role")
        conn.execute(
            "insert into memsvc.principals (tenant_id, id, kind, name) values (%s, %s, 'agent', %s)",
            [DEFAULT_TENANT, principal, str(principal)],
        )
        if rights:
            conn.execute(
                "insert into memsvc.grants (tenant_id, principal_id, scope_id, rights) values (%s, %s, %s, %s)",
                [DEFAULT_TENANT, principal, scope_id, rights],
            )
    return App(app.settings, actor=Actor(DEFAULT_TENANT, principal), host="here")


def test_a_persons_word_is_a_fact_with_that_word_as_evidence(app: App) -> None:
    result = said(app)

    found = show(app, str(result.id))
    assert (result.status, found.memory.origin, found.memory.author) == ("fact", "human", "owner")
    assert [(e.kind, e.locator) for e in found.evidence] == [("person", {"principal": "owner"})]


def test_an_agents_word_is_an_inference_whatever_it_claims(app: App) -> None:
    with agent(app, rights="write") as as_agent:
        claimed = said(as_agent, "the build is green", status="fact")
        hedged = said(as_agent, "the cache may be cold", status="assumption")

        assert (claimed.status, hedged.status) == ("inference", "assumption")
        assert claimed.notes == ("kept as an inference: an agent's word does not make it fact",)
        assert show(as_agent, str(claimed.id)).memory.origin == "agent"


@pytest.mark.parametrize("rights", [None, "read"])
def test_who_may_not_write_is_refused(app: App, rights: str | None) -> None:
    with agent(app, rights=rights) as as_agent, pytest.raises((Refused, NotFound)):
        said(as_agent)


def test_what_another_may_not_read_does_not_exist_for_them(app: App) -> None:
    result = said(app)

    with agent(app, rights=None) as as_agent, pytest.raises(NotFound) as refused:
        show(as_agent, str(result.id))
    with pytest.raises(NotFound) as absent:
        show(app, str(uuid4()))
    assert str(refused.value) == f"there is no memory {result.id}"
    assert str(absent.value).startswith("there is no memory ")


def test_the_same_text_is_one_memory_in_its_scope(app: App) -> None:
    first, again = said(app, "the kiln is hot"), said(app, "the  kiln\nis hot ")
    elsewhere = said(app, "the kiln is hot", scope=None, folder=Path("/somewhere"))

    assert (again.id, again.created) == (first.id, False)
    assert elsewhere.id != first.id
    assert elsewhere.scope == "project:/somewhere"


def test_what_is_said_twice_in_a_conversation_is_two_memories(app: App) -> None:
    ids = {said(app, "thanks!", session="s", ordinal=n, speaker="Ada").id for n in (1, 2)}
    ids.add(said(app, "thanks!", session="s", ordinal=2, speaker="Ben").id)

    assert len(ids) == 3


def test_forty_at_once_are_one_memory(app: App) -> None:
    assert app.pool is not None

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: said(app, "said by many at once"), range(40)))

    assert len({result.id for result in results}) == 1
    assert sum(result.created for result in results) == 1


def test_an_idempotency_key_names_one_memory(app: App) -> None:
    first = said(app, "one", idempotency_key="k")

    assert said(app, "one", idempotency_key="k").id == first.id
    with pytest.raises(Conflict, match="used for another memory"):
        said(app, "two", idempotency_key="k")


def test_secrets_are_cut_out_before_anything_is_stored(app: App) -> None:
    secret = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"

    result = said(app, f"the token is {secret}")

    assert result.text == "the token is [REDACTED_SECRET]"
    assert result.notes == ("secrets cut out: 1",)
    with app.pool.transaction(OWNER) as conn:
        assert conn.execute("select 1 from memsvc.memories m where m::text like %s", [f"%{secret}%"]).fetchall() == []


def test_an_embedding_job_waits_for_what_was_remembered(app: App) -> None:
    result = said(app)

    with app.pool.transaction(OWNER) as conn:
        jobs = conn.execute("select kind, job_key, status, priority, scope_id from memsvc.jobs").fetchall()
    assert jobs == [("memory_embed", str(result.id), "pending", 1, GLOBAL_SCOPE)]


UNSTORABLE = ("", "a\x00b", "\udcff", "é" * 501)


@pytest.mark.parametrize(
    ("fields", "said_of_it"),
    [
        ({"text": "\n "}, "empty"),
        ({"text": "x" * 100_001}, "100000 is the most"),
        ({"kind": "rumour"}, "no kind"),
        ({"status": "certain"}, "no status"),
        ({"scope": "all"}, "not in all"),
        ({"scope": None}, "no scope was named"),
        ({"scope": "planet:earth"}, "names no scope"),
        ({"ordinal": 2**63}, "too large"),
        ({"ordinal": -(2**64)}, "too large"),
        *(({name: value}, name) for name in ("session", "speaker", "idempotency_key") for value in UNSTORABLE),
    ],
)
def test_wrong_use_is_named(app: App, fields: dict[str, object], said_of_it: str) -> None:
    with pytest.raises(WrongUse, match=said_of_it):
        remember(app, RememberRequest(**{"text": "a", "scope": "global", **fields}))  # type: ignore[arg-type]


def test_the_longest_names_fit_together(app: App) -> None:
    # Nothing that could be compressed.
    names = {name: random.Random(name).randbytes(500).hex() for name in ("session", "speaker", "idempotency_key")}

    first, second = (said(app, ordinal=2**63 - 1, **names) for _ in range(2))

    assert (first.id, first.created, second.created) == (second.id, True, False)


def test_a_text_with_nul_is_kept_as_postgres_can(app: App) -> None:
    assert said(app, "a\x00b").text == "a␀b"


def test_a_folder_in_a_repository_is_its_origins_project(app: App, tmp_path: Path) -> None:
    clone, other = tmp_path / "clone", tmp_path / "other"
    for folder, url in ((clone, "git@git.example:fruit/Pear.git"), (other, "https://git.example/fruit/pear")):
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        subprocess.run(["git", "-C", str(folder), "remote", "add", "origin", url], check=True)
    (clone / "deep").mkdir()

    first = said(app, "pears ripen", scope=None, folder=clone / "deep")
    second = said(app, "pears fall", scope=None, folder=other)

    assert first.scope == second.scope == "project:git.example/fruit/pear"


def test_a_repository_without_origin_is_the_project_of_its_root(app: App, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "repo")], check=True)
    (tmp_path / "repo" / "src").mkdir()

    assert said(app, scope=None, folder=tmp_path / "repo" / "src").scope == f"project:{tmp_path / 'repo'}"


def test_two_folders_of_one_name_on_two_hosts_are_two_projects(app: App) -> None:
    first = said(app, "here", scope=None, folder=Path("/src/thing"))
    with App(app.settings, actor=OWNER, host="there") as elsewhere:
        second = said(elsewhere, "there", scope=None, folder=Path("/src/thing"))

    assert (first.scope, second.scope) == ("project:/src/thing", "project:there:/src/thing")
