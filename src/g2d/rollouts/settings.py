"""Engines and sampling: the keys of `engine`, `calibration`, `harvest`, `pairs`, `evaluation`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from g2d.settings import MistakeInKeyError, Section, Seed, key, repeated


class Shards(Section):
    """Jobs that a file of rollouts is split into, for example one per GPU. Its rows do not depend on it."""

    calibration: int = key(1, "Shards of the calibration of one model.", ge=1)
    harvest: int = key(1, "Shards of one harvest.", ge=1)
    evaluation: int = key(1, "Shards of the evaluation of one policy on one benchmark.", ge=1)


class EngineSettings(Section):
    """The engine that generates completions in training, calibration, harvest and evaluation."""

    name: Literal["transformers", "vllm"] = key(
        "transformers", "transformers needs nothing else; vllm is faster and needs the package vllm."
    )
    adapters: Literal["auto", "merge", "merge_bfloat16", "lora"] = key(
        "auto",
        "How vLLM holds an adapter: merged into float32 weights once (merge; twice the memory on a GPU), or into "
        "bfloat16 ones that are rounded at random, so that a small adapter is kept on average (merge_bfloat16); "
        "applied at every step (lora); or merge on a CPU and lora on a GPU (auto).",
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
    cuda_graph: bool = key(
        False,
        "Have transformers draw a token of all rows by replaying a CUDA graph, in calibration, harvest, evaluation and "
        "GRPO: for GPUs that wait for their host. Not measured yet, so off. A CPU ignores it, vLLM has its own.",
    )
    shards: Shards = key(
        Shards(), "Jobs that generation is split into; a finished file keeps the number it was made of."
    )

    @property
    def identity(self) -> str:
        """The part that finished results depend on; changing other keys re-runs nothing."""
        return self.name


class Sampling(Section):
    """Sampling of completions."""

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
    sampled_levels: Literal["all", "pinned"] = key(
        "all",
        "Levels that M0 is sampled on: all of the pool, for the table of success by level, or only the pinned ones.",
        neutral="all",
    )
    window: tuple[float, float] = key((0.3, 0.6), "pass@1 at which a level is chosen.", paper="30 to 60 %")
    seed: Seed = key(0, "Seed of the draw and of the rollouts.")
    factorial_temperatures: list[Annotated[float, Field(gt=0, le=5)]] = key(
        [],
        "Further temperatures to sample the same problems at, for the table that separates level from temperature.",
        paper="confounded in Table 4 and A.1",
    )

    @model_validator(mode="after")
    def _check(self) -> Calibration:
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
        if self.samples_per_prompt < 2 and (self.levels == "auto" or self.factorial_temperatures):
            raise MistakeInKeyError(
                "samples_per_prompt",
                "the window and factorial_temperatures need the success rate of each problem: set it to 2 or more, or "
                "pin levels and drop factorial_temperatures",
            )
        if self.sampled_levels == "pinned" and self.levels == "auto":
            raise MistakeInKeyError("sampled_levels", "no levels are pinned: list them in levels, or write all")
        return self

    @property
    def only(self) -> list[int] | None:
        """Levels to sample; None: all levels of the pool."""
        return self.levels if self.sampled_levels == "pinned" and self.levels != "auto" else None


class Harvest(Sampling):
    """Stage 2: rollouts of the frozen policy pi_K (paper, section 2.1)."""

    @model_validator(mode="after")
    def _makes_pairs(self) -> Harvest:
        if self.samples_per_prompt < 2:
            raise MistakeInKeyError(
                "samples_per_prompt", "a pair is of two rollouts to one prompt: set it to 2 or more"
            )
        return self


class Pairs(Section):
    """Sampling of a right and a wrong rollout for every pairable prompt (paper, section 2.1)."""

    seed: Seed | None = key(None, "Seed of the draw; null: the seed of the run, so that every seed draws its own.")
    truncated_chosen: Literal["keep", "avoid"] = key(
        "keep",
        "A right rollout that the token budget cut off after its box: chosen like any other (keep), or only where no "
        "right rollout of the prompt ended by itself (avoid). It is trained as it was drawn, without an end of turn.",
        paper="keep",
        neutral="keep",
    )
    margin: float | None = key(
        None,
        "Of a scalar reward: how far the best and the worst rollout of a prompt are apart at least; null: at all.",
        gt=0,
        neutral=None,
    )


class SampledEvaluation(Section):
    """Evaluation by sampling."""

    n: int = key(8, "Completions per problem.", ge=1)
    temperature: float = key(0.6, "Sampling temperature.", gt=0, le=5)
    top_p: float = key(0.95, "Nucleus sampling threshold.", gt=0, le=1)
    seed: Seed = key(0, "Seed of the samples.")
    beside_greedy: bool = key(
        False,
        "Answer greedily too: accuracies are then those of the greedy answers, and the samples give pass@k and maj@n.",
        neutral=False,
    )


class Evaluation(Section):
    """Pass@1 under greedy decoding on every benchmark (paper, Table 1)."""

    max_completion_length: int = key(1024, "Token budget of an answer.", unit="tokens", paper="not stated", ge=1)
    batch_size: int = key(64, "Completions generated together by transformers; vLLM batches by itself.", ge=1)
    sampled: SampledEvaluation | None = key(None, "Draw n samples per problem instead of decoding greedily.")
    token_budgets: list[int] = key(
        [], "Also judge each completion cut after so many tokens, which tells truncation from reasoning.", unit="tokens"
    )

    @property
    def answers(self) -> Evaluation:
        """The evaluation that accuracies are based on: greedy if samples are drawn beside greedy answers."""
        has_both = self.sampled is not None and self.sampled.beside_greedy
        return self.model_copy(update={"sampled": None}) if has_both else self

    @property
    def samples(self) -> Evaluation | None:
        """The samples beside greedy answers; None without them."""
        if self.sampled is None or not self.sampled.beside_greedy:
            return None
        sampled_only = self.sampled.model_copy(update={"beside_greedy": False})
        return self.model_copy(update={"sampled": sampled_only, "token_budgets": []})

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
