"""The configuration, declared once: type, unit, default, bounds, one sentence and the paper's value of every key.

Here are the sections that are about the grid as a whole, and `Config`, which puts all sections together; the others are
declared in the rooms that read them. `config/schema.json` and `config/README.md` are generated from these classes
(`g2d config docs`). What one key demands of another is checked when a configuration is read (`g2d.experiment.checks`).
Nothing here imports torch: a mistake in the configuration is reported in a second. Defaults are the paper's values
(G2D, arXiv 2605.21266) wherever it states one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, PrivateAttr, field_validator, model_validator

from g2d.jobs.files import write_text
from g2d.plain import plain
from g2d.policies.settings import ALL_WEIGHTS, NONE, Lora, ModelSource
from g2d.problems.prompts import Prompt
from g2d.problems.settings import DEVELOPMENT, HELD_OUT, OPEN_ENDED, OPEN_ENDED_DEVELOPMENT, ProblemSource, TrainingSet
from g2d.regimes.catalogue import AnyEntry
from g2d.regimes.checkpoints import Checkpointing
from g2d.regimes.dpo import Dpo
from g2d.regimes.processes import Processes
from g2d.regimes.prompt_choice import PromptMix
from g2d.regimes.regime import Selects
from g2d.regimes.tracking import Logging
from g2d.regimes.warmup import AUTO, Warmup
from g2d.rewards.catalogue import AnyReward, RewardName
from g2d.rollouts.settings import Calibration, EngineSettings, Evaluation, Harvest, Pairs, Sampling
from g2d.settings import MistakeInKeyError, Name, Section, Seed, Steps, key, repeated
from g2d.settings.cached_method import cached_method
from g2d.settings.mistakes import changed

MOST_SEEDS = 1000  # of looks
FILES = "# files: "  # the first line of a saved configuration: a list, in JSON


class Probe(Section):
    """A cheap look before the grid: a few prompts harvested at every K of the first seed (`snakemake advice`)."""

    prompts: int = key(
        50, "Prompts harvested, the first ones of the training set; all of them where it has fewer.", ge=2
    )
    compare: bool = key(False, "Build the advice with the whole grid too, and compare it with what the grid has shown.")


class Frontier(Section):
    """Accuracy against cost, over all regimes (`g2d.analysis.frontier`)."""

    margin: float = key(
        0.02,
        "By how much a policy may be worse than the best one and still be good enough, in accuracy (0.02: two points).",
        gt=0,
        lt=1,
    )


PerHour = Annotated[float, Field(ge=0)]


class Price(Section):
    """What an hour of a device costs, which makes money one of the costs (docs/analysis.md)."""

    currency: str = key(
        ..., "Of the price, as tables and the page name it, for example EUR.", pattern="^[A-Za-z]{1,12}$"
    )
    devices: PerHour | Annotated[dict[str, PerHour], Field(min_length=1)] = key(
        ...,
        "For an hour of any device, or by the name that the column device of cost.csv has (cpu: a job without a GPU, "
        "all its cores). What ran on a device without a price has no cost in money.",
    )

    def per_hour(self, device: str) -> float | None:
        """The price of a device; None where it has none, or where devices of one job differ in theirs."""
        if isinstance(self.devices, (int, float)):
            return self.devices
        prices = {self.devices.get(name) for name in device.split(", ")}
        return prices.pop() if len(prices) == 1 else None

    def of_any(self, hours: float) -> str:
        """Hours to come in money, whatever device they are on; empty where that decides."""
        return f" ({self.devices * hours:.2f} {self.currency})" if isinstance(self.devices, (int, float)) else ""


class Looks(Section):
    """The seeds in stages: a look after each decides which policies get the next, with one error over all looks."""

    looks: list[Annotated[int, Field(ge=2, le=MOST_SEEDS)]] = key(
        ..., "Seeds that a policy has at each look, ascending; the seeds are 1 to the last number.", min_length=1
    )
    plan: Name | None = key(
        None,
        "Name of the plan. What it says is fixed by the first look; another plan over the same results needs another "
        "name, and is listed with those before it.",
    )
    spending: Literal["obrien_fleming", "pocock"] = key(
        "obrien_fleming", "How the error is spent over the looks (Lan and DeMets); Pocock spends more of it early."
    )
    error: float = key(
        0.05,
        "Probability of a wrong verdict in a family of comparisons, over all looks; for differences and for being "
        "within the margin each.",
        gt=0,
        lt=0.5,
    )
    futility: float = key(
        0.015,
        "A comparison is given up where the chance that a later look settles it is below this for every further seed.",
        ge=0,
        lt=1,
    )
    until: int | None = key(
        None,
        "The look to stop after: tables and page are of its seeds; null: the last that is needed.",
        ge=1,
        neutral=None,
    )

    @model_validator(mode="before")
    @classmethod
    def _without_waiting(cls, values: Any) -> Any:
        """Drop the key `waiting`, which earlier versions wrote into `results/config.yaml`, if it is empty."""
        if not isinstance(values, Mapping) or "waiting" not in values:
            return values
        if values["waiting"]:
            raise MistakeInKeyError("waiting", "no longer a key: remove it (after a look, seeds.plan names a new plan)")
        return {name: value for name, value in values.items() if name != "waiting"}

    @field_validator("looks")
    @classmethod
    def _ascending(cls, looks: list[int]) -> list[int]:
        if sorted(set(looks)) != looks:
            raise ValueError(f"looks must ascend: {looks}")
        return looks

    @field_validator("plan")
    @classmethod
    def _is_no_file(cls, plan: str | None) -> str | None:
        if plan is not None and re.fullmatch(r"(look.*|plan)\.json", plan, re.IGNORECASE):
            raise ValueError(f"{plan} is the name of a file beside its folder: choose another, for example again")
        return plan

    @property
    def most(self) -> int:
        """The largest number of looks that there can be."""
        return len(self.looks)

    @property
    def folder(self) -> str:
        """Where its looks are, below the results folder."""
        return f"looks/{self.plan}" if self.plan else "looks"


class Collapse(Section):
    """What counts as the collapse of an online training (`g2d.analysis.dynamics`)."""

    share: float = key(
        0.2, "Of the entropy, or the length, that a training began with: less than that is a collapse.", gt=0, lt=1
    )


class Contamination(Section):
    """Memory or reasoning: M0 continues the beginning of every question (`g2d.analysis.contamination`)."""

    benchmarks: list[Name] = key([], "Whose questions; empty: those of all benchmarks.")
    share: float = key(0.6, "Share of a question's words that is shown, rounded down.", gt=0, lt=1)
    max_completion_length: int = key(1024, "Token budget of a continuation.", unit="tokens", ge=1)
    batch_size: int = key(64, "Continuations generated together by transformers; vLLM batches by itself.", ge=1)

    @field_validator("benchmarks")
    @classmethod
    def _distinct(cls, benchmarks: list[str]) -> list[str]:
        if repeated(benchmarks):
            raise ValueError(f"benchmarks repeat: {benchmarks}")
        return benchmarks


class Drift(Section):
    """How far policies are from M0 on answers of their own, drawn at temperature 1 (`g2d.rollouts.divergence`)."""

    problems: int = key(100, "Problems of every benchmark that are drawn for it; all of one that has fewer.", ge=2)
    samples_per_prompt: int = key(1, "Answers to each of them.", ge=1)
    seed: Seed = key(0, "Seed of the problems and of the answers.")


class Ablation(Selects, PromptMix):
    """Policies that differ from the main ones in named keys (paper, Table 3): one confounder, one row.

    With other keys of `warmup`, or another reward, they have a warm-up, and a harvest, of their own. One that differs
    in `select` alone is GRPO of the main grid.
    """

    steps: Literal["all"] | list[Steps] = key(..., "The values of K to train it at; all: every K that it can have.")
    dpo: dict[str, Any] = key({}, "Keys of the dpo section with their other values.")
    warmup: dict[str, Any] = key({}, "Keys of the warmup section with their other values.")
    reward: RewardName | None = key(
        None,
        "The entry of `rewards` that judges its warm-up, on verifiable prompts, and its harvest, at K=0 that of M0, or "
        "`{file: my_reward.py}`; null for the truth.",
        neutral=None,
    )
    policies: list[Literal["dpo", "grpo"]] = key(
        ["dpo"], "What is evaluated: dpo on the harvest, or the warmed-up policy itself (grpo).", min_length=1
    )

    @model_validator(mode="after")
    def _changes_something(self) -> Ablation:
        if not self.dpo and not self.has_warmup and not self.select:
            raise ValueError("nothing differs: give a key of dpo or of warmup another value")
        if self.prompts == "open_ended" and self.reward is not None:
            raise ValueError("reward: judges verifiable prompts, and none is asked: drop it")
        if self.asks_open_ended and "dpo" in self.policies:
            raise ValueError("policies: a harvest asks verifiable prompts alone: write [grpo], or ask these alone too")
        if not self.has_warmup and not self.select and "grpo" in self.policies:
            raise ValueError("policies: grpo is the main grid's own policy unless a key of warmup differs")
        if self.dpo and "dpo" not in self.policies:
            raise ValueError("dpo has other values, but policies trains no dpo: add it or drop them")
        if "steps" in self.warmup:
            raise ValueError("warmup.steps: the values of K are the ablation's own steps: write them there")
        if "auto" in self.warmup:
            raise ValueError("warmup.auto: only the main warm-up can stop by itself: drop the key")
        if not self.steps:
            raise ValueError("steps is empty: list at least one K, or write all")
        if self.steps != "all" and repeated(self.steps):
            raise ValueError(f"steps: K values repeat: {self.steps}")
        if repeated(self.policies):
            raise ValueError(f"policies repeat: {self.policies}")
        return self

    @property
    def has_warmup(self) -> bool:
        """Whether it has a warm-up and harvests of its own, not only a DPO."""
        return bool(self.warmup) or self.reward is not None or self.asks_open_ended


class Baselines(Section):
    """Policies to compare with (paper, section 4.1)."""

    grpo_group_sizes: list[int] = key([2, 4], "GRPO alone at the largest K, for these G.", paper="2 and 4")
    grpo_steps: Literal["last", "all"] = key(
        "last",
        "all: GRPO alone is evaluated at every K, too, where the warm-up has that G and passes there anyway.",
        neutral="last",
    )


class OpenEnded(Sampling):
    """Prompts without a right answer: to train on, and held out, where every policy is compared with M0."""

    pool: ProblemSource = key(
        ..., "Prompts to train on; of a file or data set no column of answers is read.", paper="100,000 of WildChat"
    )
    held_out: ProblemSource = key(
        ..., "Prompts that every policy and M0 reply to, for the win rates.", paper="AlpacaEval 2, ArenaHard"
    )
    development: ProblemSource | None = key(
        None,
        "Prompts that checkpoints are selected by (`select`), in neither of the others.",
        paper="470, none of AlpacaEval 2",
        neutral=None,
    )
    reward: RewardName = key(
        ..., "The entry of `rewards` that judges them in training; it looks at no reference.", paper="Athene-RM-8B"
    )
    judge: RewardName | None = key(
        None, "The entry of `rewards` that the win rates are by; null: the one trained on.", paper="GPT-4-1106, GPT-4o"
    )
    samples_per_prompt: int = key(4, "Replies of a policy to each held-out prompt.", paper="1", ge=1)
    temperature: float = key(1.0, "Sampling temperature of the replies.", gt=0, le=5)
    max_completion_length: int = key(2048, "Token budget of a reply.", unit="tokens", ge=1)
    seed: Seed = key(0, "Seed of the replies; a policy and M0 draw with the same random numbers.")

    @property
    def sources(self) -> dict[str, Any]:
        """Its sets of problems, by the names of their files."""
        development = {} if self.development is None else {OPEN_ENDED_DEVELOPMENT: self.development}
        return {OPEN_ENDED: self.pool, HELD_OUT: self.held_out, **development}

    @property
    def judged_by(self) -> str:
        """The entry of `rewards` that the win rates are by."""
        return self.judge or self.reward


class Sweep(Section):
    """What every regime is tuned by, and which checkpoints are taken, by problems of no training and no benchmark."""

    development: Annotated[int, Field(ge=1)] | ProblemSource = key(
        ...,
        "The problems that choose: so many held out of the pool, which are then neither calibrated nor trained on; or "
        "a source of problems as for the pool, which it must not share any with.",
    )
    regimes: dict[str, dict[str, list[float]]] = key(
        {},
        "By what is swept (warmup, dpo, an ablation or an entry of regimes): keys with the values to try, every "
        "combination of them. Keys are numbers that a training is tuned by: rates, weights, clips, epochs. Those of an "
        "ablation are keys of its warm-up if it has one, else of dpo. Empty: the problems select checkpoints alone "
        "(`select`).",
        neutral={},
    )
    at: dict[str, Steps] = key({}, "The K of the candidates, by what is swept; without one, the largest there is.")
    seed: Seed | None = key(None, "Seed of the candidates; null: the grid's first one, whose harvests are there.")


MODEL_SECTIONS = {
    *("prompt", "engine", "lora", "calibration", "training_set", "warmup", "harvest", "pairs", "dpo"),
    *("evaluation", "training"),
}


@dataclass(frozen=True)
class Reached:
    """What the looks that were taken ask for."""

    seeds: Mapping[str, int] = field(default_factory=dict)  # of a policy (`PolicyKey.name`): that it has, or gets next
    files: tuple[str, ...] = ()  # the looks, first to last; paths begin with `results/`
    is_over: bool = False


class Config(Section):
    """Everything that says WHAT runs. HOW it runs (cluster, cores) lives in `profiles/`."""

    title: str = key("G2D", "Title of the report.")
    demonstration: str | None = key(
        None, "A sentence that marks every page and figure as a demonstration; null for real experiments."
    )
    seeds: list[Seed] = key(
        [0, 1, 2, 3, 4],
        "Seeds of training, harvest and pairs; `{looks: [2, 3, 5, 8]}`, with the keys of `looks`: in stages.",
        paper="5 seeds",
        min_length=1,
    )
    looks: Looks | None = key(None, "The seeds in stages (docs/race.md), as `seeds: {looks: ...}`.", neutral=None)
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
    price_per_device_hour: Price | None = key(
        None, "What an hour of a device costs: bills and the frontier are in money, too.", neutral=None
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
    drift: Drift | None = key(
        None, "The KL divergence from M0, of every policy on its own answers (drift.csv).", neutral=None
    )
    share_imports: bool = key(
        True,
        "Fork the jobs that train or generate from one process that has imported torch, transformers and TRL, which "
        "takes longer than a small job's own work. Without effect on a cluster, where jobs are on several machines, "
        "and on jobs that run vLLM (engine.keep_alive).",
    )
    training: Processes = key(Processes(), "How many GPUs share one training.")
    checkpoints: Checkpointing = key(Checkpointing(), "What a stopped training goes on from.")
    logging: Logging = key(Logging(), "Where training curves go.")
    _reached: Reached | None = PrivateAttr(None)  # None: the whole grid (`g2d.experiment.race`)

    @field_validator("title", "demonstration")
    @classmethod
    def _visible(cls, text: str | None) -> str | None:
        return None if text is None else plain(text, lines=True)

    @property
    def problem_sources(self) -> dict[str, ProblemSource]:
        """The training pool, as pool, the benchmarks, open-ended prompts, and a sweep's problems if from a source."""
        sources = {"pool": self.pool, **self.benchmarks, **(self.open_ended.sources if self.open_ended else {})}
        if self.sweep is None or isinstance(self.sweep.development, int):
            return sources
        return {**sources, DEVELOPMENT: self.sweep.development}

    @property
    def reached(self) -> Reached | None:
        """What the looks ask for so far; None for the whole grid."""
        return self._reached

    @property
    def continued_benchmarks(self) -> list[str]:
        """The benchmarks whose questions M0 continues."""
        return [] if self.contamination is None else self.contamination.benchmarks or list(self.benchmarks)

    @property
    def further(self) -> dict[str, Any]:
        """The ablations and the entries of `regimes`, by where they are configured."""
        ablations = {f"ablations.{name}": ablation for name, ablation in self.ablations.items()}
        return ablations | {f"regimes.{name}": entry for name, entry in self.regimes.items()}

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
        """The configuration as one model sees it: its `settings` merged over the common sections."""
        own = self.models[name].settings
        if unknown := sorted(set(own) - MODEL_SECTIONS):
            raise ValueError(
                f"models.{name}.settings.{unknown[0]}: not a section that can differ by model "
                f"({', '.join(sorted(MODEL_SECTIONS))})"
            )
        merged = {}
        for section, written in own.items():
            where = f"models.{name}.settings.{section}"
            values = ALL_WEIGHTS if section == "lora" and written == NONE else written
            if not isinstance(values, Mapping):
                raise ValueError(f"{where}: expected a mapping of keys, not {values!r}")
            merged[section] = changed(where, getattr(self, section), values)
        return self.model_copy(update=merged)

    def save(self, path: str | Path, files: Sequence[str] = ()) -> None:
        """Write it with every default and the files that it was given in; reading it again gives an equal one."""
        values = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)
        write_text(path, f"{FILES}{json.dumps(list(files))}\n{values}" if files else values)

    @cached_method
    def ablation_dpo(self, name: str) -> Dpo:
        """The dpo section of one ablation."""
        return changed(f"ablations.{name}.dpo", self.dpo, self.ablations[name].dpo)

    @cached_method
    def steps_of(self, name: str | None) -> list[int]:
        """The K of an ablation or an entry, or of the warm-up (None); "all" leaves K=0 out where it needs one."""
        if name is None:
            return self.warmup.steps
        own = self.ablations.get(name) or self.regimes[name]
        if own.steps != "all":
            return sorted(own.steps)
        if isinstance(own, Ablation):  # a reward changes the harvest of M0 too
            there, changes_warmup = self.warmup.steps, own.has_warmup and own.reward is None
            needs_warmup = changes_warmup or self.ablation_dpo(name).start == "warmup"
        else:
            there, needs_warmup = self.steps_of(own.harvest), own.start == "warmup"
        return [k for k in there if k > 0 or not needs_warmup]

    @cached_method
    def warmup_of(self, variant: str) -> Warmup:
        """The warmup section of the main grid ("", and `AUTO`), or of the ablation that has its own, whose horizon is
        the main grid's unless it gives another, so that learning rates stay comparable."""
        if variant in ("", AUTO):
            return self.warmup
        own, where = self.ablations[variant].warmup, f"ablations.{variant}.warmup"
        main = self.warmup.model_copy(update={"horizon": self.warmup.total_steps, "auto": None})
        return changed(where, main, own | {"steps": self.steps_of(variant)})
