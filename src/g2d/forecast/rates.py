"""Durations of finished jobs, and usual durations before any has finished."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from g2d.experiment.stages import OFFLINE_STAGES, ONLINE_STAGES
from g2d.forecast.devices import CARD
from g2d.jobs.cost import Cost, read_cost
from g2d.policies.policy import read_policy
from g2d.regimes.catalogue import ENTRIES

Rates = dict[tuple[str, str], list[float]]  # hours per unit of every finished job, by (stage, model)

# Seconds in the demonstration, on two cores of an AMD EPYC. Once a job has finished, only their ratios are used.
USUAL: dict[str, float] = {
    "scratch_model": 110,
    "calibrate": 20,
    **dict.fromkeys(ONLINE_STAGES, 17),
    **dict.fromkeys(OFFLINE_STAGES, 11),
    "harvest_rollouts": 3,
    "make_tables": 6,
    "build_report": 12,
}
USUAL_OF_OTHERS = 2.0


class Pace:
    """Seconds of jobs by rule and model; `work` is relative to the rule's average job."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0])  # seconds per work, and jobs
        self._took = self._usual = 0.0  # sums over finished jobs

    def add(self, rule: str, seconds: float, work: float = 1.0, model: str = "") -> None:
        for key in {(rule, ""), (rule, model)}:
            self._sums[key][0] += seconds / work
            self._sums[key][1] += 1
        self._took += seconds
        self._usual += work * USUAL.get(rule, USUAL_OF_OTHERS)

    def seconds(self, rule: str, work: float = 1.0, model: str = "") -> float:
        """Return the expected seconds of a job, from jobs of its rule and model, of its rule, or of all rules."""
        for key in ((rule, model), (rule, "")):
            if key in self._sums:
                total, jobs = self._sums[key]
                return work * total / jobs
        slowdown = self._took / self._usual if self._usual else 1.0
        return work * slowdown * USUAL.get(rule, USUAL_OF_OTHERS)


def measured_rates(results: str | Path, models: Iterable[str], worth: Callable[[Cost], float] = CARD.hours) -> Rates:
    """Return the rates of all finished jobs whose cost file can be read."""
    rates: Rates = {}
    for model in models:
        for path in sorted(Path(results, model).rglob("*cost.json")):
            try:
                cost = read_cost(path)
                stage = cost.own.stage
                units = _completions(path.parent) if stage in ONLINE_STAGES else 1
            except (OSError, ValueError, KeyError):
                continue
            shards = [record for record in cost.ancestry if record.stage == stage and ".shards/" in record.job]
            if spent := sum(map(worth, (cost.own, *shards))):
                rates.setdefault((stage, model), []).append(spent / units)
    return rates


def _completions(folder: Path) -> int:
    policy = read_policy(folder / "policy.json")
    last = policy.settings.get("steps_trained", policy.k)  # an auto-stop may train beyond its K
    entry = next((policy.settings[regime.name] for regime in ENTRIES if regime.name in policy.settings), None)
    if entry is not None:
        per_step = entry["prompts_per_update"] * entry["responses"]
    else:
        warmup = policy.settings["warmup"]  # prompts_per_step is recorded as accumulation steps
        per_step = warmup["per_device_batch_size"] * warmup["gradient_accumulation_steps"]
    return int(last - (policy.continued_from or 0)) * int(per_step)
