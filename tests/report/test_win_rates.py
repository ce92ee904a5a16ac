"""Sentences on win rates agree with both tests."""

from __future__ import annotations

from typing import Any

import pytest

from g2d.report.sentences import win_rate_sentences
from g2d.tables.frames import frame
from g2d.tables.win_rates import WIN_RATE_COLUMNS

ROW: dict[str, Any] = {
    **{"model": "m", "policy": "both", "K": 20, "group_size": 8, "prompts": "mixed", "n_prompts": 60, "n_replies": 240},
    "n_seeds": 2,
    **{"win_rate": 0.8, "win_low": 0.7, "win_high": 0.9, "p_win": 0.001},
    **{"equal_length": 0.7, "equal_length_low": 0.6, "equal_length_high": 0.8, "p_equal_length": 0.002},
    **{
        "family_size": 1,
        "score": 1.0,
        "base_score": 0.0,
        "length": 150.0,
        "base_length": 100.0,
        "longer": 0.7,
        "not_judged": 0,
        "cut_off": 0,
    },
}


def text_of(**changes: Any) -> str:
    (sentence,) = win_rate_sentences(frame([ROW | changes], WIN_RATE_COLUMNS))
    return sentence.replace("\u00a0", " ")


def test_a_policy_that_wins_at_any_length() -> None:
    assert text_of() == (
        "both (K=20) of m, trained on verifiable and open-ended prompts together, is preferred to M0 in 80.0 % "
        "[70.0, 90.0] of comparisons on 60 held-out prompts, and at equal length in 70.0 % [60.0, 80.0]; its replies "
        "are 50.0 % longer, in characters. Both differ significantly from 50 % (p = 0.001; at equal length 0.002)."
    )


UNKNOWN = dict.fromkeys(["equal_length", "equal_length_low", "equal_length_high", "p_equal_length"], float("nan"))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"prompts": "verifiable, then open_ended"}, "trained on verifiable prompts and then on open-ended prompts"),
        ({"cut_off": 9}, "9 of 240 replies did not end within their token budget."),
        ({"longer": 0.97}, "replies are longer than M0's, so equal length is extrapolated."),
        ({"longer": 0.03}, "replies are shorter than M0's, so equal length is extrapolated."),
        ({"not_judged": 3}, "3 of 240 comparisons have no score and are left out."),
        ({"p_equal_length": 0.3}, "the second does not: length may explain the preference."),
        ({"equal_length": 0.2}, "with opposite signs: the result depends on length."),
        ({"p_win": 0.3}, "the first does not: their length may hide it."),
        (
            {"p_win": 0.3, "p_equal_length": 0.4},
            "Neither differs significantly from 50 % (p = 0.3; at equal length 0.4).",
        ),
        ({"longer": 0.995} | UNKNOWN, "(p = 0.001). In 99.5 % of comparisons its reply is longer than M0's"),
        ({"longer": 0.01, "p_win": 0.3} | UNKNOWN, "does not differ significantly from 50 % (p = 0.3). In 99.0 %"),
        ({"n_seeds": 1}, "With these weights, both (K=20) of m"),
        ({"n_seeds": 1, "prompts": "verifiable"}, "than not with these weights, and"),
    ],
)
def test_a_sentence_says_what_the_tests_show(changes: dict[str, Any], part: str) -> None:
    text = text_of(**changes)
    assert part in text
    assert part not in text_of()
    assert ("equal length in" in text) == (
        not UNKNOWN.keys() <= changes.keys() and "verifiable" not in changes.values()
    )


def test_policies_that_never_saw_an_open_ended_prompt_share_a_sentence() -> None:
    better = ROW | {"policy": "dpo", "prompts": "verifiable", "p_win": 0.01}
    rows = [better, better | {"policy": "g2d", "p_win": 0.5}, better | {"win_rate": 0.1}]
    (sentence,) = win_rate_sentences(frame(rows, WIN_RATE_COLUMNS))
    assert sentence == (
        "Of 3 policies of m trained on verifiable prompts only, 1 is preferred to M0 significantly more often than "
        "not, and 1 less often."
    )
