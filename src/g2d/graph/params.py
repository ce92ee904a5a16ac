"""Params of jobs: the settings that each depends on. A job is stale if they change."""

from __future__ import annotations

from typing import Any, Literal

from g2d.experiment.arms import Arm, Point
from g2d.experiment.config import Config
from g2d.regimes.catalogue import REGIMES
from g2d.regimes.run.prompts import PromptMix
from g2d.rewards.catalogue import TRUTH, ByKind, reward_params
from g2d.rollouts.settings import Evaluation, Sampling
from g2d.settings import Section
from g2d.verifier.settings import verifier_params

Settings = dict[str, Any]  # by section or regime
# Token budgets were removed; finished evaluations without any have this key.
NO_TOKEN_BUDGETS: Settings = {"token_budgets": []}
Judge = Literal["reward", "judged_by"]  # key of `open_ended`: reward of a training or judge of policies


class Params:
    """Params of the jobs of one model."""

    def __init__(self, config: Config, model: str) -> None:
        self.config, self.resolved = config, config.for_model(model)

    def sections(self, *names: str) -> Settings:
        return {name: getattr(self.resolved, name).params() for name in names}

    @property
    def engine(self) -> str:
        """Engine that generates. Its GPUs and memory change no result."""
        return self.resolved.engine.name

    @property
    def verifier(self) -> Settings:
        return verifier_params(self.config.verifier)

    # ------------------------------------------------------------------------------------------------------ generation

    def calibration(self, temperature: str | None = None) -> Settings:
        chosen_by = {"window", "factorial_temperatures"}
        chosen_by |= {"levels"} if self.resolved.calibration.only is None else set()
        settings = self.resolved.calibration.params(without=chosen_by)
        if temperature is not None:
            settings["temperature"] = float(temperature)
        return {"calibration": settings, "prompt": self.resolved.prompt.params()} | self.verifier

    def training_set(self) -> Settings:
        chosen_by = self.resolved.calibration.params(only={"levels", "window"})
        return {"calibration": chosen_by, "training_set": self.resolved.training_set.params()}

    def evaluation(self, part: Literal["answers", "samples"]) -> Settings:
        evaluation: Evaluation | None = getattr(self.resolved.evaluation, part)
        return (
            ({} if evaluation is None else {"evaluation": evaluation.params() | NO_TOKEN_BUDGETS})
            | self.sections("prompt")
            | self.verifier
        )

    def replies(self, by: Judge) -> Settings:
        assert self.config.open_ended is not None
        sampling = self.config.open_ended.params(only={*Sampling.model_fields, "seed"})
        return {"open_ended": sampling, "reward": reward_params(self.judge_of_replies(by)), **self.sections("prompt")}

    def harvest(self, online: Arm) -> Settings:
        return self.sections("harvest", "prompt") | self.verifier | self.reward(online)

    def pairs(self) -> Settings:
        return self.sections("prompt", "pairs")

    # --------------------------------------------------------------------------------------------------------- rewards

    def judge_of_replies(self, by: Judge) -> Section:
        assert self.config.open_ended is not None
        judge: Section = self.config.rewards[getattr(self.config.open_ended, by)]
        return judge

    def judge_of(self, arm: Arm) -> Section | None:
        """Return the reward of an online training and its harvests; None for correctness."""
        if not arm.asked.asks_open_ended:
            return arm.reward
        return ByKind(verifiable=arm.reward or TRUTH, open_ended=self.judge_of_replies("reward"))

    def reward(self, arm: Arm) -> Settings:
        judge = self.judge_of(arm)
        return {} if judge is None else {"reward": reward_params(judge)}

    # ------------------------------------------------------------------------------------------------------- trainings

    def training(self, arm: Arm, point: Point) -> Settings:
        section = REGIMES[arm.regime].section
        if arm.phase == "offline":
            values = arm.settings.params(without={"steps", "regime"})
            shared = self.sections("lora") if section else self.sections("lora", "prompt")
            return {section or arm.regime: values, **shared}
        if not section:
            values = {arm.regime: arm.settings.trajectory(), "engine": self.engine}
            return values | self.sections("lora", "prompt") | self.verifier | self.reward(arm)
        (g, k), engine, lora = point, self.resolved.engine, self.resolved.lora
        values = {section: arm.settings.trajectory(k, g)} | self.verifier
        if arm.stops:
            values |= {"auto": arm.settings.auto.params()} | arm.settings.drawn_by(engine, lora)
            return values | self.sections("harvest", "lora", "prompt")
        values |= self.sections("lora", "prompt") | arm.settings.drawn_by(engine, lora, self.judge_of(arm) or TRUTH)
        prompts = arm.asked.params(only={*PromptMix.model_fields})
        return values | ({"prompts": prompts} if prompts else {}) | self.reward(arm)
