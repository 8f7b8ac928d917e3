"""How well founded a line is, judged by its words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsvc.derivation.status import judge
from memsvc.model.memory import KINDS, Kind


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ('the user said "run the tests first"', "run the tests first"),
        ('when asked about ports, the user replied: "80 only" -> keep it', "80 only"),
        ("the user wrote “kurz bitte”", "kurz bitte"),
        ("der Nutzer schrieb: „bitte auf Deutsch“", "bitte auf Deutsch"),
        ("«pas de tabulations», said the user", "pas de tabulations"),
        ('"no tabs" (the user said it twice)', "no tabs"),
        ('user: "no tabs"', "no tabs"),
        ('the user\'s exact words: "no tabs"', "no tabs"),
        ("ユーザー：「短く」", "短く"),
        ("ユーザーは「コメントは日本語で」と言った", "コメントは日本語で"),
        ("ユーザーから「先にテストを」と依頼された", "先にテストを"),
        ("用户要求：“先写测试”", "先写测试"),
        ("用户多次强调“不要用制表符”", "不要用制表符"),
        ("`pytest -q` printed `3 failed, 9 passed`", "3 failed, 9 passed"),
        ("`make` output: nothing to be done -> fine", "nothing to be done"),
        ('`make` output: "nothing to be done"', "nothing to be done"),
        ('the build failed with "disk full"', "disk full"),
        ("error: `ENOSPC`", "ENOSPC"),
        ('the user asked "why is it slow?"', "why is it slow?"),
        ('the user said "maybe it would help"', "maybe it would help"),
        ('the user said "no tabs" -> probably holds for all files', "no tabs"),
    ],
)
def test_words_of_the_user_or_of_a_tool_are_reported(text: str, quote: str) -> None:
    judgement = judge(text, kind="knowledge")
    assert (judgement.status, judgement.quote) == ("reported", quote)


@pytest.mark.parametrize(
    "text",
    [
        "tabs are used",
        'the "user" table is "big"',
        'the label says "Abbruch"',
        "設定は「ja」と呼ばれる",
        "ユーザーは画面「設定」を開く",
        "按钮叫“取消”",
        "`maybe()` is called in `would.py`",
        "errors are handled in `errors.py`",
        "set `output` to `json`",
        'a 24" screen and a 27" screen',
        "the log line was `token=[REDACTED_SECRET]",
        "maybe_retry is called twice",
        "`?` is a wildcard in `a?b`",
        "see the FAQ",
        "could not reproduce in 40 runs",
    ],
)
def test_plain_lines_are_inferences(text: str) -> None:
    judgement = judge(text, kind="knowledge")
    assert (judgement.status, judgement.quote) == ("inference", None)


def test_what_a_preference_quotes_is_the_users() -> None:
    line = '"60 per minute" -> fixed number'
    assert judge(line, kind="preference").quote == "60 per minute"
    assert judge(line, kind="preference").status == "reported"
    assert judge(line, kind="knowledge").status == "inference"
    assert judge('set `"strict": true`', kind="preference").status == "inference"


@pytest.mark.parametrize(
    "text",
    [
        "is the port free?",
        "Is it (or is it not?)",
        "**Why?**",
        "ポートは空いているか？",
        "Open question: the port",
        "Offene Frage: der Port",
        "unclear whether the port is free",
        'the user said "no tabs" -> does this hold for Makefiles?',
    ],
)
def test_questions(text: str) -> None:
    assert judge(text, kind="note").status == "question"


@pytest.mark.parametrize(
    "text",
    [
        "probably a race",
        "Maybe a race",
        "the cache might be stale",
        "the cache seems stale",
        "likely the cache",
        "it appears to be the cache",
        "we suspect the cache",
        "assuming UTF-8",
        "not sure about the port",
        "the port may be taken",
        "vermutlich der Cache",
        "wahrscheinlich der Cache",
        "vielleicht der Cache",
        "könnte der Cache sein",
        "peut-être le cache",
        "quizás el caché",
        "возможно, кэш",
        "おそらくキャッシュ",
        "可能是缓存",
        'the user probably said "no tabs"',
    ],
)
def test_hedged_lines_are_assumptions(text: str) -> None:
    assert judge(text, kind="knowledge").status == "assumption"


@pytest.mark.parametrize(
    "text",
    [
        "an index would help",
        "if we had an index it is fast",
        "the cache theory turned out to be false",
        "first blamed the encoder -> measure first",
        "initially thought it was DNS",
        "DNS was ruled out",
        "the first guess was wrong",
        "ein Index würde helfen",
        'if the user says "go", deploy',
        'the user would say "no tabs"',
    ],
)
@pytest.mark.parametrize("kind", ["preference", "failure"])
def test_hypothetical_and_refuted_lines_are_never_better_than_assumptions(text: str, kind: Kind) -> None:
    assert judge(text, kind=kind).status == "assumption"


def test_doubt_about_the_task_is_doubt_about_the_line_but_not_about_quoted_words() -> None:
    assert judge("it beeps", kind="failure", doubt="assumption").status == "assumption"
    assert judge("which port", kind="note", doubt="question").status == "question"
    assert judge('the user said "it beeps"', kind="failure", doubt="assumption").status == "reported"


def test_code_is_left_aside() -> None:
    text = 'the loop:\n\n```py\n# maybe?\nprint("the user said \\"x\\"")\n```'
    assert judge(text, kind="preference").status == "inference"
    assert judge("is this it?\n```\ncode\n```", kind="note").status == "question"


@given(st.text(), st.sampled_from(KINDS))
def test_no_text_is_a_fact_and_quotes_come_from_the_text(text: str, kind: Kind) -> None:
    judgement = judge(text, kind=kind)
    assert judgement.status != "fact"
    assert judgement.quote is None or (judgement.quote and judgement.quote in text)


@given(st.text(alphabet='user said "“”`«».?-> xX\n', max_size=60), st.sampled_from(KINDS))
def test_reported_means_quoted(text: str, kind: Kind) -> None:
    judgement = judge(text, kind=kind)
    assert judgement.status != "reported" or judgement.quote
