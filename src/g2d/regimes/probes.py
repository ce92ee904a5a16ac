"""The probes of a warm-up that stops by itself (`g2d.regimes.auto_stop`): what they measure, when H and mu have
declined, and which probe was best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from g2d.analysis.informativeness import Informativeness, informativeness
from g2d.rollouts.rollout import Rollout, to_frame


@dataclass(frozen=True, slots=True)
class Probe:
    """A small harvest on the way. H, mu and their intervals are None where no prompt was pairable."""

    step: int  # gradient steps behind the policy
    tokens_generated: int
    n_prompts: int
    pass_at_1: float
    pairability: float
    pairability_low: float
    pairability_high: float
    entropy: float | None
    entropy_low: float | None
    entropy_high: float | None
    mid_band: float | None
    mid_band_low: float | None
    mid_band_high: float | None


# What a probe has in common with `Informativeness`.
METRICS = tuple(entry.name for entry in fields(Probe) if entry.name not in ("step", "tokens_generated"))
PROBE_COLUMNS = {  # of probes.csv
    "step": "int64",
    **dict.fromkeys(METRICS, "float64"),
    "n_prompts": "int64",
    "chosen": "bool",
    "tokens_generated": "int64",
}


def summarised(step: int, rollouts: Sequence[Rollout]) -> Probe:
    """The probe at a step, from its rollouts."""
    found: Informativeness = informativeness(to_frame(rollouts))
    tokens = sum(rollout.token_count for rollout in rollouts)
    return Probe(step=step, tokens_generated=tokens, **{name: getattr(found, name) for name in METRICS})


def has_declined(history: Sequence[Probe], patience: int) -> bool:
    """Whether H and mu were both below their maxima so far in each of the last `patience` probes.

    A probe without a pairable prompt has neither, and no pairs to train on: it is below any probe that has some.
    """
    below = [
        _known(probe.entropy) < max(_known(past.entropy) for past in history[: i + 1])
        and _known(probe.mid_band) < max(_known(past.mid_band) for past in history[: i + 1])
        for i, probe in enumerate(history)
    ]
    return len(below) >= patience and all(below[-patience:])


def best(history: Sequence[Probe]) -> Probe:
    """The probe with the highest H; mu breaks ties, then fewer steps."""
    return max(history, key=lambda probe: (_known(probe.entropy), _known(probe.mid_band), -probe.step))


def _known(value: float | None) -> float:
    return -math.inf if value is None else value
