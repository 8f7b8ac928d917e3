"""A model's tokeniser and window: what a text is cut into, and how much of it the model sees."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from memsvc.embedding import spans
from memsvc.embedding.embedder import Span
from memsvc.embedding.encodable import encodable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_USUAL_WINDOW = 256  # for a model that names none: safe for all, and enough for a paragraph
_NO_LIMIT = 1_000_000  # tokenisers without a limit name a number of thirty digits


def window(*named: object) -> int:
    """The first of the sizes that a model names which can be meant, in tokens, else 256."""
    return next((size for size in named if isinstance(size, int) and 0 < size < _NO_LIMIT), _USUAL_WINDOW)


class Tokens:
    """
    Counts and cuts texts as a model with this tokeniser does, in a window of so many tokens, special ones counted.

    `prefix` is what the model wants before each stored text; it takes its share of the window. The tokeniser is the
    caller's no longer: its own cutting and padding are turned off.
    """

    def __init__(self, tokenizer: Tokenizer, window: int, *, prefix: str = "") -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._room = window - tokenizer.num_special_tokens_to_add(is_pair=False)
        self._budget = self._room - len(self._places(prefix))
        self._longest = self._room * spans.CHARACTERS_PER_TOKEN

    def shortened(self, text: str) -> str:
        """The text without white space around it and without what no window of this size can reach."""
        return encodable(text.strip()[: self._longest])

    def ids(self, text: str, *, prefix: str = "") -> list[int]:
        """The numbers of the tokens that fit the window, special ones among them."""
        encoding = self._tokenizer.encode(prefix + self.shortened(text), add_special_tokens=False)
        encoding.truncate(self._room)
        return self._tokenizer.post_process(encoding).ids

    def spans(self, text: str, *, room: int = 0, limit: int | None = None) -> list[Span]:
        """The spans, or the first `limit` of them, that fit the window with the prefix and `room` more tokens."""
        return list(islice(spans.cover(text, self._places, self._budget - room), limit))

    def count(self, text: str) -> int:
        """The number of tokens; exact unless the text has thousands of characters without white space."""
        return spans.count(text, self._places, self._longest)

    def _places(self, text: str) -> list[Span]:
        return self._tokenizer.encode(encodable(text), add_special_tokens=False).offsets
