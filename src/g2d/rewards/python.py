"""Rewards of the user's Python code: a function in a file, as in TRL, or a `Reward` of an installed package."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, Literal

from pydantic import ValidationError, model_validator

from g2d.jobs.digests import remembered_digest
from g2d.rewards.foreign_code import contained
from g2d.rewards.reward import Attempt, Context, Judgement, Reward, UnusableError, in_groups
from g2d.settings import MistakeInKeyError, Section, key
from g2d.settings.mistakes import messages

# Arguments of the function; each is a list over the completions of a group.
GIVEN: Mapping[str, Callable[[Attempt], Any]] = {
    "prompts": lambda attempt: attempt.problem.prompt,
    "completions": lambda attempt: attempt.text,
    "answers": lambda attempt: attempt.problem.answer,
    "verdicts": lambda attempt: attempt.verified.verdict,
    "problem_ids": lambda attempt: attempt.problem.problem_id,
}
OF_REFERENCES = {"answers", "verdicts"}
ENTRY_POINTS = "g2d.rewards"
PLUGIN = "plugin"  # former name, in the parameters of jobs


class PythonReward(Section):
    """A function in a Python file, or a reward of an installed package (docs/rewards.md)."""

    time_limit: float = key(
        300.0,
        "Seconds for a call with up to 32 groups; after that they are scored singly or left out.",
        gt=0,
        neutral=300.0,
    )
    reward: Literal["python"] = key(..., "Reward by a Python file or an installed package.")
    file: str | None = key(None, "The file, relative to the working directory.")
    name: str | None = key(
        None, f"Instead of a file: entry point of an installed package, in the group {ENTRY_POINTS}."
    )
    function: str = key("reward", "Function that returns one number per completion.")
    binary: bool = key(False, "Returns only 0 and 1.")
    settings: dict[str, Any] = key({}, "Settings of the package's reward.")

    @model_validator(mode="after")
    def _has_one_source(self) -> PythonReward:
        if (self.file is None) == (self.name is None):
            raise MistakeInKeyError("file", "give a file here, or the name of a package's reward in `name`")
        if self.file is not None and self.settings:
            raise MistakeInKeyError("settings", "only a package's reward has settings: remove this key")
        if self.name is not None:
            if self.binary or self.function != "reward":
                raise MistakeInKeyError(
                    "name", "function and binary are of a file: remove them, or give `file` instead"
                )
            self.selected  # noqa: B018
        return self

    @property
    def selected(self) -> tuple[Reward, Section]:
        """Return the reward and its settings; a MistakeInKeyError if no package provides it."""
        if self.file is not None:
            needs_reference = bool(OF_REFERENCES & _parameters(self.file, self.function))
            return replace(PYTHON, name=self.file, binary=self.binary, needs_reference=needs_reference), self
        reward = _installed(str(self.name))
        try:
            return reward, reward.settings.model_validate(self.settings)
        except ValidationError as error:
            lines = messages(error, self.settings, reward.settings)
            raise MistakeInKeyError("settings", "; ".join(lines)) from None

    def params(self, *, only: set[str] | None = None, without: set[str] | None = None) -> dict[str, Any]:
        """Return them as in earlier versions, so that finished results stay valid."""
        of_others = {"name", "settings"} if self.name is None else {"file", "function", "binary"}
        values = super().params(only=only, without=of_others | (without or set()))
        return values if self.name is None else values | {"reward": PLUGIN}


@cache
def _installed(name: str) -> Reward:
    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in points:
        raise MistakeInKeyError(
            "name",
            f"no installed package brings the reward {name} ({ENTRY_POINTS}: {', '.join(sorted(points)) or 'none'}): "
            "install it",
        )
    try:
        with contained():
            reward = points[name].load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        message = f"{points[name].value} cannot be imported ({reason}): mend that package"
        raise MistakeInKeyError("name", message) from None
    if not isinstance(reward, Reward):
        raise MistakeInKeyError("name", f"{points[name].value} is no g2d.rewards.reward.Reward: mend that package")
    return reward


def score(settings: PythonReward, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """Call the function group by group, since a judgement may depend only on its group.

    Raises a ValueError if it does not return one number per completion.
    """
    function, names = _function(str(settings.file), settings.function)
    judgements: list[Judgement] = []
    for group in in_groups(attempts):
        returned = function(**{name: [GIVEN[name](attempt) for attempt in group] for name in names})
        try:
            numbers = list(returned)
        except TypeError:
            numbers = []
        if len(numbers) != len(group):
            raise ValueError(
                f"{settings.function} in {settings.file} returned {type(returned).__name__} with {len(numbers)} "
                f"numbers for {len(group)} completions: return a list with one number for each"
            )
        judgements += map(Judgement, numbers)
    return judgements


def _mistake(settings: PythonReward) -> str | None:
    try:
        _function(str(settings.file), settings.function)
    except UnusableError as error:
        return str(error)
    return None


@cache
def _parameters(file: str, function: str) -> set[str]:
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    signatures = [node.args for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    return {argument.arg for arguments in signatures for argument in (*arguments.args, *arguments.kwonlyargs)}


@cache
def _function(file: str, name: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    module = _module(file)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [
            n for n, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__
        ]
        raise UnusableError(
            f"{file} has no function {name} (its functions: {', '.join(functions) or 'none'}): define it, or give "
            "`function` the name of another"
        )
    if inspect.iscoroutinefunction(function):
        raise UnusableError(f"{name} in {file} is async: make it a plain function")
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    required = [p for p in parameters if p.default is p.empty]
    unknown = [p.name for p in required if p.kind is p.POSITIONAL_ONLY or (p in named and p.name not in GIVEN)]
    if unknown:
        raise UnusableError(
            f"{name} in {file} requires {', '.join(unknown)}, which a reward is not given: take any of "
            f"{', '.join(GIVEN)}, by name"
        )
    parameter_names = {parameter.name for parameter in named}
    if not takes_all and "completions" not in parameter_names:
        raise UnusableError(f"{name} in {file} has no parameter `completions`, the list of texts to judge: add it")
    return function, tuple(n for n in GIVEN if takes_all or n in parameter_names)


def _module(file: str) -> ModuleType:
    """Execute the file, without a bytecode cache."""
    module = ModuleType(f"the reward in {file}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses need it
    try:
        with contained():
            exec(compile(Path(file).read_bytes(), file, "exec", dont_inherit=True), vars(module))
    except OSError as error:
        raise UnusableError(f"{file} cannot be read ({error.strerror}): correct the path") from None
    except Exception as error:
        raise UnusableError(f"{file} cannot be executed ({_reason(error, file)}): mend it") from None
    return module


def _reason(error: Exception, file: str) -> str:
    lines = [error.lineno] if isinstance(error, SyntaxError) else []
    lines += [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    where = f", line {lines[-1]}" if lines else ""
    return f"{type(error).__name__}: {message}".splitlines()[0] + where


def _words(settings: PythonReward) -> str:
    function = "" if settings.function == "reward" else f" ({settings.function})"
    return f"rewards of {Path(str(settings.file)).name}{function}"


PYTHON = Reward(
    name="python",
    version=1,
    settings=PythonReward,
    score=score,
    words=_words,
    binary=False,  # replaced in `PythonReward.selected`
    needs_reference=False,
    content=lambda settings: remembered_digest(str(settings.file)),
    mistake=_mistake,
)
