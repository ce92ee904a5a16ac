"""The keys of `open_ended`: prompts without a right answer, what judges them, and what the rest of a configuration has
to have for them ("Bridging Offline and Online RL", arXiv 2506.21495, section 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from g2d.problems.settings import (
    HELD_OUT,
    OPEN_ENDED,
    OPEN_ENDED_DEVELOPMENT,
    OPEN_ENDED_SETS,
    ProblemSource,
    SyntheticProblems,
    is_open_ended,
    place_of,
)
from g2d.regimes.prompt_mix import PromptMix
from g2d.rewards.catalogue import TRUTH, ByKind, reward_of
from g2d.rollouts.settings import Sampling
from g2d.settings import Name, Section, Seed, key

if TYPE_CHECKING:
    from g2d.experiment.config import Config


class OpenEnded(Sampling):
    """Prompts without a right answer: to train on, and held out, where every policy is compared with M0."""

    pool: ProblemSource = key(
        ..., "Prompts to train on; of a file or data set no column of answers is read.", paper="100,000 of WildChat"
    )
    held_out: ProblemSource = key(
        ..., "Prompts that every policy and M0 reply to, for the win rates.", paper="AlpacaEval 2, ArenaHard"
    )
    development: ProblemSource | None = key(
        None,
        "Prompts that checkpoints are selected by (`select`), in neither of the others.",
        paper="470, none of AlpacaEval 2",
        neutral=None,
    )
    reward: Name = key(
        ..., "The entry of `rewards` that judges them in training; it looks at no reference.", paper="Athene-RM-8B"
    )
    judge: Name | None = key(
        None, "The entry of `rewards` that the win rates are by; null: the one trained on.", paper="GPT-4-1106, GPT-4o"
    )
    samples_per_prompt: int = key(4, "Replies of a policy to each held-out prompt.", paper="1", ge=1)
    temperature: float = key(1.0, "Sampling temperature of the replies.", gt=0, le=5)
    max_completion_length: int = key(2048, "Token budget of a reply.", unit="tokens", ge=1)
    seed: Seed = key(0, "Seed of the replies; a policy and M0 draw with the same random numbers.")

    @property
    def sources(self) -> dict[str, Any]:
        """Its sets of problems, by the names of their files."""
        development = {} if self.development is None else {OPEN_ENDED_DEVELOPMENT: self.development}
        return {OPEN_ENDED: self.pool, HELD_OUT: self.held_out, **development}

    @property
    def judged_by(self) -> str:
        """The entry of `rewards` that the win rates are by."""
        return self.judge or self.reward


def reward_settings_of(config: Config, name: str | None, asks_open_ended: bool) -> Section | None:
    """What judges a training, None where the truth does.

    Args:
        name: the entry of `rewards` that judges verifiable prompts, None for the truth.
    """
    own: Section | None = None if name is None else config.rewards[name]
    if not asks_open_ended:
        return own
    assert config.open_ended is not None
    return ByKind(verifiable=own or TRUTH, open_ended=config.rewards[config.open_ended.reward])


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
