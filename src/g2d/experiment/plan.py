"""The plan: from the wildcards of a job to the settings it depends on.

Rules name these functions as params; a job is stale when what they return changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from g2d.experiment.arms import Arm, arms, online_arm
from g2d.experiment.sections import Config
from g2d.experiment.sweep import swept_keys, with_candidates
from g2d.regimes.catalogue import REGIMES
from g2d.regimes.prompt_choice import PromptMix
from g2d.rewards.catalogue import TRUTH, ByKind, reward_params
from g2d.rollouts.settings import Evaluation, Sampling
from g2d.settings import Section

Wildcards = Any  # of a job: anything with the attributes that a function reads (model, seed, variant, regime, k ...)
Judge = Literal["reward", "judged_by"]  # of `open_ended`: what judges replies in training, and what policies' replies


def model_of(wildcards: Wildcards) -> str:
    """The model a job belongs to: a wildcard of its own, or the first folder of a policy."""
    return str(getattr(wildcards, "model", None) or wildcards.policy.split("/")[0])


def variant_of(wildcards: Wildcards) -> str:
    """The ablation whose warm-up a job belongs to, "" for the main one, `AUTO` for the one that stops by itself."""
    return str(getattr(wildcards, "variant", "")).rstrip("/")


def arm_name(wildcards: Wildcards, regime: str) -> str:
    """The arm that a job's policy is one of; `regime` where its rule has no such wildcard."""
    return "/".join(filter(None, (variant_of(wildcards), getattr(wildcards, "regime", regime))))


