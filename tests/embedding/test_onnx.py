from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from memsvc.embedding.builtin import BuiltinEmbedder
from memsvc.embedding.embedder import Embedder, Vector, load
from memsvc.errors import EmbedderUnavailable, WrongUse
from tests.embedding.packaged import MODEL_FILE, TOKENIZER_FILE
from tests.embedding.texts import TEXTS, check_fit, pieces
from tests.embedding.vectors import cosine, least_cosine

BUILTIN = BuiltinEmbedder()
PROSE = ["The lease ends after ninety seconds.", "Über München fliegt ein Vogel.", "東京は晴れ", "", "word " * 300]

MakeFolder = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> MakeFolder:
    """Makes a folder of the built-in model with the given files added, each a text or what becomes JSON."""

    def make(name: str = "minilm", *, weights: str = "model.onnx", **added: object) -> Path:
        folder = tmp_path / name
        (folder / weights).parent.mkdir(parents=True)
        (folder / weights).symlink_to(MODEL_FILE)
        shutil.copy(TOKENIZER_FILE, folder / "tokenizer.json")
        for file, content in ({"sentence_bert_config": {"max_seq_length": 256}} | added).items():
            path = folder / f"{file.replace('__', '/')}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return folder

    return make


def opened(folder: Path) -> Embedder:
    return load(f"onnx:{folder}")


def pooled(text: str, pool: Callable[[np.ndarray], np.ndarray]) -> Vector:
    """What the model gives when run by hand."""
    ids = Tokenizer.from_file(str(TOKENIZER_FILE))
    ids.no_padding()
    tokens = np.array([ids.encode(text).ids])
    session = onnxruntime.InferenceSession(MODEL_FILE, providers=["CPUExecutionProvider"])
    feed = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)}
    row = pool(np.asarray(session.run(None, feed)[0])[0])
    vector: Vector = (row / np.linalg.norm(row)).tolist()
    return vector


def refusal(embedder: Embedder) -> EmbedderUnavailable:
    with pytest.raises(EmbedderUnavailable) as refused:
        embedder.embed_query("text")
    return refused.value


def test_a_folder_of_the_built_in_model_gives_its_vectors(make: MakeFolder) -> None:
    embedder = opened(
        make(**{"1_Pooling__config": {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}})
    )

    assert embedder.embed_passages(PROSE) == BUILTIN.embed_passages(PROSE)
    assert embedder.embed_query(PROSE[0]) == BUILTIN.embed_query(PROSE[0])
    assert (embedder.dimension, embedder.max_tokens) == (384, 256)
    assert embedder.count_tokens("embeddings") == 4


def test_the_name_is_the_folder_and_the_weights(make: MakeFolder, tmp_path: Path) -> None:
    folder = make("my-model")
    (tmp_path / "current").symlink_to(folder)

    assert opened(folder).model == "onnx:my-model@8199be6f699a"
    assert opened(tmp_path / "current").model == "onnx:my-model@8199be6f699a"


@pytest.mark.parametrize("weights", ["model.onnx", "onnx/model.onnx", "minilm-int8.onnx", "onnx/minilm.onnx"])
def test_the_weights_are_found(make: MakeFolder, weights: str) -> None:
    assert opened(make(weights=weights)).embed_query("text") == BUILTIN.embed_query("text")


