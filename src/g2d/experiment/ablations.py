"""What an ablation of the configuration may ask for, given the rest of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from g2d.experiment.entries import require_reward
from g2d.experiment.sections import Ablation
from g2d.regimes.warmup import Warmup

if TYPE_CHECKING:
    from g2d.experiment.config import Config


def check_warmup(config: Config, where: str, warmup: Warmup) -> None:
    """Refuse a warm-up that the engine or the adapter does not allow.

    Raises:
        ValueError: with key and fix.
    """
    if warmup.sync_every > 1 and config.engine.name != "vllm":
        raise ValueError(
            f"{where}.sync_every={warmup.sync_every} needs engine.name: vllm, because {config.engine.name} "
            "generates with the weights in training: set it to 1 or change the engine"
        )
    if warmup.reference == "sync" and config.lora.dropout > 0:
        raise ValueError(
            f"{where}.reference: sync needs lora.dropout: 0, because with {config.lora.dropout:g} the policy differs "
            "from itself as reference: change either"
        )


def check_ablation(config: Config, name: str, ablation: Ablation, model: str) -> None:
    """Refuse an ablation that a model's other sections do not allow.

    Raises:
        ValueError: with key and fix.
    """
    where = f"ablations.{name}"
    dpo, steps = config.ablation_dpo(name), config.ablation_steps(name)
    if ablation.reward is not None:
        require_reward(config, f"{where}.reward", ablation.reward)
    elif ablation.has_warmup and 0 in steps:
        raise ValueError(f"{where}: at K=0 there is no warm-up to change: drop 0 from steps")
    if ablation.policies == ["grpo"] and not any(steps):
        raise ValueError(f"{where}: at K=0 no GRPO is trained: add a K to steps, or dpo to policies")
    if dpo.start == "warmup" and 0 in steps:
        raise ValueError(f"{where}: at K=0 there is no warm-up to start from: drop 0 from steps")
    if not steps:
        raise ValueError(f"{where}: warmup.steps {config.warmup.steps} of {model} has no K for it: add one")
    own = config.warmup_of(name if ablation.has_warmup else "")
    check_warmup(config, f"{where}.warmup", own)
    try:
        ablation.open_ended_of(own.completions_per_step(own.group_sizes[0]) // own.group_sizes[0])
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from None
    if ablation.prompts == "mixed" and (own.retire or own.resample):
        raise ValueError(f"{where}.prompts: mixed: retire and resample would change the proportions: drop them")
    if ablation.asks_open_ended and own.reference == "sync" and own.reference_every == "pass":
        raise ValueError(
            f"{where}.warmup.reference_every: pass is one over verifiable prompts alone: write a number of steps"
        )
    grid = own.steps
    for step in [*steps, *([dpo.match_pairs_to] if isinstance(dpo.match_pairs_to, int) else [])]:
        if step not in grid:
            raise ValueError(
                f"{where}: K={step} is not in {'its steps' if ablation.has_warmup else 'warmup.steps'} {grid} of "
                f"{model}: add it there or choose another"
            )
