"""What calibration, harvest and evaluation have in common: a job that leaves one file of rollouts.

Such a job either draws them all, or draws one shard, or merges the shards that other jobs have drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from g2d.experiment.config import load
from g2d.experiment.parts import draw_in_parts
from g2d.jobs.cost import Meter
from g2d.policies.policy import as_json, read_own_policy
from g2d.problems import Problem
from g2d.problems.prompts import Prompt
from g2d.rollouts.draw import draw_rollouts
from g2d.rollouts.engine import Decoding, engine_for
from g2d.rollouts.rollout import Rollout, write_rollouts
from g2d.rollouts.shards import merge_shards, shard


def generate_rollouts(snakemake: Any, meter: Meter, problems: Sequence[Problem], decoding: Decoding) -> None:
    """Write `output.rollouts` for `input.policy`, and add the tokens that were generated to the bill.

    Raises:
        ValueError: the problems cannot be split or a shard cannot be used; as the engine and the readers do.
    """
    if snakemake.input.shards:
        write_rollouts(snakemake.output.rollouts, merge_shards(snakemake.input.shards, problems))
        return
    if number := snakemake.wildcards.get("shard"):
        problems = shard(problems, int(number), int(snakemake.wildcards.shards))
    policy = read_own_policy(snakemake.input.policy)
    prompt = Prompt.model_validate(snakemake.params.settings["prompt"])
    settings = load(snakemake.config).for_model(policy.model).engine
    engine = engine_for(policy, settings)

    def draw(dealt: Sequence[Problem]) -> list[Rollout]:
        return draw_rollouts(policy, dealt, prompt, decoding, workers=snakemake.threads, engine=engine)

    rollouts = draw_in_parts(
        Path(f"{snakemake.output.rollouts}.parts"),
        problems,
        draw,
        samples_per_prompt=decoding.samples_per_prompt,
        job={
            "version": snakemake.params.version,
            "policy": as_json(policy),
            "problems": [asdict(problem) for problem in problems],
            "prompt": prompt.params(),
            "decoding": asdict(decoding),
            "engine": settings.identity,
        },
        meter=meter,
    )
    write_rollouts(snakemake.output.rollouts, rollouts)
