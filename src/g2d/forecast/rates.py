"""How long jobs took that have finished here, and what is usual before the first one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from g2d.forecast.devices import CARD
from g2d.jobs.cost import Cost, read_cost
from g2d.policies.policy import read_policy
from g2d.regimes.catalogue import ENTRIES, REGIMES, of_phase

Rates = dict[tuple[str, str], list[float]]  # hours (or money) per unit of every finished job, by (stage, model)
TO_K = tuple(f"train_{regime.name}" for regime in of_phase("online"))  # may continue a checkpoint
AUTO_STAGES = tuple(f"{stage}_auto" for stage in TO_K)  # may stop long before their last step
ONLINE_STAGES = (*TO_K, *AUTO_STAGES)  # their unit is a completion
OFFLINE_STAGES = tuple(f"train_{name}" for name, regime in REGIMES.items() if regime.phase != "online")

# Seconds in the demonstration, on two cores of an AMD EPYC. Once a job of any rule has finished, only their proportions
# count, and once one of the same rule has, they do not count at all.
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
    """Seconds of jobs on any device, by rule and, where jobs are given with one, by model.

    `work` is how much a job has to do, relative to the average job of its rule.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0])  # seconds per work, jobs
        self._took = self._usual = 0.0  # of all finished jobs

    def add(self, rule: str, seconds: float, work: float = 1.0, model: str = "") -> None:
        """A job has finished."""
        for at in {(rule, ""), (rule, model)}:
            self._sums[at][0] += seconds / work
            self._sums[at][1] += 1
        self._took += seconds
        self._usual += work * USUAL.get(rule, USUAL_OF_OTHERS)

    def seconds(self, rule: str, work: float = 1.0, model: str = "") -> float:
        """Expected seconds of a job, from jobs of its model, of its rule, or of all rules."""
        for at in ((rule, model), (rule, "")):
            if at in self._sums:
                total, jobs = self._sums[at]
                return work * total / jobs
        as_fast = self._took / self._usual if self._usual else 1.0
        return work * as_fast * USUAL.get(rule, USUAL_OF_OTHERS)


def measured_rates(results: str | Path, models: Iterable[str], worth: Callable[[Cost], float] = CARD.hours) -> Rates:
    """Rates of all finished jobs, from the cost files below the results folder. Jobs with 0 `worth` are left out,
    and so are cost files that cannot be read: jobs that need them report them.
    """
    rates: Rates = {}
    for model in models:
        for path in sorted(Path(results, model).rglob("*cost.json")):
            try:
                bill = read_cost(path)
                stage = bill.own.stage
                units = _completions(path.parent) if stage in ONLINE_STAGES else 1
            except (OSError, ValueError, KeyError):
                continue
            shards = [record for record in bill.ancestry if record.stage == stage and ".shards/" in record.job]
            if spent := sum(map(worth, (bill.own, *shards))):
                rates.setdefault((stage, model), []).append(spent / units)
    return rates


def _completions(folder: Path) -> int:
    """Completions that an online training was trained on after the checkpoint that it continued."""
    policy = read_policy(folder / "policy.json")
    last = policy.settings.get("steps_trained", policy.k)  # with auto-stop, training may continue beyond its K
    entry = next((policy.settings[regime.name] for regime in ENTRIES if regime.name in policy.settings), None)
    if entry is not None:
        per_step = entry["prompts_per_update"] * entry["responses"]
    else:
        warmup = policy.settings["warmup"]  # has no prompts_per_step: it stands there as accumulation steps
        per_step = warmup["per_device_batch_size"] * warmup["gradient_accumulation_steps"]
    return int(last - (policy.continued_from or 0)) * int(per_step)
