"""Run the training of one rule and write its policy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from g2d.grid.settings import MachineSettings, Settings
from g2d.jobs.cost import Meter
from g2d.jobs.environment import forget_launcher, require_one_gpu
from g2d.jobs.files import install, sha256
from g2d.jobs.snakemake_jobs import Snakemake
from g2d.jobs.stage import stage
from g2d.policies.model_keys import ADAPTER_FOLDER, ALL_FOLDER, Lora
from g2d.policies.record import PolicyRecord, read_own_policy, read_policy, write_policy
from g2d.problems.prompts import Prompt
from g2d.regimes.catalogue import regime_of
from g2d.regimes.common.checkpoints import empty, job_key, read_manifest
from g2d.regimes.common.online import CHECKPOINT, ROLLOUTS
from g2d.regimes.common.out_of_memory import train_within_memory
from g2d.regimes.common.prompt_choice import PromptMix
from g2d.regimes.common.regime import Regime, Trained, TrainingJob
from g2d.regimes.common.stopping import work_folder
from g2d.regimes.common.tracking import finish_tracking, tracking_arguments
from g2d.regimes.common.trainers import write_metrics
from g2d.rewards.registry import reward_settings
from g2d.rollouts.rollout_keys import HarvestSettings
from g2d.settings import AUTO, Section
from g2d.verifier.verifier_keys import verifier_of

# Files and folders of a policy in the work folder of its training.
PARTS = (ADAPTER_FOLDER, ALL_FOLDER, CHECKPOINT, ROLLOUTS)


@dataclass(frozen=True)
class GridTraining:
    snakemake: Snakemake
    regime: Regime
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
        folder = policy_folder(self.snakemake)
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
        model, _, *run, _, _ = job.policy_id.split("/")
        record = PolicyRecord(
            policy_id=job.policy_id,
            model=model,
            regime="/".join(run),
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
            settings=self.snakemake.params.settings,
            statistics=dict(trained.statistics),
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
    try:
        with work_folder(policy_folder(snakemake) / "work") as work:
            with stage(snakemake) as meter:
                require_one_gpu()
                job = _job(snakemake, work=work, meter=meter)
                yield GridTraining(snakemake, regime_of(snakemake.params.settings), job)
            if job.resume_from is not None and job.checkpointing.keep == "last":
                empty(job.resume_from)
    except (OSError, RuntimeError) as error:  # of the work folder; `stage` handles all others
        sys.exit(f"{snakemake.rule}: {error}")


def _job(snakemake: Snakemake, *, work: Path, meter: Meter) -> TrainingJob[Any, None]:
    # Settings are what Snakemake compared: this job's params.
    settings = snakemake.params.settings
    machine = MachineSettings.model_validate(snakemake.params.machine)
    wildcards = snakemake.wildcards
    policy_id = policy_folder(snakemake).relative_to("results").as_posix()
    start = snakemake.input.get("start")
    checkpoint = snakemake.input.get("checkpoint")
    return TrainingJob(
        base=read_own_policy(snakemake.input.base),
        data=None,
        settings=keys_of(settings, machine),
        seed=int(wildcards["seed"]),
        k=int(wildcards["k"]),
        group_size=int(wildcards["g"]),
        policy_id=policy_id,
        work=work,
        key=job_key(snakemake.params, wildcards, snakemake.input),
        start=read_own_policy(start[0]) if start else None,
        resume_from=Path(checkpoint[0]) if checkpoint else None,
        lora=Lora.model_validate(settings["lora"]),
        prompt=Prompt.model_validate(settings["prompt"]),
        prompt_mix=PromptMix.model_validate(settings.get("prompts", {})),
        reward=reward_settings(settings.get("reward")),
        verifier=verifier_of(settings),
        harvest=HarvestSettings.model_validate(settings.get("harvest", {}) | {"batch_size": machine.batch_size}),
        engine=machine.engine,
        checkpointing=machine.checkpoints,
        gradient_checkpointing=machine.training.gradient_checkpointing,
        shared_prompts=machine.training.shared_prompts,
        precision=machine.training.precision,
        tracking=tracking_arguments(machine.logging, policy_id),
        meter=meter,
        workers=snakemake.threads,
    )


def keys_of(settings: Settings, machine: MachineSettings) -> Section:
    """Return the keys of a training's method."""
    regime = regime_of(settings)
    keys = regime.settings.model_validate(settings[regime.settings_name])
    of_machine: dict[str, object] = {}
    if machine.rows_as_fit:
        of_machine["per_device_batch_size"] = AUTO
    if "batch_size" in regime.settings.model_fields:
        of_machine["batch_size"] = machine.batch_size
    return keys.model_copy(update=of_machine)


def policy_folder(snakemake: Snakemake) -> Path:
    return Path(snakemake.output.policy).parent
