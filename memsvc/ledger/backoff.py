"""How long a failed job of our own kinds waits before it is tried again."""

from __future__ import annotations

import random
from datetime import timedelta

FIRST = timedelta(seconds=10)
LONGEST = timedelta(hours=1)


def backoff(failures: int, *, jitter: random.Random | None = None) -> timedelta:
    """
    Twice as long after each failure, from ten seconds to an hour, less a random part of up to a half.

    The jitter keeps jobs that failed together from coming back together. `failures` counts from 1.
    """
    full: timedelta = min(FIRST * 2 ** min(max(failures, 1) - 1, 20), LONGEST)
    draw: float = (jitter or random).random()
    return full * (1 - draw / 2)
