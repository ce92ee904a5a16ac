"""The keys of off-policy GRPO: what they refuse, what they leave as it was, and when the reference is swapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from g2d.experiment.config import Config, load
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.train import GRPO, completions_tokens
from g2d.settings import ConfigError
from tests.experiment.test_config import MINIMAL

CHAIN: dict[str, Any] = {"steps": [0, 4, 8]}


def test_without_the_keys_nothing_depends_on_them() -> None:
    younger = {*Warmup.model_fields} - {*Warmup.__annotations__}
    assert {"updates_per_generation", "epsilon", "adam_betas"} < younger
    assert not younger & {*Warmup().params()}
    assert GRPO.methods(Warmup()) == ""


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"updates_per_generation": 3}, "K=4 is no multiple of updates_per_generation x iterations=3"),
        ({"updates_per_generation": 2, "iterations": 4}, "K=4 is no multiple of updates_per_generation x iterations=8"),
        ({"iterations": 3, "schedule": "per_k"}, "K=4 is no multiple"),
        ({"iterations": 4, "horizon": 10}, "horizon=10 is no multiple"),
        ({"iterations": 4, "horizon": 40, "auto": {"every": 6}}, "auto.every=6 is no multiple"),
        ({"iterations": 2, "sync_every": 2}, "set one of them to 1"),
        ({"loss": "cispo"}, "epsilon_high=None: loss: cispo .* set it to 1 or more"),
        ({"loss": "cispo", "epsilon_high": 0.28}, "epsilon_high=0.28: loss: cispo .* set it to 1 or more"),
        ({"loss": "vespo", "importance_sampling": "sequence"}, "importance_sampling: sequence: loss: vespo"),
        (
            {"off_policy_mask_threshold": 0.1, "ratio": "none"},
            "off_policy_mask_threshold has no effect with ratio: none",
        ),
        ({"positive_weight": 0, "negative_weight": 0}, "both 0, .* set one above 0"),
        (
            {"negative_weight": 0, "off_policy_mask_threshold": 0.1},
            "off_policy_mask_threshold has no effect with negative_weight: 0",
        ),
        ({"advantages": "sign", "scale_rewards": "none"}, "scale_rewards has no effect with advantages: sign"),
        ({"advantages": "sign", "deviation": "population"}, "deviation has no effect with advantages: sign"),
        ({"reference": "sync"}, "without a KL term changes nothing: set beta above 0"),
        ({"reset_optimizer": True}, "set reference to sync, or drop them"),
        ({"reference_every": 4}, "set reference to sync, or drop them"),
        ({"reference": "sync", "beta": 0.1, "reference_every": 0}, "reference_every=0 is no multiple"),
        ({"reference": "sync", "beta": 0.1, "reference_every": 6, "iterations": 4}, "reference_every=6 "),
    ],
)
def test_keys_that_contradict_each_other_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Warmup.model_validate(CHAIN | keys)


@pytest.mark.parametrize(
    "keys",
    [
        {"updates_per_generation": 2, "iterations": 2},
        {"updates_per_generation": 4, "schedule": "per_k"},
        {"iterations": 4, "horizon": 40, "auto": {"every": 8}},
        {"loss": "cispo", "epsilon_high": 5},
        {"advantages": "sign", "positive_weight": 0.1, "mask_uniform_groups": True},
        {"reference": "sync", "beta": 0.1, "reference_every": 8, "iterations": 4, "reset_optimizer": True},
    ],
)
def test_keys_that_fit_stay_through_the_parameters_of_a_job(keys: dict[str, Any]) -> None:
    warmup = Warmup.model_validate(CHAIN | keys)
    again = Warmup.model_validate(warmup.trajectory(8, 2) | {"steps": [8], "group_sizes": [2]})
    assert again.trajectory(8, 2) == warmup.trajectory(8, 2)
    assert {*keys} - {"schedule", "horizon", "auto"} <= {*warmup.trajectory(8, 2)}


MOVING = {"reference": "sync", "beta": 0.1}


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("warmup", {"warmup": MOVING}),
        ("ablations.moving.warmup", {"ablations": {"moving": {"steps": "all", "warmup": MOVING}}}),
        (
            "regimes.s.warmup",
            {"training_set": {"n": 1000}, "regimes": {"s": {"regime": "staged_grpo", "stages": [1], "warmup": MOVING}}},
        ),
    ],
)
def test_a_moving_reference_and_dropout_are_refused(where: str, keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{where}.reference: sync needs lora.dropout: 0"):
        load(MINIMAL | keys)
    load(MINIMAL | keys | {"lora": {"dropout": 0.0}})


@pytest.mark.parametrize(
    ("keys", "scalar"),
    [
        ({"reward": "taste"}, "taste"),
        ({"reward": "coin"}, None),
        ({}, None),
        ({"prompts": "mixed", "policies": ["grpo"]}, "taste"),
    ],
    ids=str,
)
def test_signs_of_a_scalar_reward_are_refused(keys: dict[str, Any], scalar: str | None) -> None:
    replies = {"source": "synthetic", "family": "replies", "n": 5}
    values = MINIMAL | {
        "rewards": {"taste": {"reward": "scratch_model"}, "coin": {"reward": "random"}},
        "open_ended": {
            "pool": replies | {"split": "train"},
            "held_out": replies | {"split": "test"},
            "reward": "taste",
            "judge": "taste",
        },
        "ablations": {"signed": {"steps": [150], "warmup": {"advantages": "sign"}} | keys},
    }
    if scalar is None:
        load(values)
        return
    with pytest.raises(ConfigError, match=f"ablations.signed.warmup.advantages: sign .* {scalar} is a scalar reward"):
        load(values)


def swaps(keys: dict[str, Any], *, prompts_per_step: int = 4, n_prompts: int = 10) -> list[int]:
    given = {"steps": [24], "beta": 0.1, "reference": "sync", "prompts_per_step": prompts_per_step}
    warmup = Warmup.model_validate(given | keys)
    return [step for step in range(1, 25) if warmup.swaps_reference(step, 2, n_prompts)]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"reference_every": 8}, [8, 16, 24]),
        ({}, [3, 5, 8, 10, 13, 15, 18, 20, 23]),  # 12, 20, 32, 40, ... prompts asked: a pass is 10
        ({"updates_per_generation": 4}, [4, 8, 12, 16, 20, 24]),  # 16 prompts a generation, each ends a pass
        ({"iterations": 4}, [12, 20]),  # one step's 4 prompts last for four: 12 and 20 asked
        # The first step draws all of its groups, later ones half: 4, 6, 8, 10, 12 ...
        ({"replay": {"buffer": 8, "share": 0.5}}, [4, 9, 14, 19, 24]),
        ({"reference": "base"}, []),
    ],
)
def test_swaps_by_hand(keys: dict[str, Any], expected: list[int]) -> None:
    assert swaps(keys) == expected


def test_prompts_and_completions_by_hand() -> None:
    warmup = Warmup(steps=[12], updates_per_generation=3, iterations=2, prompts_per_step=8)
    assert warmup.prompts_asked(12, group_size=4) == 6 * 8
    assert warmup.completions_per_generation(4) == 3 * 8 * 4
    assert warmup.continued_every == 6
    assert Warmup(steps=[12], sync_every=3).continued_every == 3


def test_tokens_are_those_of_every_generation() -> None:
    log = [{"step": 1, "completions/mean_length": 2.5}, {"step": 2}, {"step": 3, "completions/mean_length": 4.0}]
    assert completions_tokens(log, 8, after_step=0) == 52
    assert completions_tokens(log, 8, after_step=2) == 32


def test_the_methods_paragraph_names_changes_to_plain_grpo() -> None:
    warmup = Warmup(
        steps=[20],
        updates_per_generation=10,
        ratio="none",
        mask_uniform_groups=True,
        beta=0.1,
        reference="sync",
        reset_optimizer=True,
        epsilon=5,
        adam_epsilon=1e-4,
    )
    assert GRPO.methods(warmup) == (
        "In GRPO, the rollouts of 10 steps were drawn at once; no ratio to the policy that sampled was taken; groups "
        "with equal rewards were left out of every term of the loss; the policy became the reference of the KL term "
        "after every pass over the prompts, where the optimizer's averages began anew; epsilon was 5.0; adam_epsilon "
        "was 0.0001."
    )


def test_the_example_in_the_documentation_is_valid() -> None:
    page = (Path(__file__).parents[2] / "docs/off_policy.md").read_text()
    example = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    config = Config.model_validate(MINIMAL | example)
    assert {name: config.warmup_of(name).updates_between_generations for name in config.ablations} == {
        "stale": 10,
        "unclipped": 10,
        "uncorrected": 10,
        "reused": 10,
    }


def test_the_example_of_signed_reinforcement_is_the_grid_of_its_configuration() -> None:
    root = Path(__file__).parents[2]
    section = (root / "docs/regimes.md").read_text().split("## Signed reinforcement")[1]
    example = yaml.safe_load(section.split("```yaml\n")[1].split("```")[0])
    Config.model_validate(MINIMAL | example)
    shipped = yaml.safe_load((root / "config/signs.yaml").read_text())["ablations"]
    assert {name: keys["warmup"] for name, keys in example["ablations"].items()}.items() <= {
        name: keys["warmup"] for name, keys in shipped.items()
    }.items()
