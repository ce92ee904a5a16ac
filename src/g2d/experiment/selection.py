"""Selected checkpoints in a configuration: which trainings select, what of theirs is evaluated, what `select` needs.

The K of a training are its candidates, trained as they are without `select`. The policy that is evaluated is a copy of
one of them in a folder of its own, so that the graph does not depend on the choice.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from g2d.experiment.sections import Config
from g2d.jobs.files import atomic
from g2d.policies.policy import Policy, require_own_weights, write_policy


def take_over(chosen: Policy, folder: Path, regime: str, steps: Sequence[int]) -> None:
    """Copy the chosen checkpoint's weights and record to the folder of the policy that is evaluated.

    Args:
        regime: what the policy is called.
        steps: K of all that it was selected from.

    Raises:
        ValueError: the weights are not those that were trained.
    """
    require_own_weights(chosen)
    here = "adapter" if chosen.adapter else "weights"
    for file in chosen.files:
        with atomic(folder / here / file.name) as draft:
            shutil.copyfile(file, draft)
    policy = replace(
        chosen,
        policy_id=str(folder.relative_to("results")),
        regime=regime,
        **{here: str(folder / here)},  # type: ignore[arg-type]
        settings=chosen.settings | {"selected_from": list(steps)},
    )
    write_policy(folder / "policy.json", policy)


# --------------------------------------------------------------------------------------------------------- mistakes


def selection_mistakes(config: Config) -> Iterator[str]:
    """What is asked of the selection of checkpoints and cannot be: key and fix."""
    selecting = {where: owner for where, owner in config.further.items() if getattr(owner, "select", False)}
    for where, owner in selecting.items():
        yield from (f"{where}.{mistake}" for mistake in _mistakes_in(config, where.partition(".")[2], owner))
    kinds = {kind for owner in selecting.values() for kind in owner.kinds}
    if config.sweep is not None and not config.sweep.regimes and "verifiable" not in kinds:
        yield "sweep: its problems choose nothing: name keys in sweep.regimes, set select in a training, or drop it"
    if config.open_ended is not None and config.open_ended.development is not None and "open_ended" not in kinds:
        yield "open_ended.development: no checkpoint is selected by them: set select in a training, or drop them"


def _mistakes_in(config: Config, name: str, owner: Any) -> Iterator[str]:
    if owner.reward is not None:
        yield "select: goes by the truth, which a training on another reward must not see: drop select or reward"
    if "dpo" in owner.policies:
        alone = "[grpo]" if name in config.ablations else "[online]"
        yield f"policies: with select the checkpoint itself is evaluated: write {alone}"
    if getattr(owner, "auto", None) is not None:
        yield "select: with auto the training chooses its K by itself: drop one of them"
    for model in config.models:
        steps = config.for_model(model).ablation_steps(name) if name in config.ablations else owner.steps
        if len([k for k in steps if k > 0]) < 2:
            yield f"select: {steps} leaves nothing to choose (M0 is no candidate): list two K or more in steps"
    kinds = owner.kinds
    if "verifiable" in kinds and config.sweep is None:
        yield "select: there are no development problems to choose by: add the section sweep with the key development"
    if "open_ended" in kinds and config.open_ended is not None:
        if config.open_ended.development is None:
            yield "select: there are no open-ended development prompts to choose by: add open_ended.development"
        if config.open_ended.samples_per_prompt < 2:
            yield (
                "select: what length alone pays shows in several replies to a prompt: set "
                "open_ended.samples_per_prompt to 2 or more"
            )
    of_main = name in config.ablations and not config.ablations[name].has_warmup
    if of_main and config.sweep and name in config.sweep.regimes:
        yield f"select: chooses among the main warm-up, which sweep.regimes.{name} cannot tune: sweep warmup"
