"""Captions of tables and figures (`captions.yaml`), with the settings of a configuration filled in."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

import jinja2
import yaml

from g2d.config.sections import Config
from g2d.plain import visible

FILE = Path(__file__).with_name("captions.yaml")


class Caption(TypedDict):
    """Plain text, with code in backticks."""

    caption: str
    definitions: dict[str, str]  # meanings of columns and values


def captions(config: Config, names: Iterable[str]) -> dict[str, Caption]:
    """Return the captions of tables and figures by their names."""
    written = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, finalize=visible)
    environment.globals = _names(config)

    def filled(text: str) -> str:
        return " ".join(environment.from_string(text).render().split())

    texts: dict[str, Caption] = {}
    for name in names:
        definitions = written[name].get("definitions", {})
        texts[name] = {
            "caption": filled(written[name]["caption"]),
            "definitions": {term: filled(text) for term, text in definitions.items()},
        }
    return texts


def _names(config: Config) -> dict[str, object]:
    n_seeds = len(config.seeds)
    has_several = n_seeds > 1

    def over(units: str) -> str:
        if has_several:
            return f"seeds and {units}"
        return f"{units}, for these weights"

    return {
        "config": config,
        "benchmark": config.tested_benchmarks[0],  # shown in figures
        "seeds": f"{n_seeds} seeds" if has_several else "1 seed",
        "over": over,
        "these_weights": "" if has_several else ", for these weights",
        "sampling": sampling_words(config),
    }


def sampling_words(config: Config) -> str:
    """Return how accuracies were measured, such as "greedy answers"."""
    sampled = config.evaluation.answers.sampled
    judge = ""
    if config.verifier is not None:
        judge = f", judged by {Path(config.verifier.file).name}"
    if sampled is None:
        return f"greedy answers{judge}"
    mean = f"mean of {sampled.n} samples" if sampled.n > 1 else "one sample"
    return f"{mean} at temperature {sampled.temperature:g}{judge}"
