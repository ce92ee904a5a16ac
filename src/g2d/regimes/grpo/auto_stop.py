"""Training that stops automatically (paper, recipe step 3 and appendix B): train and probe until H and mu decline."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
import pandas as pd

from g2d.analysis.informativeness import Informativeness, informativeness
from g2d.jobs.cost import Meter
from g2d.jobs.files import atomic, copy_folder, read_json, sha256, write_json
from g2d.plain import say
from g2d.policies.model_keys import ADAPTER_FOLDER, ALL_FOLDER
from g2d.policies.record import PolicyRecord
from g2d.regimes.common.checkpoints import KEPT_STEP, TrainingStoppedError, carry, job_digest
from g2d.regimes.common.online import CHECKPOINT, ROLLOUTS, completions_tokens
from g2d.regimes.common.regime import Trained
from g2d.regimes.common.stopping import stop_requests
from g2d.regimes.common.trainers import read_log
from g2d.regimes.grpo.keys import AUTO
from g2d.regimes.grpo.train import WarmupJob
from g2d.rollouts.free_memory import free_unused
from g2d.rollouts.own_process import SamplingJob, sample, sample_in_own_process
from g2d.rollouts.rollout import Rollout, to_frame
from g2d.rollouts.sample import sampling


@dataclass(frozen=True, slots=True)
class Probe:
    """H and mu are None if no prompt was pairable."""

    step: int
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

    @property
    def h_and_mu(self) -> tuple[float, float]:
        """H and mu; -1 if no prompt was pairable."""
        if self.entropy is None or self.mid_band is None:
            return -1.0, -1.0
        return self.entropy, self.mid_band


METRICS = tuple(entry.name for entry in fields(Probe) if entry.name not in ("step", "tokens_generated"))
PROBE_COLUMNS = {
    "step": "int64",
    **dict.fromkeys(METRICS, "float64"),
    "n_prompts": "int64",
    "chosen": "bool",
    "tokens_generated": "int64",
}


def summarised(step: int, rollouts: Sequence[Rollout]) -> Probe:
    measures: Informativeness = informativeness(to_frame(rollouts))
    tokens = sum(rollout.token_count for rollout in rollouts)
    return Probe(step=step, tokens_generated=tokens, **{name: getattr(measures, name) for name in METRICS})


def has_declined(history: Sequence[Probe], patience: int) -> bool:
    """Return whether H and mu were both below their maxima so far in each of the last `patience` probes."""
    if len(history) < patience:
        return False
    measures = np.array([probe.h_and_mu for probe in history])
    are_below = measures < np.maximum.accumulate(measures)
    return bool(are_below[-patience:].all())


def best(history: Sequence[Probe]) -> Probe:
    """Return the probe with the highest H; mu breaks ties, then fewer steps."""
    return max(history, key=lambda probe: (*probe.h_and_mu, -probe.step))


PROBES = "probes.json"  # finished probes and the digest of their job


def train_until_decline(train: Callable[[WarmupJob], object], job: WarmupJob) -> Trained:
    """Train until the policy's harvest declines, at most to K; leave the best probe's policy in the work folder."""
    auto = job.settings.auto
    assert auto is not None
    to_a_step = replace(job, settings=job.settings.model_copy(update={"auto": None}))
    history = _History(job.work, job.key, job.meter, job.settings.completions_per_generation(job.group_size))
    for step in range(auto.every, job.k + 1, auto.every):
        if history.reached >= step:
            continue
        if has_declined(history.probes, auto.patience):
            break
        segment = history.segment(step)
        with stop_requests() as requests:
            before = history.segment(history.reached) / CHECKPOINT if history.reached else None
            train(replace(to_a_step, k=step, key={**job.key, "k": step}, work=segment, resume_from=before))
        if requests:  # `train` ends normally if the signal comes in its last step
            raise TrainingStoppedError(f"stopped by {requests[0]} at step {step}{KEPT_STEP}")
        free_unused()
        history.add(summarised(step, probe_rollouts(job, _policy(job, step, segment), auto.prompts)))
        free_unused()
    return history.export_best()


def _policy(job: WarmupJob, step: int, segment: Path) -> PolicyRecord:
    return replace(
        job.base,
        policy_id=job.policy_id,
        regime=AUTO,
        group_size=job.group_size,
        k=step,
        seed=job.seed,
        **job.lora.folders(segment),
        weights_sha256=sha256(segment / job.lora.files[0]),
        settings={"lora": job.lora.params()},
    )


def probe_rollouts(job: WarmupJob, policy: PolicyRecord, n_prompts: int) -> list[Rollout]:
    """Sample the probe's prompts; vLLM in its own process, beside what the trainer keeps on the GPU."""
    share = job.engine.training_gpu_memory_utilization
    sampling_job = SamplingJob(
        policy,
        job.data[:n_prompts],
        job.prompt,
        sampling(job.harvest, job.seed),
        job.engine.model_copy(update={"tensor_parallel_size": 1, "gpu_memory_utilization": share}),
        job.verifier,
        job.workers,
    )
    if job.engine.name == "vllm":
        return sample_in_own_process(sampling_job)
    return sample(sampling_job)


