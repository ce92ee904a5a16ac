"""Device-hours of the rest of the grid after a probe, and of only the advised K (advice_hours.csv).

Rates come only from calibration and probe, so the advice does not depend on other finished jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np
from scipy.optimize import nnls

from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.experiment.stages import OFFLINE_STAGES, ONLINE_STAGES
from g2d.forecast.devices import CARD, Device, device_of
from g2d.forecast.guess import SOURCE
from g2d.forecast.hours import gpu_job
from g2d.graph.build import grid_jobs
from g2d.graph.job import Job
from g2d.jobs.cost import CostFile
from g2d.tables.frames import Rows, columns, table_of

HOURS_COLUMNS = columns("model scope stage n_jobs device_hours source")
MEASURED = "calibration and probe"
ALWAYS = ("train_grpo", "harvest_rollouts", "train_dpo", "evaluate")  # always have a row
STAGES = (*ONLINE_STAGES, "harvest_rollouts", *OFFLINE_STAGES, "evaluate", "draw_samples")


@dataclass(frozen=True)
class Rates:
    """Rates of one model; seconds are of `device`."""

    seconds_per_completion: float | None  # warm-up
    start_up: float  # seconds of a job before its first token
    seconds_per_token: float
    tokens: Mapping[tuple[int, int], float]  # per probed prompt, by (G, K)
    tokens_per_completion: float
    device: Device = CARD

    def generation(self, tokens: float, jobs: int) -> float:
        """Return the device seconds of `jobs` shards that generate `tokens` together."""
        return jobs * self.start_up + tokens * self.seconds_per_token

    def harvested(self, point: tuple[int, int]) -> float:
        """Return the tokens per prompt at (G, K), or the mean of all probes."""
        return self.tokens.get(point, fsum(self.tokens.values()) / len(self.tokens))


def rates(config: Config, model: str, probes: Mapping[HarvestKey, CostFile], n_probed: int) -> Rates:
    resolved = config.for_model(model)
    # The cost of the largest K includes all K steps, also of policies that it continued.
    longest = {key.group_size: key for key in sorted(probes, key=lambda key: key.k) if key.k}
    probe = next(iter(probes.values())).own
    device = device_of(probe)
    warmed = [
        3600 * device.hours(record)
        for key in longest.values()
        for record in probes[key].records
        if record.stage == "train_grpo"
    ]
    completions = sum(key.k * resolved.warmup.completions_per_step(key.group_size) for key in longest.values())
    drawn = {
        record.job: record
        for costs in probes.values()
        for record in costs.records
        if record.stage in ("calibrate", "draw_probe") and record.tokens_generated and record.device == probe.device
    }
    # Regression of seconds on tokens, with coefficients of at least 0.
    spent = np.array([(1.0, record.tokens_generated, 3600 * device.hours(record)) for record in drawn.values()])
    start_up, per_token = nnls(spent[:, :2], spent[:, 2])[0].tolist() if drawn else (0.0, 0.0)
    tokens = {(key.group_size, key.k): costs.own.tokens_generated / n_probed for key, costs in probes.items()}
    return Rates(
        seconds_per_completion=fsum(warmed) / completions if completions else None,
        start_up=start_up,
        seconds_per_token=per_token,
        tokens=tokens,
        tokens_per_completion=fsum(tokens.values()) / len(tokens) / resolved.harvest.samples_per_prompt,
        device=device,
    )


@table_of(HOURS_COLUMNS)
def hours_advice(
    config: Config, model: str, measured: Rates, advised: tuple[int, int] | None, n_problems: Mapping[str, int]
) -> Rows:
    """Yield a model's remaining hours after the probe, by scope and stage; null if not measured.

    The scope "advised K" has M0 and that (G, K), with every seed.
    """
    resolved = config.for_model(model)
    shards, answers, samples = resolved.engine.shards, resolved.evaluation.answers, resolved.evaluation.samples
    per_problem = {
        "evaluate": answers.sampled.n if answers.sampled else 1,
        "draw_samples": samples.sampled.n if samples and samples.sampled else 1,
    }

    def seconds(stage: str, job: Job) -> float | None:
        w = job.wildcards
        if stage == "harvest_rollouts":
            tokens = measured.harvested((int(w.g), int(w.k))) * resolved.training_set.n
            return measured.generation(tokens, shards.harvest)
        if stage in per_problem:
            tokens = n_problems[w.benchmark] * per_problem[stage] * measured.tokens_per_completion
            return measured.generation(tokens, shards.evaluation)
        work = gpu_job(config, job, measured.device)
        rate = measured.seconds_per_completion if stage == "train_grpo" else work.guess and 3600 * work.guess
        return None if rate is None else work.units * rate

    for scope, only in (("grid", None), ("advised K", advised)) if advised else (("grid", None),):
        for stage, jobs in remaining_jobs(config, model, only).items():
            times = [seconds(stage, job) for job in jobs]
            estimated = [time for time in times if time is not None]
            unknown = len(estimated) < len(times)
            guessed = estimated and stage.startswith("train_") and stage != "train_grpo"
            yield {
                **{"model": model, "scope": scope, "stage": stage, "n_jobs": len(jobs)},
                "device_hours": None if unknown else fsum(estimated) / 3600,
                "source": "not measured yet" if unknown else SOURCE if guessed else MEASURED,
            }


def remaining_jobs(config: Config, model: str, only: tuple[int, int] | None) -> dict[str, list[Job]]:
    """Return a model's jobs after calibration and probe, by stage, of the grid or of `only` one (G, K).

    Shards are left out: their merged job counts.
    """
    points = [(key.group_size, key.k) for key in grid.probes(config) if key.model == model]
    warmed_up = _folders(model, "grpo", points, config.seeds[:1])
    by_stage: dict[str, list[Job]] = {stage: [] for stage in STAGES}
    for job in grid_jobs(config):
        stage = job.stage.replace("train_grpo_auto", "train_grpo")
        if stage in by_stage and job.merged_into is None and job.model == model:
            by_stage[stage].append(job)
    by_stage["train_grpo"] = [job for job in by_stage["train_grpo"] if _folder(job) not in warmed_up]
    if only is not None:
        # A chain reaches K through the smaller ones.
        chain = config.for_model(model).warmup.schedule == "chain"
        reached = [point for point in points if point == only or (chain and point[0] == only[0] and point[1] < only[1])]
        wanted = {f"{model}/base", *_folders(model, "dpo", [only], config.seeds)}
        wanted |= {HarvestKey(model, *only, seed).folder for seed in config.seeds}
        for stage, jobs in by_stage.items():
            folders = _folders(model, "grpo", reached, config.seeds) if stage == "train_grpo" else wanted
            by_stage[stage] = [job for job in jobs if _folder(job) in folders]
    return {stage: jobs for stage, jobs in by_stage.items() if jobs or stage in ALWAYS}


def _folders(model: str, regime: str, points: Sequence[tuple[int, int]], seeds: Sequence[int]) -> set[str]:
    return {PolicyKey(model, regime, g, k, seed).folder for g, k in points for seed in seeds}


def _folder(job: Job) -> str:
    return str(job.wildcards.get("policy") or job.name.removeprefix("results/").rpartition("/")[0])