@pytest.mark.parametrize("config", [
    {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    {"pooling_mode": "cls", "embedding_dimension": 384},
    {"pooling_mode": ["cls"]},
])  # fmt: skip
def test_cls_pooling_takes_the_first_token(make: MakeFolder, config: object) -> None:
    embedder = opened(make(**{"1_Pooling__config": config}))

    by_hand = pooled("a short text", lambda hidden: hidden[0])
    assert cosine(embedder.embed_query("a short text"), by_hand) > 0.9999
    assert cosine(BUILTIN.embed_query("a short text"), by_hand) < 0.99


def test_max_pooling_takes_the_largest_of_each_and_no_padding(make: MakeFolder) -> None:
    embedder = opened(make(**{"1_Pooling__config": {"pooling_mode": "max"}}))

    (short, _) = embedder.embed_passages(["a short text", "a text that is so much longer that the short one is padded"])

    assert cosine(short, pooled("a short text", lambda hidden: hidden.max(axis=0))) > 0.9999


def test_the_pooling_folder_is_the_one_that_the_modules_name(make: MakeFolder) -> None:
    steps = [
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    named = opened(make("named", modules=steps, pooling__config={"pooling_mode": "cls"}))
    usual = opened(make("usual", **{"1_Pooling__config": {"pooling_mode": "cls"}}))

    assert named.embed_query("text") == usual.embed_query("text")


@pytest.mark.parametrize(("added", "window"), [
    ({"sentence_bert_config": {"max_seq_length": 32}, "tokenizer_config": {"model_max_length": 512}}, 32),
    ({"sentence_bert_config": {"max_seq_length": None}, "tokenizer_config": {"model_max_length": 64}}, 64),
    ({"sentence_bert_config": {}, "tokenizer_config": {"model_max_length": 10**30}}, 256),
    ({"sentence_bert_config": {}}, 256),
])  # fmt: skip
def test_the_window_is_the_one_that_the_folder_names(make: MakeFolder, added: dict[str, object], window: int) -> None:
    embedder = opened(make(**added))

    fits, more = "alpha " * (window - 2), "zebra " * 9
    assert embedder.max_tokens == window
    assert pieces(fits + more, embedder.spans(fits + more))[0] == fits.strip()
    assert least_cosine([embedder.embed_query(fits + more)], [embedder.embed_query(fits)]) > 0.9999
    assert cosine(embedder.embed_query("alpha " + more), embedder.embed_query("alpha")) < 0.99


@pytest.mark.parametrize("config", [
    {"prompts": {"query": "query: ", "passage": "passage: "}},
    {"prompts": {"query": "query: ", "document": "passage: "}, "default_prompt_name": None},
    {"prompts": {"query": "query: ", "stored": "passage: "}, "default_prompt_name": "stored"},
])  # fmt: skip
def test_prompts_go_before_the_text_and_take_their_room(make: MakeFolder, config: object) -> None:
    embedder = opened(make(config_sentence_transformers=config))

    assert embedder.embed_query("a text") == BUILTIN.embed_query("query: a text")
    assert embedder.embed_passages(["a text"]) == BUILTIN.embed_passages(["passage: a text"])
    assert len(embedder.spans("word " * 252)) == 1
    assert len(embedder.spans("word " * 253)) == 2


def test_spans_cover_the_text_and_fit_the_window(make: MakeFolder) -> None:
    embedder = opened(make(sentence_bert_config={"max_seq_length": 24}))

    @settings(deadline=None)
    @given(text=TEXTS, room=st.integers(0, 14))
    def check(text: str, room: int) -> None:
        check_fit(text, embedder.spans(text, room=room), embedder, 22 - room)

    check()
    with pytest.raises(WrongUse, match="7 tokens are left"):
        embedder.spans("text", room=15)


def test_nothing_is_read_before_the_first_use(tmp_path: Path) -> None:
    embedder = opened(tmp_path / "later")

    assert str(refusal(embedder)) == f"{tmp_path / 'later'} is not a folder"


@pytest.mark.parametrize(("added", "message"), [
    ({"modules": [{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]}, "not in its ONNX file: Dense"),
    ({"modules": ["Transformer"]}, "modules.json is not a list of steps"),
    ({"modules": {}}, "modules.json does not hold what it should"),
    ({"modules": "[}"}, "modules.json is not JSON"),
    ({"1_Pooling__config": {"pooling_mode_lasttoken": True}}, "pools by pooling_mode_lasttoken"),
    ({"1_Pooling__config": {"pooling_mode": ["mean", "max"]}}, "pools by mean and max"),
    ({"1_Pooling__config": {"pooling_mode": "mean", "include_prompt": False}}, "leaves the prompt out"),
    ({"config_sentence_transformers": {"prompts": ["query: "]}}, "prompts in .* are not a table"),
    ({"tokenizer": "{}"}, "the tokeniser of onnx:minilm@8199be6f699a cannot be loaded"),
])  # fmt: skip
def test_a_folder_that_cannot_be_run_says_why(make: MakeFolder, added: dict[str, object], message: str) -> None:
    with pytest.raises(EmbedderUnavailable, match=message):
        opened(make(**added)).embed_query("text")


def test_a_folder_with_more_steps_is_one_for_sentence_transformers(make: MakeFolder) -> None:
    folder = make(modules=[{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])

    assert refusal(opened(folder)).mend == f"name it st:{folder}"


def test_missing_files_are_named(make: MakeFolder) -> None:
    folder = make()
    (folder / "tokenizer.json").unlink()
    assert f"cannot read {folder / 'tokenizer.json'}" in str(refusal(opened(folder)))

    (folder / "model.onnx").unlink()
    assert str(refusal(opened(folder))) == f"{folder} has no .onnx file"


def test_one_of_several_models_must_be_called_model(make: MakeFolder) -> None:
    folder = make(weights="a.onnx")
    (folder / "b.onnx").touch()
    refused = refusal(opened(folder))
    assert (str(refused), refused.mend) == (
        f"{folder} has several models: a.onnx, b.onnx",
        "call the one that is meant model.onnx",
    )

    (folder / "b.onnx").rename(folder / "model.onnx")
    assert "cannot be loaded" in str(refusal(opened(folder)))


def test_weights_that_change_after_they_were_named_are_refused(make: MakeFolder) -> None:
    folder = make()
    embedder = opened(folder)
    assert embedder.model == "onnx:minilm@8199be6f699a"
    (folder / "model.onnx").unlink()
    (folder / "model.onnx").write_bytes(b"other")

    assert "expected 8199be6f" in str(refusal(embedder))


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 0x7F | 0x80, number >> 7])


def field(number: int, *values: bytes | int) -> bytes:
    """A field of a protocol buffer, for each value: a nested message or a number."""
    return b"".join(
        varint(number << 3) + varint(value)
        if isinstance(value, int)
        else varint(number << 3 | 2) + varint(len(value)) + value
        for value in values
    )


def model_of_one_step(step: bytes, taken: str, made: str, *, axes: int) -> bytes:
    """An ONNX model that does one thing to whole numbers in two axes."""

    def value(name: str, axes: int) -> bytes:
        shape = field(1, *[field(2, letter.encode()) for letter in "abc"[:axes]])
        return field(1, name.encode()) + field(2, field(1, field(1, 7) + field(2, shape)))

    node = field(1, taken.encode()) + field(2, made.encode()) + step
    graph = field(1, node) + field(2, b"g") + field(11, value(taken, 2)) + field(12, value(made, axes))
    return field(1, 6) + field(7, graph) + field(8, field(2, 11))


IDENTITY = field(4, b"Identity")
INTO_VECTORS = field(4, b"Unsqueeze") + field(5, field(1, b"axes") + field(8, 2) + field(20, 7))


@pytest.mark.parametrize(("taken", "made", "message"), [
    ("pixels", "last_hidden_state", "wants inputs that no text encoder has: pixels"),
    ("input_ids", "logits", "has no output last_hidden_state or token_embeddings, only logits"),
    ("input_ids", "last_hidden_state", "does not give a vector for each token"),
])  # fmt: skip
def test_a_model_that_is_no_text_encoder_is_refused(make: MakeFolder, taken: str, made: str, message: str) -> None:
    folder = make(weights="other.onnx")
    (folder / "model.onnx").write_bytes(model_of_one_step(IDENTITY, taken, made, axes=2))

    assert message in str(refusal(opened(folder)))


def test_a_model_is_given_the_inputs_that_it_wants(make: MakeFolder) -> None:
    folder = make(weights="other.onnx")
    (folder / "model.onnx").write_bytes(model_of_one_step(INTO_VECTORS, "input_ids", "token_embeddings", axes=3))
    embedder = opened(folder)

    assert embedder.dimension == 1
    assert embedder.embed_passages(["one", "and another"]) == [[1.0], [1.0]]
