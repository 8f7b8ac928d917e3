"""Runs a text model that is kept as an ONNX file, on the processor."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memsvc.embedding import batches
from memsvc.embedding.embedder import Span, Vector
from memsvc.embedding.once import Once
from memsvc.embedding.prompts import NO_PROMPTS, Prompts
from memsvc.embedding.tokens import Tokens
from memsvc.embedding.unit import unit
from memsvc.errors import EmbedderUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from onnxruntime import InferenceSession

Pooling = Literal["mean", "cls", "max"]

_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_HIDDEN = ("last_hidden_state", "token_embeddings")


@dataclass(frozen=True)
class OnnxModel:
    """
    What an ONNX embedder is made of.

    `window` counts tokens, special ones among them. `weights` and `tokenizer` read the files when they are called.
    `dimension` is None where only a first vector tells it.
    """

    name: str
    window: int
    weights: Callable[[], bytes]
    tokenizer: Callable[[], bytes]
    pooling: Pooling = "mean"
    prompts: Prompts = NO_PROMPTS
    dimension: int | None = None


class OnnxEmbedder:
    """
    Embeds with an ONNX model; `model` is called at the first use.

    Nothing else is read before it is needed; splitting and counting read the tokeniser alone. Every method raises
    EmbedderUnavailable if a file it needs is missing, or is not the one it should be.
    """

    def __init__(self, model: Callable[[], OnnxModel], *, threads: int = 1) -> None:
        self._made_of = Once(model)
        self._session = Once(lambda: _Session(self._made_of.get(), threads))
        self._tokens = Once(lambda: _open_tokens(self._made_of.get()))
        self._dimension = Once(lambda: self._made_of.get().dimension or len(self.embed_query("")))

    @property
    def model(self) -> str:
        """What made the vectors."""
        return self._made_of.get().name

    @property
    def dimension(self) -> int:
        """The length of every vector."""
        return self._dimension.get()

    @property
    def max_tokens(self) -> int:
        """The model's window in tokens, its own special tokens counted."""
        return self._made_of.get().window

    def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """One vector of unit length for each text, made of what the window holds of it."""
        return self._embed(texts, self._made_of.get().prompts.passage)

    def embed_query(self, text: str) -> Vector:
        """The vector of a question."""
        (vector,) = self._embed([text], self._made_of.get().prompts.query)
        return vector

    def spans(self, text: str, *, room: int = 0, limit: int | None = None) -> list[Span]:
        """The spans, or the first `limit` of them, that fit the window less `room`."""
        return self._tokens.get().spans(text, room=room, limit=limit)

    def count_tokens(self, text: str) -> int:
        """The number of tokens; exact unless the text has thousands of characters without white space."""
        return self._tokens.get().count(text)

    def _embed(self, texts: Sequence[str], prefix: str) -> list[Vector]:
        token_ids = [self._tokens.get().ids(text, prefix=prefix) for text in texts]
        lengths = [len(ids) for ids in token_ids]
        return batches.embed(token_ids, lengths, self._vectors)

    def _vectors(self, token_ids: list[list[int]]) -> list[Vector]:
        return self._session.get().vectors(token_ids)


class _Session:
    """A model that is loaded."""

    def __init__(self, model: OnnxModel, threads: int) -> None:
        self._model = model
        self._session = _open_session(model, threads)
        self._inputs = _inputs(self._session, model.name)
        self._output = _output(self._session, model.name)

    def vectors(self, token_ids: list[list[int]]) -> list[Vector]:
        """One vector of unit length for each row of tokens."""
        import numpy as np

        ids = np.zeros((len(token_ids), max(map(len, token_ids))), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(token_ids):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        hidden = self._run({"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})
        return unit(_POOL[self._model.pooling](hidden, mask), made_by=self._model.name)

    def _run(self, feed: dict[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        import numpy as np

        wanted = {name: feed[name] for name in self._inputs}
        try:
            hidden = np.asarray(self._session.run([self._output], wanted)[0], dtype=np.float32)
        except Exception as exc:  # onnxruntime's errors have no common parent of their own
            raise EmbedderUnavailable(f"{self._model.name} cannot be run: {exc}") from exc
        if hidden.ndim != 3:
            raise EmbedderUnavailable(f"{self._model.name} does not give a vector for each token")
        return hidden


def _open_session(model: OnnxModel, threads: int) -> InferenceSession:
    content = model.weights()
    # Else it makes a device id and a store of events in the home folder as soon as it is imported.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except ImportError as exc:
        raise _not_importable("onnxruntime", exc) from exc

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # spinning slows whoever shares the cores
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as exc:  # onnxruntime's errors have no common parent of their own
        raise EmbedderUnavailable(f"{model.name} cannot be loaded: {exc}") from exc


def _inputs(session: InferenceSession, name: str) -> list[str]:
    wanted: list[str] = [given.name for given in session.get_inputs()]
    if unknown := sorted(set(wanted) - _INPUTS):
        raise EmbedderUnavailable(f"{name} wants inputs that no text encoder has: {', '.join(unknown)}")
    return wanted


def _output(session: InferenceSession, name: str) -> str:
    """The output that holds a vector for each token."""
    given: list[str] = [output.name for output in session.get_outputs()]
    found = next((known for known in _HIDDEN if known in given), None)
    if found is None:
        raise EmbedderUnavailable(f"{name} has no output {' or '.join(_HIDDEN)}, only {', '.join(given)}")
    return found


def _open_tokens(model: OnnxModel) -> Tokens:
    content = model.tokenizer()
    try:
        from tokenizers import Tokenizer
    except ImportError as exc:
        raise _not_importable("tokenizers", exc) from exc
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except ValueError as exc:
        raise EmbedderUnavailable(f"the tokeniser of {model.name} cannot be loaded: {exc}") from exc
    return Tokens(tokenizer, model.window, prefix=model.prompts.passage)


def _not_importable(package: str, exc: ImportError) -> EmbedderUnavailable:
    return EmbedderUnavailable(f"{package} cannot be imported: {exc}", mend=f"pip install --force-reinstall {package}")


def _mean(hidden: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    import numpy as np

    summed: NDArray[np.float32] = (hidden * mask[:, :, np.newaxis].astype(np.float32)).sum(axis=1)
    return summed  # its direction is the mean's


def _largest(hidden: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    import numpy as np

    largest: NDArray[np.float32] = np.where(mask[:, :, np.newaxis] == 1, hidden, -np.inf).max(axis=1)
    return largest


_POOL: dict[Pooling, Callable[[NDArray[np.float32], NDArray[np.int64]], NDArray[np.float32]]] = {
    "mean": _mean,
    "cls": lambda hidden, _: hidden[:, 0],
    "max": _largest,
}
