"""Where the config.json of a model is on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from g2d.policies.settings import HubModel, LocalModel, ModelSource

CONFIG = "config.json"


def config_json(source: ModelSource, name: str = CONFIG) -> Path | None:
    """The file of a local model, or of one in the Hub's cache; None where there is none.

    Args:
        name: of another file.

    `huggingface_hub.try_to_load_from_cache` finds the same, and its import takes 0.3 s of every planning.
    """
    if isinstance(source, LocalModel):
        file = Path(source.path, name)
    elif isinstance(source, HubModel):
        file = snapshot("model", source.id, source.revision) / name
    else:
        return None
    return file if file.is_file() else None


def snapshot(repo_type: str, repo_id: str, revision: str) -> Path:
    """Where the Hub's cache has a repository, if it has it."""
    return hub_cache() / f"{repo_type}s--{repo_id.replace('/', '--')}/snapshots/{revision}"


def hub_cache() -> Path:
    """`huggingface_hub.constants.HF_HUB_CACHE`."""
    variables = os.environ
    home = variables.get("HF_HOME", f"{variables.get('XDG_CACHE_HOME', '~/.cache')}/huggingface")
    cache = variables.get("HF_HUB_CACHE", variables.get("HUGGINGFACE_HUB_CACHE", f"{home}/hub"))
    return Path(os.path.expandvars(Path(cache).expanduser()))
