"""The configuration, declared once: type, unit, default, bounds, one sentence and the paper's value for every key.

`config/schema.json` and `config/README.md` are generated from these classes (`g2d config docs`), and a test
regenerates and compares them. Unknown keys are refused. Cross-field rules are validators that say what to change.
Nothing here imports torch: a mistake in the configuration is reported in a second.

Defaults are the paper's values (G2D, arXiv 2605.21266) wherever it states one; `config/config.yaml` overrides them
for the demonstration model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError, field_validator, model_validator

from g2d.experiment.ablations import check_ablation, check_warmup
from g2d.experiment.config_file import read_file, require_whole
from g2d.experiment.entries import check_entry
from g2d.experiment.open_ended import OpenEnded, open_ended_mistakes
from g2d.experiment.processes import process_mistakes
from g2d.experiment.requirements import (
    RESERVED_FILES,
    RESERVED_FOLDERS,
    RESERVED_REGIMES,
    alike,
    impossible_draws,
    taken,
    unknown_benchmarks,
)
from g2d.experiment.sections import Ablation, Baselines, Collapse, Contamination, Frontier, Probe
from g2d.experiment.selection import selection_mistakes
from g2d.experiment.sweep import Sweep, sweep_mistakes
from g2d.jobs.files import write_text
from g2d.plain import plain
from g2d.policies.settings import LORA_RANKS, Lora, ModelSource
from g2d.problems.prompts import Prompt
from g2d.problems.settings import (
    DEVELOPMENT,
    HubProblems,
    LocalProblems,
    ProblemSource,
    SyntheticProblems,
    TrainingSet,
    place_of,
)
from g2d.regimes.catalogue import AnyEntry
from g2d.regimes.checkpoints import Checkpointing
from g2d.regimes.dpo import Dpo
from g2d.regimes.processes import Processes
from g2d.regimes.training import Logging
from g2d.regimes.warmup import AUTO, Warmup, check_group_sizes, check_step_size
from g2d.rewards.catalogue import AnyReward
from g2d.rollouts.settings import Calibration, EngineSettings, Evaluation, Harvest, Pairs
from g2d.settings import ConfigError, Name, Section, Seed, key, repeated
from g2d.settings.cached_method import cached_method
from g2d.settings.mistakes import changed, messages

FILES = "# files: "  # the first line of a saved configuration: a list, in JSON


class Config(Section):
    """Everything that says WHAT runs. HOW it runs (cluster, cores) lives in `profiles/`."""

    title: str = key("G2D", "Title of the report.")
    demonstration: str | None = key(
        None, "A sentence that marks every page and figure as a demonstration; null for real experiments."
    )
    seeds: list[Seed] = key([0, 1, 2, 3, 4], "Seeds of training, harvest and pairs.", paper="5 seeds", min_length=1)
    models: dict[Name, ModelSource] = key(..., "Base models M0 by name.", min_length=1)
    pool: ProblemSource = key(..., "Problems that calibration and training may draw from.", paper="MATH train")
    benchmarks: dict[Name, ProblemSource] = key(
        ..., "Held-out problems by name.", paper="MATH-500, GSM8K", min_length=1
    )
    prompt: Prompt = key(Prompt(), "What the policy is shown.")
    engine: EngineSettings = key(EngineSettings(), "What generates.")
    lora: Lora = key(Lora(), "The adapter.")
    calibration: Calibration = key(Calibration(), "Difficulty calibration.")
    training_set: TrainingSet = key(TrainingSet(), "The prompts to train on.")
    warmup: Warmup = key(Warmup(), "GRPO warm-up.")
    harvest: Harvest = key(Harvest(), "Rollouts of the frozen policy.")
    probe: Probe = key(Probe(), "The look before the grid, and the advice from it.")
    pairs: Pairs = key(Pairs(), "The draw of preference pairs.")
    dpo: Dpo = key(Dpo(), "Offline preference optimisation.")
    ablations: dict[Name, Ablation] = key({}, "Further policies, by name: the confounders of Table 3.")
    regimes: dict[Name, AnyEntry] = key(
        {}, "Further ways to train on the harvests, by the name that folders and tables give them.", neutral={}
    )
    rewards: dict[Name, AnyReward] = key(
        {},
        "What a completion may be worth, by the name that ablations and online entries of `regimes` have as their "
        "`reward`; policies that name none are trained on the truth.",
        neutral={},
    )
    open_ended: OpenEnded | None = key(
        None, "Prompts without a right answer, to train on and to be preferred on (docs/rewards.md).", neutral=None
    )
    baselines: Baselines = key(Baselines(), "GRPO alone.")
    evaluation: Evaluation = key(Evaluation(), "Benchmarks.")
    frontier: Frontier | None = key(
        None,
        "The tables of the frontier; null: with their defaults where there are `regimes`, else none.",
        neutral=None,
    )
    collapse: Collapse | None = key(
        None,
        "The tables of online training; null: with their defaults where there are `regimes`, else none.",
        neutral=None,
    )
    sweep: Sweep | None = key(
        None, "Learning rates and other numbers, chosen for every regime before a benchmark is answered.", neutral=None
    )
    contamination: Contamination | None = key(
        None, "What tells memory from reasoning: M0 continues the beginnings of questions.", neutral=None
    )
    share_imports: bool = key(
        False,
        "Fork the jobs that train or generate from one process that has imported torch, transformers and TRL: most of "
        "what a small job does. Without effect where there is a GPU, and on jobs that run vLLM (engine.keep_alive).",
    )
    training: Processes = key(Processes(), "How many GPUs share one training.")
    checkpoints: Checkpointing = key(Checkpointing(), "What a stopped training goes on from.")
    logging: Logging = key(Logging(), "Where training curves go.")

    @field_validator("title", "demonstration")
    @classmethod
    def _visible(cls, text: str | None) -> str | None:
        return None if text is None else plain(text, lines=True)

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        found = [f"seeds repeat: {self.seeds}"] if repeated(self.seeds) else []
        found += taken("models", self.models, RESERVED_FOLDERS, "a folder of the results")
        found += taken("models", self.models, RESERVED_FILES, "a file of the results")
        if any(name.lower() == "pool" for name in self.benchmarks):
            found.append('benchmarks: "pool" is the training pool\'s name: choose another')
        for section in ("ablations", "regimes"):
            found += taken(section, getattr(self, section), RESERVED_REGIMES, "a stage")
        found += taken("regimes", self.regimes, {name.lower() for name in self.ablations}, "an ablation")
        for section in ("models", "benchmarks", "ablations", "regimes", "rewards"):
            found += alike(section, getattr(self, section))
        found += [*open_ended_mistakes(self), *impossible_draws(self), *unknown_benchmarks(self)]
        for model in self.models:
            try:
                self.for_model(model)
            except ValueError as error:
                found += str(error).splitlines()
        found += [] if found else [*selection_mistakes(self), *sweep_mistakes(self)]
        if found:  # several models can make the same mistake
            raise ValueError("\n".join(dict.fromkeys(found)))
        return self

    @property
    def problem_sources(self) -> dict[str, SyntheticProblems | LocalProblems | HubProblems]:
        """The training pool, under the name pool, the benchmarks, open-ended prompts, and a sweep's problems where they
        have a source."""
        sources = {"pool": self.pool, **self.benchmarks, **(self.open_ended.sources if self.open_ended else {})}
        if self.sweep is None or isinstance(self.sweep.development, int):
            return sources
        return {**sources, DEVELOPMENT: self.sweep.development}

    @property
    def continued_benchmarks(self) -> list[str]:
        """The benchmarks whose questions M0 continues."""
        return [] if self.contamination is None else self.contamination.benchmarks or list(self.benchmarks)

    def place_of(self, problems: str) -> str:
        """Where one of `problem_sources` is configured."""
        return place_of(problems)

    @property
    def identity(self) -> dict[str, Any]:
        """The configuration without the keys that only say how fast and where; equal ones give equal results."""
        values = self.params(without={"checkpoints", "logging", "share_imports", "training"})
        for section in [values, *(model["settings"] for model in values["models"].values())]:
            section.pop("training", None)
            if name := section.pop("engine", {}).get("name"):
                section["engine"] = {"name": name}
        return values

    @cached_method
    def for_model(self, name: str) -> Config:
        """The configuration as one model sees it: its `settings` merged over the common sections.

        Raises:
            ValueError: a setting names a section that cannot differ by model, or fails validation.
        """
        own = self.models[name].settings
        if unknown := sorted(set(own) - MODEL_SECTIONS):
            raise ValueError(
                f"models.{name}.settings.{unknown[0]}: not a section that can differ by model "
                f"({', '.join(sorted(MODEL_SECTIONS))})"
            )
        merged = {}
        for section, values in own.items():
            where = f"models.{name}.settings.{section}"
            if not isinstance(values, Mapping):
                raise ValueError(f"{where}: expected a mapping of keys, not {values!r}")
            merged[section] = changed(where, getattr(self, section), values)
        resolved = self.model_copy(update=merged)
        try:
            check_step_size(own.get("warmup", {}), resolved.warmup)
        except ValueError as error:
            raise ValueError(f"models.{name}.settings.warmup.{error}") from None
        resolved._check_grid(name)
        return resolved

    def _check_grid(self, model: str) -> None:
        """Rules between sections, after a model's own settings are in."""
        check_group_sizes(self.warmup, self.baselines.grpo_group_sizes, "baselines.grpo_group_sizes")
        check_warmup(self, "warmup", self.warmup)
        if self.engine.name == "vllm" and self.lora.r > LORA_RANKS[-1]:
            raise ValueError(
                f"lora.r={self.lora.r} exceeds {LORA_RANKS[-1]}, the largest rank that vLLM applies: lower it or "
                "change the engine"
            )
        auto = self.warmup.auto
        if auto is not None and auto.prompts > self.training_set.n:
            raise ValueError(
                f"warmup.auto.prompts={auto.prompts} exceeds training_set.n={self.training_set.n} of {model}: lower it "
                "or draw a larger training set"
            )
        match = self.dpo.match_pairs_to
        if isinstance(match, int) and match not in self.warmup.steps:
            raise ValueError(
                f"dpo.match_pairs_to: K={match} is not in warmup.steps {self.warmup.steps} of {model}: "
                "add it there or choose another"
            )
        for name, ablation in self.ablations.items():
            check_ablation(self, name, ablation, model)
        for name in self.regimes:
            check_entry(self, name, model)
        for mistake in process_mistakes(self):
            raise ValueError(f"{mistake} ({model})")

    def save(self, path: str | Path, files: Sequence[str] = ()) -> None:
        """Write the configuration with every default filled in; reading it again gives an equal one.

        Args:
            files: that it was given in, for the first line.
        """
        values = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)
        write_text(path, f"{FILES}{json.dumps(list(files))}\n{values}" if files else values)

    @cached_method
    def ablation_dpo(self, name: str) -> Dpo:
        """The dpo section of one ablation."""
        return changed(f"ablations.{name}.dpo", self.dpo, self.ablations[name].dpo)

    @cached_method
    def ablation_steps(self, name: str) -> list[int]:
        """The K of one ablation; "all" leaves K=0 out where a warm-up is needed."""
        ablation = self.ablations[name]
        if ablation.steps != "all":
            return sorted(ablation.steps)
        # A reward changes the harvest of M0 too.
        changes_warmup = ablation.has_warmup and ablation.reward is None
        needs_warmup = changes_warmup or self.ablation_dpo(name).start == "warmup"
        return [k for k in self.warmup.steps if k > 0 or not needs_warmup]

    @cached_method
    def warmup_of(self, variant: str) -> Warmup:
        """The warmup section of the main grid ("", and `AUTO`), or of the ablation that has a warm-up of its own.

        The horizon stays the main grid's unless the ablation gives another, so that learning rates stay comparable.
        """
        if variant in ("", AUTO):
            return self.warmup
        own, where = self.ablations[variant].warmup, f"ablations.{variant}.warmup"
        main = self.warmup.model_copy(update={"horizon": self.warmup.total_steps, "auto": None})
        warmup = changed(where, main, own | {"steps": self.ablation_steps(variant)})
        try:
            check_step_size(own, warmup)
        except ValueError as error:
            raise ValueError(f"{where}.{error}") from None
        return warmup


MODEL_SECTIONS = frozenset(
    {
        *("prompt", "engine", "lora", "calibration", "training_set", "warmup", "harvest", "pairs", "dpo"),
        *("evaluation", "training"),
    }
)


def load(values: Mapping[str, Any], file: str = "config") -> Config:
    """Validate a configuration that Snakemake has read.

    Args:
        values: the parsed YAML.
        file: name of the file, for the message.

    Raises:
        ConfigError: one line per mistake, each with file, key and fix.
    """
    try:
        return Config.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError("\n".join(f"{file}: {line}" for line in messages(error, values, Config))) from None


def read(path: str | Path) -> Config:
    """Read and validate a YAML file.

    Raises:
        ConfigError: one line per mistake, each with file, key and fix.
    """
    values = read_file(path)
    require_whole(values, [path])
    return load(values, str(path))
