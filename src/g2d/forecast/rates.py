"""Durations of finished jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from g2d.forecast.devices import CARD
from g2d.grid.versions import ONLINE_STAGES
from g2d.jobs.cost import Cost, read_cost
from g2d.policies.record import read_policy
from g2d.regimes.catalogue import ENTRIES

Rates = dict[tuple[str, str], list[float]]  # hours per unit of every finished job, by (stage, model)


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
            if spent := worth(cost.own):
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
