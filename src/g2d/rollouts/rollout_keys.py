"""Keys of `engine`, `calibration`, `harvest`, `pairs` and `evaluation`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from g2d.settings import MistakeInKeyError, Section, Seed, key, repeated

# Concurrent sequences of vLLM; from 70 GiB on its default is larger. Only a smaller limit is passed to it.
SEQUENCES = 256


class EngineSettings(Section):
    """Engine that generates completions."""

    name: Literal["transformers", "vllm"] = key("transformers", "vllm is faster and needs its own package.")
    adapters: Literal["auto", "merge", "lora"] = key(
        "auto",
        "Adapters in vLLM: merged into float32 weights (twice the memory), or applied (lora). auto: merge on a CPU, "
        "else lora.",
    )
    tensor_parallel_size: int = key(1, "GPUs per frozen policy in vLLM.", ge=1)
    gpu_memory_utilization: float = key(0.9, "Share of a GPU's memory for vLLM.", gt=0, le=1)
    training_gpu_memory_utilization: float = key(0.3, "The same while a trainer uses the GPU too.", gt=0, le=1)
    check: Literal["stop", "warn"] = key(
        "stop", "If its log-probabilities differ from those of transformers by more than rounding."
    )


class Sampling(Section):
    """Sampling of completions."""

    samples_per_prompt: int = key(8, "Rollouts per prompt, G'.", paper="8", ge=1)
    temperature: float = key(1.3, "Sampling temperature, tau.", paper="1.3", gt=0, le=5)
    top_p: float = key(1.0, "Nucleus sampling threshold.", gt=0, le=1)
    max_completion_length: int = key(512, "Token budget of a completion.", unit="tokens", paper="512 / 896", ge=1)
    batch_size: int = key(64, "Completions per batch with transformers.", ge=1, of_machine=True)


class Calibration(Sampling):
    """Difficulty calibration of M0 (paper, sections 5.3 and A.3, recipe step 1)."""

    problems_per_level: int = key(200, "Problems per level, sampled from the pool.", paper="421 to 632", ge=1)
    levels: Literal["auto"] | list[int] = key(
        "auto", "Levels to train on; auto: pass@1 in `window`.", paper="[2, 3, 4]"
    )
    sampled_levels: Literal["all", "pinned"] = key("all", "Sample all levels, or only `levels`.", neutral="all")
    window: tuple[float, float] = key((0.3, 0.6), "Range of pass@1 for levels.", paper="30 to 60 %")
    seed: Seed = key(0, "Seed of the problems and of the rollouts.")
    factorial_temperatures: list[Annotated[float, Field(gt=0, le=5)]] = key(
        [], "Further temperatures, to separate level and temperature.", paper="confounded in Table 4 and A.1"
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
        if self.sampled_levels == "all" or self.levels == "auto":
            return None
        return self.levels


class HarvestSettings(Sampling):
    """Stage 2: rollouts of the frozen policy pi_K (paper, section 2.1)."""

    @model_validator(mode="after")
    def _makes_pairs(self) -> HarvestSettings:
        if self.samples_per_prompt < 2:
            raise MistakeInKeyError(
                "samples_per_prompt", "a pair is of two rollouts to one prompt: set it to 2 or more"
            )
        return self


class Pairs(Section):
    """Sampling of one right and one wrong rollout per pairable prompt (paper, section 2.1)."""

    min_reward_margin: float | None = key(None, "Scalar reward: smallest difference of a pair.", gt=0, neutral=None)


class SampledEvaluation(Section):
    """Evaluation by sampling."""

    n: int = key(8, "Completions per problem.", ge=1)
    temperature: float = key(0.6, "Sampling temperature.", gt=0, le=5)
    top_p: float = key(0.95, "Nucleus sampling threshold.", gt=0, le=1)
    beside_greedy: bool = key(
        False, "Also decode greedily: accuracy is then greedy, samples give pass@k and maj@n.", neutral=False
    )


class Evaluation(Section):
    """Pass@1 under greedy decoding on every benchmark (paper, Table 1)."""

    max_completion_length: int = key(1024, "Token budget of an answer.", unit="tokens", paper="not stated", ge=1)
    batch_size: int = key(64, "Completions per batch with transformers.", ge=1, of_machine=True)
    sampled: SampledEvaluation | None = key(None, "Sample completions instead of greedy decoding.")

    @property
    def answers(self) -> Evaluation:
        """Evaluation for accuracies: greedy if samples are drawn beside greedy answers."""
        has_both = self.sampled is not None and self.sampled.beside_greedy
        return self.model_copy(update={"sampled": None}) if has_both else self

    @property
    def samples(self) -> Evaluation | None:
        """Samples beside greedy answers; None without them."""
        if self.sampled is None or not self.sampled.beside_greedy:
            return None
        sampled_only = self.sampled.model_copy(update={"beside_greedy": False})
        return self.model_copy(update={"sampled": sampled_only})
