from __future__ import annotations

import logging
import math
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memsvc.settings
from memsvc.embedding import openai_api
from memsvc.embedding.builtin import BuiltinEmbedder
from memsvc.embedding.embedder import Embedder, load
from memsvc.embedding.openai_api import Endpoint, OpenAIEmbedder, Patience
from memsvc.errors import EmbedderUnavailable, WrongUse
from tests.embedding.endpoint import DIMENSION, MEANING, Answer, Answering, Request, Server, serving
from tests.embedding.texts import TEXTS, check_fit, prose
from tests.embedding.vectors import least_cosine

KEY = "sk-live-0123456789"
TEXT = "the password of the vault is swordfish"
ONCE = Patience(timedelta(seconds=5), retries=0)
AT_ONCE = {"retry-after-ms": "1"}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def embedder(server: Server, *, passages: Patience = ONCE, dimension: int | None = None) -> OpenAIEmbedder:
    return OpenAIEmbedder(Endpoint("a-model", dimension, server.url), api_key=KEY, passages=passages)


def configured(name: str, **environ: str) -> Embedder:
    return load(name, settings=memsvc.settings.load({"MEMSVC_DATA_DIR": "/nowhere", **environ}))


def refusal(embedder: Embedder) -> EmbedderUnavailable:
    """The error, of which no part tells the key or the text."""
    with pytest.raises(EmbedderUnavailable) as refused:
        embedder.embed_passages([TEXT])
    told = "".join(traceback.format_exception(refused.value))
    assert KEY not in told
    assert "swordfish" not in told
    return refused.value


def test_texts_come_back_as_vectors_of_unit_length_in_their_order(server: Server) -> None:
    texts = [f"{'more words ' * (number * 7 % 30)}number {number}" for number in range(150)]

    made = embedder(server).embed_passages(texts)

    assert least_cosine(made, MEANING.embed_passages(texts)) > 0.9999
    assert all(math.hypot(*vector) == pytest.approx(1) for vector in made)
    assert [len(request.texts) for request in server.asked] == [64, 64, 22]


def test_a_question_is_embedded_as_a_passage(server: Server) -> None:
    assert embedder(server).embed_query("a question") == embedder(server).embed_passages(["a question"])[0]


def test_the_request_names_the_model_and_brings_the_key(server: Server) -> None:
    embedder(server).embed_query("a text")

    (request,) = server.asked
    assert request.path == "/v1/embeddings"
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert request.body == {"model": "a-model", "input": ["a text"], "encoding_format": "float"}


def test_no_texts_ask_nothing(server: Server) -> None:
    assert embedder(server).embed_passages([]) == []
    assert server.asked == []


def test_a_batch_of_long_texts_has_fewer(server: Server) -> None:
    embedder(server).embed_passages(["word " * 8_000] * 5)

    assert [len(request.texts) for request in server.asked] == [4, 1]


@pytest.mark.parametrize("text", ["", " \n", "\x00", "\ud800 half a pair", "東京は晴れ"])
def test_every_text_has_a_vector(server: Server, text: str) -> None:
    (vector,) = embedder(server).embed_passages([text])

    assert math.hypot(*vector) == pytest.approx(1)
    assert server.asked[0].texts[0].strip()


def test_a_text_longer_than_the_window_is_cut(server: Server) -> None:
    short = OpenAIEmbedder(Endpoint("a-model", None, server.url), max_tokens=10)

    short.embed_passages(["one two six ten cat dog fox sun sky sea too much"])
    short.embed_passages(["東京は晴れ、明日は雨"])

    assert [request.texts for request in server.asked] == [
        ["one two six ten cat dog fox sun sky sea"],
        ["東京は晴れ"],
    ]


def test_the_dimension_is_learnt_once(server: Server) -> None:
    learning = embedder(server)

    assert (learning.dimension, learning.dimension) == (DIMENSION, DIMENSION)
    assert len(server.asked) == 1


def test_a_dimension_that_is_asked_for_is_known(server: Server) -> None:
    asking = embedder(server, dimension=DIMENSION)

    assert asking.dimension == DIMENSION
    assert server.asked == []
    asking.embed_query("text")
    assert server.asked[0].body["dimensions"] == DIMENSION


def test_a_wrong_dimension_is_refused(server: Server) -> None:
    refused = refusal(embedder(server, dimension=5))

    assert str(refused) == f"{server.host} gave a vector of 8 dimensions where 5 were expected (model a-model)"


def test_a_dimension_that_changes_is_refused(server: Server) -> None:
    learning = embedder(server)
    learning.embed_query("text")
    server.next = [lambda _: Answer({"data": [{"index": 0, "embedding": [1.0, 2.0]}]})]

    assert "gave a vector of 2 dimensions where 8 were expected" in str(refusal(learning))


