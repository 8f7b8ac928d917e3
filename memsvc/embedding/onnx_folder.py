"""Reads a folder that sentence-transformers would know, with the model as an ONNX file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memsvc.embedding import files, prompts, tokens
from memsvc.embedding.onnx import OnnxModel, Pooling
from memsvc.embedding.prompts import Prompts
from memsvc.errors import EmbedderUnavailable

_USUAL_FILES = ("model.onnx", "onnx/model.onnx")
_STEPS = frozenset({"Transformer", "Pooling", "Normalize"})
_POOLINGS: dict[str, Pooling] = {"mean": "mean", "cls": "cls", "max": "max"}
_OLD_POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}


def read(folder: Path) -> OnnxModel:
    """
    The model in the folder, named after it and the first 12 digits of its weights' SHA-256.

    Pooling, prompts and window are not in the name: a folder in which they are changed wants another one.

    Raises:
        EmbedderUnavailable: it is no such folder, or what it describes cannot be run from its ONNX file alone.
    """
    folder = folder.expanduser().resolve()
    weights_file, steps = _weights_file(folder), _steps(folder)
    weights_sha256 = files.digest([weights_file])
    return OnnxModel(
        name=f"onnx:{folder.name}@{weights_sha256[:12]}",
        window=_window(folder),
        weights=lambda: files.checked(weights_file, weights_sha256, mend="start again: the file has changed"),
        tokenizer=lambda: files.read(folder / "tokenizer.json"),
        pooling=_pooling(folder / steps.get("Pooling", "1_Pooling") / "config.json"),
        prompts=_prompts(folder / "config_sentence_transformers.json"),
    )


def _weights_file(folder: Path) -> Path:
    if not folder.is_dir():
        raise EmbedderUnavailable(f"{folder} is not a folder")
    for name in _USUAL_FILES:
        if (folder / name).is_file():
            return folder / name
    found = sorted(folder.glob("*.onnx")) or sorted(folder.glob("onnx/*.onnx"))
    if not found:
        raise EmbedderUnavailable(f"{folder} has no .onnx file")
    if len(found) > 1:
        names = ", ".join(str(file.relative_to(folder)) for file in found)
        raise EmbedderUnavailable(f"{folder} has several models: {names}", mend="call the one that is meant model.onnx")
    return found[0]


def _steps(folder: Path) -> dict[str, str]:
    """The folder of each step that makes a vector of a text, by the step's type."""
    steps = _json(folder / "modules.json", list) or []
    try:
        found = {str(step["type"]).rpartition(".")[2]: str(step["path"]) for step in steps}
    except (KeyError, TypeError) as exc:
        raise EmbedderUnavailable(f"{folder / 'modules.json'} is not a list of steps") from exc
    if unknown := sorted(set(found) - _STEPS):
        raise EmbedderUnavailable(
            f"{folder} has steps that are not in its ONNX file: {', '.join(unknown)}", mend=f"name it st:{folder}"
        )
    return found


def _window(folder: Path) -> int:
    own = _object(folder / "sentence_bert_config.json").get("max_seq_length")
    general = _object(folder / "tokenizer_config.json").get("model_max_length")
    return tokens.window(own, general)


def _pooling(file: Path) -> Pooling:
    config = _object(file)
    if not config.get("include_prompt", True):
        raise EmbedderUnavailable(f"{file} leaves the prompt out of the pooling, which cannot be done here")
    modes = _modes(config)
    if len(modes) > 1 or modes[0] not in _POOLINGS:
        raise EmbedderUnavailable(f"{file} pools by {' and '.join(modes)}; here only {', '.join(_POOLINGS)} is done")
    return _POOLINGS[modes[0]]


def _modes(config: Mapping[str, Any]) -> list[str]:
    named = config.get("pooling_mode")
    if isinstance(named, str):
        return [named]
    switched_on = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    return list(named or ()) or [_OLD_POOLINGS.get(key, key) for key in switched_on] or ["mean"]


def _prompts(file: Path) -> Prompts:
    config = _object(file)
    named = config.get("prompts") or {}
    if not isinstance(named, Mapping):
        raise EmbedderUnavailable(f"the prompts in {file} are not a table of names and texts")
    return prompts.choose(named, config.get("default_prompt_name"))


def _object(file: Path) -> dict[str, Any]:
    return _json(file, dict) or {}


def _json(file: Path, kind: type[Any]) -> Any:
    """What the file holds; None if there is none."""
    if not file.exists():
        return None
    try:
        value = json.loads(files.read(file))
    except ValueError as exc:
        raise EmbedderUnavailable(f"{file} is not JSON: {exc}") from exc
    if not isinstance(value, kind):
        raise EmbedderUnavailable(f"{file} does not hold what it should")
    return value
