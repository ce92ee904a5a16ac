"""What the trainings have in common: a job that goes on where an earlier attempt was stopped and leaves a policy.

A training works in a folder that is no output, so it outlives an attempt that fails; it vanishes when every output is
there. What it leaves is installed beside `policy.json`, the record that every later stage starts from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from g2d.experiment.config import Config, load
from g2d.experiment.sweep import with_candidates, with_choice
from g2d.jobs.cost import Meter
from g2d.jobs.files import install, read_json, sha256
from g2d.jobs.launchers import forget_launcher
from g2d.jobs.stage import stage
from g2d.policies.policy import Policy, read_own_policy, write_policy
from g2d.policies.settings import Lora
from g2d.regimes.stopping import work_folder
from g2d.regimes.training import tracking_arguments, write_metrics


@dataclass(frozen=True)
class TrainingJob:
    """One training of the grid: what its rule gave it, and where it leaves what it made."""

    snakemake: Any
    folder: Path  # of the policy
    work: Path  # kept between attempts
    meter: Meter
    base: Policy  # M0
    config: Config  # as the model sees it: for what does not change the result
    settings: dict[str, Any]  # what the result depends on

    @property
    def policy_id(self) -> str:
        """The policy's folder below the results folder."""
        return str(self.folder.relative_to("results"))

    @property
    def group_size(self) -> int:
        """G of the warm-up, 0 without one."""
        return int(self.snakemake.wildcards.g)

    @property
    def k(self) -> int:
        """K in the name of the folder."""
        return int(self.snakemake.wildcards.k)

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.snakemake.wildcards.seed)

    @property
    def start(self) -> Policy | None:
        """The policy to start from, where that is not M0."""
        files = self.snakemake.input.get("start")
        return read_own_policy(files[0]) if files else None

    @property
    def arguments(self) -> dict[str, Any]:
        """What every training takes beside its data and its own settings."""
        return {
            "lora": Lora.model_validate(self.settings["lora"]),
            "seed": self.seed,
            "work": self.work,
            "checkpointing": self.config.checkpoints,
            "tracking": tracking_arguments(self.config.logging, self.policy_id),
            "meter": self.meter,
            "version": self.snakemake.params.version,
        }

    def train(self, function: Callable[..., list[dict[str, Any]]], *data: Any, **settings: Any) -> list[dict[str, Any]]:
        """Call a regime's training: here, or in as many processes as the configuration says.

        Args:
            function: one of a regime.
            data: what it trains, and on what.
            settings: its own; `arguments` are added.

        Returns:
            The trainer's log.
        """
        forget_launcher()
        keywords, training = settings | self.arguments, self.config.training
        if training.processes == 1:
            return function(*data, **keywords)
        from g2d.regimes.launch import launched

        log = Path(self.snakemake.log[0])
        del keywords["meter"]
        found: list[dict[str, Any]] = launched(
            function, data, keywords, training=training, work=self.work, log=log, meter=self.meter
        )
        return found

    def leave(
        self,
        regime: str,
        log: list[dict[str, Any]],
        *,
        k: int | None = None,
        parts: Sequence[str] = ("adapter",),
        continued_from: int | None = None,
        **found: Any,
    ) -> None:
        """Install what the training left in `work`, and write metrics and record.

        Args:
            regime: the policy's name in the grid (`g2d.experiment.keys.PolicyKey`).
            log: the trainer's, one row per gradient step.
            k: warm-up steps behind the policy, where the folder's name does not say.
            parts: files and folders in `work`.
            continued_from: K of the checkpoint that it continued.
            found: what the training found out, for the record, beside its settings.
        """
        output = self.snakemake.output
        write_metrics(output.metrics, log)
        for part in parts:
            install(self.work / part, self.folder / part)
        policy = Policy(
            policy_id=self.policy_id,
            model=self.snakemake.wildcards.model,
            regime=regime,
            base=self.base.base,
            group_size=self.group_size,
            k=self.k if k is None else k,
            seed=self.seed,
            revision=self.base.revision,
            base_files=self.base.base_files,
            adapter=str(self.folder / "adapter"),
            weights_sha256=sha256(output.adapter),
            continued_from=continued_from,
            started_from=self.start.policy_id if self.start else None,
            settings=self.settings | found,
        )
        write_policy(output.policy, policy)


@contextmanager
def training(snakemake: Any) -> Iterator[TrainingJob]:
    """Run the body of a training's script; everything else as `g2d.jobs.stage.stage`."""
    folder, settings = Path(snakemake.output.policy).parent, snakemake.params.settings
    for file in snakemake.input.get("choice", []):  # of a sweep
        settings = with_choice(settings, read_json(file))
    try:
        with work_folder(folder / "work") as work, stage(snakemake) as meter:
            yield TrainingJob(
                snakemake=snakemake,
                folder=folder,
                work=work,
                meter=meter,
                base=read_own_policy(snakemake.input.base),
                config=with_candidates(load(snakemake.config)).for_model(snakemake.wildcards.model),
                settings=settings,
            )
    except (OSError, RuntimeError) as error:  # of the work folder: the stage says and ends what else there is
        sys.exit(f"{snakemake.rule}: {error}")
