"""Check what the first jobs would refuse (`g2d config check`).

Local and generated problems, local models and reward models, LoRA's modules, and the user's Python files: they are
loaded in a worker as in a job, and a verifier judges one right answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from g2d.analysis.calibration import require_levels
from g2d.checks.requirements import budgets, mistakes_in_files, require_windows, too_few_lines
from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.plain import first_line, plain
from g2d.policies.embedded import FOLDER
from g2d.policies.lora_targets import require_targets
from g2d.policies.model_keys import CONFIG, EmbeddedModel, LocalModel, file_of
from g2d.policies.record import PolicyRecord, load_tokenizer, require_whole
from g2d.problems import Problem
from g2d.problems.audit import assert_no_leakage, find_leaks
from g2d.problems.problem import draw_training_set, levels_of
from g2d.problems.problem_keys import HELD_OUT, OPEN_ENDED, HubProblems, place_of
from g2d.problems.prompts import Prompt, conversation, conversation_ids, require_finite
from g2d.problems.sources import ProblemError, load_problems
from g2d.rewards.model import RewardModel, require_template
from g2d.rewards.python import PythonReward
from g2d.settings import refuse, together
from g2d.verifier.pool import Limits, Pool, VerifierError
from g2d.verifier.user_code import JUDGE, digest, judge_of
from g2d.verifier.verifier import FAILURES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

N_LONGEST = 20
EXAMPLE = Problem("example", "2 + 2", "4", None, None, "example")


def require_contents(config: Config) -> None:
    """Raise a ConfigError with the first mistake of each file and folder, and completions without room for a prompt.

    Keys with mistakes that `require_files` reports are left out.
    """
    usable = _Usable([*mistakes_in_files(config), *too_few_lines(config)])
    loaded: dict[str, list[Problem]] = {}  # sets of problems that are not on the Hub
    longest: dict[tuple[str, str], int] = {}  # tokens of a prompt, by model and section
    found = [*_check_problems(config, usable, loaded), *_check_models(config, usable, loaded, longest)]
    first = next(iter(loaded.get("pool", ())), EXAMPLE)
    found += [*_check_functions(config, usable, first), *_check_reward_models(config, usable)]
    together(partial(require_windows, Grid(config), longest), partial(refuse, found))


class _Usable:
    """Keys that no mistake is about."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = mistakes

    def __contains__(self, key: str) -> bool:
        return not any(mistake.startswith((f"{key}.", f"{key}:", f"{key}=")) for mistake in self.mistakes)


def _check_problems(config: Config, usable: _Usable, loaded: dict[str, list[Problem]]) -> Iterator[str]:
    for name, source in config.problem_sources.items():
        if isinstance(source, HubProblems) or place_of(name) not in usable:
            continue
        try:
            loaded[name] = load_problems(name, source)
        except ProblemError as error:
            yield str(error)
            continue
        if name == "pool":
            yield from _check_pool(config, usable, loaded[name])
    yield from _check_leakage(config, loaded)
    yield from _check_examples(config, loaded)


def _check_leakage(config: Config, loaded: Mapping[str, list[Problem]]) -> Iterator[str]:
    """Yield benchmarks with problems to train on or to select checkpoints by, and held-out prompts to train on."""
    compared: list[tuple[str, str, Iterable[str]]] = [
        ("pool", "the training pool", config.benchmarks),
        (OPEN_ENDED, place_of(OPEN_ENDED), [HELD_OUT]),
    ]
    if config.select_by is not None:
        among = f"{place_of(config.select_by)}, which selects checkpoints"
        compared.append((config.select_by, among, config.tested_benchmarks))
    for first, among, names in compared:
        for name in names:
            if first not in loaded or name not in loaded:
                continue
            try:
                assert_no_leakage(loaded[first], loaded[name], place_of(name), among)
            except ValueError as error:
                yield str(error)


def _check_examples(config: Config, loaded: Mapping[str, list[Problem]]) -> Iterator[str]:
    """Yield worked examples that are problems of a benchmark."""
    for model in config.models:
        shown: list[Problem] = []
        for number, example in enumerate(config.for_model(model).prompt.examples):
            shown.append(replace(EXAMPLE, problem_id=f"prompt.examples.{number}.problem", prompt=example.problem))
        if not shown:
            continue
        for name in config.benchmarks:
            for problem_id, example_key in find_leaks(shown, loaded.get(name, ())).items():
                yield (
                    f"{example_key}: it is {problem_id} of {place_of(name)}: choose another example, or remove the "
                    "problem there"
                )


