"""The first table of a run: a line for every policy as soon as it has answered all benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WIDTH = 26


class Accuracies:
    def __init__(self) -> None:
        self._found: dict[str, dict[str, float]] = {}
        self._has_header = False

    def add(self, wildcards: Mapping[str, str], output: Sequence[str]) -> list[str]:
        """Read an evaluation; return the lines that it completes, the header before the first."""
        import pyarrow.parquet as pq
        import yaml

        from g2d.experiment.grid import policies
        from g2d.experiment.sections import Config

        with open("results/config.yaml", encoding="utf-8") as file:
            config = Config.model_validate(yaml.safe_load(file))
        rewards = pq.read_table(output[0], columns=["reward"])["reward"].to_pylist()
        accuracies = self._found.setdefault(wildcards["policy"], {})
        accuracies[wildcards["benchmark"]] = sum(rewards) / len(rewards)
        if set(accuracies) != set(config.benchmarks):
            return []
        lines = [] if self._has_header else [_row("accuracy", list(config.benchmarks))]
        self._has_header = True
        key = next(policy for policy in policies(config) if policy.folder == wildcards["policy"])
        where = [f"K={key.k}", f"G={key.group_size}", f"seed {key.seed}"] if key.seed is not None else []
        if not key.group_size and where:
            del where[1]
        label = " ".join([key.label, *where] if len(config.models) == 1 else [key.model, key.label, *where])
        return [*lines, _row(label, [f"{100 * accuracies[benchmark]:.1f} %" for benchmark in config.benchmarks])]


def _row(label: str, cells: Sequence[str]) -> str:
    return f"  {label:{WIDTH}}" + "".join(f"{cell:>16}" for cell in cells)
