"""Judging: completions in, a judgement for each out, whatever a reward does with them.

Training sees a number or nothing. A completion that a reward has no finite number for is left out of its group, and its
status stands in its row: it never counts as a 0.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import get_args

from g2d.problems.problem import Kind
from g2d.rewards.catalogue import ByKind, reward_of
from g2d.rewards.reward import Attempt, Context, Judgement, Reward, UnusableError, in_groups
from g2d.settings import Section

logger = logging.getLogger(__name__)


def judge(settings: Section, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """Judge whole groups, each by the reward of its problem.

    A reward that raises is asked again group by group, so that what one completion did to it costs no other group.

    Raises:
        RuntimeError: the reward fails on every group, or does not return one judgement for each attempt.
    """
    if isinstance(settings, ByKind):
        return _by_kind(settings, attempts, context)
    reward, settings = reward_of(settings)
    try:
        return _scored(reward, settings, attempts, context)
    except UnusableError:
        raise
    except Exception as error:
        logger.warning(
            "reward %s failed (%s: %s): asked again group by group", reward.name, type(error).__name__, error
        )
        first = error
    found: dict[tuple[str, int], Judgement] = {}
    for group in in_groups(attempts):
        try:
            judgements = _scored(reward, settings, group, context)
        except Exception as error:
            judgements = [Judgement(None, "error", {"error": type(error).__name__})] * len(group)
        found |= {(a.group, a.sample): judgement for a, judgement in zip(group, judgements, strict=True)}
    if all(judgement.status == "error" for judgement in found.values()):
        raise RuntimeError(f"reward {reward.name} fails on everything: {type(first).__name__}: {first}") from first
    return [found[attempt.group, attempt.sample] for attempt in attempts]


def _by_kind(settings: ByKind, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    judged: dict[tuple[str, int], Judgement] = {}
    for kind in get_args(Kind):
        own = [attempt for attempt in attempts if attempt.problem.kind == kind]
        if own:
            found = judge(settings.of(own[0].problem), own, context)
            judged |= {(a.group, a.sample): judgement for a, judgement in zip(own, found, strict=True)}
    return [judged[attempt.group, attempt.sample] for attempt in attempts]


def _scored(reward: Reward, settings: Section, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """The reward's judgements, each with a finite number or a status that says why not.

    Raises:
        RuntimeError: not one judgement for each attempt.
    """
    judgements = list(reward.score(settings, attempts, context))
    if len(judgements) != len(attempts) or not all(isinstance(judgement, Judgement) for judgement in judgements):
        raise RuntimeError(f"{len(judgements)} judgements for {len(attempts)} completions, or not Judgements")
    return [_finite(judgement, reward.binary) for judgement in judgements]


def _finite(judgement: Judgement, binary: bool) -> Judgement:
    """With a number of the right kind, or without one."""
    if judgement.status != "judged":
        return Judgement(None, judgement.status, judgement.details)
    try:
        number = float(judgement.reward)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        return Judgement(None, "not_finite", judgement.details)
    if binary and number not in (0, 1):
        raise RuntimeError(f"a binary reward gave {number}: say binary=False, or give 0 or 1")
    return Judgement(number, "judged", judgement.details)
