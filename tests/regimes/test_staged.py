"""Staged GRPO with the real trainer: equal to GRPO on the same completions, the veto, and going on bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from g2d.jobs.cost import Meter
from g2d.policies.settings import Lora
from g2d.problems.prompts import Prompt
from g2d.regimes.grpo.generation import EngineGeneration
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.staged import StagedGrpo, of_stage, train_staged_grpo
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.run.job import TrainingJob
from g2d.regimes.run.prompts import prompt_order
from g2d.rollouts.draw import draw_rollouts
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rollout import read_rollouts, write_rollouts
from tests.models import tiny_policy
from tests.regimes.test_resume import adapter, assert_resumes, saving
from tests.regimes.test_training import easy, steps_of

N, K, G = 16, 4, 2  # problems, updates, group size
COMMON = Warmup.model_validate({"steps": [0, K], "horizon": 6, "learning_rate": 1e-2, "max_completion_length": 12})
PLAIN = {"epsilon": 0.2, "epsilon_high": 0.2, "negative_veto": None}  # GRPO's clip range, no veto


def entry(**keys: Any) -> StagedGrpo:
    return StagedGrpo.model_validate({"regime": "staged_grpo", "stages": [1, 2, 4]} | keys)


def job(work: Path, settings: Warmup, k: int, **more: Any) -> TrainingJob:
    more = {"meter": Meter("job", "train")} | more
    return TrainingJob(
        *(tiny_policy(), easy(N), settings),
        **{"lora": Lora(dropout=0.0), "group_size": G, "k": k, "seed": 0, "work": work} | more,
        checkpointing=saving(work),
    )


def recorded(folder: Path, drawn: list[list[list[int]]], n_stages: int) -> list[Path]:
    """Harvests of the stages with these completions, drawn in turn for the prompts of GRPO."""
    problems, files = easy(N), []
    order = [problems[i].problem_id for i in prompt_order(N, N * K, 0)]
    some = draw_rollouts(tiny_policy(), problems, Prompt(), Decoding(1, 0.0, 1.0, 12, 64, 0), token_ids=True)
    by_problem = {rollout.problem_id: rollout for rollout in some}
    for number, completions in enumerate(drawn):
        prompts = len(completions) // G
        names = order[number * prompts : (number + 1) * prompts]
        samples: dict[str, int] = {}
        rows = []
        for name, ids in zip((name for name in names for _ in range(G)), completions, strict=True):
            sample = samples[name] = samples.get(name, -1) + 1
            rows.append(replace(by_problem[name], sample=sample, completion_ids=tuple(ids), token_count=len(ids)))
        files.append(folder / f"{number}.parquet")
        write_rollouts(files[-1], rows)
    assert len(files) == n_stages
    return files


def in_stages(folder: Path, settings: Any, harvests: list[Path]) -> list[dict[str, Any]]:
    before: Path | None = None
    log: list[dict[str, Any]] = []
    for number, harvest in enumerate(harvests, 1):
        work = folder / str(number)
        log = train_staged_grpo(job(work, settings, number, replayed_harvest=harvest, resume_from=before)).log
        before = work / "checkpoint"
    return log


@pytest.mark.parametrize("n_stages", [K, 2])
def test_stages_equal_grpo_on_the_same_completions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_stages: int
) -> None:
    """As many stages as updates are GRPO; fewer are GRPO with several updates per generation."""
    drawn: list[list[list[int]]] = []
    draw = EngineGeneration.draw

    def draw_and_keep(self: EngineGeneration, prompts: list[list[int]]) -> Any:
        completions, log_probs = draw(self, prompts)
        drawn.append([list(ids) for ids in completions])
        return completions, log_probs

    monkeypatch.setattr(EngineGeneration, "draw", draw_and_keep)
    keys = {"updates_per_generation": K // n_stages, "horizon": K}
    grpo = Warmup.model_validate(COMMON.model_dump() | keys).model_copy(update={"horizon": 6})
    log = train_grpo(job(tmp_path / "grpo", grpo, K)).log
    harvests = recorded(tmp_path, drawn, n_stages)
    settings = entry(**PLAIN).warmup_of(COMMON, n_stages)
    staged = in_stages(tmp_path / "staged", settings, harvests)
    assert adapter(tmp_path / f"staged/{n_stages}") == adapter(tmp_path / "grpo")
    assert [row["loss"] for row in steps_of(staged)] == [row["loss"] for row in steps_of(log)]
    assert len(steps_of(staged)) == K
    warmup_of_stage = entry(epsilon=1e-4, epsilon_high=1e-4, negative_veto=1.0001).warmup_of(COMMON, n_stages)
    in_stages(tmp_path / "own", warmup_of_stage, harvests)
    same = adapter(tmp_path / f"own/{n_stages}") == adapter(tmp_path / "grpo")
    assert same == (n_stages == K)  # the first update of a stage has ratios of 1


def harvest(folder: Path, settings: Any, stage: int) -> Path:
    """Harvest of M0 for a stage, as the rule draws it."""
    of = settings.harvested(stage, N)
    samples = of.pop("samples")
    problems, seed = of_stage(easy(N), of, 0)
    rollouts = draw_rollouts(
        tiny_policy(), problems, Prompt(), Decoding(samples, 0.8, 1.0, 12, 64, seed), token_ids=True
    )
    write_rollouts(folder / f"harvest{stage}.parquet", rollouts)
    return folder / f"harvest{stage}.parquet"


@pytest.mark.parametrize("n_stages", [1, 2, 4])
def test_all_numbers_of_stages_have_the_same_prompts_completions_and_updates(tmp_path: Path, n_stages: int) -> None:
    settings = entry().warmup_of(COMMON, n_stages)
    frames = [read_rollouts(harvest(tmp_path, settings, stage)) for stage in range(n_stages)]
    asked = pd.concat(frames).problem_id.value_counts()
    assert asked.to_dict() == {problem.problem_id: K * 16 // N for problem in easy(N)}
    assert len({(row.seed, row.problem_id, row.sample) for frame in frames for row in frame.itertuples()}) == K * 16
    assert settings.updates_per_generation * n_stages == K
    meter = Meter("job", "train")
    train_staged_grpo(job(tmp_path, settings, 1, replayed_harvest=tmp_path / "harvest0.parquet", meter=meter))
    trained = pd.read_parquet(tmp_path / "rollouts.parquet")
    assert sorted(trained.token_count) == sorted(frames[0].token_count)
    assert set(trained.step) == set(range(1, K // n_stages + 1))
    assert meter.tokens_generated == 0  # the harvest has them


def test_a_stage_resumes_within_its_generation(tmp_path: Path) -> None:
    settings = entry().warmup_of(COMMON, 1)
    file = harvest(tmp_path, settings, 0)

    def train(work: Path) -> list[dict[str, Any]]:
        return steps_of(train_staged_grpo(job(work, settings, 1, replayed_harvest=file, lora=Lora())).log)

    assert len(assert_resumes(train, tmp_path, 3)) == K


def test_the_reference_moves_after_a_pass_over_the_prompts_as_in_grpo() -> None:
    common = COMMON.model_copy(update={"reference": "sync", "beta": 0.1})
    staged = entry().warmup_of(common, 2)  # half a pass each
    assert [step for step in range(1, K + 1) if staged.swaps_reference(step, G, staged.groups_trained(K, G))] == [K]


def test_a_harvest_with_too_few_rollouts_is_named(tmp_path: Path) -> None:
    settings = entry().warmup_of(COMMON, 4)
    file = harvest(tmp_path, settings, 0)
    write_rollouts(file, read_rollouts(file).iloc[1:])
    with pytest.raises(ValueError, match=r"harvest0\.parquet: too few rollouts of problem .* delete the file"):
        train_staged_grpo(job(tmp_path, settings, 1, replayed_harvest=file))