def _check_pool(config: Config, usable: _Usable, pool: Sequence[Problem]) -> Iterator[str]:
    """Yield pinned levels that no problem has, and training sets that the pool cannot fill if all levels are chosen."""
    for model in config.models:
        settings = config.for_model(model)
        levels = levels_of(pool) if settings.calibration.levels == "auto" else settings.calibration.levels
        try:
            require_levels(settings.calibration, {problem.level for problem in pool})
            if "training_set.n" in usable:
                draw_training_set(pool, levels, settings.training_set.n, settings.training_set.seed)
        except ValueError as error:
            yield str(error)


def _check_functions(config: Config, usable: _Usable, problem: Problem) -> Iterator[str]:
    functions = {}
    if config.verifier is not None and "verifier" in usable:
        functions["verifier.file"] = judge_of(config.verifier.file)
    for name, reward in config.rewards.items():
        if isinstance(reward, PythonReward) and f"rewards.{name}" in usable:
            functions[f"rewards.{name}"] = ["reward", reward.file, reward.function, digest(reward.file)]
    for key, function in functions.items():
        pool = Pool(1, Limits(), function)
        try:
            pool.start()
            if key == "verifier.file":
                yield from _check_judge(pool, problem, key, function[1])
        except VerifierError as error:
            yield f"{key}: {error}"
        finally:
            pool.close()


def _check_judge(pool: Pool, problem: Problem, key: str, file: str) -> Iterator[str]:
    """Judge the reference answer as a completion; the verdict itself does not matter."""
    [reply] = pool.replies([(problem.as_judged, problem.answer)])
    if reply.status in FAILURES:
        why = f": {plain(reply.why)}" if reply.why else ""
        yield (
            f"{key}: {file}: {JUDGE} has the verdict {reply.status} for the answer {problem.answer!r} to "
            f"{problem.problem_id}{why}: mend it; `problem` has {', '.join(sorted(problem.as_judged))}"
        )


def _check_reward_models(config: Config, usable: _Usable) -> Iterator[str]:
    for name, settings in config.rewards.items():
        if not isinstance(settings, RewardModel) or settings.path is None or f"rewards.{name}" not in usable:
            continue  # a model on the Hub is checked before the first job
        try:
            require_template(settings.path)
        except (OSError, ValueError, LookupError) as error:
            yield f"rewards.{name}: {settings.path}: {first_line(error)}"


def _check_models(
    config: Config, usable: _Usable, loaded: Mapping[str, list[Problem]], longest: dict[tuple[str, str], int]
) -> Iterator[str]:
    grid = Grid(config)
    for name, source in config.models.items():
        if f"models.{name}" not in usable:
            continue
        settings = grid.settings[name]
        file = FOLDER / CONFIG if isinstance(source, EmbeddedModel) else file_of(source)
        try:
            if isinstance(source, LocalModel):
                tokenizer = _require_model(name, source, settings.prompt)
                for section, _ in budgets(grid, name):
                    asked = _asked_in(section, config, loaded)
                    if asked:
                        longest[name, section] = _longest(tokenizer, asked, settings.prompt)
            if file is not None:  # else it is on the Hub, and M0's job checks
                require_targets(file, settings.lora)
        except (OSError, ValueError, LookupError) as error:
            yield f"models.{name}: {first_line(error)}"


def _require_model(name: str, source: LocalModel, prompt: Prompt) -> PreTrainedTokenizerBase:
    given = source.chat_template_kwargs or None
    policy = PolicyRecord(f"{name}/base", name, "base", source.path, chat_template_kwargs=given)
    tokenizer = load_tokenizer(policy)
    messages = conversation(EXAMPLE, prompt)
    try:
        require_finite(tokenizer, messages)
        conversation_ids(tokenizer, messages)
    except ValueError as error:
        raise ValueError(f"{source.path}: {error}") from None
    require_whole(policy)
    return tokenizer


def _asked_in(section: str, config: Config, loaded: Mapping[str, list[Problem]]) -> list[Problem]:
    """Return the loaded problems that a section's completions answer."""
    names = ["pool"]
    if section == "evaluation":
        names = list(config.benchmarks)
    elif section == "open_ended":
        names = [OPEN_ENDED, HELD_OUT]
    return [problem for name in names for problem in loaded.get(name, ())]


def _longest(tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem], prompt: Prompt) -> int:
    """Return the tokens of the longest prompt, from those with the most characters."""
    texts = heapq.nlargest(N_LONGEST, problems, key=lambda problem: len(problem.prompt))
    return max(len(conversation_ids(tokenizer, conversation(problem, prompt))) for problem in texts)
