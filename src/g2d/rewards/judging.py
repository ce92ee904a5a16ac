"""Judge completions with any reward. A completion without a finite reward is left out; it never counts as 0."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

from g2d.plain import plain
from g2d.rewards.registry import ByKind, reward_of
from g2d.rewards.reward import Attempt, Context, Judgement
from g2d.settings import Section

logger = logging.getLogger(__name__)

LARGEST = 1e18  # squares of larger numbers overflow in float32


def judge(settings: Section, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """Judge whole groups, each with the reward for its kind of problem."""
    if isinstance(settings, ByKind):
        return _judge_by_kind(settings, attempts, context)
    reward = reward_of(settings)
    return [_checked(judgement, reward.binary) for judgement in reward.score(settings, attempts, context)]


def _judge_by_kind(settings: ByKind, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    judged: dict[tuple[str, int], Judgement] = {}
    for kind in ByKind.model_fields:
        of_kind = [attempt for attempt in attempts if attempt.problem.kind == kind]
        judgements = judge(getattr(settings, kind), of_kind, context)
        for attempt, judgement in zip(of_kind, judgements, strict=True):
            judged[attempt.group, attempt.sample] = judgement
    return [judged[attempt.group, attempt.sample] for attempt in attempts]


def require_numbers(statuses: Mapping[str, float], name: str) -> None:
    """Raise a RuntimeError if no completion has a reward; warn if only some have one."""
    without = [f"{n:g} {status}" for status, n in statuses.items() if status != "judged" and n]
    if not without:
        return
    counts = ", ".join(without)
    if not statuses.get("judged"):
        raise RuntimeError(f"{name}: no finite number for any completion ({counts}): mend the reward or choose another")
    logger.warning("%s: no number for some completions, which are left out (%s)", plain(name), counts)


def _checked(judgement: Judgement, binary: bool) -> Judgement:
    if judgement.status != "judged":
        return judgement
    number = math.nan if judgement.reward is None else judgement.reward
    if not abs(number) <= LARGEST:  # or NaN
        return Judgement(None, "not_finite", judgement.details)
    if binary and number not in (0, 1):
        return Judgement(None, "error", {"error": f"{number:g} of a binary reward: remove binary, or return 0 or 1"})
    return judgement
