from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsvc.embedding import spans
from memsvc.embedding.builtin import BuiltinEmbedder
from memsvc.embedding.embedder import Embedder, Span
from memsvc.embedding.hashing import HashingEmbedder
from memsvc.errors import WrongUse
from tests.embedding.texts import TEXTS, check, check_fit, pieces, prose

BUILTIN, HASHING = BuiltinEmbedder(), HashingEmbedder(8)
WINDOW = {BUILTIN.model: 254, HASHING.model: 256}

SMALL = 8


@pytest.fixture(params=[BUILTIN, HASHING], ids=["builtin", "hashing"])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    chosen: Embedder = request.param
    return chosen


def words(text: str) -> list[Span]:
    return [word.span() for word in re.finditer(r"\S+", text)]


def characters(text: str) -> list[Span]:
    return [(place, place + 1) for place, character in enumerate(text) if not character.isspace()]


@settings(deadline=None)
@given(text=TEXTS, room=st.integers(0, 246))
def test_builtin_spans_cover_the_text_and_fit_the_window(text: str, room: int) -> None:
    check_fit(text, BUILTIN.spans(text, room=room), BUILTIN, 254 - room)


@settings(deadline=None)
@given(text=TEXTS, room=st.integers(0, 248))
def test_hashing_spans_cover_the_text_and_fit_the_window(text: str, room: int) -> None:
    check_fit(text, HASHING.spans(text, room=room), HASHING, 256 - room)


@settings(deadline=None)
@given(text=TEXTS, budget=st.integers(1, 12))
def test_split_keeps_to_the_budget_and_cuts_no_token(text: str, budget: int) -> None:
    tokens = words(text)

    found = spans.split(text, tokens, budget)

    check(text, found)
    for start, end in found:
        assert sum(start <= token[0] and token[1] <= end for token in tokens) <= budget
    assert not [token for token in tokens for start, _ in found if token[0] < start < token[1]]


@pytest.mark.parametrize("text", ["", " ", "\n\u3000\t\r\n"])
def test_a_blank_text_has_no_spans(embedder: Embedder, text: str) -> None:
    assert embedder.spans(text) == []


@pytest.mark.parametrize("text", ["\x00", "\ufffd\u0301"])
def test_characters_without_a_token_are_covered(text: str) -> None:
    assert BUILTIN.count_tokens(text) == 0
    assert BUILTIN.spans(text) == [(0, len(text))]


def test_a_text_that_fits_is_one_span(embedder: Embedder) -> None:
    text = "\n first paragraph\n\nsecond paragraph, with a sentence. And another. \n"

    assert pieces(text, embedder.spans(text)) == [text.strip()]


def test_the_window_is_used_to_the_last_token(embedder: Embedder) -> None:
    fits = "word " * WINDOW[embedder.model]

    assert len(embedder.spans(fits)) == 1
    assert len(embedder.spans(fits + "more")) == 2
    assert len(embedder.spans(fits, room=1)) == 2


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(WrongUse, match="7 tokens are left of the window, fewer than 8"):
        list(spans.cover("text", words, 7))


@pytest.mark.parametrize(("text", "first"), [
    ("a b c d e\n\nf\ng. h i j", "a b c d e"),
    ("a b c d e\n \t\nf\ng. h i j", "a b c d e"),
    ("a b c d e\nf. g h i j", "a b c d e"),
    ("a b c d e. f g h i j", "a b c d e."),
    ('a b c d "e!" f g h i j', 'a b c d "e!"'),
    ("a b c d e.f g h i j", "a b c d e.f g h i"),
    ("a b c\n\nd e f g h i j", "a b c\n\nd e f g h"),
])  # fmt: skip
def test_the_cut_is_at_the_largest_break_of_the_second_half(text: str, first: str) -> None:
    assert pieces(text, spans.split(text, words(text), SMALL))[0] == first


@pytest.mark.parametrize(("text", "first"), [
    ("今日は晴れ。明日は雨", "今日は晴れ。"),
    ("今日は晴れ、明日は雨", "今日は晴れ、"),
    ("今日は晴れて明日は雨", "今日は晴れて明日"),
    ("foobar(bazbaz)", "foobar("),
])  # fmt: skip
def test_without_blanks_the_cut_is_beside_a_mark(text: str, first: str) -> None:
    assert pieces(text, spans.split(text, characters(text), SMALL))[0] == first


def test_tokens_of_one_character_stay_together() -> None:
    syllable = [(0, 1)] * 5
    tokens = syllable + [(1, 2)] * 3

    assert spans.split("각하", tokens, 4) == [(0, 1), (1, 2)]


def test_a_piece_that_has_more_tokens_alone_is_shortened() -> None:
    def dearer_in_the_middle(text: str) -> list[Span]:
        """Twenty characters are one token each, fewer are two each."""
        each = 1 if len(text) >= 20 else 2
        return [(place, place + 1) for place in range(len(text)) for _ in range(each)]

    found = list(spans.cover("x" * 20, dearer_in_the_middle, SMALL))

    assert found == [(0, 4), (4, 8), (8, 12), (12, 16), (16, 20)]


def test_windows_leave_no_trace() -> None:
    chance = random.Random(1)
    text = "".join(chance.choice("abcdefg") * chance.randint(1, 9) + chance.choice("   \n.") for _ in range(50_000))

    assert list(spans.cover(text, words, 20)) == spans.split(text, words(text), 20)


def test_limit_gives_the_first_spans(embedder: Embedder) -> None:
    text = "Some words in a sentence. " * 500

    assert embedder.spans(text, limit=3) == embedder.spans(text)[:3]


def test_two_megabytes_of_prose_are_cut_between_words() -> None:
    text = prose(2_000_000)

    found = BUILTIN.spans(text)

    check_fit(text, found, BUILTIN, 254)
    assert all(text[start - 1].isspace() for start, _ in found[1:])
    assert len(found) < 2 * BUILTIN.count_tokens(text) / 254


def unbroken() -> Iterator[tuple[str, str]]:
    chance = random.Random(3)
    yield "base64", "".join(chance.choices("abcdefghijklmnopqrstuvwxyzABCDEF0123456789+/", k=1_000_000))
    yield "one word", "a" * 1_000_000
    yield "chinese", "".join(chance.choices("今日明天東京雨晴和人大中国。，", k=100_000))
    yield "hangul", "".join(chance.choices("각하가나다라 ", k=100_000))


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in unbroken()])
def test_a_text_without_blanks_is_cut(embedder: Embedder, text: str) -> None:
    check_fit(text, embedder.spans(text), embedder, WINDOW[embedder.model])


@pytest.mark.parametrize(("text", "times"), [
    pytest.param(prose(300_000), 3, id="prose"),
    pytest.param("word" + " " * 300_000 + "word", 3, id="blanks"),
    pytest.param("a" * 300_000, 3, id="one word"),
])  # fmt: skip
def test_the_tokeniser_reads_each_character_a_few_times_in_short_pieces(text: str, times: int) -> None:
    read: list[int] = []

    def reading(piece: str) -> list[Span]:
        read.append(len(piece))
        return words(piece)

    list(spans.cover(text, reading, 254))

    assert sum(read) <= times * len(text)
    assert max(read) <= 254 * spans.CHARACTERS_PER_TOKEN
