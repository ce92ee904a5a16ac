"""`g2d compare A B --files`: file-by-file differences between two results folders, and whether they matter.

Other hardware or versions may give other tokens and the same conclusions, so accuracies are compared by a paired test.
Costs are not compared.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from g2d.analysis.comparisons import LEVEL, sign_flip_p
from g2d.analysis.statistics import holm
from g2d.experiment import grid
from g2d.experiment.config import Config, read
from g2d.experiment.keys import PolicyKey
from g2d.jobs.digests import digests_in
from g2d.jobs.files import read_json, sha256
from g2d.plain import say
from g2d.policies.policy import read_policy
from g2d.policies.settings import MADE
from g2d.rollouts.rollout import read_rollouts
from g2d.tables.runs import differing

Kind = Literal["configuration", "software", "problems", "policy", "harvest", "evaluation"]
RECORD = "policy.json"
Weight = Literal["asked", "noise", "matters", "missing", "expected"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two folders.

    `asked`: another configuration. `expected`: other tokens or software. `noise`: another accuracy, not significantly.
    `matters`: a significantly different accuracy. `missing`: a file of the configured grid is missing.
    """

    kind: Kind
    name: str
    detail: str
    weight: Weight


def compare_results(a: Path, b: Path) -> list[Difference]:
    """Return all differences between two results folders, the configuration first.

    Raises:
        ValueError: a folder has no results, or a file cannot be read or was changed after its job.
    """
    configs, recorded = _configs(a, b), digests_in(a) | digests_in(b)
    settings = other_settings(*(config.identity for config in configs))
    differences = [*_differences("configuration", settings, "asked"), *_software(a, b)]
    other_problems: set[str] = set()
    answered: dict[str, tuple[pd.Series, pd.Series]] = {}  # right answers by question
    for kind, name, path in _files(*configs):
        files = a / path, b / path
        if kind == "evaluation" and files[0].stem in other_problems:
            continue
        if missing := _missing(kind, name, *files):
            differences += missing
            continue
        digests = [sha256(file) for file in files]
        for file, digest in zip(files, digests, strict=True):
            if recorded.get(file, digest) != digest:
                raise ValueError(f"{file}: not as its job has left it: delete it to have it made again")
        if kind == "evaluation":  # also equal ones: they are of the family
            answers = (read_rollouts(file, ["problem_id", "reward"]) for file in files)
            before, after = (frame.groupby("problem_id")["reward"].sum() for frame in answers)
            if before.index.equals(after.index):
                answered[name] = before, after
            else:
                differences.append(Difference(kind, name, "other questions", "asked"))
        elif digests[0] != digests[1] and (how := _how_they_differ(kind, *files)):
            differences.append(Difference(kind, name, how, "asked" if kind == "problems" else "expected"))
            other_problems |= {name} if kind == "problems" else set()
    corrected = holm([sign_flip_p((after - before).to_numpy().astype(int)) for before, after in answered.values()])
    for (name, (before, after)), p in zip(answered.items(), corrected, strict=True):
        if changed := int((before != after).sum()):
            how = f"{before.mean():.4f} | {after.mean():.4f} correct answers per question, {changed} questions differ"
            weight: Weight = "matters" if p < LEVEL else "noise"
            differences.append(Difference("evaluation", name, f"{how}, p = {p:.2g} (Holm)", weight))
    return differences


def _files(a: Config, b: Config) -> Iterator[tuple[Kind, str, str]]:
    for source in sorted(set(a.problem_sources) & set(b.problem_sources)):
        yield "problems", source, f"problems/{source}.jsonl"
    others = set(grid.policies(b))
    shared = [key for key in grid.policies(a) if key in others]
    for key in shared:
        yield "policy", key.folder, f"{key.folder}/{_weights(key, a)}"
    harvested = set(grid.harvests(b))
    for harvest in grid.harvests(a):
        if harvest in harvested:
            yield "harvest", harvest.folder, f"{harvest.folder}/rollouts.parquet"
    for key in shared:
        for benchmark in a.benchmarks:
            if benchmark in b.benchmarks:
                yield "evaluation", f"{key.folder}/eval/{benchmark}", f"{key.folder}/eval/{benchmark}.parquet"


def _weights(key: PolicyKey, config: Config) -> str:
    if key.role != "base":
        return config.for_model(key.model).lora.files[0]
    return "model/model.safetensors" if config.models[key.model].source in MADE else RECORD


def verdict(differences: list[Difference]) -> str:
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


def _differences(kind: Kind, values_by_key: Mapping[str, Sequence[Any]], weight: Weight) -> list[Difference]:
    return [Difference(kind, key, " | ".join(map(str, values)), weight) for key, values in values_by_key.items()]


def other_settings(*identities: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    differences = differing(*identities)
    return {key: values for key, values in differences.items() if key not in ("title", "demonstration")}


def other_software(*provenances: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    return differing(*({key: record.get(key, {}) for key in ("workflow", "software")} for record in provenances))


def _software(a: Path, b: Path) -> list[Difference]:
    files = a / "provenance.json", b / "provenance.json"
    if missing := _missing("software", "provenance.json", *files):
        return missing
    return _differences("software", other_software(*map(read_json, files)), "expected")


def _how_they_differ(kind: Kind, *files: Path) -> str:
    if kind == "problems":
        return f"other problems{_seeds(*files)}"
    if kind == "harvest":
        return _other_rollouts(*files)
    same = files[0].name == RECORD and len({read_policy(file).weights_sha256 for file in files}) == 1
    return "" if same else "other weights"


def _seeds(*files: Path) -> str:
    manifests = [file.with_suffix(".manifest.json") for file in files]
    seeds = [read_json(file)["source"].get("seed") if file.is_file() else None for file in manifests]
    return "" if None in seeds or seeds[0] == seeds[1] else f", generated with the seeds {seeds[0]} | {seeds[1]}"


def _other_rollouts(*files: Path) -> str:
    first, second = (read_rollouts(file, ["problem_id", "sample", "completion_text", "reward"]) for file in files)
    if first.drop(columns="reward").equals(second.drop(columns="reward")):
        return "" if first["reward"].equals(second["reward"]) else "the same rollouts with other rewards"
    both = first.merge(second, on=["problem_id", "sample"])
    same = (both["completion_text_x"] == both["completion_text_y"]).sum() / max(len(first), len(second))
    return f"{same:.1%} of the rollouts are identical"


def _missing(kind: Kind, name: str, *files: Path) -> list[Difference]:
    return [Difference(kind, name, f"{file} is missing", "missing") for file in files if not file.is_file()]


def print_differences(a: Path, b: Path, as_json: bool) -> int:
    differences = compare_results(a, b)
    if as_json:
        rows = [asdict(difference) for difference in differences]
        say(json.dumps({"verdict": verdict(differences), "differences": rows}, indent=2))
    else:
        for difference in differences:
            say(f"{difference.weight:<9} {difference.kind:<14} {difference.name}: {difference.detail}")
        say(verdict(differences))
    return int(any(difference.weight in ("asked", "matters", "missing") for difference in differences))
