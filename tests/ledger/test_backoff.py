"""How long a failed job waits."""

from __future__ import annotations

import random
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from memsvc.ledger.backoff import FIRST, LONGEST, backoff


class Drawn(random.Random):
    """A source of chance that always draws the same."""

    def __init__(self, draw: float) -> None:
        super().__init__()
        self._draw = draw

    def random(self) -> float:
        return self._draw


FAILURES = st.integers(min_value=1, max_value=10**9)
DRAWS = st.floats(min_value=0, max_value=1, exclude_max=True)


@given(FAILURES, DRAWS)
def test_it_is_bounded(failures: int, draw: float) -> None:
    assert FIRST / 2 <= backoff(failures, jitter=Drawn(draw)) <= LONGEST


@given(FAILURES, FAILURES, DRAWS)
def test_it_grows_with_the_failures(one: int, other: int, draw: float) -> None:
    fewer, more = sorted((one, other))

    assert backoff(fewer, jitter=Drawn(draw)) <= backoff(more, jitter=Drawn(draw))


@given(FAILURES, DRAWS)
def test_the_jitter_takes_at_most_a_half(failures: int, draw: float) -> None:
    full = backoff(failures, jitter=Drawn(0))

    assert full / 2 <= backoff(failures, jitter=Drawn(draw)) <= full


@given(FAILURES)
def test_without_a_source_it_draws_by_itself(failures: int) -> None:
    assert backoff(failures, jitter=Drawn(0)) / 2 <= backoff(failures) <= backoff(failures, jitter=Drawn(0))


@given(st.integers(max_value=0))
def test_what_has_not_failed_waits_like_a_first_failure(failures: int) -> None:
    assert backoff(failures, jitter=Drawn(0)) == FIRST


def test_it_doubles_from_ten_seconds_to_an_hour() -> None:
    waits = [backoff(failures, jitter=Drawn(0)) for failures in range(1, 12)]

    assert waits == [timedelta(seconds=seconds) for seconds in (10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600)]


def test_a_seed_gives_the_same_waits() -> None:
    once, again = random.Random(7), random.Random(7)

    assert [backoff(n, jitter=once) for n in range(1, 9)] == [backoff(n, jitter=again) for n in range(1, 9)]
