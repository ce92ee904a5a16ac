"""Settings that a job depends on: params of its rule. A job is stale if they change."""

from __future__ import annotations

from typing import Any

from g2d.config.sections import Config, ModelSettings
from g2d.grid.runs import OfflineRun, OnlineRun, Policy, Run
from g2d.regimes.catalogue import REGIMES
from g2d.regimes.common.prompt_choice import PromptMix
from g2d.regimes.common.regime import OnlineEntry
from g2d.regimes.grpo.keys import Warmup
from g2d.rewards.registry import TRUTH, ByKind, reward_params
from g2d.rollouts.rollout_keys import Evaluation, Sampling
from g2d.settings import Section
from g2d.verifier.verifier_keys import verifier_params

Settings = dict[str, Any]  # by section or method


class Fingerprint:
    """The settings that the jobs of one model depend on.

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

    def training(self, policy: Policy) -> Settings:
        run = policy.run
        if isinstance(run, OfflineRun):
            return self._offline(run)
        assert isinstance(run, OnlineRun)
        if isinstance(run.settings, OnlineEntry):
            return self._online_entry(run, run.settings)
        if run.stops:
            return self._automatic(policy, run.settings)
        return self._warmup(policy, run.settings)

    def _offline(self, run: OfflineRun) -> Settings:
        values = run.settings.params(without={"steps", "regime"})
        section = REGIMES[run.method].section
        if section:
            return {section: values, **self.sections("lora")}
        return {run.method: values, **self.sections("lora", "prompt")}

    def _online_entry(self, run: OnlineRun, entry: OnlineEntry) -> Settings:
        values = {run.method: entry.trajectory(), "engine": self.engine}
        return values | self.sections("lora", "prompt") | self.verifier | self._reward(run)

    def _warmup(self, policy: Policy, warmup: Warmup) -> Settings:
        run = policy.run
        settings = {"warmup": warmup.trajectory(policy.k, policy.group_size), "engine": self.engine}
        settings |= self.verifier | self.sections("lora", "prompt")
        prompts = run.prompt_mix.params(only={*PromptMix.model_fields})
        if prompts:
            settings["prompts"] = prompts
        return settings | self._reward(run)

    def _automatic(self, policy: Policy, warmup: Warmup) -> Settings:
        assert warmup.auto is not None
        settings: Settings = {"warmup": warmup.trajectory(policy.k, policy.group_size), "engine": self.engine}
        settings |= self.verifier | {"auto": warmup.auto.params()}
        return settings | self.sections("harvest", "lora", "prompt")
