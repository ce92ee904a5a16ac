"""Training that stops by itself (paper, recipe step 3 and appendix B): train, probe, train on, until H and mu decline.

The trainer is that of every other online phase and knows nothing of this (`grpo_auto`, `semi_online_auto`). A run is a
chain of segments that each continue the checkpoint of the one before, which equals an uninterrupted run bit for bit;
between two of them the frozen adapter is harvested on a few prompts, with the harvest's own decoding. So a probe cannot
disturb the trajectory, the policy is the one that a fixed K of the same number of steps would have given, and, because
random numbers belong to the rollout, a probe's rows are among those that the harvest of the same policy draws.

K=0 is no candidate: the question is how long to warm up, and M0 has a row of its own.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from g2d.jobs.cost import Meter
from g2d.jobs.files import atomic, read_json, sha256, write_json
from g2d.plain import say
from g2d.policies.policy import Policy, as_json
from g2d.problems import Problem
from g2d.problems.prompts import Prompt
from g2d.regimes.checkpoints import TrainingStoppedError, carry, job_digest
from g2d.regimes.grpo import completions_tokens
from g2d.regimes.probes import PROBE_COLUMNS, Probe, best, has_declined, summarised
from g2d.regimes.stopping import stop_requests
from g2d.regimes.training import read_log
from g2d.regimes.warmup import AutoStop
from g2d.rollouts.draw import draw_rollouts, sampling
from g2d.rollouts.engine import engine_for
from g2d.rollouts.rollout import Rollout
from g2d.rollouts.settings import EngineSettings, Harvest

PROBES = "probes.json"  # in the work folder: the probes that are finished, and of which job


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a warm-up that stopped by itself leaves, beside `adapter` and `rollouts.parquet` in its work folder."""

    probes: tuple[Probe, ...]
    chosen: Probe
    log: list[dict[str, Any]]  # the trainer's, of the steps behind the chosen policy
    tokens_generated: int  # by all steps, those behind the chosen policy too, and by all probes

    @property
    def table(self) -> pd.DataFrame:
        """`PROBE_COLUMNS`, a row per probe."""
        rows = [{**asdict(probe), "chosen": probe == self.chosen} for probe in self.probes]
        return pd.DataFrame(rows, columns=list(PROBE_COLUMNS)).astype(PROBE_COLUMNS)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """An online training that passes through every step, and how to go from one to the next."""

    regime: str  # of the policy, in its record
    stage: str
    limit: int  # the most steps it may take
    group_size: int
    completions: int  # drawn for one row of the trainer's log that says how long they are
    identity: Mapping[str, Any]  # what the training depends on beside M0, problems, prompt, seed and engine, as JSON
    # To a step, in a folder, from the checkpoint of an earlier one; the meter is the job's.
    train: Callable[[int, Path, Path | None, Meter], object]


def until_decline(
    base: Policy,
    problems: Sequence[Problem],
    trajectory: Trajectory,
    *,
    auto: AutoStop,
    harvest: Harvest,
    prompt: Prompt,
    seed: int,
    work: Path,
    policy_id: str,
    engine: EngineSettings | None = None,
    workers: int = 1,
    meter: Meter | None = None,
    version: int = 0,
) -> Outcome:
    """Train until the policy's harvest declines, at most to the end of the schedule; leave `work/adapter` and
    `work/rollouts.parquet` of the best probe's policy.

    An attempt that was stopped leaves its segments and probes in `work`, and the next one goes on from them.

    Args:
        base: M0.
        problems: the training set; the first `auto.prompts` of them are the probe.
        harvest: how a probe is sampled.
        policy_id: what the policy will be called, in the rows of its probes too.
        workers: processes that verify.
        meter: of the job that this is; the tokens of steps and probes are added, and what is kept keeps its bill.

    Raises:
        As the training and the engine do.
    """
    job = {
        "version": version,
        "base": as_json(base),
        "problems": [asdict(problem) for problem in problems],
        "auto": auto.params(),
        "harvest": harvest.params(),
        "prompt": prompt.params(),
        "seed": seed,
        "engine": engine.identity if engine else None,
        **trajectory.identity,
    }
    meter = meter or Meter(policy_id, trajectory.stage)
    history = _History(work, job, meter, trajectory.completions)
    for step in range(auto.every, trajectory.limit + 1, auto.every):
        if history.reached >= step:
            continue
        if has_declined(history.probes, auto.patience):
            break
        segment = history.segment(step)
        with stop_requests() as requests:
            before = history.segment(history.reached) / "checkpoint" if history.reached else None
            trajectory.train(step, segment, before, meter)
        if requests:  # in the last step of the segment, which the trainer thinks is the end
            raise TrainingStoppedError(
                f"stopped by {requests[0]} at step {step}, which is kept: run the same command again to go on from "
                "there"
            )
        free_memory()
        policy = Policy(
            policy_id=policy_id,
            model=base.model,
            regime=trajectory.regime,
            base=base.base,
            group_size=trajectory.group_size,
            k=step,
            seed=seed,
            revision=base.revision,
            base_files=base.base_files,
            adapter=str(segment / "adapter"),
            weights_sha256=sha256(segment / "adapter/adapter_model.safetensors"),
        )
        rollouts = probe_rollouts(policy, problems[: auto.prompts], harvest, prompt, engine, workers)
        history.add(summarised(step, rollouts))
        free_memory()
    return history.hand_over()


