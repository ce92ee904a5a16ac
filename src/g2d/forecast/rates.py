"""Durations of finished jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

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
            spent = worth(cost.own)
            if spent:
                rates.setdefault((stage, model), []).append(spent / units)
    return rates


def _completions(folder: Path) -> int:
    policy = read_policy(folder / "policy.json")
    last = policy.settings.get("steps_trained", policy.k)  # an auto-stop may train beyond its K
    return int(last - (policy.continued_from or 0)) * _completions_per_step(policy.settings)


def _completions_per_step(settings: Mapping[str, Any]) -> int:
    for regime in ENTRIES:
        entry = settings.get(regime.name)
        if entry is not None:
            return int(entry["prompts_per_update"] * entry["responses"])
    warmup = settings["warmup"]  # prompts_per_step is recorded as accumulation steps
    return int(warmup["per_device_batch_size"] * warmup["gradient_accumulation_steps"])