def too_many(_: Request) -> Answer:
    return Answer({"error": {"message": "slow down"}}, 429, AT_ONCE)


def test_a_refusal_that_passes_is_waited_for(server: Server) -> None:
    server.next = [too_many, too_many]

    (vector,) = embedder(server, passages=Patience(timedelta(seconds=5), retries=2)).embed_passages(["text"])

    assert least_cosine([vector], [MEANING.embed_query("text")]) > 0.9999
    assert len(server.asked) == 3


def test_a_refusal_that_stays_is_told(server: Server) -> None:
    server.next = [too_many] * 3

    refused = refusal(embedder(server, passages=Patience(timedelta(seconds=5), retries=2)))

    assert f"{server.host} answered 429: there were too many requests" in str(refused)
    assert len(server.asked) == 3


def test_a_question_is_not_asked_twice(server: Server) -> None:
    server.next = [too_many]

    with pytest.raises(EmbedderUnavailable, match="answered 429"):
        embedder(server).embed_query("text")

    assert len(server.asked) == 1


@pytest.mark.parametrize(("status", "cause", "mend"), [
    (400, "does not take the request", None),
    (401, "does not know the key", "set MEMSVC_EMBED_API_KEY"),
    (403, "does not let the key use the model", "set MEMSVC_EMBED_API_KEY"),
    (404, "no such model", "check the model's name, and that the base URL ends where /embeddings is to follow"),
    (413, "wants less at a time", None),
    (500, "is in trouble", None),
])  # fmt: skip
def test_an_answer_that_refuses_is_told_without_its_words(
    server: Server, status: int, cause: str, mend: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.next = [lambda request: Answer({"error": {"message": f"{KEY} {request.texts}", "code": KEY}}, status)]

    refused = refusal(embedder(server))

    assert str(refused).startswith(f"{server.host} answered {status}: ")
    assert cause in str(refused)
    assert refused.mend == mend
    assert refused.__context__ is None
    assert KEY not in caplog.text
    assert "swordfish" not in caplog.text


def answering(content: object) -> Answering:
    return lambda _: Answer(content)


def one(embedding: object, **others: object) -> object:
    return {"data": [{"index": 0, "embedding": embedding, **others}]}


@pytest.mark.parametrize("content", [
    "<html>a proxy</html>", {}, [], {"data": None}, {"data": []}, {"data": "words"}, {"error": "none"},
    one(None), one("AAAA"), one([1.0, None]), one([1.0], index=1), {"data": [{"embedding": [1.0]}]},
    {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}]},
], ids=str)  # fmt: skip
def test_an_answer_that_is_none_is_told(server: Server, content: object) -> None:
    server.next = [answering(content)]

    assert "gave an answer that is not a list of 1 vectors" in str(refusal(embedder(server)))


@pytest.mark.parametrize("embedding", [[0.0, 0.0], [1.0, math.nan], [1.0, math.inf]], ids=str)
def test_a_vector_without_a_direction_is_refused(server: Server, embedding: list[float]) -> None:
    server.next = [answering(one(embedding))]

    assert str(refusal(embedder(server))) == f"a-model at {server.host} gave a vector without a direction"


def test_silence_is_not_waited_for(server: Server) -> None:
    server.next = [server.silence] * 2

    refused = refusal(embedder(server, passages=Patience(timedelta(milliseconds=200), retries=0)))

    assert str(refused) == f"{server.host} did not answer within 0.2 seconds (model a-model)"


def test_an_address_where_nobody_is_says_so() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        refused = refusal(OpenAIEmbedder(Endpoint("a-model", None, url), api_key=KEY, passages=ONCE))

    assert "cannot be reached: Connection refused" in str(refused)


def test_several_threads_may_use_it_at_once(server: Server) -> None:
    shared = embedder(server)

    with ThreadPoolExecutor(4) as executor:
        made = list(executor.map(shared.embed_query, ["the same text"] * 8))

    assert made == [made[0]] * 8


@pytest.mark.parametrize(("name", "endpoint", "model"), [
    ("small", Endpoint("small"), "openai:small"),
    ("small:512", Endpoint("small", 512), "openai:small:512"),
    ("small@https://api.openai.com/v1/", Endpoint("small"), "openai:small"),
    ("nomic:latest@http://localhost:11434/v1", Endpoint("nomic:latest", None, "http://localhost:11434/v1"),
     "openai:nomic:latest@localhost:11434/v1"),
    ("a/b:latest:64@https://Host.example", Endpoint("a/b:latest", 64, "https://host.example"),
     "openai:a/b:latest:64@host.example"),
    ("@cf/baai/bge@https://host.example/x/", Endpoint("@cf/baai/bge", None, "https://host.example/x"),
     "openai:@cf/baai/bge@host.example/x"),
])  # fmt: skip
def test_a_name_holds_model_dimension_and_address(name: str, endpoint: Endpoint, model: str) -> None:
    assert openai_api.endpoint(name) == endpoint
    assert load(f"openai:{name}").model == model


