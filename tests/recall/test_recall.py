"""Recall on real homes: the right session first, with none, some or all vectors, inside the scopes and nowhere else."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from memsvc.db import migrate
from memsvc.db.pool import Conn, Pool
from memsvc.errors import NotFound, WrongUse
from memsvc.model.principal import OWNER
from memsvc.recall import search
from memsvc.service import imports, work
from memsvc.service.app import App
from memsvc.service.recall import RecallRequest, RecallResult, recall
from memsvc.service.remember import RememberRequest, remember
from memsvc.settings import Settings
from tests.conftest import copied
from tests.recall.questions import QUESTIONS
from tests.snapshots import VERSIONS, snapshot

STORES = dict(zip(VERSIONS, ("v1", "v2"), strict=True))


def ask(app: App, query: str, *, scope: str = "all", limit: int = 8) -> RecallResult:
    return recall(app, RecallRequest(query, scope=scope, limit=limit))


@pytest.fixture(scope="module", params=VERSIONS)
def real(
    request: pytest.FixtureRequest, server: str, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[App]:
    """A real home, imported and embedded with the packaged model."""
    folder = tmp_path_factory.mktemp("real")
    with copied(server, template) as dsn, App(Settings(data_dir=folder, database_url=dsn), host="here") as app:
        home = snapshot(request.param, "05-checkpointed", folder)
        imports.run_import(app, imports.ImportRequest("codex", home))
        work.work(app, once=True, stop=Event())
        yield app


@pytest.fixture
def sessions(real: App) -> dict[str, str]:
    """The texts of each session, folded, by thread id."""
    with real.pool.transaction(OWNER) as conn:
        rows = conn.execute("select thread_id, raw_memory || rollout_summary from memsvc.stage1_outputs").fetchall()
    return {thread_id: text.casefold() for thread_id, text in rows}


@pytest.mark.parametrize(("question", "title"), QUESTIONS)
def test_natural_questions_find_the_right_session_first(
    real: App, sessions: dict[str, str], question: str, title: str
) -> None:
    (wanted,) = [thread_id for thread_id, text in sessions.items() if title.casefold() in text]

    result = ask(real, question)

    assert result.hits[0].source.thread_id == wanted, f"{result.hits[0].context}: {result.hits[0].text}"
    assert result.coverage.embedded == result.coverage.total > 60
    assert result.notes == ()


def test_a_hit_names_its_source(real: App) -> None:
    hit = ask(real, "why did listing trees time out").hits[0]

    assert (hit.source.importer, hit.source.label) == ("codex", "codex")
    assert hit.source.path is not None
    assert hit.source.thread_id is not None
    assert hit.source.thread_id in hit.source.path
    assert hit.source.lines is not None
    column, _, lines = hit.source.lines.partition(" ")
    with real.pool.transaction(OWNER) as conn:
        (text,) = conn.execute(
            f"select {column} from memsvc.stage1_outputs where thread_id = %s".encode(), [hit.source.thread_id]
        ).fetchone() or ("",)
    first = int(lines.partition("-")[0])
    assert hit.text.splitlines()[0] in text.split("\n")[first - 1]


def test_scope_keeps_other_projects_out(real: App) -> None:
    everywhere = ask(real, "why did listing trees time out")
    elsewhere = ask(real, "why did listing trees time out", scope="project:/tmp/w/src/paperboy")

    assert {hit.scope for hit in elsewhere.hits} == {"project:/tmp/w/src/paperboy"}
    assert elsewhere.scopes == ("project:/tmp/w/src/paperboy", "global")
    assert everywhere.hits[0].scope == "project:git.example.invalid/fruit/orchard-api"
    assert elsewhere.coverage.total < everywhere.coverage.total


def test_a_folder_of_no_known_project_searches_everything_and_says_so(real: App, tmp_path: Path) -> None:
    result = recall(real, RecallRequest("nightly backup", folder=tmp_path))

    assert len(result.scopes) == 7
    assert result.notes == (f"{tmp_path} belongs to no known project: everything readable was searched",)


def test_a_projects_folder_is_its_scope(real: App) -> None:
    result = recall(real, RecallRequest("titles", folder=Path("/tmp/w/src/paperboy/deep/inside")))

    assert result.scopes == ("project:/tmp/w/src/paperboy", "global")


@pytest.mark.parametrize("scope", ["project:git@git.example.invalid:fruit/orchard-api.git", "/tmp/w/src/orchard-api"])
def test_a_project_has_many_names(real: App, scope: str) -> None:
    assert ask(real, "trees", scope=scope).scopes[0] == "project:git.example.invalid/fruit/orchard-api"


@pytest.mark.parametrize("scope", ["project:ORCHARD", "project:/tmp/w/src/paper%", "client:none", "/nowhere"])
def test_no_scope_is_a_pattern(real: App, scope: str) -> None:
    with pytest.raises(NotFound):
        ask(real, "trees", scope=scope)


@pytest.mark.parametrize(
    "query",
    [
        "!!! ??? ...", "a & b | !c <-> (d)", "'; drop table memsvc.memories; --", "日本語の質問", "👩\u200d🚀",
        "the of and",         "foo:* & bar", "\\", "'", '"unbalanced', "x" * 5000,
        "a\x00b", " ".join(f"word{n}" for n in range(2000)),
    ],
    ids=lambda query: ascii(query[:20]),
)  # fmt: skip
def test_any_query_has_an_answer(real: App, query: str) -> None:
    assert len(ask(real, query, limit=5).hits) == 5


@pytest.mark.parametrize("query", ["", "  \n", "\x00"])
def test_an_empty_query_is_wrong_use(real: App, query: str) -> None:
    with pytest.raises(WrongUse, match="empty"):
        ask(real, query)


def test_words_alone_find_without_any_vector(app: App, tmp_path: Path) -> None:
    imports.run_import(app, imports.ImportRequest("codex", snapshot(VERSIONS[0], "05-checkpointed", tmp_path)))

    result = ask(app, "what is the percent sign in a crontab")

    assert "crontab" in result.hits[0].text
    assert result.hits[0].ranks.vector is None
    assert result.hits[0].ranks.text == 1
    assert result.coverage.embedded == 0
    total = result.coverage.total
    assert result.notes == (f"{total} of {total} memories have no vectors yet: they were found by their words only",)


def test_some_vectors_do_not_hide_the_rest(app: App) -> None:
    with_vector = remember(app, RememberRequest("the kiln ramps at three degrees a minute", scope="global"))
    work.work(app, once=True, stop=Event())
    without = remember(app, RememberRequest("the kiln door opens at sixty degrees", scope="global"))

    result = ask(app, "kiln door", scope="global")

    assert [hit.id for hit in result.hits] == [without.id, with_vector.id]
    assert result.coverage == search.Coverage(embedded=1, total=2)


def test_any_word_is_enough_and_a_rare_one_counts_more(app: App) -> None:
    for text in ("the build uses make", "the build uses docker", "the build is slow", "bazel is not used"):
        remember(app, RememberRequest(text, scope="global"))

    result = ask(app, "does the build use bazel or ninja or gradle", scope="global")

    assert result.hits[0].text == "bazel is not used"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("see orchard/db/estimate.py", "estimate"),
        ("call parseFeedItem first", "feed item"),
        ("set MAX_PAGE_SIZE", "max page size"),
        ("set MAX_PAGE_SIZE", "max_page_size"),
        ("the relays are sticking", "relay sticks"),
        ("Räume haben führende Nullen", "räume"),
    ],
)
def test_words_are_found_in_identifiers_and_forms(app: App, text: str, query: str) -> None:
    wanted = remember(app, RememberRequest(text, scope="global"))
    for other in ("something else entirely", "and another thing"):
        remember(app, RememberRequest(other, scope="global"))

    hit = ask(app, query, scope="global").hits[0]

    assert (hit.id, hit.ranks.text) == (wanted.id, 1)


def test_recency_only_breaks_ties(app: App) -> None:
    old = remember(app, RememberRequest("deploy with make ship", scope="global"))
    new = remember(app, RememberRequest("deploy with make ship, please", scope="global"))
    with app.pool.transaction(OWNER) as conn:
        conn.execute("reset role")
        conn.execute("update memsvc.memories set said_at = now() - interval '2 years' where id = %s", [old.id])

    exact = ask(app, "anything at all", scope="global")
    assert [hit.id for hit in exact.hits] == [new.id, old.id]
    assert ask(app, "lunch", scope="global").hits[0].ranks.recency == 1


def test_what_is_as_old_as_the_calendar_is_found(app: App) -> None:
    first = remember(
        app, RememberRequest("bronze is cast", scope="global", observed_at=datetime.min.replace(tzinfo=UTC))
    )
    last = remember(
        app, RememberRequest("bronze is cut", scope="global", observed_at=datetime(9999, 12, 31, tzinfo=UTC))
    )

    assert [hit.id for hit in ask(app, "bronze", scope="global").hits] == [last.id, first.id]


def test_equal_texts_are_shown_once(app: App, tmp_path: Path) -> None:
    for number, label in enumerate(("laptop", "desktop")):
        home = snapshot(VERSIONS[0], "05-checkpointed", tmp_path / str(number))
        imports.run_import(app, imports.ImportRequest("codex", home, label))

    texts = [hit.text for hit in ask(app, "nightly backup", limit=50).hits]

    assert len(texts) == 50
    assert len(set(texts)) == len(texts)


def test_always_as_many_as_asked_for(app: App) -> None:
    for number in range(30):
        remember(app, RememberRequest(f"statement number {number} about nothing in particular", scope="global"))

    assert len(ask(app, "completely unrelated zebra", scope="global", limit=20).hits) == 20


def test_what_is_not_true_now_is_not_recalled(app: App) -> None:
    now = datetime.now(UTC)
    remember(app, RememberRequest("the office is in Graz", scope="global", valid_until=now - timedelta(days=1)))
    remember(app, RememberRequest("the office moves to Linz", scope="global", valid_from=now + timedelta(days=1)))
    current = remember(
        app, RememberRequest("the office is in Wels", scope="global", valid_from=now - timedelta(days=1))
    )

    result = ask(app, "where is the office", scope="global")

    assert [hit.id for hit in result.hits] == [current.id]


def test_recall_is_one_statement_after_the_embedding(app: App, dsn: str) -> None:
    remember(app, RememberRequest("one round trip", scope="global"))
    pool = Pool(dsn)
    try:
        with pool.transaction(OWNER) as conn:
            scopes = [UUID("00000000-0000-4000-8000-000000000003")]
            hits, coverage = search.nearest(conn, "trip", None, model="hash:64", scopes=scopes, limit=3)
    finally:
        pool.close()

    assert [hit.text for hit in hits] == ["one round trip"]
    assert coverage == search.Coverage(0, 1)


def test_a_question_can_be_narrowed(app: App) -> None:
    remember(app, RememberRequest("deploy on Tuesdays", scope="global", kind="preference", observed_at=day(1)))
    remember(app, RememberRequest("deploy with make ship", scope="global", kind="knowledge", observed_at=day(5)))
    remember(
        app,
        RememberRequest("is the deploy safe?", scope="global", kind="knowledge", status="question", observed_at=day(9)),
    )

    def found(**fields: Any) -> list[str]:
        return sorted(hit.text for hit in recall(app, RecallRequest("deploy", scope="global", **fields)).hits)

    assert found(kinds=("preference",)) == ["deploy on Tuesdays"]
    assert found(statuses=("question",)) == ["is the deploy safe?"]
    assert found(kinds=("preference", "knowledge"), statuses=("fact",)) == [
        "deploy on Tuesdays",
        "deploy with make ship",
    ]
    assert found(since=day(5)) == ["deploy with make ship", "is the deploy safe?"]
    assert found(until=day(5)) == ["deploy on Tuesdays"]
    assert found(since=day(2), until=day(9)) == ["deploy with make ship"]
    with pytest.raises(WrongUse, match="does not come after"):
        found(since=day(2), until=day(2))


def test_the_answer_fits_the_room_that_is_given(app: App) -> None:
    for text in ("deploy " + "x" * 400, "deploy now", "deploy then"):
        remember(app, RememberRequest(text, scope="global"))

    result = recall(app, RecallRequest("deploy", scope="global", max_tokens=10))

    assert sorted(hit.text for hit in result.hits) == ["deploy now", "deploy then"]
    assert "1 more did not fit into 10 tokens" in result.notes


@pytest.mark.parametrize("mode", ["polluted", "disabled"])
def test_what_codex_does_not_use_is_recalled_only_when_asked_for(app: App, tmp_path: Path, mode: str) -> None:
    home = snapshot(VERSIONS[0], "05-checkpointed", tmp_path)
    with closing(sqlite3.connect(home / "state_5.sqlite")) as database:
        database.execute("update threads set memory_mode = ? where id like '%8e5c-7760%'", [mode])
        database.commit()
    imports.run_import(app, imports.ImportRequest("codex", home))

    usual = ask(app, "crontab percent")
    all_of_it = recall(app, RecallRequest("crontab percent", scope="all", include_hidden=True))

    assert "crontab" not in " ".join(hit.text for hit in usual.hits)
    assert "crontab" in all_of_it.hits[0].text
    with app.pool.transaction(app.actor) as conn:
        counted = conn.execute(
            "select count(*) filter (where hidden_because is null), count(*) from memsvc.recallable"
        ).fetchone()
    assert (usual.coverage.total, all_of_it.coverage.total) == counted
    assert usual.coverage.total < all_of_it.coverage.total


def test_a_neighbour_lifts_a_turn_of_a_conversation(app: App) -> None:
    for ordinal, text in enumerate(
        ("Where did you go?", "To the pottery fair in Graz.", "Was it fun?", "Lunch was late."), 1
    ):
        remember(app, RememberRequest(text, scope="global", session="s", ordinal=ordinal, speaker="Ada"))

    texts = [hit.text for hit in ask(app, "pottery fair", scope="global").hits]

    assert texts[0] == "To the pottery fair in Graz."
    assert set(texts[1:3]) == {"Where did you go?", "Was it fun?"}


def test_the_speaker_whom_the_query_names_comes_first(app: App) -> None:
    for speaker in ("Ada", "Ben"):
        remember(
            app, RememberRequest("I like the blue kiln", scope="global", session=speaker, ordinal=1, speaker=speaker)
        )

    hits = ask(app, "which kiln does Ben like", scope="global").hits

    with app.pool.transaction(OWNER) as conn:
        speakers = dict(conn.execute("select id, speaker from memsvc.memories").fetchall())
    assert speakers[hits[0].id] == "Ben"


def day(number: int) -> datetime:
    return datetime(2026, 3, number, tzinfo=UTC)


@pytest.mark.parametrize(
    ("remembered", "asked"),
    [
        (
            "Die Tests laufen nur mit pnpm, und das ist im Handbuch beschrieben",
            "welche Beschreibung ist für den Testlauf",
        ),
        ("Les migrations sont dans le dossier supabase, pas dans la racine", "où est la migration"),
        ("Миграции лежат в папке supabase", "где миграция"),
        ("テストは常にpnpmで実行する", "実行"),
        ("数据库迁移放在目录里", "迁移"),
        ("我的猫叫小白", "猫"),
        ("ฐานข้อมูลอยู่ในโฟลเดอร์นี้", "โฟลเดอร์"),
        ("the parser is in src/parse/UrlParser.ts", "urlparser"),
        ("call parse_url_parts before fetching", "url parts"),
    ],
)
def test_words_are_found_in_their_language(app: App, remembered: str, asked: str) -> None:
    for text in (remembered, "a line of another kind", "noch eine Zeile", "別の行"):
        remember(app, RememberRequest(text, scope="global"))

    (best, *_) = ask(app, asked).hits

    assert best.text == remembered
    assert best.ranks.text == 1


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("run the tests with pnpm and not with npm", None),
        ("pnpm", None),
        ("die Tests laufen nicht mit npm", "german"),
        ("les tests ne sont pas dans la racine", "french"),
        ("las pruebas se ejecutan con pnpm, no con npm", "spanish"),
        ("de testen draaien niet met npm", "dutch"),
        ("тесты", "russian"),
        ("README.md is die in of", None),
    ],
)
def test_language_is_told_by_script_and_small_words(conn: Conn, text: str, language: str | None) -> None:
    assert conn.execute("select memsvc.language(%s)::text", [text]).fetchone() == (language,)


def test_pairs_of_characters_stand_for_words_without_blanks(conn: Conn) -> None:
    row = conn.execute("select tsvector_to_array(memsvc.bigrams(%s)), memsvc.bigrams('words')::text", ["pnpmで実行"])
    assert row.fetchone() == (["で", "で実", "実", "実行", "行"], "")


def test_memories_are_embedded_and_recalled_wherever_pgvector_lies(app: App) -> None:
    with migrate.connect(app.database_url) as admin:
        admin.execute("alter extension vector set schema public")
    remember(app, RememberRequest("the kiln is hot", scope="global"))

    done = work.work(app, once=True, stop=Event())

    assert (done.completed, done.failed) == (1, 0)
    result = ask(app, "the kiln is hot")
    assert result.hits[0].text == "the kiln is hot"
    assert result.hits[0].parts.vector == pytest.approx(1, abs=0.01)
    assert (result.coverage.embedded, result.coverage.total) == (1, 1)
