"""Disk that the trainings of a model leave occupied, from the configuration and the model's size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from g2d.experiment.config import Config
from g2d.experiment.plan import Plan
from g2d.forecast.jobs import grid_jobs
from g2d.forecast.rates import TO_K
from g2d.memory.need import GIB
from g2d.regimes.checkpoints import KEPT

if TYPE_CHECKING:  # imports torch
    from g2d.memory.model_shape import ModelShape


@dataclass(frozen=True)
class Disk:
    """What lies in the results when all is trained, in bytes, and beside it while trainings run."""

    policies: int
    policy: int  # bytes of one
    checkpoints: int  # for later K
    checkpoint: int  # bytes of one
    earlier: int = 0  # of the policies that a lag keeps beside the checkpoints

    @property
    def total(self) -> int:
        """Bytes when all is trained."""
        return self.policies * self.policy + self.checkpoints * self.checkpoint

    @property
    def words(self) -> str:
        """The sum in a sentence."""
        running = (KEPT + 1) * self.checkpoint + self.earlier
        return (
            f"disk: {self.policies} policies x {self.policy / GIB:.2f} GiB + {self.checkpoints} checkpoints x "
            f"{self.checkpoint / GIB:.2f} GiB (checkpoints.keep) = {self.total / GIB:.1f} GiB; each running training "
            f"takes up to {running / GIB:.1f} GiB more"
        )


def disk_use(config: Config, model: str, shape: ModelShape) -> Disk:
    """Disk for the trainings of a model.

    A policy has bfloat16 weights, or an adapter in float32. A checkpoint has float32 weights and AdamW's two averages,
    and copies of the weights that generate, or are the reference, where these are earlier ones.
    """
    plan = Plan(config)
    jobs = [job for job in grid_jobs(config, plan) if job.wildcards.get("model") == model]
    policies = sum(job.rule.startswith("train_") or job.rule == "choose_checkpoint" for job in jobs)
    left, continued, copies, lags = set(), set(), 0, [0]
    for job in jobs:
        if job.rule not in TO_K:  # what stops by itself leaves no checkpoint
            continue
        w, folder = job.wildcards, Path(job.name).parent
        arm, g, k = plan.online(w), int(w.g), int(w.k)
        left.add(folder)
        continued.add(folder.with_name(f"k{arm.before(g, k)}"))
        on_card = arm.settings.on_card(g, config.harvest.max_completion_length)
        lags.append(min(getattr(arm.settings, "lag", 0), k))
        copies = max(copies, (on_card.own_copy or on_card.adapters == 2) + lags[-1])
    trained = shape.parameters if shape.trains_all else shape.adapter
    kept = left if config.checkpoints.keep == "all" else left - continued
    beside = 4 * (max(lags) + 1) * trained if max(lags) else 0
    return Disk(policies, (2 if shape.trains_all else 4) * trained, len(kept), (12 + 4 * copies) * trained, beside)
