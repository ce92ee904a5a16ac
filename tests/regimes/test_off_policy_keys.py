"""The keys of off-policy GRPO: conflicts, parameters of a job, and when the reference is swapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from g2d.experiment.config import Config, load
from g2d.regimes.grpo.keys import Warmup
from g2d.settings import ConfigError
from tests import open_ended
from tests.experiment.test_config import MINIMAL

CHAIN: dict[str, Any] = {"steps": [0, 4, 8]}


def test_without_the_keys_nothing_depends_on_them() -> None:
    younger = {*Warmup.model_fields} - {*Warmup.__annotations__}
    assert {"updates_per_generation", "epsilon", "adam_betas"} < younger
    assert not younger & {*Warmup().params()}


BUFFER = {"replay": {"buffer": 8, "share": 0.5}}
RLEP = {"replay": {"successes": 2, "harvest_step": 0}, "group_sizes": [4]}
ONE_SUCCESS = {"replay": {"successes": 1, "harvest_step": 0}}
MASK = {"off_policy_mask_threshold": 0.1}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"updates_per_generation": 3}, "K=4 is no multiple of updates_per_generation x iterations=3"),
        ({"updates_per_generation": 2, "iterations": 4}, "K=4 is no multiple of updates_per_generation x iterations=8"),
        ({"iterations": 3, "schedule": "per_k"}, "K=4 is no multiple"),
        ({"iterations": 4, "horizon": 10}, "horizon=10 is no multiple"),
        ({"iterations": 4, "horizon": 40, "auto": {"every": 6}}, "auto.every=6 is no multiple"),
        ({"iterations": 2, "sync_every": 2}, "set one to 1"),
        ({"lag": 1, "sync_every": 2}, "lag=1 needs new rollouts in every step"),
        ({"lag": 1, "updates_per_generation": 2}, "to 1, or lag to 0"),
        ({"loss": "cispo"}, "epsilon_high=None: loss: cispo .* set it to 1 or more"),
        ({"loss": "cispo", "epsilon_high": 0.28}, "epsilon_high=0.28: loss: cispo .* set it to 1 or more"),
        ({"loss": "vespo", "importance_sampling": "sequence"}, "importance_sampling: sequence: loss: vespo"),
        (MASK | {"ratio": "none"}, "off_policy_mask_threshold has no effect with ratio: none"),
        ({"correction": "token_mask", "ratio": "none"}, "correction has no effect with ratio: none"),
        ({"correction_cap": 2.0, "ratio": "none"}, "correction_cap has no effect with ratio: none"),
        ({"correction": "m2", "correction_cap": 2.0}, "correction_cap has no effect with correction: m2"),
        ({"m2_threshold": 0.1}, "m2_threshold has no effect with correction: sequence_mask"),
        (
            {"correction": "m2", "updates_per_generation": 4},
            "m2 masks tokens of an update, .*generation=4",
        ),
        ({"positive_weight": 0, "negative_weight": 0}, "both 0, .* set one above 0"),
        (MASK | {"negative_weight": 0}, "off_policy_mask_threshold has no effect with negative_weight: 0"),
        ({"advantages": "sign", "scale_rewards": "none"}, "scale_rewards has no effect with advantages: sign"),
        ({"advantages": "sign", "deviation": "population"}, "deviation has no effect with advantages: sign"),
        ({"reference": "sync"}, "without a KL term changes nothing: set beta above 0"),
        ({"reset_optimizer": True}, "has no effect with reference: base"),
        ({"reference_every": 4}, "has no effect with reference: base"),
        ({"reference": "sync", "beta": 0.1, "reference_every": 0}, "reference_every=0 is no multiple"),
        ({"reference": "sync", "beta": 0.1, "reference_every": 6, "iterations": 4}, "reference_every=6 "),
        ({"replay": {"buffer": 8}}, "write buffer and share .experience replay., or successes and harvest_step"),
        ({"replay": {"buffer": 8, "share": 0.5, "successes": 1}}, "write buffer and share"),
        ({"replay": {"buffer": 8, "share": 0.3}}, "replay.share=0.3 of 8 prompts are 2.4: write 0.25 for 2"),
        ({"replay": {"buffer": 3, "share": 0.5}}, "takes 4 different groups .* set replay.buffer=3 to 4 or more"),
        (RLEP | {"group_sizes": [2]}, "replay.successes=2 leaves nothing to draw in groups of G=2"),
        (BUFFER | {"resample": 1}, "replay.*: drop either"),
        (RLEP | {"auto": {"every": 1, "patience": 1}}, "auto cannot replay"),
    ],
    ids=str,
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
        {"correction": "m2", "m2_threshold": 0.1, "iterations": 4},  # each over the rollouts of one update
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
VLLM = {"engine": {"name": "vllm"}}
NO_DROPOUT = {"lora": {"dropout": 0.0}}
STALE = {"warmup": {"updates_per_generation": 4, "steps": [0, 4, 8]}}
REWARDS = {
    "rewards": {"taste": open_ended.JUDGE, "coin": {"reward": "random"}},
    "open_ended": {
        "pool": open_ended.POOL,
        "held_out": open_ended.HELD_OUT,
        "reward": "taste",
        "judge": "taste",
    },
}


def ablation(warmup: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"ablations": {"own": {"steps": [150], "policies": ["grpo"], "warmup": warmup} | keys}}


def signed(**keys: Any) -> dict[str, Any]:
    return REWARDS | ablation({"advantages": "sign"}, **keys)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"warmup": {"correction": "token_mask"}}, "warmup.correction needs engine.name: vllm, a lag or a replay buf"),
        ({"warmup": {"correction_cap": 2.0}}, "warmup.correction_cap needs engine.name: vllm"),
        ({"warmup": MASK}, "warmup.off_policy_mask_threshold masks nothing, because transformers"),
        ({"warmup": {"loss": "vespo", "lag": 1}}, "vespo"),
        # TRL gives a masked token the weight 1e-8, and VESPO multiplies the weights of a completion.
        ({"warmup": {"loss": "vespo"}} | VLLM, "warmup.loss: vespo .* correction: sequence_mask .* to token_truncate"),
        (ablation({"loss": "vespo", "correction": "token_mask"}) | VLLM, "own.warmup.loss: vespo .* to token_truncate"),
        (ablation({"loss": "vespo", "correction": "token_mask", "lag": 2}), "own.warmup.loss: vespo .* to token_trunc"),
        (STALE | ablation({"correction": "m2"}, steps=[4]) | VLLM, "own.warmup.correction: m2 masks tokens of an upd"),
        (
            {"warmup": {"float32_logits": True}, "lora": {"target_modules": ["q_proj", "lm_head"]}},
            "warmup.float32_logits: TRL does not support it with lm_head",
        ),
        ({"warmup": MOVING}, "warmup.reference: sync needs lora.dropout: 0"),
        (ablation(MOVING), "ablations.own.warmup.reference: sync needs lora.dropout: 0"),
        (signed(reward="taste"), "own.warmup.advantages: sign .* taste is a scalar reward"),
        (signed(prompts="mixed"), "own.warmup.advantages: sign .* taste is a scalar reward"),
        (ablation(RLEP | {"replay": {"successes": 1, "harvest_step": 7}}), "own.warmup.*harvest_step: K=7 is not"),
        (ablation(BUFFER | {"loss": "vespo"}), "own.warmup.*vespo"),
        (
            {"warmup": {"steps": [0, 150], "group_sizes": [4], "replay": {"successes": 1, "harvest_step": 150}}},
            "a harvest of the policies that it would train: set it to 0",
        ),
        ({"warmup": {"steps": [150], "group_sizes": [4]} | ONE_SUCCESS}, r"not in .* \[150\] of demo: add"),
    ],
    ids=str,
)
def test_keys_that_other_sections_do_not_allow(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(MINIMAL | values)


@pytest.mark.parametrize(
    "values",
    [
        *({"warmup": keys} | VLLM for keys in ({"correction": "token_mask"}, {"correction_cap": 2.0}, MASK)),
        *({"warmup": keys | {"lag": 1}} for keys in ({"correction": "m2"}, MASK)),
        {"warmup": MASK | {"updates_per_generation": 2}},
        {"warmup": {"loss": "vespo", "correction": "token_truncate"}} | VLLM,
        {"warmup": {"loss": "vespo", "ratio": "none"}} | VLLM,
        {"warmup": {"loss": "vespo"}},
        ablation({"loss": "vespo", "correction": "token_truncate", "lag": 2}),
        {"warmup": {"float32_logits": True}, "lora": {"target_modules": ["q_proj"]}},
        *(values | NO_DROPOUT for values in ({"warmup": MOVING}, ablation(MOVING))),
        *(signed(), signed(reward="coin")),
        *(ablation(BUFFER | keys) for keys in ({"correction": "token_mask"}, MASK)),
    ],
    ids=str,
)
def test_keys_that_other_sections_allow(values: dict[str, Any]) -> None:
    load(MINIMAL | values)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"reference_every": 8}, [8, 16, 24]),
        ({}, [3, 5, 8, 10, 13, 15, 18, 20, 23]),  # 12, 20, 32, 40, ... prompts asked: a pass is 10
        ({"updates_per_generation": 4}, [4, 8, 12, 16, 20, 24]),  # 16 prompts a generation, each ends a pass
        ({"iterations": 4}, [12, 20]),  # one step's 4 prompts last for four: 12 and 20 asked
        # The first step draws all of its groups, later ones half: 4, 6, 8, 10, 12 ...
        (BUFFER, [4, 9, 14, 19, 24]),
        ({"reference": "base"}, []),
    ],
)
def test_swaps_by_hand(keys: dict[str, Any], expected: list[int]) -> None:
    warmup = Warmup.model_validate(MOVING | {"steps": [24], "prompts_per_step": 4} | keys)
    assert [step for step in range(1, 25) if warmup.swaps_reference(step, 2, n_prompts=10)] == expected


def test_prompts_and_completions_by_hand() -> None:
    warmup = Warmup(steps=[12], updates_per_generation=3, iterations=2, prompts_per_step=8)
    assert warmup.prompts_asked(12, group_size=4) == 6 * 8
    assert warmup.completions_per_generation(4) == 3 * 8 * 4
    assert warmup.continued_every == 6
    assert Warmup(steps=[12], sync_every=3).continued_every == 3


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