def probe_rollouts(
    policy: Policy,
    problems: Sequence[Problem],
    harvest: Harvest,
    prompt: Prompt,
    engine: EngineSettings | None,
    workers: int,
) -> list[Rollout]:
    """What the harvest of a policy would draw for these prompts, on the one GPU that the trainer has."""
    if engine is not None:
        engine = engine.model_copy(update={"tensor_parallel_size": 1})
    decoding = sampling(harvest, policy.seed or 0)
    return draw_rollouts(policy, problems, prompt, decoding, workers=workers, engine=engine_for(policy, engine))


def free_memory() -> None:
    """Give the GPU memory of what went out of use back: a trainer refers to itself, so nothing is freed at once."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class _History:
    """Segments and probes of one job in its work folder: `k{step}/` for each segment, and `PROBES`.

    Of a segment that is neither the last, which the next continues, nor the best so far, only its training rollouts are
    kept.
    """

    def __init__(self, work: Path, job: dict[str, Any], meter: Meter, completions_per_generation: int) -> None:
        self.work = work
        self.job = job_digest(job)
        self.meter = meter
        self.completions_per_generation = completions_per_generation
        self.probes: list[Probe] = []
        if (work / PROBES).is_file():
            record = read_json(work / PROBES)
            if record["job"] == self.job:
                self.probes = [Probe(**probe) for probe in record["probes"]]
                carry(meter, record, str(work / PROBES))
                meter.tokens_generated = self.tokens_generated
                say(f"goes on from the probe at step {self.reached}, where an earlier attempt ended")
            else:
                say(f"{work}: made under other settings, not used")
                (work / PROBES).unlink()
                for segment in work.glob("k*"):
                    shutil.rmtree(segment)

    @property
    def reached(self) -> int:
        """The step of the last probe; 0 before the first."""
        return self.probes[-1].step if self.probes else 0

    @property
    def tokens_generated(self) -> int:
        """By all steps and all probes up to the last probe."""
        log = read_log(self.segment(self.reached) / "checkpoint")
        steps = completions_tokens(log, self.completions_per_generation, after_step=0)
        return steps + sum(probe.tokens_generated for probe in self.probes)

    def segment(self, step: int) -> Path:
        """Folder of the training that ends at a step."""
        return self.work / f"k{step}"

    def add(self, probe: Probe) -> None:
        """Record a probe, then drop what nobody needs any more."""
        self.probes.append(probe)
        self.meter.tokens_generated = self.tokens_generated
        record = {"probes": [asdict(entry) for entry in self.probes], "spent": asdict(self.meter.spent())}
        write_json(self.work / PROBES, {"job": self.job} | record)
        say(f"probe at step {probe.step}: H={probe.entropy}, mu={probe.mid_band}")
        kept = {probe.step: ("adapter", "checkpoint"), best(self.probes).step: ("adapter", "checkpoint")}
        for past in self.probes:
            for part in list(self.segment(past.step).iterdir()):
                if part.is_dir() and part.name not in kept.get(past.step, ()):
                    shutil.rmtree(part)

    def hand_over(self) -> Outcome:
        """Put the chosen policy's adapter and its training rollouts into the work folder."""
        chosen = best(self.probes)
        shutil.rmtree(self.work / "adapter", ignore_errors=True)
        shutil.copytree(self.segment(chosen.step) / "adapter", self.work / "adapter")
        behind = [probe.step for probe in self.probes if probe.step <= chosen.step]
        parts = [pd.read_parquet(self.segment(step) / "rollouts.parquet") for step in behind]
        with atomic(self.work / "rollouts.parquet") as draft:
            pd.concat(parts, ignore_index=True).to_parquet(draft, index=False)
        own = read_log(self.segment(chosen.step) / "checkpoint")
        return Outcome(tuple(self.probes), chosen, own, self.tokens_generated)
