"""Scenarios: on which kinds of prompts a policy was trained ("Bridging Offline and Online RL", arXiv 2506.21495,
section 3.3: one kind alone, one after the other, or both together)."""

from __future__ import annotations

from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.experiment.entries import asked_prompts
from g2d.rewards.catalogue import words_of

THEN = ", then "  # between the kinds of prompts of a training and of the one that went on from it


def prompts_behind(config: Config, regime: str) -> str:
    """The kinds of prompts that a policy of that name was trained on, in order: "verifiable, then open_ended"; "" of
    M0."""
    if regime == "base":
        return ""
    name = grid.online_phases(config).get(regime, "")
    kinds = [asked_prompts(config, name).prompts]
    while (start := getattr(config.regimes.get(name), "start", "base")) != "base":
        name = "" if start == "warmup" else start
        kinds.insert(0, asked_prompts(config, name).prompts)
    return THEN.join(kind for i, kind in enumerate(kinds) if kind not in kinds[max(i - 1, 0) : i])


def other_prompts(config: Config, variant: str) -> str:
    """In words, what an ablation or an online entry asks where that is not verifiable prompts alone."""
    asked = asked_prompts(config, variant)
    if not asked.asks_open_ended:
        return ""
    assert config.open_ended is not None
    judged = f"judged by {words_of(config.rewards[config.open_ended.reward])}"
    if asked.prompts == "open_ended":
        return f"open-ended prompts, {judged}"
    return f"verifiable prompts and, {asked.open_ended_share:.0%} of them, open-ended ones, {judged}"
