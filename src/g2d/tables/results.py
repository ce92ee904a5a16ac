"""A results folder as pandas frames: `g2d.open("results")` (docs/analysis.md)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from g2d.checks.load import read_record
from g2d.grid.grid import Grid
from g2d.grid.runs import Harvest, Policy
from g2d.jobs.cost import read_cost
from g2d.jobs.files import read_json
from g2d.problems import read_problems
from g2d.rollouts.pairs import read_pairs
from g2d.tables import all_tables
from g2d.tables.frames import Cells, read_table
from g2d.tables.inputs import Inputs
from g2d.tables.reads import ANSWERS, RECORDS, Read
from g2d.tables.trainings import read_log

# The first columns of each frame; `policy` is the name in tables, `regime` the name in folders. `group_size` is 0 and
# `seed` null if they do not apply.
KEY_COLUMNS = {
    "model": "object",
    "policy": "object",
    "regime": "object",
    "K": "int64",
    "group_size": "int64",
    "seed": "Int64",
}
LISTED = 10  # missing files in a warning


class Results(Inputs):
    """The files of a grid as frames to be joined on `KEY_COLUMNS`.

    Raises:
        FileNotFoundError: there is no such folder, or no run has begun in it.
        ConfigError: its `config.yaml` cannot be read.
    """

    def __init__(self, folder: str | PathLike[str] = "results") -> None:
        recorded = Path(folder) / "config.yaml"
        if not recorded.is_file():
            raise FileNotFoundError(
                f"{folder}: no results folder (it has no config.yaml): name the results folder of a run"
            )
        super().__init__(Grid(read_record(recorded)), Path(folder))

    def __repr__(self) -> str:
        return f"g2d.open({str(self.folder)!r})"

    def build(self, name: str) -> pd.DataFrame:
        names = all_tables.tables_of(self.grid)
        if name not in names:
            raise KeyError(f"{name}: no such table of this grid: name one of {', '.join(names)}")
        self._warn_of_missing(name, names[name].reads)
        return super().build(name)

    @cached_property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """Tables that were written, by name (`main`, `harvest`, `cost` ...)."""
        return _Tables(self.folder / "tables", list(all_tables.tables_of(self.grid)))

    @cached_property
    def provenance(self) -> Mapping[str, Any]:
        """Versions, digests and revisions of the results (`provenance.json`); empty until a run has ended."""
        file = self.folder / "provenance.json"
        return read_json(file) if file.is_file() else {}

    @cached_property
    def policies(self) -> pd.DataFrame:
        """A row per configured policy: `role`, `kind` (its training), `folder`, and `finished` (its record exists)."""
        rows = []
        for policy in self._policies:
            row = _labels(policy)
            row["role"] = policy.role
            row["kind"] = policy.method
            row["folder"] = policy.folder
            row["finished"] = policy in self.records
            rows.append(row)
        return _frame(rows)

    @cached_property
    def evaluations(self) -> pd.DataFrame:
        """A row per policy, `benchmark`, problem and sample: `Rollout` without texts, its seed as `sampling_seed`."""
        self._warn_of_missing("evaluations", [ANSWERS, RECORDS])
        labelled = []
        for (policy, benchmark), rows in self.answers.items():
            labels = _labels(policy)
            labels["benchmark"] = benchmark
            labelled.append((labels, rows))
        return _together(labelled)

    @cached_property
    def harvests(self) -> pd.DataFrame:
        """A row per completion of the main grid's harvests; the policy is the harvested one, `base` or `grpo`."""
        labelled = []
        for harvest, rows in self.harvested.items():
            # G and seed are the harvest's, also if it is of M0.
            policy = replace(self.grid.harvested(harvest), group_size=harvest.group_size, seed=harvest.seed)
            labelled.append((_labels(policy), rows))
        return _together(labelled)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """A row per policy and gradient step: the trainer's log; each K of a warm-up has all steps up to it."""
        labelled = []
        for policy in self._trained:
            file = self.folder / policy.folder / "metrics.jsonl"
            if file.exists():
                labelled.append((_labels(policy), pd.DataFrame(read_log(file))))
        return _together(labelled)

    @cached_property
    def bills(self) -> pd.DataFrame:
        """A row per policy and job charged to it (`Cost`); shared jobs are charged to each policy.

        `benchmark` is null for the jobs that made the policy; these add up to the tables' device-hours. Samples and
        open-ended replies are only in `tables["cost"]`.
        """
        rows = []
        for policy in self._trained:
            rows += self._bills_of(policy, "cost.json", None)
        for policy in self._policies:
            for benchmark in self.config.benchmarks:
                rows += self._bills_of(policy, f"eval/{benchmark}.cost.json", benchmark)
        return _frame(rows)

    def _bills_of(self, policy: Policy, name: str, benchmark: str | None) -> list[dict[str, object]]:
        file = self.folder / policy.folder / name
        if not file.exists():
            return []
        rows = []
        for record in read_cost(file).records:
            row = _labels(policy)
            row["benchmark"] = benchmark
            row.update(asdict(record))
            rows.append(row)
        return rows

    def rollouts(self, of: Policy | Harvest | str, benchmark: str | None = None) -> pd.DataFrame:
        """Read completions with all columns and texts: answers to a benchmark, or rollouts of a training, a harvest or
        the calibration.

        Args:
            of: a policy or harvest, or a folder below the results folder ("demo/seed0/harvest/g2/k50").
        """
        name = f"eval/{benchmark}.parquet" if benchmark else "rollouts.parquet"
        return pd.read_parquet(self._of(of) / name)

    def samples(self, of: Policy | str, benchmark: str) -> pd.DataFrame:
        return pd.read_parquet(self._of(of) / f"samples/{benchmark}.parquet")

    def pairs(self, of: Harvest | str) -> pd.DataFrame:
        return pd.DataFrame(read_pairs(self._of(of) / "pairs.jsonl"))

    def problems(self, name: str) -> pd.DataFrame:
        problems = read_problems(self.folder / f"problems/{name}.jsonl")
        return pd.DataFrame([asdict(problem) for problem in problems])

    def _warn_of_missing(self, name: str, reads: Iterable[Read[Any]]) -> None:
        """Warn of files that a frame reads and the grid has not made."""
        missing: list[str] = []
        for read in reads:
            paths = [self.path(file) for file in read.files(self.grid)]
            missing += [str(path) for path in paths if not path.exists()]
        if missing:
            listed = ", ".join(missing[:LISTED])
            more = f" and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
            warnings.warn(
                f"{name} is computed without {listed}{more}: means are over the seeds and policies that are there; "
                f"`g2d status {self.folder}` shows what is unfinished",
                stacklevel=3,
            )

    def _of(self, of: Policy | Harvest | str) -> Path:
        folder = of if isinstance(of, str) else of.folder
        return self.folder / folder

    @cached_property
    def _policies(self) -> list[Policy]:
        return [self.shown(policy) for policy in self.grid.policies]

    @cached_property
    def _trained(self) -> list[Policy]:
        return [self.shown(policy) for policy in self.grid.trained]


