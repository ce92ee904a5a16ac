"""Memory workload of the jobs of a configuration, and their disk usage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from g2d.grid.grid import Grid, by_section, group_sizes
from g2d.grid.runs import OfflineRun, OnlineRun, Policy, TrainedRun
from g2d.memory.workload import SamplingLoad, ScoringLoad, Training
from g2d.problems.problem_keys import SyntheticProblems
from g2d.regimes.common.checkpoints import KEPT
from g2d.rewards.model import RewardModel
from g2d.rewards.registry import parts
from g2d.rollouts.free_memory import GIB
from g2d.rollouts.rollout_keys import Sampling
from g2d.settings import Section

if TYPE_CHECKING:  # imports torch
    from g2d.memory.passes import ModelShape

PROMPT_TOKENS = 256  # assumed


def sampling_loads(grid: Grid, model: str) -> Iterator[SamplingLoad]:
    pool = grid.config.pool
    settings = grid.settings[model]
    calibration = settings.calibration
    levels: Sequence[int] | None = calibration.only or None
    if levels is None and isinstance(pool, SyntheticProblems):
        levels = pool.drawn_levels
    drawn = None
    if levels is not None:
        n_levels = max(len(levels), 1)
        drawn = n_levels * calibration.problems_per_level * calibration.samples_per_prompt
    yield _sampling_load(calibration, "calibrate", "calibration", drawn)
    harvest = settings.harvest
    plain = _sampling_load(harvest, "harvest", "harvest", settings.training_set.n * harvest.samples_per_prompt)
    yield plain
    for scorers, run in _scored_harvests(grid, model).items():
        yield replace(plain, name=f"harvest of {run}", scorers=scorers)
    evaluation = settings.evaluation
    samples = 1
    if evaluation.sampled:
        samples = evaluation.sampled.n
    yield SamplingLoad(
        name="evaluate",
        section="evaluation",
        budget=evaluation.max_completion_length,
        batch=evaluation.batch_size,
        samples=samples,
        completions=None,
    )
    replies = grid.config.open_ended
    if replies is not None:
        load = _sampling_load(replies, "sample_replies", "open_ended", None)
        yield replace(load, scorers=scorers_of(grid, grid.config.rewards[replies.judged_by]))


def _scored_harvests(grid: Grid, model: str) -> dict[tuple[ScoringLoad, ...], str]:
    """Return the first run of each set of reward models that score a harvest beside its engine."""
    found: dict[tuple[ScoringLoad, ...], str] = {}
    for policy in grid.trained:
        harvest = policy.reads.harvest
        if policy.model == model and harvest is not None and not grid.judged_again(harvest):
            run = grid.runs[model][harvest.run_name]
            scorers = scorers_of(grid, grid.job_settings[model].reward_for(run))
            if scorers:
                found.setdefault(scorers, run.entry_name or run.method)
    return found


def scorers_of(grid: Grid, reward: Section | None) -> tuple[ScoringLoad, ...]:
    """Return the reward models of a reward."""
    names = {settings: name for name, settings in grid.config.rewards.items() if isinstance(settings, RewardModel)}
    of_reward = parts(reward) if reward else []
    return tuple(ScoringLoad(names[part], part) for part in of_reward if isinstance(part, RewardModel))


def _sampling_load(sampling: Sampling, name: str, section: str, completions: int | None) -> SamplingLoad:
    return SamplingLoad(
        name=name,
        section=section,
        budget=sampling.max_completion_length,
        batch=sampling.batch_size,
        samples=sampling.samples_per_prompt,
        completions=completions,
    )


def trainings(grid: Grid, model: str) -> Iterator[Training]:
    settings = grid.settings[model]
    sections = by_section(grid.runs[model])
    for section in sorted(sections, key=lambda section: _place(sections[section][0])):
        runs = sections[section]
        run = runs[0]
        if run.role == "ablation":
            name = f"{run.method} of {run.entry_name}"
        else:
            name = run.entry_name or run.method
        workloads: dict[str, Training] = {}
        if isinstance(run, OfflineRun):
            workloads[name] = run.settings.workload(settings.harvest.max_completion_length)
        else:
            sizes = sorted(group_sizes(runs))
            for size in sizes:
                full_name = f"{name} G={size}" if len(sizes) > 1 else name
                workloads[full_name] = run.settings.workload(size)
        for full_name, workload in workloads.items():
            training = workload.with_checkpointing(settings.training.gradient_checkpointing)
            scorers = scorers_of(grid, grid.job_settings[model].reward_for(run)) if isinstance(run, OnlineRun) else ()
            yield replace(training, name=full_name, section=section, scorers=scorers)


def _place(run: TrainedRun) -> int:
    """Return the place of a training in the order: warm-ups, DPO, then the entries of `regimes`."""
    if run.section.startswith("regimes."):
        return 2
    if run.method == "dpo":
        return 1
    return 0


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


def disk_use(grid: Grid, model: str, shape: ModelShape) -> Disk:
    """Return the disk space of a model's trainings.

    A policy has bfloat16 weights, or an adapter in float32. A checkpoint has float32 weights, AdamW's two averages, and
    copies of generating or reference weights.
    """
    trainings = [policy for policy in grid.trained if policy.model == model]
    left: set[Policy] = set()
    continued: set[Policy | None] = set()
    copies = 0
    for policy in trainings:
        run = policy.run
        if not isinstance(run, OnlineRun) or run.stops:  # an auto-stop leaves no checkpoint
            continue
        left.add(policy)
        continued.add(policy.reads.continues)
        workload = run.settings.workload(policy.group_size)
        copies = max(copies, workload.own_copy or workload.adapters == 2)
    if shape.trains_all:
        trained = shape.parameters
        policy_bytes = 2 * trained
    else:
        trained = shape.adapter
        policy_bytes = 4 * trained
    kept = left if grid.config.checkpoints.keep == "all" else left - continued
    return Disk(
        policies=len(trainings),
        policy=policy_bytes,
        checkpoints=len(kept),
        checkpoint=(12 + 4 * copies) * trained,
    )
