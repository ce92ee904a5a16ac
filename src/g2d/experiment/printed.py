"""Which models and benchmarks of a grid a paper has results of, by the last part of their names."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePath

from g2d.experiment.sections import Config
from g2d.policies.settings import ModelSource
from g2d.problems.settings import ProblemSource

# "Bridging Offline and Online RL" (arXiv 2506.21495), Table 1: its model, and its columns of accuracies.
BRIDGING_MODEL = "Llama-3.1-8B-Instruct"
BRIDGING_BENCHMARKS = ("math500", "numina", "amc23")


def is_of_bridging(config: Config) -> bool:
    """Whether that table has rows for a grid."""
    return bool(models_of(config, {BRIDGING_MODEL}) and benchmarks_of(config, BRIDGING_BENCHMARKS))


def models_of(config: Config, names: Collection[str]) -> dict[str, str]:
    """Models of the grid that a paper has, with the paper's names for them."""
    called = {model: _last_name(source) for model, source in config.models.items()}
    return {model: name for model, name in called.items() if name is not None and name in names}


def benchmarks_of(config: Config, columns: Collection[str]) -> list[tuple[str, str]]:
    """Benchmarks of the grid that a paper has, with their columns in its table."""
    found = []
    for name, source in config.benchmarks.items():
        names = {re.sub(r"[^a-z0-9]", "", str(text).lower()) for text in (name, _last_name(source))}
        found += [(name, column) for column in columns if column in names]
    return found


def _last_name(source: ModelSource | ProblemSource) -> str | None:
    """What a Hub id or a folder ends with."""
    named = getattr(source, "id", None) or getattr(source, "path", None)
    return PurePath(named).name if named else None
