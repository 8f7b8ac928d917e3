"""Many texts to a model, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from memsvc.embedding.embedder import Vector

T = TypeVar("T")

# For a model that runs on this machine's processor: larger batches gain no speed there, and few texts at hand differ so
# much in length that they would hold more padding (of the 80 texts of a session output 9 % in eights, 4 % in fours).
MOST = 4
MOST_TOKENS = 4096


def embed(
    inputs: Sequence[T],
    lengths: Sequence[int],
    vectors_of: Callable[[list[T]], list[Vector]],
    *,
    most: int = MOST,
    most_tokens: int = MOST_TOKENS,
) -> list[Vector]:
    """
    The vectors of all inputs, in their order, made in batches of at most `most`.

    `lengths` counts the tokens of each input. A batch is padded to its longest and then holds at most `most_tokens`,
    unless a single input is longer.
    """
    vectors: dict[int, Vector] = {}
    for batch in _batches(lengths, most, most_tokens):
        vectors.update(zip(batch, vectors_of([inputs[index] for index in batch]), strict=True))
    return [vectors[index] for index in range(len(inputs))]


def _batches(lengths: Sequence[int], most: int, most_tokens: int) -> Iterator[list[int]]:
    """Indices in batches of inputs about as long as each other, so that little of a batch is padding."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) == most or (len(batch) + 1) * lengths[index] > most_tokens):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
