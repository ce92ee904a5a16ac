"""Run the training of one rule and write its policy."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from g2d.checks.load import load
from g2d.grid.grid import Grid
from g2d.grid.runs import OfflineRun, OnlineRun, Policy
from g2d.jobs.cost import Meter
from g2d.jobs.environment import forget_launcher, require_one_gpu
from g2d.jobs.files import install, sha256
from g2d.jobs.snakemake_jobs import Snakemake
from g2d.jobs.stage import stage
from g2d.policies.model_keys import ADAPTER_FOLDER, ALL_FOLDER
from g2d.policies.record import PolicyRecord, read_own_policy, read_policy, write_policy
from g2d.regimes.catalogue import REGIMES
from g2d.regimes.common.checkpoints import empty, read_manifest
from g2d.regimes.common.online import CHECKPOINT, ROLLOUTS
from g2d.regimes.common.out_of_memory import train_within_memory
from g2d.regimes.common.prompt_choice import PromptMix
from g2d.regimes.common.regime import Regime, Trained, TrainingJob
from g2d.regimes.common.stopping import work_folder
from g2d.regimes.common.tracking import finish_tracking, tracking_arguments
from g2d.regimes.common.trainers import write_metrics
from g2d.regimes.grpo.keys import Warmup
from g2d.rewards.registry import reward_settings
from g2d.settings import Section
from g2d.verifier.verifier_keys import verifier_of

# Files and folders of a policy in the work folder of its training.
PARTS = (ADAPTER_FOLDER, ALL_FOLDER, CHECKPOINT, ROLLOUTS)


@dataclass(frozen=True)
class GridTraining:
    snakemake: Snakemake
    regime: Regime
    policy: Policy
    params: dict[str, object]  # settings that the result depends on
    job: TrainingJob[Any, Any]

    def train(self) -> Trained:
        forget_launcher()
        job = replace(self.job, data=self.regime.read(self.job, self.snakemake.input))
        train = partial(train_within_memory, self.regime.train)
        try:
            if getattr(job.settings, "auto", None) is None:
                return train(job)
            from g2d.regimes.grpo.auto_stop import train_until_decline

            return train_until_decline(train, job)
        finally:
            finish_tracking()

    def leave(self, trained: Trained) -> None:
        from g2d.policies.adapter_rounding import recorded_effect
        from g2d.stages.model_card import model_card  # imports the Hub's client

        output = self.snakemake.output
        job = self.job
        folder = Path(output.policy).parent
        write_metrics(output.metrics, trained.log)
        for part in PARTS:
            if (job.work / part).exists():
                install(job.work / part, folder / part)
        k = job.k
        stopped = self.snakemake.input.get("warmup")  # a warm-up that stopped automatically: its record has its K
        if trained.k:
            k = trained.k
        elif stopped:
            k = read_policy(stopped[0]).k
        continued_from = None
        if job.resume_from:
            continued_from = read_manifest(job.resume_from)["step"]
        record = PolicyRecord(
            policy_id=job.policy_id,
            model=self.policy.model,
            regime=self.policy.run_name,
            base=job.base.base,
            group_size=job.group_size,
            k=k,
            seed=job.seed,
            revision=job.base.revision,
            base_files=job.base.base_files,
            chat_template_kwargs=job.base.chat_template_kwargs,
            **job.lora.folders(folder),
            weights_sha256=sha256(output.weights),
            continued_from=continued_from,
            started_from=job.start.policy_id if job.start else None,
            settings=self.params | dict(trained.recorded),
            effect_left=None if job.lora.trains_all else recorded_effect(job.base.base, folder / ADAPTER_FOLDER),
        )
        write_policy(output.policy, record)
        model_card(record, job.base, self.regime.label).save(output.card)


@contextmanager
def training(snakemake: Snakemake) -> Iterator[GridTraining]:
    """Run the body of the script of all trainings, as `g2d.jobs.stage.stage` does.

    When all outputs exist, the work folder is deleted, and with `checkpoints.keep: last` the checkpoint that the
    training continued is emptied.
    """
    folder = Path(snakemake.output.policy).parent
    params = snakemake.params.settings
    try:
        with work_folder(folder / "work") as work:
            with stage(snakemake) as meter:
                require_one_gpu()
                grid = Grid(load(snakemake.config))
                policy = grid.at(folder.relative_to("results").as_posix())
                job = _job(snakemake, grid, policy, params, work=work, meter=meter)
                yield GridTraining(snakemake, REGIMES[policy.method], policy, params, job)
            if job.resume_from is not None and job.checkpointing.keep == "last":
                empty(job.resume_from)
    except (OSError, RuntimeError) as error:  # of the work folder; `stage` handles all others
        sys.exit(f"{snakemake.rule}: {error}")


def _job(
    snakemake: Snakemake, grid: Grid, policy: Policy, params: Mapping[str, Any], *, work: Path, meter: Meter
) -> TrainingJob[Any, None]:
    # Settings are read from the configuration; `params` has them too, to compare. From `params` come the reward and the
    # verifier, with the digests that their files had when the job was planned, and the kinds of prompts of a warm-up.
    config = grid.config
    settings = grid.settings[policy.model]
    training = settings.training
    assert policy.seed is not None
    start = snakemake.input.get("start")
    checkpoint = snakemake.input.get("checkpoint")
    return TrainingJob(
        base=read_own_policy(snakemake.input.base),
        data=None,
        settings=settings_as_run(policy),
        seed=policy.seed,
        work=work,
        lora=settings.lora,
        start=read_own_policy(start[0]) if start else None,
        checkpointing=config.checkpoints,
        gradient_checkpointing=training.gradient_checkpointing,
        shared_prompts=training.shared_prompts,
        precision=training.precision,
        tracking=tracking_arguments(config.logging, policy.folder),
        meter=meter,
        version=snakemake.params.version,
        k=policy.k,
        group_size=policy.group_size,
        prompt=settings.prompt,
        prompt_mix=PromptMix.model_validate(params.get("prompts", {})),
        reward=reward_settings(params.get("reward")),
        verifier=verifier_of(params),
        engine=settings.engine,
        resume_from=Path(checkpoint[0]) if checkpoint else None,
        harvest=settings.harvest,
        policy_id=policy.folder,
        workers=snakemake.threads,
    )


def settings_as_run(policy: Policy) -> Section:
    """Return the settings of a policy's run for its G and K only."""
    run = policy.run
    assert isinstance(run, OnlineRun | OfflineRun)
    changes: dict[str, object] = {}
    if isinstance(run, OnlineRun):
        changes = {"steps": [policy.k], "horizon": run.settings.total_steps}
    if isinstance(run.settings, Warmup):
        changes["group_sizes"] = [policy.group_size]
        changes["horizon"] = run.settings.schedule_length(policy.k)
        changes["auto"] = run.settings.auto if run.stops else None
    return run.settings.model_copy(update=changes)
