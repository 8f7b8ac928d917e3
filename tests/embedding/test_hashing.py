from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsvc.embedding.hashing import HashingEmbedder
from memsvc.errors import WrongUse
from tests.embedding.vectors import cosine


def test_the_vector_is_the_same_in_every_process() -> None:
    text = "Wörter and 東京 and \U0001f600"
    program = f"""
import json
from memsvc.embedding.hashing import HashingEmbedder
print(json.dumps(HashingEmbedder(32).embed_query({text!r})))
"""
    vectors = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for seed in ("1", "2")
    ]

    assert vectors == [HashingEmbedder(32).embed_query(text)] * 2


def test_the_vector_stays_the_same_from_release_to_release() -> None:
    vector = HashingEmbedder(4).embed_query("Hello hello world")

    assert vector == pytest.approx([0.0, 0.534522, 0.267261, -0.801784], abs=1e-6)


@given(text=st.text(), dimension=st.integers(1, 500))
def test_every_text_has_a_vector_of_unit_length(text: str, dimension: int) -> None:
    vector = HashingEmbedder(dimension).embed_query(text)

    assert len(vector) == dimension
    assert math.hypot(*vector) == pytest.approx(1)


def test_half_a_surrogate_pair_has_a_vector() -> None:
    assert math.hypot(*HashingEmbedder(8).embed_query("\ud800")) == pytest.approx(1)


def test_shared_words_bring_texts_closer_whatever_their_case() -> None:
    question, near, far = HashingEmbedder(384).embed_passages(
        ["Where is the LEASE renewed?", "the lease is renewed by a heartbeat", "dulwich writes commits"]
    )

    assert cosine(question, near) > cosine(question, far) + 0.2


def test_words_past_the_window_are_left_out() -> None:
    embedder = HashingEmbedder(64)

    assert embedder.embed_query("word " * 256 + "tail " * 9) == embedder.embed_query("word " * 256)


def test_passages_come_back_in_their_order() -> None:
    embedder = HashingEmbedder(64)
    texts = ["one", "", "two words", "three more words"]

    assert embedder.embed_passages(texts) == [embedder.embed_query(text) for text in texts]


def test_tokens_are_words() -> None:
    assert HashingEmbedder(8).count_tokens(" one\ttwo, 三四\n") == 3


def test_a_dimension_below_one_is_refused() -> None:
    with pytest.raises(WrongUse, match="0 dimensions"):
        HashingEmbedder(0)
