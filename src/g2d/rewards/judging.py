"""Judge completions with any reward. A completion without a finite reward is left out; it never counts as 0."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from g2d.plain import plain
from g2d.rewards.catalogue import ByKind, reward_of
from g2d.rewards.foreign_code import LateError, contained, deadline
from g2d.rewards.python import PythonReward
from g2d.rewards.reward import Attempt, Context, Judgement, Reward, UnusableError, in_groups
from g2d.settings import Section

logger = logging.getLogger(__name__)


LARGEST = 1e18  # squares of larger numbers overflow in float32
GROUPS_AT_ONCE = 32  # per call of a reward with a time limit


def judge(settings: Section, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """Judge whole groups, each with the reward for its kind of problem.

    A reward that raises or is late is called again group by group; a RuntimeError if it fails on every one.
    """
    if isinstance(settings, ByKind):
        by_kind = {
            kind: [attempt for attempt in attempts if attempt.problem.kind == kind] for kind in ByKind.model_fields
        }
        judged = [(part, judge(getattr(settings, kind), part, context)) for kind, part in by_kind.items() if part]
        return _in_order(attempts, judged)
    reward, selected = reward_of(settings)
    limit = settings.time_limit if isinstance(settings, PythonReward) else None
    if limit is None:
        return _judged(reward, selected, attempts, context, None)
    groups = in_groups(attempts)
    n = math.ceil(len(groups) / GROUPS_AT_ONCE)
    parts = [list(chain.from_iterable(groups[i::n])) for i in range(n)]
    return _in_order(attempts, [(part, _judged(reward, selected, part, context, limit)) for part in parts])


def require_numbers(statuses: Mapping[str, float], name: str) -> None:
    """Raise a RuntimeError if no completion has a reward; warn if only some have one."""
    without = {status: n for status, n in statuses.items() if status != "judged" and n}
    counts = ", ".join(f"{n:g} {status}" for status, n in without.items())
    if without and not statuses.get("judged"):
        raise RuntimeError(f"{name}: no finite number for any completion ({counts}): mend the reward or choose another")
    if without:
        logger.warning("%s: no number for some completions, which are left out (%s)", plain(name), counts)


def _judged(
    reward: Reward, settings: Section, attempts: Sequence[Attempt], context: Context, limit: float | None
) -> list[Judgement]:
    try:
        return _scored(reward, settings, attempts, context, limit)
    except UnusableError:
        raise
    except (Exception, LateError) as error:
        why = f"no answer in {limit:g} s" if isinstance(error, LateError) else f"{type(error).__name__}: {error}"
        logger.warning("reward %s failed (%s): asked again group by group", plain(reward.name), plain(why))
        first = error
    by_group: list[tuple[Sequence[Attempt], list[Judgement]]] = []
    for group in in_groups(attempts):
        try:
            judgements = _scored(reward, settings, group, context, limit)
        except LateError:
            judgements = [Judgement(None, "late")] * len(group)
        except Exception as error:
            judgements = [Judgement(None, "error", {"error": type(error).__name__})] * len(group)
        by_group.append((group, judgements))
    if all(judgement.status in ("error", "late") for _, judgements in by_group for judgement in judgements):
        raise RuntimeError(f"reward {reward.name} fails on everything: {why}") from first
    return _in_order(attempts, by_group)


def _in_order(
    attempts: Sequence[Attempt], parts: Iterable[tuple[Sequence[Attempt], Sequence[Judgement]]]
) -> list[Judgement]:
    judged = {
        (a.group, a.sample): judgement for part, result in parts for a, judgement in zip(part, result, strict=True)
    }
    return [judged[attempt.group, attempt.sample] for attempt in attempts]


def _scored(
    reward: Reward, settings: Section, attempts: Sequence[Attempt], context: Context, limit: float | None
) -> list[Judgement]:
    with deadline(limit), contained():
        judgements = list(reward.score(settings, attempts, context))
    if len(judgements) != len(attempts) or not all(isinstance(judgement, Judgement) for judgement in judgements):
        raise RuntimeError(f"{len(judgements)} judgements for {len(attempts)} completions, or not Judgements")
    return [_checked(judgement, reward.binary) for judgement in judgements]


def _checked(judgement: Judgement, binary: bool) -> Judgement:
    try:
        details = dict(judgement.details)
        json.dumps(details, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RuntimeError(f"details of a judgement are no JSON ({error}): give texts, finite numbers, lists") from None
    if judgement.status != "judged":
        return Judgement(None, judgement.status, details)
    try:
        number = float(judgement.reward)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= LARGEST:  # or NaN
        return Judgement(None, "not_finite", details)
    if binary and number not in (0, 1):
        raise RuntimeError(f"a binary reward gave {number}: say binary=False, or give 0 or 1")
    return Judgement(number, "judged", details)
