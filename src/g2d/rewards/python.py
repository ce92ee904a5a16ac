"""A reward that is a function in the user's Python file, called as by TRL, in worker processes (docs/rewards.md)."""

from __future__ import annotations

import ast
import atexit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from g2d.jobs.digests import remembered_digest
from g2d.rewards.reward import Context, Judgement, Reward, VerifiedCompletion, in_groups
from g2d.settings import Section, key
from g2d.verifier.pool import Limits, Pool, Reply, default_workers
from g2d.verifier.user_code import UserCodeError, digest, signature

# Arguments of the function; each is a list over the completions of a group.
GIVEN: Mapping[str, Callable[[VerifiedCompletion], str | None]] = {
    "prompts": lambda completion: completion.problem.prompt,
    "completions": lambda completion: completion.text,
    "answers": lambda completion: completion.problem.answer,
    "verdicts": lambda completion: completion.verified.verdict,
    "problem_ids": lambda completion: completion.problem.problem_id,
}
OF_REFERENCES = {"answers", "verdicts"}


class PythonReward(Section):
    """A function in a Python file (docs/rewards.md)."""

    time_limit: float = key(
        300.0, "Seconds for a call with one group; after that its completions have no reward.", gt=0, neutral=300.0
    )
    reward: Literal["python"] = key(..., "Reward by a Python file.")
    file: str = key(..., "The file, relative to the working directory.")
    function: str = key("reward", "Function that returns one number per completion.")
    binary: bool = key(False, "Returns only 0 and 1.")

    @property
    def as_reward(self) -> Reward:
        try:
            needs_reference = not OF_REFERENCES.isdisjoint(_names(signature(self.file, self.function)))
        except UserCodeError:  # `_mistake` reports it
            needs_reference = False
        return replace(PYTHON, name=self.file, binary=self.binary, needs_reference=needs_reference)


def score(settings: PythonReward, completions: Sequence[VerifiedCompletion], context: Context) -> list[Judgement]:
    """Call the function group by group, since a judgement may depend only on its group."""
    parameters = signature(settings.file, settings.function)
    names = list(GIVEN)
    if not parameters.kwarg:
        names = [name for name in GIVEN if name in _names(parameters)]
    groups = in_groups(completions)
    calls = [(_arguments(group, names),) for group in groups]
    pool = _pool(settings.file, settings.function, settings.time_limit, digest(settings.file))
    judged: dict[tuple[str, int], Judgement] = {}
    for group, reply in zip(groups, pool.replies(calls), strict=True):
        judgements = _judgements(reply, len(group))
        for completion, judgement in zip(group, judgements, strict=True):
            judged[completion.group, completion.sample] = judgement
    return [judged[completion.group, completion.sample] for completion in completions]


def _arguments(group: Sequence[VerifiedCompletion], names: Sequence[str]) -> dict[str, list[str | None]]:
    arguments: dict[str, list[str | None]] = {}
    for name in names:
        value_of = GIVEN[name]
        arguments[name] = [value_of(completion) for completion in group]
    return arguments


def _judgements(reply: Reply, n: int) -> list[Judgement]:
    if reply.status == "timeout":
        return [Judgement(None, "late")] * n
    if reply.status == "judged" and len(reply.numbers) == n:
        return [Judgement(number) for number in reply.numbers]
    why = reply.why
    if reply.status == "judged":
        why = f"{len(reply.numbers)} numbers for {n} completions: return a list with one for each"
    elif reply.status == "limit":
        why = "its worker ended, used up its memory, or nested too deeply"
    return [Judgement(None, "error", {"error": why})] * n


@cache
def _pool(file: str, function: str, time_limit: float, sha256: str) -> Pool:
    """Return this process's workers for a function, closed at exit."""
    limits = Limits(deadline_s=time_limit, wall_s=time_limit)
    pool = Pool(default_workers(), limits, ["reward", file, function, sha256])
    atexit.register(pool.close)
    return pool


def _names(parameters: ast.arguments) -> list[str]:
    return [parameter.arg for parameter in (*parameters.args, *parameters.kwonlyargs)]


def _mistake(settings: PythonReward) -> str | None:
    try:
        parameters = signature(settings.file, settings.function)
    except UserCodeError as error:
        return str(error)
    where = f"{settings.function} in {settings.file}"
    positional = [*parameters.posonlyargs, *parameters.args]
    n_required = len(positional) - len(parameters.defaults)
    required = positional[:n_required]
    for parameter, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
        if default is None:
            required.append(parameter)
    unknown = []
    for parameter in required:
        if parameter in parameters.posonlyargs or parameter.arg not in GIVEN:
            unknown.append(parameter.arg)
    if unknown:
        listed = ", ".join(GIVEN)
        return f"{where} requires {', '.join(unknown)}, which a reward is not given: take any of {listed}, by name"
    if parameters.kwarg is None and "completions" not in _names(parameters):
        return f"{where} has no parameter `completions`, the list of texts to judge: add it"
    return None


def _words(settings: PythonReward) -> str:
    words = f"rewards of {Path(settings.file).name}"
    if settings.function != "reward":
        words += f" ({settings.function})"
    return words


PYTHON = Reward(
    name="python",
    version=1,
    settings=PythonReward,
    score=score,
    words=_words,
    binary=False,  # replaced in `PythonReward.as_reward`
    needs_reference=False,
    content=lambda settings: remembered_digest(settings.file),
    mistake=_mistake,
)
