"""How far, how fast, how long: the arithmetic, and what appears where there is no terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsvc.faces.progress import LINE_EVERY, Pace, clock, lines, shown


def paced(total: int | None, *seen: tuple[float, int], started_at: float = 100.0) -> Pace:
    pace = Pace(total, started_at)
    for after, done in seen:
        pace.count(done, started_at + after)
    return pace


def test_rate_and_time_left_are_told_from_what_was_done() -> None:
    pace = paced(480, (2, 20), (10, 100))

    assert (pace.rate(), pace.left()) == (10.0, 38.0)
    assert str(pace) == "100 of 480, 10.0 a second, 0:00:38 left"


def test_before_anything_is_done_nothing_is_promised() -> None:
    assert str(paced(480)) == "0 of 480"
    assert str(paced(480, (3, 0))) == "0 of 480"
    assert str(paced(480, (0, 5))) == "5 of 480"


def test_without_a_total_no_time_is_left_to_tell() -> None:
    assert str(paced(None, (4, 10))) == "10, 2.5 a second"


def test_more_than_was_expected_leaves_no_time() -> None:
    assert paced(10, (1, 20)).left() == 0


def test_the_rate_forgets_what_is_long_ago() -> None:
    slow = [(second, second) for second in range(1, 101)]
    fast = [(100 + second, 100 + 50 * second) for second in range(1, 61)]

    assert paced(None, *slow).rate() == pytest.approx(1)
    assert paced(None, *slow, *fast).rate() == pytest.approx(50)


@given(st.lists(st.tuples(st.floats(0.01, 60), st.integers(0, 1000)), min_size=1, max_size=60), st.integers(0, 100_000))
def test_the_rate_is_one_that_was_seen_and_time_left_is_what_it_gives(
    steps: list[tuple[float, int]], total: int
) -> None:
    at, done, seen = 0.0, 0, []
    for seconds, more in steps:
        at, done = at + seconds, done + more
        seen.append((at, done))

    pace = paced(total, *seen)

    rate, left = pace.rate(), pace.left()
    rates = [more / seconds for seconds, more in steps]
    assert rate is None or min(rates) * 0.999 <= rate <= max(rates) * 1.001
    assert rate is not None or steps[-1][1] == 0
    assert left is None or (rate is not None and left * rate == pytest.approx(max(0, total - done)))


def test_a_clock_is_read_in_hours_minutes_and_seconds() -> None:
    assert [clock(seconds) for seconds in (0, 59.6, 61, 3600, 360_000)] == [
        "0:00:00", "0:01:00", "0:01:01", "1:00:00", "100:00:00"
    ]  # fmt: skip


def test_off_a_terminal_a_plain_line_appears_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    show = lines("embedding", "memories", lambda: now)
    pace = Pace(1000, now)
    for _ in range(25):
        now += 1
        pace.count(pace.done + 4, now)
        show(pace)

    out, err = capsys.readouterr()
    assert LINE_EVERY == 10
    assert out == ""
    assert err == (
        "embedding memories: 40 of 1000, 4.0 a second, 0:04:00 left\n"
        "embedding memories: 80 of 1000, 4.0 a second, 0:03:50 left\n"
    )


@pytest.mark.parametrize("quiet", [False, True])
def test_what_is_soon_done_is_not_mentioned_off_a_terminal(capsys: pytest.CaptureFixture[str], quiet: bool) -> None:
    with shown("embedding", "memories", total=3, quiet=quiet) as progress:
        progress.add(1)
        progress.add(2)

    assert capsys.readouterr() == ("", "")