def read_by_name(path: str | Path) -> pd.DataFrame:
    """Read a table with the types declared for the name of the file; KeyError without one."""
    return read_table(path, all_tables.table(Path(path).stem).columns)


class _Tables(Mapping[str, pd.DataFrame]):
    def __init__(self, folder: Path, names: list[str]) -> None:
        self._files: dict[str, Path] = {}
        for name in names:
            file = folder / f"{name}.csv"
            if file.exists():
                self._files[name] = file
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


def _labels(policy: Policy) -> dict[str, object]:
    return {
        "model": policy.model,
        "policy": policy.label,
        "regime": policy.run_name,
        "K": policy.shown_k,
        "group_size": policy.group_size,
        "seed": pd.NA if policy.seed is None else policy.seed,
    }


def _together(labelled: Iterable[tuple[Cells, pd.DataFrame]]) -> pd.DataFrame:
    frames = []
    for labels, rows in labelled:
        renamed = rows.rename(columns={"seed": "sampling_seed"})
        frames.append(renamed.assign(**labels)[[*labels, *renamed]])
    if not frames:
        return _frame([])
    return pd.concat(frames, ignore_index=True).astype(KEY_COLUMNS)


def _frame(rows: Sequence[Cells]) -> pd.DataFrame:
    columns = None if rows else list(KEY_COLUMNS)
    return pd.DataFrame(rows, columns=columns).astype(KEY_COLUMNS)
