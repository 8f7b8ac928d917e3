"""Embeddings from any endpoint that speaks OpenAI's /embeddings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from memsvc.embedding import batches, spans
from memsvc.embedding.embedder import Span, Vector
from memsvc.embedding.encodable import encodable
from memsvc.embedding.once import Once
from memsvc.embedding.unit import unit
from memsvc.errors import EmbedderUnavailable, WrongUse
from memsvc.settings import Settings

if TYPE_CHECKING:
    from openai import APIError, OpenAI
    from openai.types import CreateEmbeddingResponse

OPENAI = "https://api.openai.com/v1"

# An @ begins the names of some hosts' models; anywhere else it would be an address that lacks its https://.
_NAME = re.compile(r"(?P<model>@?[^@\s]+?)(?::(?P<dimension>[1-9][0-9]{0,4}))?(?:@(?P<url>https?://\S+))?", re.ASCII)
_NO_NAME = "what follows openai: is not a model, or not an address"  # not repeated: it could hold a password
_FORM = "choose openai:<model>@https://<host>/v1"
_INSTALL = "pip install 'memsvc[llm]'"
_NO_KEY = "none"  # servers without keys want a header all the same, or do not look
_BATCH = 64
_BATCH_TOKENS = 32_768
_BLANK = "."  # the endpoints refuse an empty text

# Up to three letters or digits, or one of whatever else there is; then the white space after it.
_PIECE = re.compile(r"([A-Za-z0-9]{1,3}|\S)(\s*)")

_CAUSES = {
    400: "it does not take the request, perhaps not the dimension or the length",
    401: "it does not know the key",
    403: "it does not let the key use the model",
    404: "it has no such model or no such address",
    413: "it wants less at a time",
    429: "there were too many requests, or the quota is used up",
}
_MENDS = {
    401: "set MEMSVC_EMBED_API_KEY",
    403: "set MEMSVC_EMBED_API_KEY",
    404: "check the model's name, and that the base URL ends where /embeddings is to follow",
}


@dataclass(frozen=True)
class Endpoint:
    """A model behind an address. `dimension` is the one to ask for, None for what the model gives by itself."""

    model: str
    dimension: int | None = None
    base_url: str = OPENAI

    @property
    def host(self) -> str:
        """Who answers, for messages."""
        return urlsplit(self.base_url).netloc

    @property
    def name(self) -> str:
        """The name under which vectors are recorded: the model, its dimension if asked for, and whose it is."""
        dimension = f":{self.dimension}" if self.dimension else ""
        url = urlsplit(self.base_url)
        place = "" if self.base_url == OPENAI else f"@{url.netloc}{url.path}"
        return f"openai:{self.model}{dimension}{place}"


def endpoint(name: str) -> Endpoint:
    """
    The endpoint of a name: `<model>`, `<model>:<dimension>`, each with `@<base url>` or without, which is OpenAI.

    Raises:
        WrongUse: it is none of these, or its address holds a key, which would be written wherever the name is.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise WrongUse(_NO_NAME, mend=_FORM)
    dimension = int(found["dimension"]) if found["dimension"] else None
    return Endpoint(found["model"], dimension, _checked(found["url"] or OPENAI))


def _checked(base_url: str) -> str:
    try:
        url = urlsplit(base_url)
        known = url.hostname is not None and url.port != 0  # reading the port checks it
    except ValueError:
        raise WrongUse(_NO_NAME, mend=_FORM) from None  # it quotes what it could not read
    if not known:
        raise WrongUse(_NO_NAME, mend=_FORM)
    if url.username is not None or url.query or url.fragment:
        raise WrongUse("the base URL of the embedder holds more than an address", mend="set MEMSVC_EMBED_API_KEY")
    return f"{url.scheme}://{url.netloc.lower()}{url.path.rstrip('/')}"


def key(settings: Settings, endpoint: Endpoint) -> str | None:
    """The key to send; OpenAI's own goes nowhere else."""
    if settings.embed_api_key is None and endpoint.base_url == OPENAI:
        return settings.openai_api_key
    return settings.embed_api_key


@dataclass(frozen=True)
class Patience:
    """How long to wait for one answer, and how often to ask again after a refusal that may pass."""

    timeout: timedelta
    retries: int


PASSAGES = Patience(timedelta(seconds=60), retries=3)
QUERY = Patience(timedelta(seconds=10), retries=0)  # somebody waits, and can be answered by words


