"""`g2d compare A B --files`: what differs between two results folders file by file, and whether it matters.

A rebuilt grid has the same bytes; on other hardware or versions it has other tokens and may have the same conclusions.
So three comparisons are made: of what was asked for (configuration, problems), of what was made (digests), and, where
that differs, of accuracies by a paired test. Costs are not compared.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from g2d.analysis.comparisons import LEVEL, sign_flip_p
from g2d.analysis.statistics import holm
from g2d.experiment import grid
from g2d.experiment.config import Config, read
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.jobs.files import read_json, sha256
from g2d.plain import say
from g2d.policies.policy import Policy, read_policy
from g2d.policies.settings import ADAPTER_FILES, ALL_FILES
from g2d.rollouts.rollout import read_rollouts
from g2d.tables.runs import differing

Kind = Literal["configuration", "software", "problems", "policy", "harvest", "evaluation"]
Weight = Literal["asked", "noise", "matters", "missing", "expected"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two folders.

    `asked`: another experiment was configured. `expected`: other tokens or software. `noise`: another accuracy, not
    significantly. `matters`: a significantly different accuracy. `missing`: a file of the configured grid is missing.
    """

    kind: Kind
    name: str
    detail: str
    weight: Weight


def compare_results(a: Path, b: Path) -> list[Difference]:
    """Everything that differs between two results folders, the configuration first.

    Raises:
        ValueError: a folder is not the results of this workflow, or a file in it cannot be read.
    """
    first, second = _configs(a, b)
    shared = [policy for policy in grid.policies(first) if policy in set(grid.policies(second))]
    problems = _problems(a, b, sorted(set(first.problem_sources) & set(second.problem_sources)))
    other = {difference.name for difference in problems if difference.weight == "asked"}
    benchmarks = [name for name in first.benchmarks if name in second.benchmarks and name not in other]
    return [
        *_configuration(first, second),
        *_software(a, b),
        *problems,
        *_policies(a, b, shared),
        *_harvests(a, b, [key for key in grid.harvests(first) if key in set(grid.harvests(second))]),
        *_evaluations(a, b, shared, benchmarks),
    ]


def verdict(differences: list[Difference]) -> str:
    """The conclusion, the last line of the command's output."""
    weights = Counter(difference.weight for difference in differences)
    if weights["matters"]:
        return "different: at least one result differs by more than chance"
    if weights["missing"]:
        return f"incomplete: {weights['missing']} files are missing; what both folders have agrees within chance"
    if weights["asked"]:
        return "different: other experiments were configured; what they share agrees within chance"
    return "the same within chance" if weights else "the same"


def _configs(*folders: Path) -> tuple[Config, ...]:
    if none := " and ".join(str(folder) for folder in folders if not (folder / "config.yaml").is_file()):
        raise ValueError(f"{none}: no config.yaml in it: name the results folder of a finished run")
    return tuple(read(folder / "config.yaml") for folder in folders)


def _configuration(a: Config, b: Config) -> list[Difference]:
    found = other_settings(a.identity, b.identity)
    return [Difference("configuration", key, _between(*values), "asked") for key, values in found.items()]


