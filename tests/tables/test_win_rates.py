"""Win rates against M0, with and without control for length."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from g2d.analysis.preferences import length_controlled, preferences, raw
from g2d.grid.runs import OnlineRun, Policy
from g2d.regimes.common.prompt_choice import PromptMix
from g2d.regimes.on_policy.semi_online_dpo import SemiOnlineDpo
from g2d.tables.win_rates import NEEDED, WIN_RATE_COLUMNS, win_rate_table


def test_a_preference_is_1_one_half_or_0() -> None:
    scores = np.array([[[2.0, 1.0], [1.0, np.nan]]])
    base = np.array([[[1.0, 1.0], [3.0, 0.0]]])
    np.testing.assert_array_equal(preferences(scores, base), [[[1.0, 0.5], [0.0, np.nan]]])


def test_a_raw_rate_is_the_mean_of_the_comparisons_that_there_are() -> None:
    won = np.array([[[1.0, 0.5], [0.0, np.nan]]])
    np.testing.assert_array_equal(raw(won), [[0.75, 0.0]])


WON = np.repeat(np.array([[[1.0, 1, 1, 0], [1, 1, 1, 0], [1, 0, 0, 0]]]), 2, axis=1)
LONGER = np.repeat(np.array([[[2.0, 2, 2, 2], [2, 2, 2, 2], [-2, -2, -2, -2]]]), 2, axis=1)


def test_equal_length_is_where_the_regression_crosses_zero() -> None:
    """Longer wins three times in four, shorter once: by symmetry one half at equal length, whatever the raw rate."""
    assert raw(WON).mean() == pytest.approx(7 / 12)
    assert controlled(WON, LONGER).mean() == pytest.approx(0.5, abs=0.03)  # the ridge is weak


def test_replies_of_equal_length_have_their_raw_rate() -> None:
    assert controlled(WON, np.zeros_like(WON)).mean() == raw(WON).mean()


def test_replies_that_are_always_longer_have_no_rate_at_equal_length() -> None:
    assert length_controlled(WON, np.full_like(WON, 3.0)) is None


def controlled(won: np.ndarray, longer: np.ndarray) -> np.ndarray:
    rates = length_controlled(won, longer)
    assert rates is not None
    return rates


@pytest.mark.parametrize(
    ("shorter", "comparisons", "estimated"),
    [(2, 100, False), (10, 500, True), (9, 500, False), (5, 10, True), (4, 8, False)],
)
def test_without_overlap_of_lengths_there_is_no_rate(shorter: int, comparisons: int, estimated: bool) -> None:
    longer = np.where(np.arange(comparisons) < shorter, -1.0, 1.0).reshape(1, -1, 1)
    won = np.tile([0.0, 1.0], comparisons // 2).reshape(1, -1, 1)
    assert (length_controlled(won, longer) is not None) is estimated


cells = st.integers(3, 6)


@given(st.integers(0, 50), st.integers(1, 3), cells, cells)
def test_it_is_one_half_of_oneself_symmetric_and_a_share(seed: int, seeds: int, prompts: int, samples: int) -> None:
    rng = np.random.default_rng(seed)
    won = rng.choice([0.0, 0.5, 1.0], size=(seeds, prompts, samples))
    longer = np.round(rng.normal(size=won.shape) * 10)
    rates = length_controlled(won, longer)
    mirrored = length_controlled(1 - won, -longer)
    if rates is None or mirrored is None:
        assert rates is mirrored
        return
    assert rates.shape == (seeds, prompts)
    assert 0 <= rates.mean() <= 1
    assert mirrored.mean() == pytest.approx(1 - rates.mean(), abs=1e-5)
    np.testing.assert_allclose(mirrored, 1 - rates, atol=1e-4)
    assert controlled(np.full_like(won, 0.5), longer).mean() == pytest.approx(0.5, abs=1e-6)


def test_the_effect_of_length_is_removed_and_the_rest_is_kept() -> None:
    rng = np.random.default_rng(0)
    for taste in (0.0, 0.7):
        longer = rng.normal(1.0, 2.0, size=(1, 400, 4))
        p = expit(taste + 1.5 * np.tanh(longer / longer.std()))
        won = (rng.random(p.shape) < p).astype(float)
        assert raw(won).mean() > expit(taste) + 0.05
        assert controlled(won, longer).mean() == pytest.approx(expit(taste), abs=0.05)


def test_its_values_vary_as_the_estimate_does() -> None:
    """The spread of the values over prompts predicts the spread of the estimate over experiments."""
    rng = np.random.default_rng(1)
    means = []
    predicted = []
    for _ in range(150):
        longer = rng.normal(1.0, 2.0, size=(1, 60, 4))
        liked = rng.normal(0, 0.7, size=(1, 60, 1))  # per prompt
        won = (rng.random(longer.shape) < expit(0.3 + liked + np.tanh(longer / 2))).astype(float)
        rate = controlled(won, longer)
        means.append(rate.mean())
        predicted.append(rate.std(ddof=1) / np.sqrt(60))
    assert np.std(means) == pytest.approx(np.mean(predicted), rel=0.2)


def replies(scores: list[list[float]], texts: list[list[str]]) -> pd.DataFrame:
    """Replies to prompts p0, p1, ..., with their scores; a text that ends with ... was cut off."""
    rows = []
    for number, (of_prompt, said) in enumerate(zip(scores, texts, strict=True)):
        for sample, (score, text) in enumerate(zip(of_prompt, said, strict=True)):
            rows.append((f"p{number}", f"p{number}", sample, text, "length" if text.endswith("...") else "stop", score))
    return pd.DataFrame(rows[::-1], columns=NEEDED)


BASE = Policy("m")


def entry(name: str, seed: int) -> Policy:
    prompts = PromptMix(prompts="mixed" if name == "better" else "verifiable")
    settings = SemiOnlineDpo(regime="semi_online_dpo", steps=[2])
    return Policy("m", OnlineRun(name, "semi_online_dpo", "entry", entry=prompts, settings=settings), 4, 2, seed)


TWINS = [entry("same", 0), entry("same", 1)]
BETTER = [entry("better", 0), entry("better", 1)]
SAID = [["a", "aa"]] * 4


@pytest.fixture
def evaluations() -> dict[Policy, pd.DataFrame]:
    """Replies of M0, of a policy that equals it and stopped at K=1, and of one with other, longer replies."""
    base = replies([[1.0, 2.0]] * 4, SAID)
    longer = replies([[2.0, 2.0], [2.0, 1.0], [3.0, np.nan], [5.0, 6.0]], [["aaa", "aa..."]] * 4)
    stopped = [replace(key, steps_taken=1) for key in TWINS]
    return {BASE: base, **dict.fromkeys(stopped, base), **dict.fromkeys(BETTER, longer)}


@pytest.fixture
def rates(evaluations: dict[Policy, pd.DataFrame]) -> pd.DataFrame:
    return win_rate_table(evaluations).set_index("policy")


def test_all_policies_are_rows_of_one_family(evaluations: dict[Policy, pd.DataFrame]) -> None:
    table = win_rate_table(evaluations)
    assert list(table.columns) == list(WIN_RATE_COLUMNS)
    assert set(table["family_size"]) == {2}


def test_k_is_the_number_of_steps_that_were_taken(rates: pd.DataFrame) -> None:
    assert (rates.loc["same", "K"], rates.loc["better", "K"]) == (1, 2)


def test_a_policy_that_replies_like_m0_wins_half(rates: pd.DataFrame) -> None:
    same = rates.loc["same"]
    assert (same["win_rate"], same["equal_length"], same["longer"], same["p_win"]) == (0.5, 0.5, 0.5, 1)


def test_four_prompts_without_a_difference_do_not_show_that_there_is_none(rates: pd.DataFrame) -> None:
    assert rates.loc["same", "win_low"] < 0.5 < rates.loc["same", "win_high"]


def test_a_win_rate_is_the_mean_over_prompts(rates: pd.DataFrame) -> None:
    better = rates.loc["better"]
    assert better["win_rate"] == pytest.approx((0.75 + 0.5 + 1 + 1) / 4)
    assert better["win_low"] < better["win_rate"] < better["win_high"] <= 1


def test_replies_that_were_not_judged_or_cut_off_are_counted(rates: pd.DataFrame) -> None:
    assert tuple(rates.loc["better", ["not_judged", "cut_off", "n_replies"]]) == (2, 8, 16)


def test_lengths_are_means_over_replies(rates: pd.DataFrame) -> None:
    assert tuple(rates.loc["better", ["length", "base_length", "prompts"]]) == (4, 1.5, "mixed")


def test_a_policy_that_is_always_longer_has_no_rate_at_equal_length(rates: pd.DataFrame) -> None:
    better = rates.loc["better"]
    assert better["longer"] == 1
    assert better[["equal_length", "equal_length_low", "equal_length_high", "p_equal_length"]].isna().all()


def test_replies_to_other_prompts_than_those_of_m0_are_refused(evaluations: dict[Policy, pd.DataFrame]) -> None:
    replied = evaluations[BETTER[0]]
    evaluations[BETTER[0]] = replied[replied["problem_id"] != "p1"]
    with pytest.raises(ValueError, match="better/g4/k2: its replies are not to the prompts that M0 replied to"):
        win_rate_table(evaluations)


def test_a_prompt_counts_if_every_seed_has_a_comparison() -> None:
    base = replies([[1.0, 1.0]] * 3, SAID[:3])
    won = [2.0, 2.0]
    unjudged = [np.nan, np.nan]
    first = replies([won, won, [0.0, np.nan]], SAID[:3])
    second = replies([unjudged, won, won], SAID[:3])
    table = win_rate_table({BASE: base, BETTER[0]: first, BETTER[1]: second})
    row = table.iloc[0]
    assert (row["n_prompts"], row["not_judged"], row["win_rate"]) == (2, 3, 0.75)  # (1 + 0 + 1 + 1) / 4


def drawn(rng: np.random.Generator, taste: np.ndarray, longer: float, bias: float) -> pd.DataFrame:
    """Two replies to each prompt; the score is taste, `bias` per character, and noise."""
    length = rng.poisson(20 + longer, size=(len(taste), 2))
    score = taste[:, None] + bias * length + rng.normal(size=length.shape)
    return replies(score.tolist(), np.char.multiply("x", length).tolist())


@pytest.mark.parametrize(("seeds", "longer", "bias"), [(1, 0.0, 0.0), (3, 6.0, 0.3)], ids=["alike", "only longer"])
def test_a_preference_that_is_not_there_is_rarely_claimed(seeds: int, longer: float, bias: float) -> None:
    """Two policies as good as M0 at equal length; seeds differ a little, and every prompt has its own taste."""
    rng = np.random.default_rng(0)
    experiments = 40
    false = {"win": 0, "equal_length": 0}
    for _ in range(experiments):
        base = drawn(rng, rng.normal(size=40), 0.0, bias)
        given = {BASE: base}
        for name in ("one", "other"):
            for seed in range(seeds):
                own_taste = rng.normal(size=40) + rng.normal(0, 0.1)  # a policy's prompts and a seed's
                key = entry(name, seed)
                given[key] = drawn(rng, own_taste, longer, bias)
        table = win_rate_table(given)
        for name in false:
            false[name] += (table[f"p_{name}"] < 0.05).any()
    allowed = scipy.stats.binom.ppf(0.999, experiments, 0.05)
    assert false["equal_length"] <= allowed
    assert longer or false["win"] <= allowed
    assert not longer or false["win"] > experiments / 3  # padding wins without control for length
