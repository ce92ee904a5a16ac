"""Caveats of the answers: whose they are, and when there is none."""

from __future__ import annotations

import pandas as pd
import pytest

from g2d.checks.load import load
from g2d.report.summary import (
    calibration_words,
    loss_caveats,
    mismatch_caveats,
    no_effect_caveats,
    rounding_caveats,
    untrained_caveats,
    verifier_caveats,
    zero_caveats,
)
from tests.configs import MINIMAL


def test_lost_losses_are_named_for_their_model_only() -> None:
    lost = {"m/seed0/dpo/g0/k0": 3, "m2/seed0/dpo/g0/k0": 5}
    [caveat] = loss_caveats(lost, "m")
    assert "seed0/dpo/g0/k0 (3 steps)" in caveat and "5 steps" not in caveat
    assert loss_caveats(lost, "other") == ()


def test_at_most_five_policies_with_lost_losses_are_named() -> None:
    [caveat] = loss_caveats({f"m/seed{n}/dpo/g0/k0": 1 for n in range(9)}, "m")
    assert caveat.count("steps)") == 5


def test_the_policy_on_which_a_verifier_failed_most_is_named() -> None:
    rows = {"policy": ["base", "dpo", "grpo"], "K": [0, 25, 25], "parseable": [1.0, 0.875, 0.75]}
    [caveat] = verifier_caveats(pd.DataFrame(rows))
    assert "The verifier failed on 25.0\N{NO-BREAK SPACE}% of the finished answers of GRPO" in caveat
    assert verifier_caveats(pd.DataFrame(rows | {"parseable": [1.0, 1.0, None]})) == ()


def test_policies_without_data_are_named_for_their_model_only() -> None:
    [caveat] = untrained_caveats(["m/seed0/dpo/g0/k0", "m2/seed1/dpo/g0/k0"], "m")
    assert "the training of seed0/dpo/g0/k0: no gradient step" in caveat
    assert untrained_caveats(["m2/seed1/dpo/g0/k0"], "m") == ()


@pytest.mark.parametrize(
    ("engine", "warned"),
    [
        ({}, True),
        ({"name": "vllm"}, True),
        ({"name": "vllm", "adapters": "lora"}, True),
        ({"adapters": "merge"}, True),
        ({"name": "vllm", "adapters": "merge"}, False),
    ],
)
def test_what_rounding_loses_is_a_caveat_unless_vllm_merges(engine: dict[str, str], warned: bool) -> None:
    config = load(MINIMAL | {"engine": engine})
    effects = {"demo/seed0/dpo/g0/k0": 0.45, "demo/seed1/dpo/g0/k0": 0.95, "demo2/seed0/dpo/g0/k0": 0.1}
    caveats = rounding_caveats(effects, "demo", config)
    assert bool(caveats) is warned
    for caveat in caveats:
        assert "for one policy" in caveat
        assert "45\N{NO-BREAK SPACE}% for seed0/dpo/g0/k0" in caveat
        assert "engine.adapters: merge, with vLLM, keeps it." in caveat
    assert rounding_caveats({"demo/seed1/dpo/g0/k0": 0.95}, "demo", config) == ()
    for caveat in rounding_caveats(effects | {"demo/seed1/dpo/g0/k0": 0.8}, "demo", config):
        assert "2 policies" in caveat


def test_a_policy_without_a_right_answer_is_named_if_m0_has_some() -> None:
    def caveats(of_m0: float) -> tuple[str, ...]:
        rows = [("base", 0, of_m0), ("dpo", 0, 0.0), ("g2d", 150, 0.2)]
        return zero_caveats(pd.DataFrame(rows, columns=["policy", "K", "accuracy"]))

    [caveat] = caveats(0.3)
    assert "DPO (K=0)" in caveat and "K=150" not in caveat
    assert caveats(0.0) == ()


def test_a_policy_that_answers_every_question_as_m0_is_named() -> None:
    columns = ["policy", "K", "reference", "gained", "lost"]
    rows = [("dpo", 0, "base", 0.0, 0.0), ("g2d", 50, "base", 0.1, 0.1), ("grpo", 50, "dpo", 0.0, 0.0)]
    [caveat] = no_effect_caveats(pd.DataFrame(rows, columns=columns))
    assert "right or wrong: DPO (K=0)." in caveat
    assert no_effect_caveats(pd.DataFrame(rows[1:], columns=columns)) == ()


@pytest.mark.parametrize(("ratio", "warned"), [(0.85, True), (0.95, False), (1.05, False), (1.15, True)])
def test_a_ratio_that_is_off_one_is_a_caveat_of_its_training(ratio: float, warned: bool) -> None:
    measures = pd.DataFrame({"measure": ["ratio", "capped"], "value": [ratio, 0.25]})
    caveats = mismatch_caveats(measures.assign(policy="grpo", group_size=2))
    assert bool(caveats) is warned
    for caveat in caveats:
        assert "GRPO, G=2 the probabilities" in caveat
        assert f"is {ratio:.2f} on average" in caveat


def test_the_largest_share_of_the_calibration_is_named() -> None:
    rows = [("base", 0, 0.0, 0.0), ("dpo", 0, 4.0, 2.99), ("g2d", 150, 10.0, 9.0)]
    columns = ["policy", "K", "device_hours", "device_hours_without_calibration"]
    assert "at most 26 % of a cost (DPO (K=0))" in calibration_words(pd.DataFrame(rows, columns=columns))
    assert calibration_words(pd.DataFrame(rows[:1], columns=columns)) == ""