class Plan:
    """What the jobs of a grid depend on.

    Args:
        config: the whole configuration; `self.config` has the candidates of its sweep, too.
    """

    def __init__(self, config: Config) -> None:
        self.config = with_candidates(config)
        self.for_model = self.config.for_model

    def trained(self, wildcards: Wildcards) -> Arm:
        """The arm that a training's policy is one of."""
        return arms(self.config, wildcards.model)[arm_name(wildcards, "grpo")]

    def online(self, wildcards: Wildcards) -> Arm:
        """The training, online or in rounds, whose policies a job trains, harvests, or trains on the harvests of."""
        found = arms(self.config, wildcards.model)
        own = found.get(arm_name(wildcards, ""))
        return own if own is not None and own.phase != "offline" else online_arm(found, variant_of(wildcards))

    def settings(self, sections: Iterable[str], wildcards: Wildcards) -> dict[str, Any]:
        """The resolved sections of the configuration that a stage depends on, and nothing else."""
        resolved = self.for_model(model_of(wildcards))
        return {section: getattr(resolved, section).params() for section in sections}

    def calibration_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that calibration rollouts depend on, at the temperature of the job."""
        resolved = self.for_model(wildcards.model)
        chosen_by = {"window", "factorial_temperatures"} | ({"levels"} if resolved.calibration.only is None else set())
        own = resolved.calibration.params(without=chosen_by)
        if hasattr(wildcards, "temperature"):
            own["temperature"] = float(wildcards.temperature)
        return {"calibration": own, "prompt": resolved.prompt.params()}

    def evaluation_settings(self, part: Literal["answers", "samples"], wildcards: Wildcards) -> dict[str, Any]:
        """The sections that the answers behind an accuracy, or the samples beside them, depend on."""
        evaluation: Evaluation | None = getattr(self.for_model(model_of(wildcards)).evaluation, part)
        drawn = {} if evaluation is None else {"evaluation": evaluation.params()}
        return {**drawn, **self.settings(["prompt"], wildcards)}

    def drift_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that a policy's distance from M0 depends on."""
        assert self.config.drift is not None
        decoding = self.for_model(model_of(wildcards)).evaluation.params(only={"max_completion_length", "batch_size"})
        return {"drift": self.config.drift.params() | decoding, **self.settings(["prompt"], wildcards)}

    def engine(self, wildcards: Wildcards) -> str:
        """Param: what generates; how many GPUs and how much memory it takes re-runs nothing, so the script reads it."""
        return self.for_model(model_of(wildcards)).engine.identity

    # --------------------------------------------------------------------------------------------- the online phase

    def reward(self, wildcards: Wildcards) -> dict[str, Any]:
        """The part of the settings that says what judges a training's rollouts, or a harvest; nothing for the truth."""
        settings = self.judge_of(self.online(wildcards))
        return {} if settings is None else {"reward": reward_params(settings)}

    def judge_of(self, arm: Arm) -> Section | None:
        """What judges an online training, and its harvests; None where the truth does."""
        own: Section | None = None if arm.reward is None else self.config.rewards[arm.reward]
        if not arm.asked.asks_open_ended:
            return own
        return ByKind(verifiable=own or TRUTH, open_ended=self.judge_of_replies("reward"))

    def reply_settings(self, by: Judge, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that replies depend on, and what judges them."""
        assert self.config.open_ended is not None
        return {
            "open_ended": self.config.open_ended.params(only={*Sampling.model_fields, "seed"}),
            "reward": reward_params(self.judge_of_replies(by)),
            **self.settings(["prompt"], wildcards),
        }

    def judge_of_replies(self, by: Judge) -> Section:
        """What judges replies."""
        assert self.config.open_ended is not None
        judge: Section = self.config.rewards[getattr(self.config.open_ended, by)]
        return judge

    def harvest_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that a harvest depends on."""
        return {**self.settings(["harvest", "prompt"], wildcards), **self.reward(wildcards)}

    def grpo_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that a warm-up to step K depends on."""
        resolved, arm = self.for_model(wildcards.model), self.online(wildcards)
        prompts = arm.asked.params(only={*PromptMix.model_fields})
        return {
            "warmup": self._left_open(arm, arm.settings.trajectory(int(wildcards.k), int(wildcards.g))),
            **self.settings(["lora", "prompt"], wildcards),
            **arm.settings.drawn_by(resolved.engine, resolved.lora, self.judge_of(arm) or TRUTH),
            **({"prompts": prompts} if prompts else {}),
            **self.reward(wildcards),
        }

    def online_entry_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that an online entry's training up to K depends on."""
        arm, engine = self.online(wildcards), self.for_model(wildcards.model).engine.identity
        own = {arm.regime: self._left_open(arm, arm.settings.trajectory())}
        return {**own, "engine": engine, **self.settings(["lora", "prompt"], wildcards), **self.reward(wildcards)}

    def auto_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that a warm-up which stops by itself depends on; its probes are small harvests."""
        resolved, arm = self.for_model(wildcards.model), self.online(wildcards)
        return {
            "warmup": self._left_open(arm, arm.settings.trajectory(int(wildcards.k), int(wildcards.g))),
            "auto": arm.settings.auto.params(),
            **arm.settings.drawn_by(resolved.engine, resolved.lora),
            **self.settings(["harvest", "lora", "prompt"], wildcards),
        }

    def auto_entry_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that an online entry which stops by itself depends on."""
        auto = self.online(wildcards).settings.auto.params()
        return {**self.online_entry_settings(wildcards), "auto": auto, **self.settings(["harvest"], wildcards)}

    # --------------------------------------------------------------------------------------------- the offline phase

    def several_pairs_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """What several pairs per prompt depend on: not `pairs.seed`, and younger keys where they change anything."""
        pairs = self.for_model(wildcards.model).pairs.params(without={"seed"})
        return self.settings(["prompt"], wildcards) | ({"pairs": pairs} if pairs else {})

    def offline_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """What a training on harvests depends on: its settings but for its other K, by their section or its regime."""
        arm = self.trained(wildcards)
        section = REGIMES[arm.regime].section
        own = self._left_open(arm, arm.settings.params(without={"steps", "regime", "harvest"}))
        read = ["lora"] if section else ["lora", "prompt"]
        return {section or arm.regime: own, **self.settings(read, wildcards)}

    def choices(self, arm: Arm, model: str) -> list[str]:
        """Files of what a sweep chose for a training; a later one fills what the one before leaves open."""
        return [f"results/{model}/sweep/{name}.json" for name in self._left_to_sweep(arm)]

    def _left_to_sweep(self, arm: Arm) -> dict[str, set[str]]:
        """The keys of a training that a sweep chooses, by what is swept. A candidate's values are its own."""
        waits: dict[str, set[str]] = {}
        for name in arm.swept_as:
            if keys := swept_keys(self.config, name).difference(arm.own, *waits.values()):
                waits[name] = keys
        return waits

    def _left_open(self, arm: Arm, values: dict[str, Any]) -> dict[str, Any]:
        """Settings of a training without what is left to a sweep, and with what an ablation set itself, also where that
        is neutral and so no parameter of other jobs."""
        chosen_later = set().union(*self._left_to_sweep(arm).values())
        fixed = {key: value for key, value in values.items() if key not in chosen_later}
        own = arm.own & swept_keys(self.config, arm.swept_as[-1])
        return fixed | {key: getattr(arm.settings, key) for key in sorted(own)}
