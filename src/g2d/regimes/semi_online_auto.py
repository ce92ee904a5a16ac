"""Semi-online DPO that stops by itself: an entry with `auto`, by the rule of `g2d.regimes.auto_stop`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from g2d.jobs.cost import Meter
from g2d.policies.policy import Policy, as_json
from g2d.policies.settings import Lora
from g2d.problems import Problem
from g2d.problems.prompts import Prompt
from g2d.regimes.auto_stop import Outcome, Trajectory, until_decline
from g2d.regimes.semi_online_dpo import train_semi_online_dpo
from g2d.regimes.semi_online_keys import SemiOnlineDpo
from g2d.rollouts.settings import EngineSettings, Harvest


def train_semi_online_until_decline(
    base: Policy,
    problems: Sequence[Problem],
    *,
    settings: SemiOnlineDpo,
    harvest: Harvest,
    lora: Lora,
    prompt: Prompt,
    seed: int,
    work: Path,
    policy_id: str,
    start: Policy | None = None,
    engine: EngineSettings | None = None,
    workers: int = 1,
    meter: Meter | None = None,
    version: int = 0,
    **others: Any,
) -> Outcome:
    """Train until the policy's harvest declines, at most to the largest K; all else as for `until_decline`.

    Args:
        settings: of an entry with `auto`.
        start: as for `train_semi_online_dpo`, which takes `others` too.
    """
    assert settings.auto is not None

    def train(k: int, folder: Path, resume_from: Path | None, meter: Meter) -> None:
        train_semi_online_dpo(
            base,
            problems,
            settings=settings,
            lora=lora,
            prompt=prompt,
            k=k,
            seed=seed,
            work=folder,
            start=start,
            resume_from=resume_from,
            engine=engine,
            meter=meter,
            version=version,
            **others,
        )

    drawn = settings.prompts_per_update * settings.responses
    identity = {
        "semi_online_dpo": settings.trajectory() | {"keep_rollouts": settings.keep_rollouts},
        "lora": lora.params(),
        **({} if start is None else {"started_from": as_json(start)}),
    }
    return until_decline(
        base,
        problems,
        Trajectory(
            policy_id, "train_semi_online_dpo_auto", settings.steps[-1], settings.responses, drawn, identity, train
        ),
        auto=settings.auto,
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
