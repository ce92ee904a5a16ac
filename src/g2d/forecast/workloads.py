"""What the jobs of a configuration do on a card: how many sequences at once, of how many tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from g2d.experiment.arms import Arm, by_section, expanded, group_sizes
from g2d.experiment.config import Config
from g2d.memory.workload import Drawing, Training
from g2d.regimes.dpo import Dpo
from g2d.regimes.warmup import Warmup
from g2d.rewards.model import RewardModel

PROMPT_TOKENS = 256  # of a prompt, assumed


def completions_per_update(settings: Any, group_size: int) -> int:
    """Completions that one update of an online training consumes."""
    if isinstance(settings, Warmup):
        return settings.completions_per_step(group_size)
    return int(settings.prompts_per_update * settings.responses)


def drawings(config: Config) -> Iterator[Drawing]:
    """Calibration, harvest, evaluation and drift, of one model's configuration."""
    c, h, e = config.calibration, config.harvest, config.evaluation
    n = len(c.levels) * c.problems_per_level * c.samples_per_prompt if isinstance(c.levels, list) else None
    yield Drawing("calibrate", "calibration", c.max_completion_length, c.batch_size, c.samples_per_prompt, n)
    n = config.training_set.n * h.samples_per_prompt
    yield Drawing("harvest", "harvest", h.max_completion_length, h.batch_size, h.samples_per_prompt, n)
    samples = e.sampled.n if e.sampled else 1
    yield Drawing("evaluate", "evaluation", e.max_completion_length, e.batch_size, samples, None)
    if config.drift:
        samples = config.drift.samples_per_prompt
        n = config.drift.problems * samples
        yield Drawing("drift", "evaluation", e.max_completion_length, e.batch_size, samples, n, compared=True)


def trainings(config: Config) -> list[Training]:
    """Every training of one model's configuration; those that need the same memory share an entry with their names."""
    unlike: dict[Training, Training] = {}
    own = config.training
    for training in _trainings(config):
        found = replace(
            training.shared(own.processes, own.strategy),
            checkpointing=own.gradient_checkpointing is not False,
            choose_checkpointing=own.gradient_checkpointing == "auto",
        )
        alike = replace(found, name="", section="", completions=None, batch=None)
        if (first := unlike.get(alike)) is None:
            unlike[alike] = found
        else:
            most = max((n for n in (first.completions, found.completions) if n is not None), default=None)
            unlike[alike] = replace(first, name=f"{first.name}, {found.name}", completions=most)
    return list(unlike.values())


def _trainings(config: Config) -> Iterator[Training]:
    """Each with its name and the section of its keys."""
    budget, responses = config.harvest.max_completion_length, config.harvest.samples_per_prompt
    kinds = "warmup", "dpo", "entry"
    found = sorted(by_section(expanded(config)).items(), key=lambda item: kinds.index(_kind(item[1][0])))
    for section, (arm, *others) in found:
        settings = arm.settings
        name = f"{arm.regime} of {arm.owner}" if arm.role == "ablation" else arm.owner or arm.regime
        if isinstance(settings, Warmup):
            sizes = sorted(group_sizes([arm, *others]))
            for size in sizes:
                own = name + f" G={size}" * (len(sizes) > 1)
                yield replace(settings.on_card(size), name=own, section=section)
        elif isinstance(settings, Dpo):
            yield replace(settings.on_card(budget), name=name, section=section)
        elif arm.phase == "online":
            yield replace(settings.on_card(), name=name, section=section)
        else:
            yield replace(settings.on_card(budget, responses), name=name, section=section)


def _kind(arm: Arm) -> str:
    """What an arm's section is about, in the order of the screen."""
    if arm.section.startswith("regimes."):
        return "entry"
    return "dpo" if isinstance(arm.settings, Dpo) else "warmup"


def reward_models(config: Config) -> list[str]:
    """The reward models, by their names under `rewards`: they are in memory beside the trainer."""
    return [name for name, reward in config.rewards.items() if isinstance(reward, RewardModel)]
