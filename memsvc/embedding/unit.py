"""Vectors of unit length, so that the inner product is the cosine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsvc.embedding.embedder import Vector
from memsvc.errors import EmbedderUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def unit(rows: NDArray[np.floating], *, made_by: str) -> list[Vector]:
    """
    Each row divided by its length.

    Raises:
        EmbedderUnavailable: a row has no direction: it is zero, or holds what is no number. `made_by` is then named.
    """
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and lengths.all()):
        raise EmbedderUnavailable(f"{made_by} gave a vector without a direction")
    vectors: list[Vector] = (rows / lengths).tolist()
    return vectors
