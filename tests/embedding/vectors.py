"""How near vectors are."""

from __future__ import annotations

from memsvc.embedding.embedder import Vector


def cosine(one: Vector, other: Vector) -> float:
    """Of two vectors of unit length."""
    return sum(a * b for a, b in zip(one, other, strict=True))


def least_cosine(some: list[Vector], others: list[Vector]) -> float:
    """Of the pair that is furthest apart."""
    return min(cosine(one, other) for one, other in zip(some, others, strict=True))