@pytest.mark.parametrize("name", [
    "small@localhost:11434/v1", "small@ftp://host/v1", "a model", "small@https://", "small@https://host:swordfish",
    "small@https://user:swordfish@host/v1", "small@https://swordfish@host/v1", "small@https://host/v1?key=swordfish",
    "small@https://[::1/v1", "small@swordfish@https://host/v1",
])  # fmt: skip
def test_a_name_that_could_hold_a_key_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(WrongUse) as refused:
        load(f"openai:{name}")

    assert refused.value.mend is not None
    assert "swordfish" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(("environ", "authorization"), [
    ({}, "Bearer none"),
    ({"OPENAI_API_KEY": "sk-openai"}, "Bearer none"),
    ({"MEMSVC_EMBED_API_KEY": " sk-own\n", "OPENAI_API_KEY": "sk-openai"}, "Bearer sk-own"),
])  # fmt: skip
def test_openais_key_goes_nowhere_else(server: Server, environ: dict[str, str], authorization: str) -> None:
    configured(f"openai:a-model@{server.url}", **environ).embed_query("text")

    assert server.asked[0].headers["Authorization"] == authorization


@pytest.mark.parametrize(("environ", "key"), [
    ({}, None),
    ({"OPENAI_API_KEY": "sk-openai"}, "sk-openai"),
    ({"MEMSVC_EMBED_API_KEY": "sk-own", "OPENAI_API_KEY": "sk-openai"}, "sk-own"),
])  # fmt: skip
def test_openai_gets_its_key_unless_there_is_one_for_embedding(environ: dict[str, str], key: str | None) -> None:
    settings = memsvc.settings.load({"MEMSVC_DATA_DIR": ".", **environ})

    assert openai_api.key(settings, Endpoint("small")) == key


def test_openai_itself_wants_a_key() -> None:
    refused = refusal(configured("openai:small"))

    assert (str(refused), refused.mend) == ("there is no key for api.openai.com", "set MEMSVC_EMBED_API_KEY")


def test_the_settings_do_not_show_the_keys() -> None:
    settings = memsvc.settings.load({"MEMSVC_DATA_DIR": ".", "MEMSVC_EMBED_API_KEY": KEY, "OPENAI_API_KEY": KEY})

    assert settings.embed_api_key == KEY
    assert KEY not in repr(settings)


def test_a_key_that_is_none_is_refused(server: Server) -> None:
    refused = refusal(configured(f"openai:a-model@{server.url}", MEMSVC_EMBED_API_KEY="sk-\n-swordfish"))

    assert str(refused) == f"the key for {server.host} holds characters that no key has"


def test_the_window_is_a_setting() -> None:
    assert configured("openai:small").max_tokens == 8191
    assert configured("openai:small", MEMSVC_EMBED_MAX_TOKENS="512").max_tokens == 512


def test_without_the_package_it_says_what_to_install() -> None:
    program = """
import sys
sys.modules["openai"] = None
from memsvc.embedding.openai_api import Endpoint, OpenAIEmbedder
from memsvc.errors import EmbedderUnavailable
try:
    OpenAIEmbedder(Endpoint("small"), api_key="sk").embed_query("text")
except EmbedderUnavailable as exc:
    print(exc.mend)
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert finished.stdout.strip() == "pip install 'memsvc[llm]'"


COUNTING = OpenAIEmbedder(Endpoint("small"), max_tokens=64)


@given(text=TEXTS, room=st.integers(0, 56))
def test_spans_cover_the_text_and_fit_the_window(text: str, room: int) -> None:
    check_fit(text, COUNTING.spans(text, room=room), COUNTING, 64 - room)


@pytest.mark.parametrize(("text", "tokens"), [
    ("", 0), (" \n", 0), ("one two", 2), ("embeddings", 4), ("é", 1), ("東京", 4), ("\U0001f600", 3), ("a\n\n\n\nb", 4),
])  # fmt: skip
def test_tokens_are_estimated(text: str, tokens: int) -> None:
    assert COUNTING.count_tokens(text) == tokens


@pytest.mark.parametrize(
    "text",
    [prose(20_000), "今日は晴れ、明日は雨。" * 50, Path(openai_api.__file__).read_text(encoding="utf-8")],
    ids=["prose", "japanese", "code"],
)
def test_the_estimate_is_above_what_a_tokeniser_counts(text: str) -> None:
    assert COUNTING.count_tokens(text) >= BuiltinEmbedder().count_tokens(text)
