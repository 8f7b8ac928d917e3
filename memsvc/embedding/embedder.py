"""What an embedder is, and how one is chosen by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from memsvc.errors import WrongUse

if TYPE_CHECKING:
    from memsvc.settings import Settings

# A plain list: HalfVector and Vector of pgvector take it as it is, callers need no numpy, and an array handed to
# psycopg by mistake would quietly travel as `vector` where the column is a `halfvec`.
Vector = list[float]
Span = tuple[int, int]

_FORMS = "builtin, onnx:<folder>, st:<name or folder>, openai:<model>@<base url>"
_HASH_NAME = re.compile(r"hash:([1-9][0-9]{0,4})")


class Embedder(Protocol):
    """
    Turns texts into vectors of unit length, so that the inner product is the cosine.

    Every text gives a vector: one longer than the window is cut at its end, an empty one has a vector too. May be
    used from several threads at once.
    """

    @property
    def model(self) -> str:
        """What made the vectors, so that those of different models never meet: model, variant and settings."""
        ...

    @property
    def dimension(self) -> int:
        """The length of every vector."""
        ...

    @property
    def max_tokens(self) -> int:
        """The model's window in tokens, its own special tokens counted."""
        ...

    def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """Vectors of stored texts, in their order."""
        ...

    def embed_query(self, text: str) -> Vector:
        """The vector of a question; some models prefix it."""
        ...

    def spans(self, text: str, *, room: int = 0, limit: int | None = None) -> list[Span]:
        """
        Character ranges (end excluded) that cover the text and each fit the model's window, less `room` tokens.

        A text that fits gives one span, unless it takes over 80 characters to the token; a blank one gives none.
        Spans are in order, do not overlap and leave out only white space. `limit` asks for the first so many, which
        saves the time that the rest of a long text would take; None asks for all.

        Raises:
            WrongUse: `room` leaves next to nothing of the window.
        """
        ...

    def count_tokens(self, text: str) -> int:
        """How many of the window's tokens the text takes, special tokens not counted."""
        ...


def load(name: str, *, threads: int = 1, settings: Settings | None = None) -> Embedder:
    """
    The embedder of that name.

    `builtin`; `onnx:<folder>`; `st:<name or folder>` for sentence-transformers; `openai:<model>@<base url>`; or
    `hash:<dimension>`, which knows no meaning and is for tests.

    Cheap: a model is read at its first use. `threads` is how many one embedding may use. `settings` hold the keys of
    endpoints; None reads the environment.

    Raises:
        WrongUse: the name is not one of these.
    """
    if name == "builtin":
        from memsvc.embedding.builtin import BuiltinEmbedder

        return BuiltinEmbedder(threads=threads)
    if hashing := _HASH_NAME.fullmatch(name):
        from memsvc.embedding.hashing import HashingEmbedder

        return HashingEmbedder(int(hashing[1]))
    kind, _, rest = name.partition(":")
    if kind in _CHOOSERS and rest:
        return _CHOOSERS[kind](rest, threads, settings)
    raise WrongUse(f"no embedder is called {name!r}", mend=f"choose {_FORMS}, or hash:<dimension> for tests")


def _onnx(folder: str, threads: int, _: Settings | None) -> Embedder:
    from memsvc.embedding import onnx, onnx_folder

    return onnx.OnnxEmbedder(lambda: onnx_folder.read(Path(folder)), threads=threads)


def _sentence(name: str, threads: int, _: Settings | None) -> Embedder:
    from memsvc.embedding import sentence

    return sentence.SentenceEmbedder(sentence.source(name), threads=threads)


def _openai(name: str, _: int, settings: Settings | None) -> Embedder:
    from memsvc.embedding import openai_api
    from memsvc.settings import load as load_settings

    endpoint = openai_api.endpoint(name)
    known = settings or load_settings()
    key = openai_api.key(known, endpoint)
    return openai_api.OpenAIEmbedder(endpoint, api_key=key, max_tokens=known.embed_max_tokens)


_CHOOSERS = {"onnx": _onnx, "st": _sentence, "openai": _openai}
