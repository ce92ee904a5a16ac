"""What of a configuration several processes cannot train together, or not yet: said before any job runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from g2d.experiment.arms import by_section, expanded, group_sizes
from g2d.experiment.sections import Config
from g2d.regimes.dpo import Dpo
from g2d.regimes.processes import indivisible
from g2d.regimes.regime import OnlineEntry
from g2d.regimes.warmup import Warmup

ALONE = "with one process alone: set training.processes to 1, or"


def process_mistakes(config: Config) -> Iterator[str]:
    """Key and fix of what does not go with `training.processes`, as the model sees it."""
    n = config.training.processes
    if n == 1:
        return
    for section, found in by_section(expanded(config)).items():
        settings = found[0].settings
        if isinstance(settings, Warmup):
            yield from _of_a_warmup(config, section, settings, group_sizes(found))
        elif isinstance(settings, Dpo):
            yield from _of_dpo(f"{section}.dpo" if found[0].phase == "rounds" else section, settings, n)
        else:
            yield from _of_an_entry(config, section, settings)


def _of_a_warmup(config: Config, where: str, warmup: Warmup, group_sizes: list[int]) -> Iterator[str]:
    n = config.training.processes
    for size in group_sizes:
        steps, keys = warmup.accumulation_steps(size), f"{where}.gradient_accumulation_steps"
        if warmup.per_device_batch_size == "auto":
            steps, keys = warmup.completions_per_step(size), f"{where}: with G={size}, the completions of a step"
        elif warmup.prompts_per_step is not None:
            keys = f"{where}: with G={size}, prompts_per_step x G / per_device_batch_size"
        if steps % n:
            yield indivisible(steps, keys, n)
        elif (own := warmup.completions_per_step(size) // n) % size:
            yield (
                f"{where}: each of training.processes={n} would have {own} completions of a step, which are no whole "
                f"groups of G={size}: change one of the three"
            )
    tokens = "the tokens of a micro-batch, of which several processes make others, and so goes"
    alone = [
        (
            warmup.loss == "bnpo",
            f".loss: bnpo is a mean over {tokens}",
            "set it to dapo, the mean over those of a step",
        ),
        (warmup.entropy_coefficient != 0, f".entropy_coefficient is about {tokens}", "set it to 0"),
        (warmup.top_entropy_quantile != 1, f".top_entropy_quantile is about {tokens}", "set it to 1"),
        (warmup.retire or warmup.resample, ": retire and resample go", "drop them"),
        (warmup.replay is not None, ".replay goes", "drop the key"),
        (warmup.correction == "m2", ".correction: m2 is over the tokens of an update and goes", "set it to token_mask"),
        (warmup.updates_between_generations > 1, ": updates_per_generation and iterations above 1 go", "set both to 1"),
        (warmup.lag > 0, ".lag goes", "drop the key"),
        (warmup.reference == "sync", ".reference: sync goes", "drop the key"),
        (warmup.auto is not None, ".auto: what stops by itself goes", "drop the key"),
    ]
    yield from (f"{where}{words} {ALONE} {fix}" for refused, words, fix in alone if refused)
    yield from _of_vllm(config, where)


def _of_dpo(where: str, dpo: Any, n: int) -> Iterator[str]:
    passes, keys = dpo.gradient_accumulation_steps, f"{where}.gradient_accumulation_steps"
    if dpo.per_device_batch_size == "auto":
        passes, keys = passes * dpo.number("per_device_batch_size"), f"{where}: the rows of a step"
    if passes % n:
        yield indivisible(passes, keys, n)
    if getattr(dpo, "precompute_reference", False):
        yield f"{where}.precompute_reference goes {ALONE} set it to false"


def _of_an_entry(config: Config, where: str, entry: Any) -> Iterator[str]:
    n = config.training.processes
    if entry.regime == "kto":
        yield f"{where}: KTO compares the rows that one device holds, and so goes {ALONE} drop the entry"
    elif entry.regime == "rft":
        yield from _of_dpo(where, entry, n)
    elif isinstance(entry, OnlineEntry):
        if config.training.strategy == "fsdp":
            yield (
                f"{where}: what generates for it is a second copy of M0, whole on every GPU, so training.strategy: "
                "fsdp gains nothing: set it to ddp, or drop the entry"
            )
        if entry.prompts_per_update < n:
            yield f"{where}.prompts_per_update={entry.prompts_per_update} is less than training.processes={n}: raise it"
        if entry.retire or entry.resample:
            yield f"{where}: retire and resample go {ALONE} drop them"
        if entry.auto is not None:
            yield f"{where}.auto: what stops by itself goes {ALONE} drop the key"
        yield from _of_vllm(config, where)


def _of_vllm(config: Config, where: str) -> Iterator[str]:
    if config.engine.name == "vllm" and config.training.strategy == "fsdp":
        yield (
            f"{where}: vLLM beside the trainer holds M0 whole on every GPU, so training.strategy: fsdp gains nothing: "
            "set it to ddp, or engine.name to transformers"
        )
