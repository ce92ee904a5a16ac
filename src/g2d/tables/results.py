"""A results folder as pandas frames: `g2d.open("results")` (docs/analysis.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from g2d.experiment import grid
from g2d.experiment.config import read
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.graph import catalogue
from g2d.jobs.cost import read_cost
from g2d.jobs.files import read_json, read_lines
from g2d.problems import read_problems
from g2d.rollouts.pairs import read_pairs
from g2d.tables.frames import read_table
from g2d.tables.inputs import Inputs

# What every frame begins with; `group_size` is 0 and `seed` null where they do not apply.
KEY_COLUMNS = {
    "model": "object",
    "policy": "object",  # as the tables call it: g2d is DPO on the harvest of a warmed-up policy
    "regime": "object",  # as its folder is called
    "K": "int64",
    "group_size": "int64",
    "seed": "Int64",
}


class Results(Inputs):
    """What a grid has left.

    Every frame begins with `KEY_COLUMNS` (of harvests, of the policy that was harvested), on which they can be joined.

    Raises:
        FileNotFoundError: there is no such folder, or no run has begun in it.
        ConfigError: its `config.yaml` cannot be read.
    """

    def __init__(self, folder: str | PathLike[str] = "results") -> None:
        recorded = Path(folder) / "config.yaml"
        if not recorded.is_file():
            raise FileNotFoundError(f"{folder}: no results folder (it has no config.yaml): name the one of a run")
        super().__init__(Path(folder), read(recorded))

    def __repr__(self) -> str:
        return f"g2d.open({str(self.folder)!r})"

    @cached_property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """The tables that are there, by name (`main`, `harvest`, `cost` ...), as docs/analysis.md explains them."""
        return _Tables(self.folder / "tables", list(catalogue.tables_of(self.config)))

    @cached_property
    def provenance(self) -> Mapping[str, Any]:
        """Versions, digests and revisions behind the results (`provenance.json`); empty before a run has ended."""
        file = self.folder / "provenance.json"
        return read_json(file) if file.is_file() else {}

    @cached_property
    def policies(self) -> pd.DataFrame:
        """A row per policy of the configuration: `role` (`g2d.experiment.keys.ROLES`), `kind` (how it was trained),
        `folder` below the results folder, and whether its record is there (`finished`)."""
        return _frame(
            {**_key(key), "role": key.role, "kind": key.kind, "folder": key.folder, "finished": key in self.records}
            for key in self._policies
        )

    @cached_property
    def evaluations(self) -> pd.DataFrame:
        """A row per policy, `benchmark`, problem and sample: verdicts and lengths, as in `Rollout` without the texts
        (`rollouts` has them). The seed of the sampling is called `sampling_seed`."""
        return _together(({**_key(key), "benchmark": name}, rows) for (key, name), rows in self.answers.items())

    @cached_property
    def harvests(self) -> pd.DataFrame:
        """A row per completion of the main grid's harvests, columns as in `evaluations`; their policy is `base` or
        `grpo`, whose rollouts they are."""
        return _together((_key(_harvested(key)), rows) for key, rows in self.harvested.items())

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """A row per policy and gradient step: what its trainer logged. The warm-ups between are policies, too; each
        has the steps of those that it continued."""
        return _together(
            (_key(key), pd.DataFrame([json.loads(line) for _, line in read_lines(file)]))
            for key in self._trained
            if (file := self.folder / key.folder / "metrics.jsonl").exists()
        )

    @cached_property
    def bills(self) -> pd.DataFrame:
        """A row per policy and job on its bill (`g2d.jobs.cost.Cost`). `benchmark` is null for the jobs that made the
        policy, whose device seconds add up to the device-hours of the tables; jobs that policies share are on the bill
        of each."""
        made = [*self._trained, *(key for key in self._policies if key.selected)]
        found: list[tuple[PolicyKey, str, str | None]] = [(key, "cost.json", None) for key in made]
        found += [(key, f"eval/{name}.cost.json", name) for key in self._policies for name in self.config.benchmarks]
        return _frame(
            {**_key(key), "benchmark": benchmark, **asdict(record)}
            for key, name, benchmark in found
            if (file := self.folder / key.folder / name).exists()
            for record in read_cost(file).records
        )

    def rollouts(self, of: PolicyKey | HarvestKey | str, benchmark: str | None = None) -> pd.DataFrame:
        """The completions of one file with all their columns and texts.

        Args:
            of: whose: a folder below the results folder (`policies.folder`; "demo/seed0/harvest/g2/k50",
                "demo/calibration"), or its key.
            benchmark: the answers to it; without one, what was sampled in the folder's own stage: a training, a
                harvest, the calibration.
        """
        return pd.read_parquet(self._of(of) / (f"eval/{benchmark}.parquet" if benchmark else "rollouts.parquet"))

    def samples(self, of: PolicyKey | str, benchmark: str) -> pd.DataFrame:
        """The answers that `evaluation.sampled` drew beside the greedy ones, as `rollouts`."""
        return pd.read_parquet(self._of(of) / f"samples/{benchmark}.parquet")

    def pairs(self, of: HarvestKey | str) -> pd.DataFrame:
        """The preference pairs of a harvest, a row each, columns as in `g2d.rollouts.pairs.Pair`."""
        return pd.DataFrame(read_pairs(self._of(of) / "pairs.jsonl"))

    def problems(self, name: str) -> pd.DataFrame:
        """The problems of a benchmark, or the `pool` that training sets are drawn from, a row each."""
        return pd.DataFrame([asdict(problem) for problem in read_problems(self.folder / f"problems/{name}.jsonl")])

    def _of(self, of: PolicyKey | HarvestKey | str) -> Path:
        return self.folder / (of if isinstance(of, str) else of.folder)

    @cached_property
    def _policies(self) -> list[PolicyKey]:
        """All that are configured, with the K that the tables show."""
        return [self.finished.get(key, key) for key in grid.policies(self.config)]

    @cached_property
    def _trained(self) -> list[PolicyKey]:
        """All that are trained, warm-ups that are not evaluated too."""
        shown = {key: key for key in self._policies}
        return [shown.get(key, key) for key in grid.trainings(self.config)]


_TYPES = {"levels": "object", "group_size": "Int64", "seed": "Int64"}  # one level is no number; those are whole


def read_by_name(path: str | Path) -> pd.DataFrame:
    """A table of the catalogue with the types that its function declares, found by the name of the file.

    Raises:
        KeyError: there is no table of that name.
        ValueError: the file is not CSV with these types; the message names it.
    """
    return read_table(path, getattr(catalogue.table(Path(path).stem).build, "columns", _TYPES))


class _Tables(Mapping[str, pd.DataFrame]):
    """Tables by name, each read once, those that are there."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self._files = {name: file for name in names if (file := folder / f"{name}.csv").exists()}
        self._read: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._files:
            raise KeyError(f"{name}: no such table here; there are {', '.join(self._files) or 'none yet'}")
        if name not in self._read:
            self._read[name] = read_by_name(self._files[name])
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _key(key: PolicyKey) -> dict[str, Any]:
    values = (key.model, key.label, key.regime, key.shown_k, key.group_size, pd.NA if key.seed is None else key.seed)
    return dict(zip(KEY_COLUMNS, values, strict=True))


def _harvested(key: HarvestKey) -> PolicyKey:
    """The policy that wrote a harvest; M0 has one per seed."""
    return PolicyKey(key.model, "grpo" if key.k else "base", key.group_size, key.k, key.seed)


def _together(labelled: Iterable[tuple[Mapping[str, Any], pd.DataFrame]]) -> pd.DataFrame:
    """Frames below one another, each row after the labels of its frame; the seed of its sampling gets another name than
    that of the policy."""
    frames = []
    for labels, rows in labelled:
        renamed = rows.rename(columns={"seed": "sampling_seed"})
        frames.append(renamed.assign(**labels)[[*labels, *renamed]])
    return pd.concat(frames, ignore_index=True).astype(KEY_COLUMNS) if frames else _frame([])


def _frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    rows = list(rows)
    return pd.DataFrame(rows, columns=None if rows else list(KEY_COLUMNS)).astype(KEY_COLUMNS)
