"""GRPO that stops by itself: `warmup.auto`, by the rule of `g2d.regimes.auto_stop`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from g2d.jobs.cost import Meter
from g2d.policies.policy import Policy
from g2d.policies.settings import Lora
from g2d.problems import Problem
from g2d.problems.prompts import Prompt
from g2d.regimes.auto_stop import Outcome, Trajectory, until_decline
from g2d.regimes.checkpoints import Checkpointing
from g2d.regimes.grpo import train_grpo
from g2d.regimes.warmup import AUTO, AutoStop, Warmup
from g2d.rollouts.settings import EngineSettings, Harvest


def train_until_decline(
    base: Policy,
    problems: Sequence[Problem],
    *,
    auto: AutoStop,
    warmup: Warmup,
    harvest: Harvest,
    lora: Lora,
    prompt: Prompt,
    group_size: int,
    seed: int,
    work: Path,
    policy_id: str,
    engine: EngineSettings | None = None,
    checkpointing: Checkpointing | None = None,
    tracking: Mapping[str, Any] | None = None,
    workers: int = 1,
    meter: Meter | None = None,
    version: int = 0,
) -> Outcome:
    """Warm M0 up with GRPO until its harvest declines; all else is as for `until_decline` and `train_grpo`.

    Args:
        warmup: of the chain; its `steps` do not matter.
    """
    limit = warmup.total_steps

    def train(k: int, folder: Path, resume_from: Path | None, meter: Meter) -> None:
        train_grpo(
            base,
            problems,
            warmup=warmup,
            lora=lora,
            prompt=prompt,
            group_size=group_size,
            k=k,
            seed=seed,
            work=folder,
            resume_from=resume_from,
            engine=engine,
            checkpointing=checkpointing,
            tracking=tracking,
            meter=meter,
            version=version,
        )

    identity = {
        "warmup": warmup.trajectory(limit, group_size) | {"keep_rollouts": warmup.keep_rollouts},
        "lora": lora.params(),
        "group_size": group_size,
        **warmup.drawn_by(engine, lora),
    }
    drawn = warmup.completions_per_generation(group_size)
    return until_decline(
        base,
        problems,
        Trajectory(f"{AUTO}/grpo", "train_grpo_auto", limit, group_size, drawn, identity, train),
        auto=auto,
        harvest=harvest,
        prompt=prompt,
        seed=seed,
        work=work,
        policy_id=policy_id,
        engine=engine,
        workers=workers,
        meter=meter,
        version=version,
    )