class _History:
    def __init__(self, work: Path, key: Mapping[str, object], meter: Meter, completions_per_generation: int) -> None:
        self.work = work
        self.job = job_digest(key)
        self.meter = meter
        self.completions_per_generation = completions_per_generation
        self.probes: list[Probe] = []
        if (work / PROBES).is_file():
            record = read_json(work / PROBES)
            if record["job"] == self.job:
                self.probes = [Probe(**probe) for probe in record["probes"]]
                carry(meter, record["spent"], str(work / PROBES))
                meter.tokens_generated = self.tokens_generated
                say(f"goes on from the probe at step {self.reached}, where an earlier attempt ended")
            else:
                say(f"{work}: made under other settings, not used")
                (work / PROBES).unlink()
                for segment in work.glob("k*"):
                    shutil.rmtree(segment)

    @property
    def reached(self) -> int:
        """Step of the last probe; 0 before the first."""
        return self.probes[-1].step if self.probes else 0

    @property
    def tokens_generated(self) -> int:
        log = read_log(self.segment(self.reached) / CHECKPOINT)
        steps = completions_tokens(log, self.completions_per_generation, after_step=0)
        return steps + sum(probe.tokens_generated for probe in self.probes)

    def segment(self, step: int) -> Path:
        return self.work / f"k{step}"

    def add(self, probe: Probe) -> None:
        self.probes.append(probe)
        self.meter.tokens_generated = self.tokens_generated
        record = {"probes": [asdict(entry) for entry in self.probes], "spent": asdict(self.meter.spent())}
        write_json(self.work / PROBES, {"job": self.job, **record})
        say(f"probe at step {probe.step}: H={probe.entropy}, mu={probe.mid_band}")
        parts = (ADAPTER_FOLDER, ALL_FOLDER, CHECKPOINT)
        kept = {probe.step: parts, best(self.probes).step: parts}
        for past in self.probes:
            for part in list(self.segment(past.step).iterdir()):
                if part.is_dir() and part.name not in kept.get(past.step, ()):
                    shutil.rmtree(part)

    def export_best(self) -> Trained:
        chosen = best(self.probes)
        for part in (ADAPTER_FOLDER, ALL_FOLDER):
            shutil.rmtree(self.work / part, ignore_errors=True)
            if (self.segment(chosen.step) / part).is_dir():
                copy_folder(self.segment(chosen.step) / part, self.work / part)
        steps = [probe.step for probe in self.probes if probe.step <= chosen.step]
        parts = [pd.read_parquet(self.segment(step) / ROLLOUTS) for step in steps]
        with atomic(self.work / ROLLOUTS) as draft:
            pd.concat(parts, ignore_index=True).to_parquet(draft, index=False)
        rows = [{**asdict(probe), "chosen": probe == chosen} for probe in self.probes]
        table = pd.DataFrame(rows, columns=list(PROBE_COLUMNS)).astype(PROBE_COLUMNS)
        log = read_log(self.segment(chosen.step) / CHECKPOINT)
        return Trained(log, {"steps_trained": self.reached}, chosen.step, table)
