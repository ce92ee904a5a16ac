"""All rewards by name, and judging by any of them. CONTRIBUTING.md explains how to add one.

A completion without a finite reward is left out; it never counts as 0.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, WithJsonSchema

from g2d.plain import plain
from g2d.problems.problem import Kind
from g2d.rewards.controls import FORMAT, MATH_VERIFY, RANDOM, WRONG, MathVerify
from g2d.rewards.model import MODEL
from g2d.rewards.python import PYTHON, PythonReward
from g2d.rewards.reward import Context, Judgement, Reward, VerifiedCompletion
from g2d.settings import Name, Section

logger = logging.getLogger(__name__)

# The last error of a reward in this process: a training learns from the metrics of TRL, without a text, that no
# completion has a number.
_last_error: list[str] = []

LARGEST = 1e18  # squares of larger numbers overflow in float32

ALL = (MATH_VERIFY, RANDOM, FORMAT, WRONG, MODEL, PYTHON)
REWARDS: dict[str, Reward] = {reward.name: reward for reward in ALL}

_SETTINGS_OF_REWARDS = [reward.settings for reward in REWARDS.values()]
AnyReward: Any = Annotated[reduce(or_, _SETTINGS_OF_REWARDS), Field(discriminator="reward")]

# Name of an entry of `rewards`. Reading a configuration turns `{file: ...}` into an entry.
RewardName = Annotated[
    Name,
    WithJsonSchema(
        {
            "anyOf": [
                TypeAdapter(Name).json_schema(),
                {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]},
            ]
        }
    ),
]

_SETTINGS: TypeAdapter[Section] = TypeAdapter(AnyReward)

TRUTH = MathVerify(reward="math_verify")  # the default


class ByKind(Section):
    """Rewards of a training's verifiable and open-ended problems."""

    verifiable: AnyReward
    open_ended: AnyReward


def parts(settings: Section) -> list[Section]:
    if isinstance(settings, ByKind):
        return [settings.verifiable, settings.open_ended]
    return [settings]


def kind_of(settings: Section) -> Reward:
    if isinstance(settings, PythonReward):
        return settings.as_reward
    return REWARDS[settings.reward]  # type: ignore[attr-defined]


def words_of(settings: Section) -> str:
    if isinstance(settings, ByKind):
        return f"{words_of(settings.verifiable)}, and on open-ended prompts {words_of(settings.open_ended)}"
    return plain(kind_of(settings).words(settings))


def is_scalar(settings: Section, kind: Kind | None = None) -> bool:
    """Return whether a reward may give other numbers than 0 and 1, to problems of a kind or to any."""
    if kind is not None and isinstance(settings, ByKind):
        settings = getattr(settings, kind)
    return any(not kind_of(part).binary for part in parts(settings))


ADDED = ("version", "content")  # keys that `reward_params` adds


def reward_params(settings: Section) -> dict[str, Any]:
    """Return the settings of a reward, its version and the digest of its files as parameters of a job."""
    if isinstance(settings, ByKind):
        return {kind: reward_params(getattr(settings, kind)) for kind in ByKind.model_fields}
    reward = kind_of(settings)
    params = settings.params()
    params["version"] = reward.version
    content = reward.content(settings)
    if content is not None:
        params["content"] = content
    return params


def reward_settings(params: dict[str, Any] | None) -> Section:
    """Invert `reward_params`; a ValueError if the reward's files have changed."""
    if params is None:
        return TRUTH
    if "reward" not in params:
        return ByKind(**{kind: reward_settings(part) for kind, part in params.items()})
    values = {name: value for name, value in params.items() if name not in ADDED}
    settings = _SETTINGS.validate_python(values)
    content = reward_params(settings).get("content")
    if content != params.get("content", content):
        raise ValueError(
            f"{words_of(settings)}: its files changed after this job was planned: sha256 {content}, planned with "
            f"{params['content']}; put them back, or run the same command again, which redoes what depends on them"
        )
    return settings


def judge(settings: Section, completions: Sequence[VerifiedCompletion], context: Context) -> list[Judgement]:
    """Judge whole groups, each with the reward for its kind of problem."""
    if isinstance(settings, ByKind):
        return _judge_by_kind(settings, completions, context)
    reward = kind_of(settings)
    judgements = [_checked(judgement, reward.binary) for judgement in reward.score(settings, completions, context)]
    for judgement in judgements:
        if judgement.status == "error":
            _last_error[:] = [str(judgement.details["error"])]
    return judgements


def _judge_by_kind(settings: ByKind, completions: Sequence[VerifiedCompletion], context: Context) -> list[Judgement]:
    judged: dict[tuple[str, int], Judgement] = {}
    for kind in ByKind.model_fields:
        of_kind = [completion for completion in completions if completion.problem.kind == kind]
        judgements = judge(getattr(settings, kind), of_kind, context)
        for completion, judgement in zip(of_kind, judgements, strict=True):
            judged[completion.group, completion.sample] = judgement
    return [judged[completion.group, completion.sample] for completion in completions]


def require_numbers(statuses: Mapping[str, float], name: str) -> None:
    """Raise a RuntimeError if no completion has a reward; warn if only some have one."""
    without = [f"{n:g} {status}" for status, n in statuses.items() if status != "judged" and n]
    if not without:
        return
    counts = ", ".join(without)
    if _last_error and (statuses.get("error") or statuses.get("without")):
        counts += f"; {plain(_last_error[0])}"
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
