"""The dated plan of a grid: its primary comparison, written to `results/plan.json` before the first training.

No job depends on the file, so equal results have equal files.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NotRequired, TypedDict

from g2d.grid.grid import Grid
from g2d.jobs.files import json_sha256, read_json, write_json
from g2d.settings import ConfigError
from g2d.tables.families import planned_pairs

PLAN = "plan.json"
FAMILY = "DPO against K=0"  # name of the primary comparison in the file
NOT_PLANNED = frozenset({"title", "demonstration"})  # keys that change no comparison


class PrimaryOfModel(TypedDict):
    family: str
    policies_and_references: list[list[str]]


class Primary(TypedDict):
    """Primary comparison of each model on the first benchmark."""

    benchmark: str
    margin: float
    models: dict[str, PrimaryOfModel]
    judged_by: NotRequired[str]
    trained_on: NotRequired[str]


class Plan(TypedDict):
    primary: Primary
    seeds: list[int]
    settings_sha256: str


class PlanEntry(TypedDict):
    date: str
    evaluations: int  # evaluations of trained policies that had finished
    plan: Plan
    sha256: NotRequired[str]  # digest of the other values


def primary(grid: Grid) -> Primary:
    """Return each model's primary comparison on the first benchmark; none without K=0 and another K."""
    benchmark = grid.config.tested_benchmarks[0]
    comparisons: dict[str, PrimaryOfModel] = {}
    for model in grid.config.models:
        pairs = [[policy.name, reference.name] for policy, reference in planned_pairs(grid, model)]
        if pairs:
            comparisons[model] = {"family": FAMILY, "policies_and_references": pairs}
    plan: Primary = {"benchmark": benchmark, "margin": grid.config.noninferiority_margin, "models": comparisons}
    if grid.config.verifier is not None:
        plan["judged_by"] = grid.config.verifier.file
    if grid.reward_words:
        plan["trained_on"] = grid.reward_words
    return plan


def planned(grid: Grid) -> Plan:
    config = grid.config
    settings = {name: value for name, value in config.identity.items() if name not in NOT_PLANNED}
    return {"primary": primary(grid), "seeds": list(config.seeds), "settings_sha256": json_sha256(settings)}


def write_plan(grid: Grid, results: str | Path = "results") -> None:
    """Write `plan.json`: a changed configuration replaces the plan until a trained policy has been evaluated, and then
    adds an entry.
    """
    entries = read_plan(results)
    plan = planned(grid)
    if entries and entries[-1]["plan"] == plan:
        return
    evaluations = len(list(Path(results).glob("*/seed*/**/eval/*.parquet")))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    entry: PlanEntry = {"date": now, "evaluations": evaluations, "plan": plan}
    entry["sha256"] = _digest(entry)
    kept = entries if evaluations else []
    write_json(Path(results, PLAN), {"entries": [*kept, entry]})


def read_plan(results: str | Path = "results") -> list[PlanEntry]:
    """Read the entries of `plan.json`, first to last; ConfigError if it cannot be read or an entry was changed."""
    file = Path(results, PLAN)
    if not file.exists():
        return []
    try:
        entries: list[PlanEntry] = read_json(file)["entries"]
        unchanged = all(entry["sha256"] == _digest(entry) for entry in entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}): put it back as it was") from None
    if not unchanged:
        raise ConfigError(
            f"{file}: an entry was changed after it was written (its sha256 differs): restore the original"
        )
    return entries


def _digest(entry: PlanEntry) -> str:
    return json_sha256({name: value for name, value in entry.items() if name != "sha256"})


def plan_words(entries: Sequence[PlanEntry]) -> str:
    if not entries or not entries[-1]["plan"]["primary"]["models"]:
        return ""
    changed = ""
    if len(entries) > 1 and entries[-1]["plan"] == entries[0]["plan"]:
        entries = entries[:1]
        changed = " The folder had another plan meanwhile."
    first = entries[0]
    last = entries[-1]
    compared = last["plan"]["primary"]
    n = last["evaluations"]
    words = (
        f"K=0 against the best K (at_least, at_most) and each K against K=0 (Holm) on {compared['benchmark']}, with a "
        f"margin of {100 * compared['margin']:g} points"
    )
    if "judged_by" in compared:
        words += f", judged by {compared['judged_by']}"
    if "trained_on" in compared:
        words += f", of policies trained on {compared['trained_on']}"
    counted = "1 evaluation" if n == 1 else f"{n} evaluations"
    if first["evaluations"] or any(entry["plan"]["primary"] != compared for entry in entries):
        since = f"when {counted} of trained policies had finished"
        earlier = ""
        if not first["evaluations"] and first["plan"]["primary"] != compared:
            earlier = " The plan from before any evaluation had another primary comparison."
        return f"The primary comparison ({words}) was set {since} ({PLAN}): all comparisons are exploratory.{earlier}"
    if len(entries) > 1:
        changed = f" Seeds or other settings changed after {counted} of trained policies."
    return (
        f"The primary comparison, planned before any trained policy was evaluated ({PLAN}), is {words}; all others, "
        f"also on another benchmark, are exploratory.{changed}"
    )
