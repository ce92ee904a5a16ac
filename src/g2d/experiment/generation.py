"""What calibration, harvest and evaluation have in common: a job that leaves one file of rollouts.

Such a job either draws them all, or draws one shard, or merges the shards that other jobs have drawn, or judges by
another reward what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from g2d.experiment.config import load
from g2d.experiment.resumable_draw import draw_in_parts
from g2d.jobs.cost import Meter
from g2d.policies.policy import as_json, read_own_policy
from g2d.problems import Problem
from g2d.problems.prompts import Prompt
from g2d.rewards.catalogue import TRUTH, words_of
from g2d.rewards.judging import require_numbers
from g2d.rollouts.draw import draw_rollouts
from g2d.rollouts.engine import Decoding, engine_for
from g2d.rollouts.rewarding import with_rewards
from g2d.rollouts.rollout import Rollout, read_rollouts, write_rollouts
from g2d.rollouts.shards import merge_shards, shard
from g2d.settings import Section
from g2d.verifier import Verifier


def generate_rollouts(
    snakemake: Any,
    meter: Meter,
    problems: Sequence[Problem],
    decoding: Decoding,
    reward: Section = TRUTH,
    *,
    token_ids: bool = False,
) -> None:
    """Write `output.rollouts` for `input.policy`, and add the tokens that were generated to the bill.

    Args:
        reward: what training will see of them.
        token_ids: keep the tokens, of rollouts that are to be trained on.

    Raises:
        ValueError: the problems cannot be split or a shard cannot be used; as the engine and the readers do.
    """
    if snakemake.input.shards:
        write_rollouts(snakemake.output.rollouts, merge_shards(snakemake.input.shards, problems))
        return
    if snakemake.input.get("judged"):
        drawn = read_rollouts(snakemake.input.judged[0])
        write_rollouts(snakemake.output.rollouts, _rewarded(drawn, problems, reward, decoding.seed, snakemake.threads))
        return
    if number := snakemake.wildcards.get("shard"):
        problems = shard(problems, int(number), int(snakemake.wildcards.shards))
    policy = read_own_policy(snakemake.input.policy)
    shown = snakemake.params.settings.get("prompt")  # none: the bare text is continued
    prompt = None if shown is None else Prompt.model_validate(shown)
    settings = load(snakemake.config).for_model(policy.model).engine
    engine = engine_for(policy, settings)

    def draw(dealt: Sequence[Problem]) -> list[Rollout]:
        return draw_rollouts(
            policy, dealt, prompt, decoding, workers=snakemake.threads, engine=engine, token_ids=token_ids
        )

    rollouts = draw_in_parts(
        Path(f"{snakemake.output.rollouts}.parts"),
        problems,
        draw,
        samples_per_prompt=decoding.samples_per_prompt,
        job={
            "version": snakemake.params.version,
            "policy": as_json(policy),
            "problems": [asdict(problem) for problem in problems],
            "prompt": None if prompt is None else prompt.params(),
            "decoding": asdict(decoding),
            "engine": settings.identity,
        },
        meter=meter,
    )
    rows = _rewarded(rollouts, problems, reward, decoding.seed, snakemake.threads)
    write_rollouts(snakemake.output.rollouts, rows)


def _rewarded(
    rollouts: pd.DataFrame, problems: Sequence[Problem], reward: Section, seed: int, workers: int
) -> pd.DataFrame:
    with Verifier(workers) as verifier:  # it starts no process before it is asked
        rows = with_rewards(rollouts, problems, reward, seed=seed, stream="harvest", verifier=verifier)
    if "reward_status" in rows:
        require_numbers(Counter(rows["reward_status"]), words_of(reward))
    return rows
