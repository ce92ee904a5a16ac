"""Model and data set cards: the README.md that the Hugging Face Hub shows, beside every adapter and every harvest.

They have the base model and its revision, how it was trained, its results, and the mark of a demonstration.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

import pandas as pd
import yaml

from g2d.analysis.informativeness import Informativeness
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.markdown import code, fenced, literal
from g2d.policies.policy import Policy
from g2d.regimes.catalogue import REGIMES
from g2d.report.win_rates import TRAINED_ON

PAPER = "https://arxiv.org/abs/2605.21266"


def model_card(key: PolicyKey, policy: Policy, base: Policy, results: pd.DataFrame, demonstration: str | None) -> str:
    """The card of one adapter.

    Args:
        key: of the policy in the grid.
        policy: its record.
        base: M0.
        results: its rows of the main or the ablations table; they average over seeds.
        demonstration: the sentence that marks a demonstration.
    """
    name = base.public_base
    header = {
        **({"base_model": base.settings["id"]} if "id" in base.settings else {}),  # a link that the Hub follows
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "tags": ["lora", "reasoning", "g2d", policy.regime],
    }
    return _card(
        header,
        policy.policy_id,
        demonstration,
        f"A LoRA adapter for {_model(base)}, trained with {_training(key, policy)}, seed {policy.seed}, by the "
        f"[G2D workflow]({PAPER}). SHA-256 of its weights: {code(str(policy.weights_sha256))}.",
        *_results(results),
        "## Use",
        fenced(
            "from peft import PeftModel\n"
            "from transformers import AutoModelForCausalLM\n\n"
            f"base = AutoModelForCausalLM.from_pretrained({json.dumps(name)}{_revision(base)})\n"
            'policy = PeftModel.from_pretrained(base, "path/to/this/folder")',
            "python",
        ),
        fenced(f"vllm serve {shlex.quote(name)} --enable-lora --lora-modules g2d=path/to/this/folder"),
        "## Settings",
        fenced(yaml.safe_dump(policy.settings, sort_keys=False), "yaml"),
    )


def harvest_card(key: HarvestKey, base: Policy, counts: Informativeness, demonstration: str | None) -> str:
    """The card of one harvest: its rollouts and the preference pairs in them.

    Args:
        base: M0.
        counts: how informative the harvest is.
    """
    header = {
        # `datasets` reads one format per folder; the rollouts are Parquet.
        "configs": [{"config_name": "pairs", "data_files": "pairs.jsonl", "default": True}],
        "task_categories": ["text-generation"],
        "tags": ["preference", "dpo", "reasoning", "g2d"],
    }
    return _card(
        header,
        key.folder,
        demonstration,
        f"Rollouts of {_model(base)} {_warmup(key.k)}, judged by Math-Verify, and one preference pair for "
        f"every prompt with both right and wrong ones, from the [G2D workflow]({PAPER}). The prompts and reference "
        "answers belong to the data set they were drawn from, and its licence holds.",
        f"- `pairs.jsonl`: {counts.n_pairable} pairs in TRL's conversational preference format (`prompt`, `chosen`, "
        "`rejected`), with `problem_id` and `p_hat`, the share of right rollouts. Policies here are trained on the "
        "tokens beside them, as they were sampled (`prompt_ids`, `chosen_ids`, `rejected_ids`); TRL makes its "
        "own of the messages.\n"
        f"- `rollouts.parquet`: {counts.n_rollouts} completions of {counts.n_prompts} prompts with verdict, "
        "reward, length and finish reason.",
        "```python\n"
        "from datasets import load_dataset\n\n"
        'pairs = load_dataset("path/to/this/folder", split="train")\n'
        'rollouts = load_dataset("parquet", data_files="path/to/this/folder/rollouts.parquet", split="train")\n'
        "```",
    )


def results_of(table: pd.DataFrame, key: PolicyKey) -> pd.DataFrame:
    """The rows of the main or the ablations table of a policy, over its seeds."""
    mine = (table["model"] == key.model) & (table["policy"] == key.label) & (table["K"] == key.shown_k)
    return table[mine & (table["group_size"].fillna(0) == key.group_size)].drop_duplicates("benchmark")


def _card(header: dict[str, Any], title: str, demonstration: str | None, *parts: str) -> str:
    warning = [f"> **{literal(demonstration)}**"] if demonstration else []
    front = f"---\n{yaml.safe_dump(header, sort_keys=False)}---"
    return "\n\n".join([front, f"# {literal(title)}", *warning, *parts]) + "\n"


def _training(key: PolicyKey, policy: Policy) -> str:
    harvested = _warmup(policy.k, key.online, key.start)
    how = REGIMES[key.kind].card.format(
        regime=code(policy.regime), k=policy.k, group_size=policy.group_size, harvested=harvested
    )
    if key.trained_online and key.start:
        how += f", begun {_warmup(key.start.k, key.start.online, key.start.start)}"
    if tried := policy.settings.get("selected_from"):
        how += f", the best on development prompts of K={', '.join(map(str, tried))}"
    own = {**policy.settings.get(key.kind, {}), **policy.settings.get("prompts", {})}
    if (prompts := own.get("prompts", "verifiable")) != "verifiable":
        how += f", on {TRAINED_ON[prompts]}"
    return f"{how}, on {key.reward} instead of the truth," if key.reward else how


def _warmup(k: int, online: str = "grpo", start: PolicyKey | None = None) -> str:
    steps = [f"{k} {REGIMES[online].unit}"] if k else []
    while start:
        steps.insert(0, f"{start.k} {REGIMES[start.online].unit}")
        start = start.start
    return f"after {' and '.join(steps)}" if steps else "before any online training"


def _model(base: Policy) -> str:
    revision = f" at revision {code(base.revision)}" if base.revision else ""
    return f"{code(base.settings.get('id') or base.model)}{revision}"


def _revision(base: Policy) -> str:
    return f', revision="{base.revision}"' if base.revision else ""


def _results(rows: pd.DataFrame) -> list[str]:
    if rows.empty:
        return []
    lines = [
        f"| {literal(row['benchmark'])} | {row['accuracy']:.3f} | {row['ci_low']:.3f} to {row['ci_high']:.3f} | "
        f"{row['n_seeds']} |"
        for row in rows.to_dict("records")
    ]
    head = "| benchmark | accuracy | 95 % interval | seeds |\n|---|---:|---:|---:|"
    return ["## Results", "Over all seeds of this policy, of which this adapter is one.", "\n".join([head, *lines])]