class OpenAIEmbedder:
    """
    Embeds at an OpenAI-compatible endpoint; texts leave the machine, unless the endpoint is on it.

    Tokens are estimated, since each model cuts differently: three letters or digits of a word are one, any other
    character is one, or one for each byte after its first, and so are three of white space that is more than a blank.
    For English that is one and a half times to twice what there are, so that what is thought to fit the window does.
    Nothing is put before a text, for a question or otherwise.

    `max_tokens` is the model's window. Every method that asks the endpoint raises EmbedderUnavailable, which names
    its host and the cause, never the key or a text.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        api_key: str | None = None,
        max_tokens: int = 8191,
        passages: Patience = PASSAGES,
        query: Patience = QUERY,
    ) -> None:
        self.model = endpoint.name
        self.max_tokens = max_tokens
        self._endpoint = endpoint
        self._passages, self._query = passages, query
        self._client = Once(lambda: _client(endpoint, api_key))
        self._length = endpoint.dimension

    @property
    def dimension(self) -> int:
        """The length of every vector; unless it was asked for, a first text tells it."""
        return self._length or len(self.embed_passages([_BLANK])[0])

    def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """One vector of unit length for each text, made of what the window surely holds of it."""
        return self._embed(texts, self._passages)

    def embed_query(self, text: str) -> Vector:
        """The same vector as that of a passage, with less patience."""
        (vector,) = self._embed([text], self._query)
        return vector

    def spans(self, text: str, *, room: int = 0, limit: int | None = None) -> list[Span]:
        """The spans, or the first `limit` of them, that surely fit the window less `room`."""
        return list(islice(spans.cover(text, _tokens, self.max_tokens - room), limit))

    def count_tokens(self, text: str) -> int:
        """The estimated number of tokens."""
        return sum(1 for _ in _estimated(text))

    def _embed(self, texts: Sequence[str], patience: Patience) -> list[Vector]:
        fitting = [self._fitting(text) for text in texts]
        return batches.embed(
            fitting,
            [self.count_tokens(text) for text in fitting],
            lambda batch: self._vectors(batch, patience),
            most=_BATCH,
            most_tokens=_BATCH_TOKENS,
        )

    def _fitting(self, text: str) -> str:
        """The text as far as it fits the window."""
        text = encodable(text.strip()) or _BLANK
        beyond = next(islice(_estimated(text), self.max_tokens, None), None)
        return text[: beyond[0]].rstrip() if beyond else text

    def _vectors(self, texts: list[str], patience: Patience) -> list[Vector]:
        import numpy as np

        rows = self._rows(texts, patience)
        if self._length is None:
            self._length = len(rows[0])
        for row in rows:
            if len(row) != self._length:
                raise self._trouble(f"gave a vector of {len(row)} dimensions where {self._length} were expected")
        return unit(np.asarray(rows), made_by=f"{self._endpoint.model} at {self._endpoint.host}")

    def _rows(self, texts: list[str], patience: Patience) -> list[list[float]]:
        timeout = patience.timeout.total_seconds()
        client = self._client.get().with_options(timeout=timeout, max_retries=patience.retries)
        import openai

        try:
            return _read(_ask(client, self._endpoint, texts), len(texts))
        except openai.APIError as exc:
            cause, mend = _cause(exc, patience), _MENDS.get(getattr(exc, "status_code", 0))
        except (AttributeError, TypeError, ValueError):
            cause, mend = f"gave an answer that is not a list of {len(texts)} vectors", None
        # Not while the other is handled: what the endpoint said may hold the text or the key, and would be logged.
        raise self._trouble(cause, mend)

    def _trouble(self, cause: str, mend: str | None = None) -> EmbedderUnavailable:
        return EmbedderUnavailable(f"{self._endpoint.host} {cause} (model {self._endpoint.model})", mend=mend)


def _client(endpoint: Endpoint, api_key: str | None) -> OpenAI:
    if api_key is None and endpoint.base_url == OPENAI:
        raise EmbedderUnavailable(f"there is no key for {endpoint.host}", mend="set MEMSVC_EMBED_API_KEY")
    if api_key and not (api_key.isascii() and api_key.isprintable()):
        raise EmbedderUnavailable(f"the key for {endpoint.host} holds characters that no key has")
    try:
        import openai
    except ImportError as exc:
        raise EmbedderUnavailable(f"the openai package cannot be imported: {exc}", mend=_INSTALL) from exc
    return openai.OpenAI(base_url=endpoint.base_url, api_key=api_key or _NO_KEY)


def _ask(client: OpenAI, endpoint: Endpoint, texts: list[str]) -> CreateEmbeddingResponse:
    return client.embeddings.create(
        model=endpoint.model,
        input=texts,
        encoding_format="float",  # some servers know no other
        extra_body={"dimensions": endpoint.dimension} if endpoint.dimension else None,
    )


def _cause(exc: APIError, patience: Patience) -> str:
    import openai

    if isinstance(exc, openai.APIStatusError):
        return f"answered {exc.status_code}: {_CAUSES.get(exc.status_code, 'it is in trouble')}"
    if isinstance(exc, openai.APITimeoutError):
        return f"did not answer within {patience.timeout.total_seconds():g} seconds"
    return f"cannot be reached: {_system(exc)}"


def _system(exc: BaseException | None) -> str:
    """What the system said, if it was the system."""
    while exc is not None:
        if isinstance(exc, OSError) and exc.strerror:
            return exc.strerror
        exc = exc.__cause__ or exc.__context__
    return "the connection broke"


def _read(answer: CreateEmbeddingResponse, count: int) -> list[list[float]]:
    """The rows, in the order of the texts, whatever their order in the answer."""
    rows = {item.index: [float(value) for value in item.embedding] for item in answer.data}
    if sorted(rows) != list(range(count)):
        raise ValueError("not one vector for each text")
    return [rows[index] for index in range(count)]


def _tokens(text: str) -> list[Span]:
    return list(_estimated(text))


def _estimated(text: str) -> Iterator[Span]:
    for piece in _PIECE.finditer(text):
        character_bytes = 2 if piece[1].isascii() else len(encodable(piece[1]).encode())
        blanks = 0 if piece[2] in ("", " ") else math.ceil(len(piece[2]) / 3)
        for _ in range(character_bytes - 1 + blanks):
            yield piece.span(1)
