"""The configuration: `Config`, and its sections about the whole grid. Other packages declare the sections they read.

Nothing here imports torch, so mistakes are reported within a second. Defaults are the paper's values (G2D, arXiv
2605.21266) if it states them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import field_validator, model_validator

from g2d.jobs.files import write_text
from g2d.plain import plain
from g2d.policies.model_keys import ALL_WEIGHTS, NONE, Lora, ModelSource
from g2d.problems.problem_keys import HELD_OUT, OPEN_ENDED, ProblemSource, TrainingSet
from g2d.problems.prompts import Prompt
from g2d.regimes.catalogue import AnyEntry
from g2d.regimes.common.checkpoints import Checkpointing
from g2d.regimes.common.prompt_choice import PromptMix
from g2d.regimes.common.tracking import Logging
from g2d.regimes.common.training_keys import TrainingKeys
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.offline.dpo import Dpo
from g2d.rewards.registry import AnyReward, RewardName
from g2d.rollouts.rollout_keys import Calibration, EngineSettings, Evaluation, HarvestSettings, Pairs, Sampling
from g2d.settings import Name, Section, Seed, Steps, key, repeated
from g2d.settings.mistakes import changed
from g2d.verifier.verifier_keys import PythonVerifier

FILES = "# files: "  # first line of a saved configuration: a list, in JSON


class Baselines(Section):
    """Policies to compare with (paper, section 4.1)."""

    grpo_group_sizes: list[int] = key([2, 4], "Evaluate GRPO at the largest K, for these G.", paper="2 and 4")
    grpo_steps: Literal["last", "all"] = key(
        "last", "all: evaluate GRPO at every K that the warm-up saves.", neutral="last"
    )


class Ablation(PromptMix):
    """Policies that differ from the main ones in the keys given here (paper, Table 3).

    An ablation with other `warmup` keys or another reward has its own warm-up and harvests.
    """

    steps: Literal["all"] | list[Steps] = key(..., "K to train at; all: the warm-up's.")
    dpo: dict[str, Any] = key({}, "Keys of the dpo section to change.")
    warmup: dict[str, Any] = key({}, "Keys of the warmup section to change.")
    reward: RewardName | None = key(
        None,
        "Reward of verifiable prompts: an entry of `rewards` or `{file: my_reward.py}`; null: that of `warmup`.",
        neutral=None,
    )
    policies: list[Literal["dpo", "grpo"]] = key(
        ["dpo"], "Evaluate DPO on the harvest, the warm-up's policy (grpo), or both.", min_length=1
    )

    @model_validator(mode="after")
    def _changes_something(self) -> Ablation:
        if not self.dpo and not self.has_warmup:
            raise ValueError("nothing differs: change a key of dpo or of warmup")
        if self.prompts == "open_ended" and self.reward is not None:
            raise ValueError("reward: judges verifiable prompts, but prompts: open_ended has none: drop it")
        if self.asks_open_ended and "dpo" in self.policies:
            raise ValueError("policies: harvests have only verifiable prompts: write [grpo], or prompts: verifiable")
        if not self.has_warmup and "grpo" in self.policies:
            raise ValueError("policies: grpo equals the main grid's policy: change a key of warmup, or drop it")
        if self.dpo and "dpo" not in self.policies:
            raise ValueError("dpo: policies has no dpo: add it there, or drop these keys")
        if "steps" in self.warmup:
            raise ValueError("warmup.steps: write the values of K into the ablation's steps")
        if "auto" in self.warmup:
            raise ValueError("warmup.auto: only the main warm-up can stop automatically: drop the key")
        if "reward" in self.warmup:
            raise ValueError("warmup.reward: write it as the ablation's reward, which also judges its harvest of M0")
        if not self.steps:
            raise ValueError("steps is empty: list at least one K, or write all")
        if self.steps != "all" and repeated(self.steps):
            raise ValueError(f"steps: K values repeat: {self.steps}")
        if repeated(self.policies):
            raise ValueError(f"policies repeat: {self.policies}")
        return self

    @property
    def has_warmup(self) -> bool:
        return bool(self.warmup) or self.reward is not None or self.asks_open_ended


class OpenEnded(Sampling):
    """Prompts without a verifiable answer, to train on and to compare policies with M0."""

    pool: ProblemSource = key(..., "Prompts to train on; answers are ignored.", paper="100,000 of WildChat")
    held_out: ProblemSource = key(..., "Held-out prompts for the win rates.", paper="AlpacaEval 2, ArenaHard")
    reward: RewardName = key(..., "Entry of `rewards` to train on.", paper="Athene-RM-8B, not loadable")
    judge: RewardName | None = key(
        None, "Entry of `rewards` for win rates; null: `reward`.", paper="GPT-4-1106, GPT-4o"
    )
    samples_per_prompt: int = key(4, "Replies per policy and held-out prompt.", paper="1", ge=1)
    temperature: float = key(1.0, "Sampling temperature of the replies.", gt=0, le=5)
    max_completion_length: int = key(2048, "Token budget of a reply.", unit="tokens", ge=1)
    seed: Seed = key(0, "Seed of the replies, the same for policies and M0.")

    @property
    def sources(self) -> dict[str, ProblemSource]:
        return {OPEN_ENDED: self.pool, HELD_OUT: self.held_out}

    @property
    def judged_by(self) -> str:
        return self.judge or self.reward


@dataclass(frozen=True)
class ModelSettings:
    """The sections of a configuration that can differ by model, as one model has them."""

    prompt: Prompt
    engine: EngineSettings
    lora: Lora
    calibration: Calibration
    training_set: TrainingSet
    warmup: Warmup
    harvest: HarvestSettings
    pairs: Pairs
    dpo: Dpo
    evaluation: Evaluation
    training: TrainingKeys

    def steps_of(self, name: str, further: Ablation | AnyEntry) -> list[int]:
        """Return the K of an ablation or entry. "all" leaves out K=0 if it needs a warm-up."""
        if further.steps != "all":
            return sorted(further.steps)
        if not isinstance(further, Ablation):
            needs_warmup = further.start == "warmup"
        elif further.has_warmup and further.reward is None:  # a reward changes the harvest of M0 too
            needs_warmup = True
        else:
            needs_warmup = self.ablated_dpo(name, further).start == "warmup"
        if needs_warmup:
            return [k for k in self.warmup.steps if k > 0]
        return list(self.warmup.steps)

    def ablated_dpo(self, name: str, ablation: Ablation) -> Dpo:
        return changed(f"ablations.{name}.dpo", self.dpo, ablation.dpo)

    def ablated_warmup(self, name: str, ablation: Ablation) -> Warmup:
        """Return the warmup section of an ablation.

        It keeps the horizon of the main warm-up unless it sets one, so learning rates stay comparable.
        """
        main = self.warmup.model_copy(update={"horizon": self.warmup.total_steps, "auto": None})
        steps = self.steps_of(name, ablation)
        return changed(f"ablations.{name}.warmup", main, ablation.warmup | {"steps": steps})


MODEL_SECTIONS = [field.name for field in fields(ModelSettings)]


class Config(Section):
    """All settings that affect results. Settings of the execution (cluster, cores) are in `profiles/`."""

    title: str = key("G2D", "Title of the report.")
    demonstration: str | None = key(None, "Mark on pages and figures of a demonstration.")
    seeds: list[Seed] = key([0, 1, 2, 3, 4], "Seeds.", paper="5 seeds", min_length=1)
    models: dict[Name, ModelSource] = key(..., "Base models M0, by name.", min_length=1)
    pool: ProblemSource = key(..., "Problems to calibrate and train on.", paper="MATH train")
    benchmarks: dict[Name, ProblemSource] = key(
        ..., "Held-out problems, by name.", paper="MATH-500, GSM8K", min_length=1
    )
    verifier: PythonVerifier | None = key(None, "A verifier of yours; null: Math-Verify.", neutral=None)
    prompt: Prompt = key(Prompt(), "Prompt format.")
    engine: EngineSettings = key(EngineSettings(), "Generation engine.")
    lora: Lora = key(Lora(), "LoRA adapter.")
    calibration: Calibration = key(Calibration(), "Difficulty calibration.")
    training_set: TrainingSet = key(TrainingSet(), "Training prompts.")
    warmup: Warmup = key(Warmup(), "GRPO warm-up.")
    harvest: HarvestSettings = key(HarvestSettings(), "Rollouts of the frozen policy.")
    pairs: Pairs = key(Pairs(), "Sampling of preference pairs.")
    dpo: Dpo = key(Dpo(), "Offline preference optimisation.")
    ablations: dict[Name, Ablation] = key({}, "Variants of the main policies (paper, Table 3).")
    regimes: dict[Name, AnyEntry] = key({}, "Other training methods, by name.", neutral={})
    rewards: dict[Name, AnyReward] = key({}, "Rewards, by name.", neutral={})
    open_ended: OpenEnded | None = key(None, "Prompts without a right answer (docs/rewards.md).", neutral=None)
    baselines: Baselines = key(Baselines(), "GRPO without an offline phase.")
    evaluation: Evaluation = key(Evaluation(), "Evaluation on the benchmarks.")
    noninferiority_margin: float = key(
        0.02, "Accuracy that a K may be behind the best K and still be enough.", gt=0, lt=1, neutral=0.02
    )
    share_imports: bool = key(True, "Start jobs faster, as forks of one process; not on a cluster or with vLLM.")
    training: TrainingKeys = key(TrainingKeys(), "Memory, cores and precision of a training.")
    checkpoints: Checkpointing = key(Checkpointing(), "Checkpoints of interrupted trainings.")
    logging: Logging = key(Logging(), "Logging of training curves.")

    @field_validator("title", "demonstration")
    @classmethod
    def _visible(cls, text: str | None) -> str | None:
        return None if text is None else plain(text, lines=True)

    @property
    def problem_sources(self) -> dict[str, ProblemSource]:
        sources = {"pool": self.pool, **self.benchmarks}
        if self.open_ended is not None:
            sources |= self.open_ended.sources
        return sources

    @property
    def select_by(self) -> str | None:
        """Return the benchmark that selects checkpoints (`selection.csv`)."""
        for name, source in self.benchmarks.items():
            if source.select_by:
                return name
        return None

    @property
    def tested_benchmarks(self) -> list[str]:
        """Return the benchmarks on which policies are compared: all but `select_by`."""
        return [name for name in self.benchmarks if name != self.select_by]

    @property
    def further(self) -> dict[str, Any]:
        ablations = {f"ablations.{name}": ablation for name, ablation in self.ablations.items()}
        return ablations | {f"regimes.{name}": entry for name, entry in self.regimes.items()}

    @property
    def identity(self) -> dict[str, Any]:
        """Keys that change results by more than rounding."""
        values = self.params(without={"checkpoints", "logging", "share_imports", "training"})
        for section in [values, *(model["settings"] for model in values["models"].values())]:
            section.pop("training", None)
            engine = section.pop("engine", {})
            if "name" in engine:
                section["engine"] = {"name": engine["name"]}
        return values

    def for_model(self, name: str) -> ModelSettings:
        """Return the sections of one model: its `settings` merged over the common sections.

        Raises:
            ValueError: a section cannot differ by model, or a key is wrong.
        """
        changes = self.models[name].settings
        unknown = sorted(set(changes) - set(MODEL_SECTIONS))
        if unknown:
            raise ValueError(
                f"models.{name}.settings.{unknown[0]}: not a section that can differ by model: remove it, or use "
                f"one of {', '.join(sorted(MODEL_SECTIONS))}"
            )
        sections = {section: getattr(self, section) for section in MODEL_SECTIONS}
        for section, written in changes.items():
            where = f"models.{name}.settings.{section}"
            values = written
            if section == "lora" and written == NONE:
                values = ALL_WEIGHTS
            if not isinstance(values, Mapping):
                raise ValueError(f"{where}: expected a mapping of keys, not {values!r}")
            sections[section] = changed(where, sections[section], values)
        return ModelSettings(**sections)

    def save(self, path: str | Path, files: Sequence[str] = ()) -> None:
        values = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)
        write_text(path, f"{FILES}{json.dumps(list(files))}\n{values}" if files else values)
