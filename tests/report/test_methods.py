"""The methods section states the settings, and changes with them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
import yaml
from snakemake.utils import update_config

from g2d.experiment.config import Config, load, read
from g2d.report.methods import methods
from tests import open_ended

CONFIG = Path(__file__).parents[2] / "config"
PROVENANCE = {
    "workflow": {"g2d": "0.1.0", "commit": "0123456789abcdef" * 2 + "01234567", "dirty": False},
    "software": {"python": "3.11.7", "packages": {"torch": "2.13.0", "trl": "1.16.0", "vllm": "0.31.0"}},
    "devices": ["NVIDIA H100"],
}


def written(
    config: Config,
    n_pairs: tuple[float, ...] = (680.0, 708.0),
    tables: Sequence[str] = ("main",),
    sweep: pd.DataFrame | None = None,
    **other: object,
) -> str:
    models = list(config.models)
    calibration = pd.DataFrame(
        {"model": model, "levels": levels, "selected": chosen}
        for model in models
        for levels, chosen in [("1", False), ("2", True), ("3", True), ("2-3", True), ("all", False)]
    )
    manifests = {name: {"n": 500, "sha256": "a" * 64, "file": "f.jsonl"} for name in config.problem_sources}
    record = PROVENANCE | {"problems": manifests} | other
    return methods(config, record, calibration, pd.DataFrame({"n_pairs": n_pairs}), tables, sweep)


@pytest.fixture(scope="module")
def paper() -> Config:
    return read(CONFIG / "paper.yaml")


def test_the_papers_grid(paper: Config) -> None:
    text = written(paper)
    for part in (
        "on Qwen/Qwen2.5-7B-Instruct (revision a09a35458c70) and meta-llama/Llama-3.1-8B-Instruct",
        "DigitalLearningGmbH/MATH-lighteval (train, default; revision 0530c78699ea; n=500)",
        "1500 training prompts were drawn from levels 2 and 3, fixed in advance",
        "K in {0, 150, 300, 500, 700, 1000} gradient steps of GRPO (loss grpo, group size G = 2",
        "peak learning rate of 1e-05, in one trajectory through all K, with a cosine schedule over 1000 steps",
        "LoRA (rank 16, alpha 32, dropout 0.05",
        "8 rollouts per prompt (temperature 1.3, at most 512 tokens)",
        "8 prompts (8 x G completions) per step",
        "680 to 708 pairs per harvest",
        "DPO (loss sigmoid, beta 0.1, 3 epochs, peak learning rate 5e-05",
        "policies trained only by GRPO, at K=1000 with G in {2, 4}",
        "for llama-3.1-8b-instruct, harvest.max_completion_length=896",
        "seeds 0, 1, 2, 3, 4",
        "generated with vLLM 0.31.0",
        "commit 0123456789ab, PyTorch 2.13.0 and TRL 1.16.0, Python 3.11.7; devices: NVIDIA H100",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("section", "values", "part"),
    [
        ("harvest", {"temperature": 0.9}, "temperature 0.9"),
        ("harvest", {"samples_per_prompt": 16}, "16 rollouts per prompt"),
        ("warmup", {"schedule": "per_k"}, "in an independent run per K"),
        ("warmup", {"mask_truncated": True}, "truncated completions masked"),
        ("warmup", {"prompts_per_step": None}, "16 completions (for any G) per step"),
        ("warmup", {"auto": {"every": 25}}, "the first 200 training prompts were sampled every 25 steps"),
        ("dpo", {"loss": "ipo"}, "DPO (loss ipo"),
        ("dpo", {"use_weighting": True}, "(loss sigmoid, pairs weighted by the policy's probabilities (WPO), beta 0.1"),
        ("dpo", {"nll_weight": 0.5}, "(loss sigmoid, NLL of the chosen completions added with weight 0.5, beta 0.1"),
        ("dpo", {"epochs": 5}, "beta 0.1, 5 epochs"),
        ("dpo", {"ld_alpha": 0.5}, "tokens beyond the shorter completion weighted 0.5 (LD-DPO), beta 0.1"),
        ("calibration", {"levels": "auto"}, "chosen because the pass@1 of M0 lay between 0.3 and 0.6"),
        ("evaluation", {"sampled": {"n": 4, "temperature": 0.6}}, "on 4 samples per problem (temperature 0.6"),
        ("engine", {"name": "transformers"}, "generated with transformers"),
    ],
)
def test_a_changed_setting_changes_the_text(paper: Config, section: str, values: dict, part: str) -> None:
    changed = paper.model_dump() | {section: getattr(paper, section).model_dump() | values}
    if "ld_alpha" in values:
        changed["ablations"] = {}  # one of them, ipo, does not allow it
    assert part not in written(paper)
    assert part in written(Config.model_validate(changed))


def test_a_demonstration_says_so_first() -> None:
    config = read(CONFIG / "config.yaml")
    assert written(config).startswith(config.demonstration)


@pytest.mark.parametrize(
    ("seeds", "part"),
    [
        ([3], "There was one seed, 3. Intervals of accuracies are 95 % t intervals over problems with two right"),
        ([3], "t-tests over problems, for these weights of one training run each"),
        ([0, 1], "pooled over the policies trained by DPO and its part"),
        ([*range(7)], "pooled over the policies trained by DPO, without one whose seeds scatter significantly more"),
        ([*range(8)], "over seeds and problems, each pair with its own variance between seeds"),
    ],
)
def test_the_test_that_was_used_is_named(paper: Config, seeds: list[int], part: str) -> None:
    assert part in written(paper.model_copy(update={"seeds": seeds}), tables=["comparisons"])


def test_sides_margins_and_families_are_named(paper: Config) -> None:
    several = ["comparisons", "margins", "frontier", "controls", "regimes"]
    text = written(paper, tables=several)
    for part in (
        "by two-sided t-tests",
        "Holm's correction within families: DPO at every K and G against M0, against K=0 and against GRPO; all pairs",
        "all further regimes, and all ablations, against M0 and against the policy that they differ from.",
        "two-sided, simultaneous within a family (95 %)",
        "no correction over families, models or benchmarks.",
        "(95 %, simultaneous for all K; Hsu 1984)",
        "at most 2 points, a test of non-inferiority.",
        "The cost of the frontier is device-hours.",
        "by 95 % t intervals of their differences over seeds",
        "three families over all controls",
    ):
        assert part in text.replace("\\", "")
    wide = Config.model_validate(paper.model_dump() | {"frontier": {"margin": 0.05}})
    assert "if this bound is at most 5 points, a test of" in written(wide, tables=several)
    assert "costs were compared as they are" in written(paper.model_copy(update={"seeds": [0]}), tables=several)


def test_benchmarks_with_clusters_are_named(paper: Config) -> None:
    assert "clusters" not in written(paper)
    values = paper.model_dump()
    name = next(iter(values["benchmarks"]))
    values["benchmarks"][name]["fields"]["cluster"] = "template"
    assert f"Problems of {name} form clusters" in written(Config.model_validate(values)).replace("\\", "")


def test_what_was_not_computed_is_not_claimed(paper: Config) -> None:
    assert "Holm" not in written(paper)
    text = written(paper, tables=["comparisons"])
    assert not any(word in text for word in ("frontier", "non-inferiority", "further regimes", "Fieller"))


def test_changes_that_are_not_committed_are_admitted(paper: Config) -> None:
    dirty = written(paper, workflow=PROVENANCE["workflow"] | {"dirty": True})
    assert "commit 0123456789ab with uncommitted changes" in dirty
    assert "commit" not in written(paper, workflow={"g2d": "0.1.0", "commit": None, "dirty": None})


@functools.cache
def mixed() -> Config:
    merged = yaml.safe_load((CONFIG / "config.yaml").read_text())
    prompts = {"pool": open_ended.POOL, "held_out": open_ended.HELD_OUT, "reward": "polite", "samples_per_prompt": 4}
    merged |= {"rewards": {"polite": open_ended.JUDGE}, "open_ended": prompts}
    merged |= {"ablations": {"both-grpo": {"steps": [40], "prompts": "mixed", "policies": ["grpo"]}}}
    return load(merged)


def test_win_rates_and_their_judge_are_described() -> None:
    text = written(mixed())
    for part in (
        "with the same random numbers, 4 rollouts",
        "the one with the higher reward was preferred (scores of the reward model judge)",
        "both-grpo (",
        "prompts=verifiable prompts and, 50% of them",
    ):
        assert part in text.replace("\\", "")


def test_the_selection_of_checkpoints_is_described() -> None:
    merged = yaml.safe_load((CONFIG / "config.yaml").read_text())
    entry = {"regime": "semi_online_dpo", "steps": [10, 20], "select": True}
    update_config(merged, {"sweep": {"development": 40}, "regimes": {"s1": entry}})
    text = " ".join(written(load(merged)).split())
    assert (
        "For s1 and each seed, the evaluated checkpoint was the K with the highest accuracy on 40 problems held out"
        in text
    )
    assert "These prompts were used neither for training nor for evaluation" in text
