"""Settings of jobs, as params of their rules: a job runs with them, and is stale if they change."""

from __future__ import annotations

from typing import Any

from g2d.config.sections import Config, ModelSettings
from g2d.grid.runs import OfflineRun, OnlineRun, Policy, Run
from g2d.regimes.catalogue import REGIMES
from g2d.regimes.common.checkpoints import Checkpointing
from g2d.regimes.common.prompt_choice import PromptMix
from g2d.regimes.common.tracking import Logging
from g2d.regimes.common.training_keys import TrainingKeys
from g2d.regimes.grpo.keys import Warmup
from g2d.rewards.registry import TRUTH, ByKind, reward_params
from g2d.rollouts.rollout_keys import EngineSettings, Evaluation, Sampling
from g2d.settings import AUTO, Section
from g2d.verifier.verifier_keys import verifier_params

Settings = dict[str, Any]  # by section or method


class SamplingMachine(Section):
    """Settings of a sampling job that change its speed and memory: params that Snakemake does not compare."""

    engine: EngineSettings
    batch_size: int


class MachineSettings(Section):
    """Settings of a training that change its speed and memory: params that Snakemake does not compare.

    Args:
        batch_size: of the rollouts of an online training, or of probes.
        rows_as_fit: whether `per_device_batch_size` is auto. The settings of the job have a number in its place.
    """

    engine: EngineSettings
    training: TrainingKeys
    checkpoints: Checkpointing
    logging: Logging
    batch_size: int
    rows_as_fit: bool


class JobSettings:
    """The settings of one model's jobs.

    Args:
        config: the configuration.
        settings: sections of the model.
    """

    def __init__(self, config: Config, settings: ModelSettings) -> None:
        self.config = config
        self.settings = settings

    def sections(self, *names: str) -> Settings:
        return {name: getattr(self.settings, name).params() for name in names}

    @property
    def engine(self) -> str:
        """Engine that samples. Its GPUs and memory change no result."""
        return self.settings.engine.name

    @property
    def verifier(self) -> Settings:
        return verifier_params(self.config.verifier)

    # -------------------------------------------------------------------------------------------------------- sampling

    def sampling_machine(self, section: str) -> Settings:
        """Return the settings of a sampling job that change its result by rounding at most."""
        sampling = getattr(self.config if section == "open_ended" else self.settings, section)
        return SamplingMachine(engine=self.settings.engine, batch_size=sampling.batch_size).model_dump(mode="json")

    def calibration(self, temperature: str | None = None) -> Settings:
        chosen_by = {"window", "factorial_temperatures"}
        if self.settings.calibration.only is None:
            chosen_by.add("levels")
        settings = self.settings.calibration.params(without=chosen_by)
        if temperature is not None:
            settings["temperature"] = float(temperature)
        return {"calibration": settings, "prompt": self.settings.prompt.params()} | self.verifier

    def training_set(self) -> Settings:
        chosen_by = self.settings.calibration.params(only={"levels", "window"})
        return {"calibration": chosen_by, "training_set": self.settings.training_set.params()}

    def answers(self) -> Settings:
        return self._evaluation(self.settings.evaluation.answers)

    def samples(self) -> Settings:
        return self._evaluation(self.settings.evaluation.samples)

    def _evaluation(self, evaluation: Evaluation | None) -> Settings:
        settings = {} if evaluation is None else {"evaluation": evaluation.params()}
        return settings | self.sections("prompt") | self.verifier

    def replies(self) -> Settings:
        assert self.config.open_ended is not None
        sampling = self.config.open_ended.params(only={*Sampling.model_fields, "seed"})
        judge = reward_params(self.config.rewards[self.config.open_ended.judged_by])
        return {"open_ended": sampling, "reward": judge, **self.sections("prompt")}

    def harvest(self, online: Run) -> Settings:
        return self.sections("harvest", "prompt") | self.verifier | self._reward(online)

    def pairs(self) -> Settings:
        return self.sections("prompt", "pairs")

    # --------------------------------------------------------------------------------------------------------- rewards

    def reward_for(self, run: Run) -> Section | None:
        """Return the reward of the online training behind a run, and of its harvests; None for correctness."""
        reward = run.online.reward if run.online else None
        if not run.prompt_mix.asks_open_ended:
            return reward
        assert self.config.open_ended is not None
        judge = self.config.rewards[self.config.open_ended.reward]
        return ByKind(verifiable=reward or TRUTH, open_ended=judge)

    def _reward(self, run: Run) -> Settings:
        reward = self.reward_for(run)
        return {} if reward is None else {"reward": reward_params(reward)}

    # ------------------------------------------------------------------------------------------------------- trainings

    def machine(self, policy: Policy) -> Settings:
        """Return the settings of a training that change its result by rounding at most."""
        run = policy.run
        assert isinstance(run, OnlineRun | OfflineRun)
        settings = MachineSettings(
            engine=self.settings.engine,
            training=self.settings.training,
            checkpoints=self.config.checkpoints,
            logging=self.config.logging,
            batch_size=getattr(run.settings, "batch_size", self.settings.harvest.batch_size),
            rows_as_fit=getattr(run.settings, "per_device_batch_size", None) == AUTO,
        )
        return settings.model_dump(mode="json")

    def training(self, policy: Policy) -> Settings:
        """Return what a training's result depends on, besides its inputs."""
        run = policy.run
        assert isinstance(run, OnlineRun | OfflineRun)
        keys = run.settings_at(policy.group_size, policy.k)
        settings = {REGIMES[run.method].settings_name: keys.params(), **self.sections("lora", "prompt")}
        if isinstance(run, OfflineRun):
            return settings
        settings |= {"engine": self.engine} | self.verifier | self._reward(run)
        if run.stops:
            settings |= self.sections("harvest")  # of its probes
        prompts = run.prompt_mix.params(only={*PromptMix.model_fields})
        if prompts and isinstance(keys, Warmup):  # an entry has them among its keys
            settings["prompts"] = prompts
        return settings
