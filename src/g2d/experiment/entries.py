"""Entries of `regimes` in a configuration: the K of each, and what the sections around them do not allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from g2d.regimes.prompt_mix import VERIFIABLE, PromptMix
from g2d.regimes.regime import OnlineEntry

if TYPE_CHECKING:
    from g2d.experiment.config import Config


def entry_steps(config: Config, name: str) -> list[int]:
    """The K of an offline entry; "all" leaves K=0 out where a warm-up is needed.

    Args:
        config: as the model sees it (`Config.for_model`).
    """
    entry = config.regimes[name]
    steps = harvested_steps(config, name) if entry.steps == "all" else entry.steps
    return [k for k in steps if k > 0 or entry.start == "base"]


def harvested_steps(config: Config, name: str) -> list[int]:
    """The K of the harvests that an offline entry may be trained on."""
    whose = config.regimes[name].harvest
    if whose is None:
        return config.warmup.steps
    steps: list[int] = config.regimes[whose].steps if whose in config.regimes else config.ablation_steps(whose)
    return steps


def asked_prompts(config: Config, name: str) -> PromptMix:
    """Which prompts an ablation or an online entry asks; verifiable ones where it is neither."""
    owner = config.ablations.get(name) or config.regimes.get(name)
    return owner if isinstance(owner, PromptMix) else VERIFIABLE


def require_reward(config: Config, where: str, name: str) -> None:
    """Check that a reward has its entry.

    Raises:
        ValueError: it has none.
    """
    if name not in config.rewards:
        raise ValueError(
            f"{where}: {name} is no entry of rewards ({', '.join(config.rewards) or 'none'}): add it there"
        )


def check_entry(config: Config, name: str, model: str) -> None:
    """Refuse an entry that the other sections, with a model's own settings in them, do not go with.

    Raises:
        ValueError: key and fix.
    """
    entry, where = config.regimes[name], f"regimes.{name}"
    if isinstance(entry, OnlineEntry):
        if entry.reward is not None:
            require_reward(config, f"{where}.reward", entry.reward)
        for mistake in entry.mistakes(model, config.training_set.n, config.lora.dropout):
            raise ValueError(f"{where}.{mistake}")
        if entry.start != "base":
            _check_start(config, name, entry, model)
        return
    if entry.phase == "rounds":
        try:
            entry.dpo_of(config.dpo)
        except ValueError as error:
            raise ValueError("\n".join(f"{where}.{line}" for line in str(error).splitlines())) from None
        return
    if entry.harvest and not _has_online_phase(config, entry.harvest):
        raise ValueError(
            f"{where}.harvest: {entry.harvest} is neither an ablation with a warm-up of its own nor an entry of "
            "regimes that is trained on fresh rollouts: name one, or leave the key out for the main grid's harvests"
        )
    if entry.harvest and asked_prompts(config, entry.harvest).asks_open_ended:
        raise ValueError(
            f"{where}.harvest: {entry.harvest} asks open-ended prompts, of which no harvest is drawn: drop it"
        )
    if entry.harvest in config.regimes and config.regimes[entry.harvest].auto is not None:
        raise ValueError(
            f"{where}.harvest: {entry.harvest} stops by itself: have DPO on its harvest by its own policies, or name "
            "another"
        )
    whose, there = f"steps of {entry.harvest}" if entry.harvest else "warmup.steps", harvested_steps(config, name)
    if entry.steps != "all" and (unknown := [k for k in entry.steps if k not in there]):
        raise ValueError(
            f"{where}.steps: K={unknown[0]} is not in {whose} {there} of {model}: add it there or choose another"
        )
    if entry.start == "warmup" and 0 in (steps := entry.steps if entry.steps != "all" else []):
        raise ValueError(f"{where}.steps: at K=0 there is no warm-up to start from: drop 0 from {steps}")
    if not entry_steps(config, name):
        raise ValueError(f"{where}: {whose} {there} of {model} has no K for it: add one")


def _check_start(config: Config, name: str, entry: OnlineEntry, model: str) -> None:
    """Refuse a start that is no policy on the way of another online training."""
    where, online = f"regimes.{name}", {n: e for n, e in config.regimes.items() if isinstance(e, OnlineEntry)}
    path = [name, entry.start]
    while path[-1] not in ("base", "warmup"):
        if path[-1] not in online:
            raise ValueError(
                f"{where}.start: {path[-1]} is no entry of regimes that is trained on fresh rollouts: name one, or "
                "write base or warmup"
            )
        if path[-1] in path[:-1]:
            raise ValueError(f"{where}.start: {' from '.join(path)}: start one of them from base or warmup")
        path.append(online[path[-1]].start)
    whose, steps = f"steps of {entry.start}", online[entry.start].steps if entry.start in online else []
    if entry.start in online and online[entry.start].auto is not None:
        raise ValueError(f"{where}.start: {entry.start} stops by itself, at a K that is not known: name another")
    if entry.start == "warmup":
        whose, steps = "warmup.steps", config.warmup.steps
    if entry.start_step not in steps:
        raise ValueError(
            f"{where}.start_step: K={entry.start_step} is not in {whose} {steps} of {model}: add it there or choose "
            "another"
        )


def _has_online_phase(config: Config, name: str) -> bool:
    """Whether policies of that name, an ablation or an entry, have an online phase of their own."""
    ablation, entry = config.ablations.get(name), config.regimes.get(name)
    return bool(ablation and ablation.has_warmup) or isinstance(entry, OnlineEntry)
