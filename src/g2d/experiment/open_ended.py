"""The keys of `open_ended`: prompts without a right answer, what judges them, and what the rest of a configuration has
to have for them ("Bridging Offline and Online RL", arXiv 2506.21495, section 3)."""

from __future__ import annotations

from collections.abc import Iterator

from g2d.experiment.sections import Config, OpenEnded
from g2d.problems.settings import (
    OPEN_ENDED_SETS,
    SyntheticProblems,
    is_open_ended,
    place_of,
)
from g2d.regimes.prompt_mix import PromptMix
from g2d.rewards.catalogue import reward_of
from g2d.settings import Section


def open_ended_mistakes(config: Config) -> Iterator[str]:
    """What is asked of open-ended prompts and cannot be: key and fix."""
    for name, source in config.problem_sources.items():
        if is_open_ended(source) and name not in OPEN_ENDED_SETS:
            yield f"{place_of(name)}.family: replies have no right answer: name them in open_ended, or another family"
    for where, own in _asking(config):
        if config.open_ended is None:
            yield f"{where}.prompts: there are no open-ended prompts: add the section open_ended"
        elif getattr(own, "sync_every", None) == "pass":
            yield f"{where}.sync_every: pass is one over verifiable prompts alone: write a number of updates"
    if config.open_ended is not None:
        yield from _mistakes_in_section(config, config.open_ended)


def _asking(config: Config) -> Iterator[tuple[str, Section]]:
    """The ablations and entries that ask open-ended prompts, and where they stand."""
    for kind in ("ablations", "regimes"):
        for name, own in getattr(config, kind).items():
            if isinstance(own, PromptMix) and own.asks_open_ended:
                yield f"{kind}.{name}", own


def _mistakes_in_section(config: Config, section: OpenEnded) -> Iterator[str]:
    for name, source in section.sources.items():
        if isinstance(source, SyntheticProblems) and not is_open_ended(source):
            yield f"{place_of(name)}.family: {source.family} has right answers: write replies"
    for name in config.benchmarks:
        if name.lower() in OPEN_ENDED_SETS:
            yield f"benchmarks.{name}: the name is taken by the prompts of open_ended: choose another"
    for where, chosen in (("reward", section.reward), ("judge", section.judged_by)):
        if chosen not in config.rewards:
            there = ", ".join(config.rewards) or "none"
            yield f"open_ended.{where}: {chosen} is no entry of rewards ({there}): add it there"
        elif reward_of(config.rewards[chosen])[0].needs_reference:
            yield f"open_ended.{where}: {chosen} looks at the right answer, and there is none: choose a reward model"
