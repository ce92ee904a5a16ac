"""Memory workload of the jobs of a configuration, and their disk usage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from g2d.experiment.config import Config
from g2d.grid.expand import by_section, group_sizes, runs_of
from g2d.grid.grid import Grid
from g2d.grid.policy import Policy
from g2d.grid.run import Run
from g2d.memory.need import GIB
from g2d.memory.workload import Drawing, Training
from g2d.problems.settings import SyntheticProblems
from g2d.regimes.offline.dpo import Dpo
from g2d.regimes.run.checkpoints import KEPT

if TYPE_CHECKING:  # imports torch
    from g2d.memory.model_shape import ModelShape

PROMPT_TOKENS = 256  # assumed


def drawings(config: Config) -> Iterator[Drawing]:
    c, h, e = config.calibration, config.harvest, config.evaluation
    levels = c.only or (config.pool.drawn_levels if isinstance(config.pool, SyntheticProblems) else None)
    n = len(levels or [None]) * c.problems_per_level * c.samples_per_prompt if levels is not None else None
    yield Drawing("calibrate", "calibration", c.max_completion_length, c.batch_size, c.samples_per_prompt, n)
    n = config.training_set.n * h.samples_per_prompt
    yield Drawing("harvest", "harvest", h.max_completion_length, h.batch_size, h.samples_per_prompt, n)
    samples = e.sampled.n if e.sampled else 1
    yield Drawing("evaluate", "evaluation", e.max_completion_length, e.batch_size, samples, None)


def trainings(config: Config) -> Iterator[Training]:
    settings, samples = config.training, config.harvest.samples_per_prompt
    for section, runs in sorted(by_section(runs_of(config)).items(), key=lambda item: _place(item[1][0])):
        run = runs[0]
        name = f"{run.method} of {run.owner}" if run.role == "ablation" else run.owner or run.method
        sizes = sorted(group_sizes(runs)) if run.phase == "online" else [samples]
        for size in sizes:
            on_card = run.settings.on_card(size, config.harvest.max_completion_length)
            shared = on_card.shared(settings.processes, settings.gradient_checkpointing)
            yield replace(shared, name=name + f" G={size}" * (len(sizes) > 1), section=section)


def _place(run: Run) -> int:
    return 2 if run.section.startswith("regimes.") else isinstance(run.settings, Dpo)


@dataclass(frozen=True)
class Disk:
    """Bytes of results after all trainings, and of temporary files during them."""

    policies: int
    policy: int
    checkpoints: int  # later K resume from them
    checkpoint: int

    @property
    def total(self) -> int:
        return self.policies * self.policy + self.checkpoints * self.checkpoint

    @property
    def words(self) -> str:
        running = (KEPT + 1) * self.checkpoint
        return (
            f"disk: {self.policies} policies x {self.policy / GIB:.2f} GiB + {self.checkpoints} checkpoints x "
            f"{self.checkpoint / GIB:.2f} GiB (checkpoints.keep) = {self.total / GIB:.1f} GiB; each running training "
            f"takes up to {running / GIB:.1f} GiB more"
        )


def disk_use(config: Config, model: str, shape: ModelShape) -> Disk:
    """Return the disk space of a model's trainings.

    A policy has bfloat16 weights, or an adapter in float32. A checkpoint has float32 weights, AdamW's two averages, and
    copies of generating or reference weights.
    """
    grid = Grid(config)
    trainings = [policy for policy in grid.trainings if policy.model == model]
    left: set[Policy] = set()
    continued: set[Policy | None] = set()
    copies = 0
    for policy in trainings:
        if policy.run.phase != "online" or policy.run.stops:  # an auto-stop leaves no checkpoint
            continue
        left.add(policy)
        continued.add(grid.reads(policy).continues)
        on_card = policy.run.settings.on_card(policy.group_size, config.harvest.max_completion_length)
        copies = max(copies, on_card.own_copy or on_card.adapters == 2)
    trained = shape.parameters if shape.trains_all else shape.adapter
    kept = left if config.checkpoints.keep == "all" else left - continued
    return Disk(len(trainings), (2 if shape.trains_all else 4) * trained, len(kept), (12 + 4 * copies) * trained)
