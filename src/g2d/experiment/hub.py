"""What the workflow asks of the Hugging Face Hub before it starts: do the models and data sets exist, may we read them?

A grid that fails on its first download after an hour in the queue is a bad surprise, so every id and revision is
looked up first; what is already in the local cache is not asked for.
"""

from __future__ import annotations

from typing import Literal

from g2d.experiment.sections import Config
from g2d.policies.settings import HubModel
from g2d.problems.settings import HubProblems
from g2d.rewards.model import RewardModel
from g2d.settings import ConfigError

RepoType = Literal["model", "dataset"]


def require_repositories(config: Config) -> None:
    """Look every Hub repository of a configuration up.

    Raises:
        ConfigError: one line per repository that is unknown, gated, at an unknown revision or out of reach.
    """
    named: list[tuple[str, RepoType, str, str]] = [
        (f"models.{name}", "model", source.id, source.revision)
        for name, source in config.models.items()
        if isinstance(source, HubModel)
    ]
    named += [
        (config.place_of(name), "dataset", source.id, source.revision)
        for name, source in config.problem_sources.items()
        if isinstance(source, HubProblems)
    ]
    named += [
        (f"rewards.{name}", "model", settings.id, settings.revision)
        for name, settings in config.rewards.items()
        if isinstance(settings, RewardModel) and settings.id is not None and settings.revision is not None
    ]
    problems = [
        f"{key}: {problem}"
        for key, repo_type, repo_id, revision in named
        if (problem := lookup(repo_type, repo_id, revision))
    ]
    if problems:
        raise ConfigError("\n".join(problems))


def lookup(repo_type: RepoType, repo_id: str, revision: str) -> str | None:
    """What is wrong with a repository, worded for the person at the keyboard; None if it can be read."""
    from huggingface_hub import HfApi, constants, scan_cache_dir
    from huggingface_hub.errors import (
        CacheNotFound,
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        cached = {
            (repo.repo_type, repo.repo_id, found.commit_hash)
            for repo in scan_cache_dir().repos
            for found in repo.revisions
        }
    except CacheNotFound:
        cached = set()
    if (repo_type, repo_id, revision) in cached:
        return None
    if constants.HF_HUB_OFFLINE:
        return f"{repo_id} at {revision[:8]} is not in the local cache and HF_HUB_OFFLINE is set: download it first"
    try:
        HfApi().repo_info(repo_id, repo_type=repo_type, revision=revision, timeout=20)
        HfApi().auth_check(repo_id, repo_type=repo_type)
    except GatedRepoError:
        return f"{repo_id} is gated: accept its conditions on its page and log in with `hf auth login`"
    except RevisionNotFoundError:
        return f"{repo_id} has no revision {revision}: copy a commit hash from the history of the repository"
    except RepositoryNotFoundError:
        return f"the Hub knows no {repo_type} {repo_id} that you may read: correct the id, or `hf auth login`"
    except (HfHubHTTPError, OfflineModeIsEnabled, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        return f"cannot reach the Hub for {repo_id} ({reason}): use `source: local`, or download it first"
    return None
