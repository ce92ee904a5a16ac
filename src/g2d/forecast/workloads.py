"""What the jobs of a configuration do on a card: how many sequences at once, of how many tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from g2d.experiment.arms import Arm, by_section, expanded, group_sizes
from g2d.experiment.config import Config
from g2d.memory.workload import Drawing, Training
from g2d.regimes.dpo import Dpo
from g2d.regimes.processes import largest_part
from g2d.regimes.semi_online_dpo import SemiOnlineDpo
from g2d.regimes.warmup import Warmup
from g2d.rewards.model import RewardModel

PROMPT_TOKENS = 256  # of a prompt, assumed


def completions_per_update(settings: Any, group_size: int) -> int:
    """Completions that one update of an online training consumes."""
    if isinstance(settings, Warmup):
        return settings.completions_per_step(group_size)
    return int(settings.prompts_per_update * settings.responses)


def drawings(config: Config) -> Iterator[Drawing]:
    """Calibration, harvest and evaluation, of one model's configuration."""
    c, h, e = config.calibration, config.harvest, config.evaluation
    n = len(c.levels) * c.problems_per_level * c.samples_per_prompt if isinstance(c.levels, list) else None
    yield Drawing("calibrate", "calibration", c.max_completion_length, c.batch_size, c.samples_per_prompt, n)
    n = config.training_set.n * h.samples_per_prompt
    yield Drawing("harvest", "harvest", h.max_completion_length, h.batch_size, h.samples_per_prompt, n)
    samples = e.sampled.n if e.sampled else 1
    yield Drawing("evaluate", "evaluation", e.max_completion_length, e.batch_size, samples, None)


def trainings(config: Config) -> list[Training]:
    """Every training of one model's configuration; those that need the same memory share an entry with their names."""
    unlike: dict[tuple[Any, ...], Training] = {}
    n, divided = config.training.processes, config.training.strategy == "fsdp"
    for training in _trainings(config):
        found = replace(
            training,
            parts=n if divided else 1,
            at_once=largest_part(training.at_once, n),
            batch=largest_part(training.batch, n),
        )
        alike = found.budget, found.rows, found.reference, found.adapters, found.at_once, found.own_copy
        if (first := unlike.get(alike)) is None:
            unlike[alike] = found
        else:
            most = max((n for n in (first.completions, found.completions) if n is not None), default=None)
            unlike[alike] = replace(first, name=f"{first.name}, {found.name}", completions=most)
    return list(unlike.values())


def _trainings(config: Config) -> Iterator[Training]:
    kinds = "warmup", "dpo", "entry"
    found = sorted(by_section(expanded(config)).items(), key=lambda item: kinds.index(_kind(item[1][0])))
    for section, (arm, *others) in found:
        settings = arm.settings
        name = f"{arm.regime} of {arm.owner}" if arm.role == "ablation" else arm.owner or arm.regime
        if isinstance(settings, Warmup):
            sizes = sorted(group_sizes([arm, *others]))
            for size in sizes:
                yield _grpo(settings, size, name + f" G={size}" * (len(sizes) > 1), section)
        elif isinstance(settings, Dpo):
            yield _dpo(config, settings, name, section)
        else:
            yield _entry(config, name, section, settings)


def _kind(arm: Arm) -> str:
    """What an arm's section is about, in the order of the screen."""
    if arm.section.startswith("regimes."):
        return "entry"
    return "dpo" if isinstance(arm.settings, Dpo) else "warmup"


def _grpo(warmup: Warmup, size: int, name: str, section: str) -> Training:
    return Training(
        name,
        section,
        warmup.max_completion_length,
        warmup.per_device_batch_size,
        adapters=2 if warmup.reference == "sync" else 1,
        at_once=warmup.completions_per_generation(size),
        batch=warmup.completions_per_generation(size),
        completions=max(warmup.steps) * warmup.completions_per_step(size) // warmup.iterations,
    )


def _dpo(config: Config, dpo: Dpo, name: str, section: str) -> Training:
    return Training(
        name,
        section,
        config.harvest.max_completion_length,
        2 * dpo.per_device_batch_size,
        per_row=2,
        reference=not dpo.precompute_reference,
        adapters=2 if dpo.start == "warmup" else 1,
    )


def _entry(config: Config, name: str, section: str, entry: Any) -> Training:
    if isinstance(entry, SemiOnlineDpo):
        per_update = completions_per_update(entry, entry.responses)
        at_once = per_update * (entry.sync_every if isinstance(entry.sync_every, int) else entry.total_steps)
        return Training(
            name,
            section,
            entry.max_completion_length,
            entry.per_device_batch_size,
            reference=True,
            adapters=1 if entry.reference == "base" else 2,
            at_once=at_once,
            batch=min(entry.batch_size, at_once),
            own_copy=True,
            completions=max(entry.steps) * per_update,
        )
    return Training(
        name,
        section,
        config.harvest.max_completion_length,
        entry.per_device_batch_size,
        reference=entry.regime != "rft",
        adapters=2 if entry.start != "base" and entry.regime != "rft" else 1,
    )


def reward_models(config: Config) -> list[str]:
    """The reward models, by their names under `rewards`: they are in memory beside the trainer."""
    return [name for name, reward in config.rewards.items() if isinstance(reward, RewardModel)]
