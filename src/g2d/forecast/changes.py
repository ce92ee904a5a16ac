"""Changes that make a job fit on a card without changing its results."""

from __future__ import annotations

from dataclasses import replace

from g2d.memory.need import Forecast, Need
from g2d.memory.workload import Drawing, Training
from g2d.rollouts.free_memory import GIB

SHARES = tuple(n / 20 for n in range(1, 19))  # shares of the card for vLLM


def training_change(training: Training, need: Need, forecast: Forecast) -> str | None:
    """Return the settings to change, or that no change helps; None if the job fits."""
    if need.verdict == "fits":
        return None
    passes = [units for units in range(training.units, 0, -1) if training.units % units == 0]
    engine = forecast.engine
    shares = [engine.training_gpu_memory_utilization]
    if training.at_once is not None and engine.name == "vllm":
        shares += sorted(SHARES, key=lambda share: abs(share - shares[0]))
    for enough in ("fits", "tight"):
        if need.verdict == enough:
            return "it may run out of memory, and every change that makes it smaller changes results"
        for share in shares:
            changed = replace(forecast, engine=engine.model_copy(update={"training_gpu_memory_utilization": share}))
            for units in passes:
                if changed.training(training.with_units(units)).verdict == enough:
                    return _settings(training, units, shares[0], share, enough)
    smallest = forecast.training(training.with_units(1))
    other = ""
    if forecast.shape.trains_all:
        other = "an adapter (lora), "
    return (
        f"no pass is small enough (per_device_batch_size: 1 needs {smallest.total / GIB:.1f} GiB): use a larger card, "
        f"{other}or a smaller model; a shorter max_completion_length changes results"
    )


def _settings(training: Training, units: int, share_before: float, share: float, verdict: str) -> str:
    changes = []
    if share != share_before:
        changes.append(f"engine.training_gpu_memory_utilization to {share:g}")
    if units < training.units:
        changes.append(
            f"{training.section}.per_device_batch_size to {units}, with {training.units // units} times the "
            "accumulation steps (with prompts_per_step they follow from it), so that a step keeps its size"
        )
    words = f"set {' and '.join(changes)}"
    if verdict == "tight":
        words += "; it is tight then"
    return words


def drawing_change(drawing: Drawing, need: Need, forecast: Forecast) -> str | None:
    if need.verdict == "fits":
        return None
    if forecast.engine.name == "vllm":
        if not need.needs_more:
            return None  # vLLM uses its share of the card
        return "raise engine.gpu_memory_utilization or engine.tensor_parallel_size, or use a larger card"
    batch = drawing.batch // 2
    while batch >= 1:
        if forecast.drawing(replace(drawing, batch=batch)).verdict == "fits":
            return f"set {drawing.section}.batch_size to {batch}: the rollouts stay the same"
        batch //= 2
    return f"{drawing.section}.batch_size: 1 would still not fit: use a larger card or a smaller model"