def other_settings(*identities: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The keys that have not the same value in all configurations (`Config.identity`), and their values."""
    found = differing(*identities)
    return {key: values for key, values in found.items() if key not in ("title", "demonstration")}


def other_software(*provenances: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """What differs in the versions behind several runs."""
    return differing(*({key: own.get(key, {}) for key in ("workflow", "software")} for own in provenances))


def _between(first: Any, second: Any) -> str:
    return f"{first} | {second}"


def _software(a: Path, b: Path) -> list[Difference]:
    files = [folder / "provenance.json" for folder in (a, b)]
    if missing := _missing("software", "provenance.json", files):
        return missing
    found = other_software(*map(read_json, files))
    return [Difference("software", key, _between(*values), "expected") for key, values in found.items()]


def _problems(a: Path, b: Path, names: list[str]) -> list[Difference]:
    def compare(name: str, first: Path, second: Path) -> list[Difference]:
        same = sha256(first) == sha256(second)
        return [] if same else [Difference("problems", name, f"other problems{_seeds(a, b, name)}", "asked")]

    return _each("problems", a, b, {name: f"problems/{name}.jsonl" for name in names}, compare)


def _seeds(a: Path, b: Path, name: str) -> str:
    """The seeds of the two sets, where both were generated and they differ."""
    files = [folder / f"problems/{name}.manifest.json" for folder in (a, b)]
    seeds = [read_json(file)["source"].get("seed") if file.is_file() else None for file in files]
    return "" if None in seeds or seeds[0] == seeds[1] else f", generated with the seeds {seeds[0]} | {seeds[1]}"


def _policies(a: Path, b: Path, keys: list[PolicyKey]) -> list[Difference]:
    def compare(name: str, *files: Path) -> list[Difference]:
        first, second = map(read_policy, files)
        kind = ADAPTER_FILES[0] if first.adapter else ALL_FILES[0] if first.weights else "model/model.safetensors"
        own = [file.parent / kind for file in files]
        if first.trained or any(file.exists() for file in own):  # weights of other M0 are not in the folder
            if missing := _missing("policy", name, own):
                return missing
            _require_recorded(own[0], first)
            _require_recorded(own[1], second)
        same = first.weights_sha256 == second.weights_sha256
        return [] if same else [Difference("policy", name, "other weights", "expected")]

    return _each("policy", a, b, {key.folder: f"{key.folder}/policy.json" for key in keys}, compare)


def _require_recorded(weights: Path, policy: Policy) -> None:
    if policy.weights_sha256 is not None and sha256(weights) != policy.weights_sha256:
        raise ValueError(f"{weights}: not the weights that policy.json names; delete it to have it made again")


def _rows(file: Path, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Rollouts with `problem_id`, `sample`, `reward` and more columns.

    Raises:
        ValueError: as `read_rollouts`; or a row is duplicated; or a reward is neither 0 nor 1 where the verifier alone
            judged, or not finite where another reward did. The message names the file.
    """
    rows = read_rollouts(file, ["problem_id", "sample", "reward", "reward_status", *columns])
    twice = rows.duplicated(["problem_id", "sample"])
    if twice.any():
        what = f"sample {rows['sample'][twice].iloc[0]} of {rows['problem_id'][twice].iloc[0]} is there twice"
    elif not is_numeric_dtype(rows["reward"]):
        what = "its rewards are no numbers"
    else:
        status = rows.get("reward_status", pd.Series(index=rows.index, dtype="object"))
        legal = rows["reward"].isin((0, 1)).where(status.isna(), np.isfinite(rows["reward"]) == status.eq("judged"))
        if legal.all():
            return rows
        what = f"a reward of {rows['reward'][~legal].iloc[0]}"
    raise ValueError(f"{file}: {what}, so it was changed after it was made; delete it to have it made again")


def _harvests(a: Path, b: Path, keys: list[HarvestKey]) -> list[Difference]:
    def compare(name: str, *files: Path) -> list[Difference]:
        first, second = (_rows(file, ["completion_text"]) for file in files)
        texts = ["problem_id", "sample", "completion_text"]
        if not first[texts].equals(second[texts]):
            both = first.merge(second, on=["problem_id", "sample"])
            same = (both["completion_text_x"] == both["completion_text_y"]).sum() / max(len(first), len(second))
            return [Difference("harvest", name, f"{same:.1%} of the rollouts are identical", "expected")]
        if not first["reward"].equals(second["reward"]):
            return [Difference("harvest", name, "the same rollouts with other rewards", "expected")]
        return []

    return _each("harvest", a, b, {key.folder: f"{key.folder}/rollouts.parquet" for key in keys}, compare)


def _evaluations(a: Path, b: Path, keys: list[PolicyKey], benchmarks: list[str]) -> list[Difference]:
    """Evaluations that differ, with an exact paired test on their questions, Holm-corrected over all."""
    tested = []

    def compare(name: str, *files: Path) -> list[Difference]:
        right = [_rows(file).groupby("problem_id")["reward"].sum() for file in files]
        if not right[0].index.equals(right[1].index):
            return [Difference("evaluation", name, "other questions", "asked")]
        delta = (right[1] - right[0]).to_numpy().astype(int)
        tested.append((name, right[0].mean(), right[1].mean(), int((delta != 0).sum()), sign_flip_p(delta)))
        return []

    names = [f"{key.folder}/eval/{benchmark}" for key in keys for benchmark in benchmarks]
    found = _each("evaluation", a, b, {name: f"{name}.parquet" for name in names}, compare)
    corrected = holm([p for *_, p in tested])
    return found + [
        Difference(
            "evaluation",
            name,
            f"{before:.4f} | {after:.4f} correct answers per question, {changed} questions differ, p = {p:.2g} (Holm)",
            "matters" if p < LEVEL else "noise",
        )
        for (name, before, after, changed, _), p in zip(tested, corrected, strict=True)
        if changed
    ]


def _each(
    kind: Kind, a: Path, b: Path, paths: Mapping[str, str], compare: Callable[..., list[Difference]]
) -> list[Difference]:
    """The differences of files by name: those that `compare(name, first, second)` finds, or that one is missing."""
    found = []
    for name, path in paths.items():
        files = [a / path, b / path]
        found += _missing(kind, name, files) or compare(name, *files)
    return found


def _missing(kind: Kind, name: str, files: list[Path]) -> list[Difference]:
    return [Difference(kind, name, f"{file} is missing", "missing") for file in files if not file.is_file()]


def print_differences(a: Path, b: Path, as_json: bool) -> int:
    """Print what differs file by file; the exit status is 1 where a difference matters, is missing or was asked for."""
    differences = compare_results(a, b)
    if as_json:
        rows = [asdict(difference) for difference in differences]
        json.dump({"verdict": verdict(differences), "differences": rows}, sys.stdout, indent=2)
        say()
    else:
        for difference in differences:
            say(f"{difference.weight:<9} {difference.kind:<14} {difference.name}: {difference.detail}")
        say(verdict(differences))
    return int(any(difference.weight in ("asked", "matters", "missing") for difference in differences))
