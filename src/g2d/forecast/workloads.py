"""What the jobs of a configuration do on a card: how many sequences at once, of how many tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from g2d.experiment.arms import Arm, by_section, expanded, group_sizes
from g2d.experiment.config import Config
from g2d.memory.workload import Drawing, Training
from g2d.regimes.dpo import Dpo

PROMPT_TOKENS = 256  # of a prompt, assumed


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


def trainings(config: Config) -> Iterator[Training]:
    """Every training of one model's configuration, with its name and the section of its keys."""
    own, harvest = config.training, config.harvest
    for section, alike in sorted(by_section(expanded(config)).items(), key=lambda item: _place(item[1][0])):
        arm = alike[0]
        name = f"{arm.regime} of {arm.owner}" if arm.role == "ablation" else arm.owner or arm.regime
        sizes = sorted(group_sizes(alike)) if arm.phase == "online" else [harvest.samples_per_prompt]
        for size in sizes:
            on_card = arm.settings.on_card(size, harvest.max_completion_length)
            yield replace(
                on_card.shared(own.processes, own.strategy),
                checkpointing=own.gradient_checkpointing is not False,
                choose_checkpointing=own.gradient_checkpointing == "auto",
                name=name + f" G={size}" * (len(sizes) > 1),
                section=section,
            )


def _place(arm: Arm) -> int:
    """On the screen: warm-ups, then DPO, then entries."""
    return 2 if arm.section.startswith("regimes.") else isinstance(arm.settings, Dpo)
