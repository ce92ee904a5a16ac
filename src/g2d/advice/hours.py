"""Device-hours of the rest of the grid after a probe, and of the advised K alone: the table advice_hours.csv.

A rate is measured where the calibration and the probe have measured one: warm-up by the first seed's bills, per
completion that its steps consume; generation by a line through the bills of calibration and probes, start-up plus
seconds per token. DPO and the entries of `regimes` have not run yet, so they get a guess (`g2d.forecast.guess`) where
the model is a pretrained one, and no hours otherwise. Nothing else that lies in the results folder is
looked at: the advice would depend on what happened to be finished. Not counted: calibrations at further temperatures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from types import SimpleNamespace

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from g2d.experiment import grid
from g2d.experiment.arms import Arm, arms
from g2d.experiment.config import Config
from g2d.experiment.keys import HarvestKey
from g2d.forecast.guess import SOURCE, guess
from g2d.jobs.cost import Cost, CostFile
from g2d.policies.settings import EmbeddedModel, ScratchModel
from g2d.regimes.catalogue import ENTRIES, OFFLINE
from g2d.regimes.dpo import DPO
from g2d.tables.frames import floats, frame, integers, strings

HOURS_COLUMNS = {
    **strings("model", "scope", "stage"),
    **integers("n_jobs"),
    **floats("device_hours"),
    **strings("source"),
}
MEASURED = "calibration and probe"
ONLINE_ENTRIES = [regime for regime in ENTRIES if regime.phase == "online"]
STAGES = (
    "train_grpo",
    *(f"train_{regime.name}" for regime in ONLINE_ENTRIES),
    "harvest_rollouts",
    *(f"train_{regime.name}" for regime in OFFLINE),
    "evaluate",
    "draw_samples",
)


@dataclass(frozen=True)
class Rates:
    """What the bills of calibration and probe tell about one model."""

    seconds_per_completion: float | None  # device seconds of warm-up; None where nothing was warmed up
    start_up: float  # device seconds of a job that generates, before its first token
    seconds_per_token: float
    tokens: Mapping[tuple[int, int], float]  # generated per probed prompt, by (G, K)
    tokens_per_completion: float

    def generation(self, tokens: float, jobs: int) -> float:
        """Device seconds of `jobs` jobs (shards) that generate so many tokens together."""
        return jobs * self.start_up + tokens * self.seconds_per_token

    def harvested(self, point: tuple[int, int]) -> float:
        """Tokens per prompt at (G, K), the mean of all probes where that point was not probed."""
        return self.tokens.get(point, fsum(self.tokens.values()) / len(self.tokens))


def rates(config: Config, model: str, probes: Mapping[HarvestKey, CostFile], n_probed: int) -> Rates:
    """Rates of one model.

    Args:
        config: the whole configuration.
        model: one of its models.
        probes: the probes' bills, the calibration's among their ancestry.
        n_probed: prompts of a probe.
    """
    resolved = config.for_model(model)
    longest: dict[int, HarvestKey] = {}
    for key in sorted(probes, key=lambda key: key.k):
        if key.k:
            longest[key.group_size] = key
    # The bill of pi_K holds its whole warm-up, K steps, whatever it continued.
    warmed = [r.device_s for key in longest.values() for r in probes[key].records if r.stage == "train_grpo"]
    completions = sum(key.k * resolved.warmup.completions_per_step(key.group_size) for key in longest.values())
    device = next(iter(probes.values())).own.device
    drawn = {
        record.job: record
        for bill in probes.values()
        for record in bill.records
        if record.stage in ("calibrate", "draw_probe") and record.tokens_generated and record.device == device
    }
    start_up, per_token = _line([*drawn.values()])
    tokens = {(key.group_size, key.k): bill.own.tokens_generated / n_probed for key, bill in probes.items()}
    return Rates(
        seconds_per_completion=fsum(warmed) / completions if completions else None,
        start_up=start_up,
        seconds_per_token=per_token,
        tokens=tokens,
        tokens_per_completion=fsum(tokens.values()) / len(tokens) / resolved.harvest.samples_per_prompt,
    )


def _line(records: Sequence[Cost]) -> tuple[float, float]:
    """Least squares of device seconds on tokens, neither part negative."""
    if not records:
        return 0.0, 0.0
    found, _ = nnls(
        np.array([[1.0, record.tokens_generated] for record in records]),
        np.array([record.device_s for record in records]),
    )
    return float(found[0]), float(found[1])


def hours_advice(
    config: Config, model: str, measured: Rates, advised: tuple[int, int] | None, n_problems: Mapping[str, int]
) -> pd.DataFrame:
    """What the rest of the grid takes after the probe, and what the advised K takes without the others.

    Args:
        config: the whole configuration.
        model: one of its models.
        measured: from `rates`.
        advised: (G, K), None where no K is advised.
        n_problems: problems of every benchmark.

    Returns:
        `HOURS_COLUMNS`, a row per scope and stage: scope "grid" is everything the configuration asks for that the
        probe has not made, "advised K" the warm-ups, harvests, DPO and evaluations of M0 and that K with every seed.
        device_hours is null where nobody has measured the stage.
    """
    scopes = {"grid": remaining_jobs(config, model, None)}
    if advised is not None:
        scopes["advised K"] = remaining_jobs(config, model, advised)
    resolved = config.for_model(model)
    shards = resolved.engine.shards
    answered = {"evaluate": resolved.evaluation.answers, "draw_samples": resolved.evaluation.samples}
    completions = {
        stage: evaluation.sampled.n if evaluation.sampled else 1
        for stage, evaluation in answered.items()
        if evaluation is not None
    }

    def seconds(stage: str, job: Job) -> float | None:
        if stage == "train_grpo":
            rate = measured.seconds_per_completion
            return None if rate is None else job.completions * rate
        if stage == "harvest_rollouts":
            tokens = measured.harvested((job.group_size, job.k)) * resolved.training_set.n
            return measured.generation(tokens, shards.harvest)
        if stage in completions:
            tokens = sum(n_problems.values()) * completions[stage] * measured.tokens_per_completion
            return measured.generation(tokens, shards.evaluation * len(n_problems))
        pretrained = not isinstance(config.models[model], EmbeddedModel | ScratchModel)
        named = SimpleNamespace(regime=job.name, g=job.group_size, k=job.k)
        return 3600 * guess(resolved, stage, model, named, job.completions) if pretrained else None

    rows = []
    for scope, jobs in scopes.items():
        for stage in [stage for stage in STAGES if stage in jobs]:
            times = [seconds(stage, job) for job in jobs[stage]]
            known = [time for time in times if time is not None]
            unknown = len(known) < len(times)
            guessed = stage not in ("train_grpo", "harvest_rollouts", *completions) and bool(known)
            rows.append(
                {
                    "model": model,
                    "scope": scope,
                    "stage": stage,
                    "n_jobs": len(times) * (len(n_problems) if stage in completions else 1),
                    "device_hours": None if unknown else fsum(known) / 3600,
                    "source": "not measured yet" if unknown else SOURCE if guessed else MEASURED,
                }
            )
    return frame(rows, HOURS_COLUMNS)


@dataclass(frozen=True)
class Job:
    """One remaining job; an evaluation stands for all benchmarks of its policy."""

    group_size: int
    k: int
    completions: int = 0  # of an online training, beyond the checkpoint that it continues
    name: str = ""  # of the regime or ablation


def remaining_jobs(config: Config, model: str, only: tuple[int, int] | None) -> dict[str, list[Job]]:
    """By stage, what is left to run for a model after calibration and probe.

    Args:
        config: the whole configuration.
        model: one of its models.
        only: (G, K) of the one K to build, without baselines and ablations; None for the whole grid.
    """
    found = arms(config, model)
    main, probed = found["grpo"], ((0, 0),) if grid.is_recorded(config, model) else found["dpo"].points
    points, chain = probed if only is None else (only,), main.settings.schedule == "chain"
    reached = [  # a chain to the one K passes through those before it
        (g, k) for g, k in probed if only in (None, (g, k)) or (only and chain and g == only[0] and k < only[1])
    ]
    warmups = [(main, point) for point in reached if point[1] for _ in config.seeds[1:]]
    harvested = [point for point in points for _ in config.seeds]
    policies = [policy for policy in grid.policies(config) if policy.model == model]
    own: list[Arm] = []
    if only is not None:
        policies = [p for p in policies if p.regime == "base" or (p.role, p.group_size, p.k) == ("dpo", *only)]
    elif not grid.is_recorded(config, model):
        own = [arm for arm in found.values() if arm.source is None and arm.variant]
        warmups += [(main, point) for point in main.points if point not in probed for _ in config.seeds]
    for arm in own:
        if arm.regime == "grpo":
            warmups += [(arm, point) for point in arm.points for _ in config.seeds]
        if grid.is_harvested(config, arm):
            harvested += [point for point in arm.harvest_points for _ in config.seeds]
        if arm.phase == "rounds":  # the first round is trained on the main grid's harvest of M0
            harvested += [(0, k) for k in range(1, arm.points[-1][1]) for _ in config.seeds]
    online = {
        f"train_{regime.name}{auto}": [
            Job(g, k, arm.settings.prompts_asked(k - _before(arm, g, k)) * g, arm.name)
            for arm in own
            if arm.regime == regime.name and arm.stops == bool(auto)  # counted with all that it may take
            for g, k in arm.points
            for _ in config.seeds
        ]
        for regime in ONLINE_ENTRIES
        for auto in ("", "_auto")
    }
    beside = config.for_model(model).evaluation.samples is not None
    answering = ["evaluate", "draw_samples"] if beside else ["evaluate"]
    return {
        "train_grpo": [
            Job(g, k, (k - _before(arm, g, k)) * arm.settings.completions_per_step(g)) for arm, (g, k) in warmups
        ],
        **{stage: jobs for stage, jobs in online.items() if jobs},
        "harvest_rollouts": [Job(g, k) for g, k in harvested],
        **{
            f"train_{regime.name}": trained
            for regime in OFFLINE
            if (trained := [Job(p.group_size, p.k, name=p.regime) for p in policies if p.kind == regime.name])
            or regime is DPO
        },
        **{stage: [Job(p.group_size, p.k) for p in policies] for stage in answering},
    }


def _before(arm: Arm, group_size: int, k: int) -> int:
    """K of the checkpoint that a training continues; one that stops by itself counts with all steps it may take."""
    return 0 if arm.stops else arm.before(group_size, k) or 0
