"""Model and data set cards (README.md for the Hugging Face Hub) beside each policy and harvest."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from g2d.analysis.informativeness import Informativeness
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.markdown import code, fenced, literal
from g2d.policies.gguf import origin
from g2d.policies.policy import Policy
from g2d.regimes.catalogue import REGIMES
from g2d.report.provenance import without_folders
from g2d.report.win_rates import TRAINED_ON

PAPER = "https://arxiv.org/abs/2605.21266"
HERE = "path/to/this/folder"
OF_A_HARVEST = (
    "judged by Math-Verify, and one preference pair for every prompt with both right and wrong ones, from the "
    f"[G2D workflow]({PAPER}). The prompts and reference answers belong to the data set they were drawn from, and its "
    "licence holds."
)
PAIRS = (
    "in TRL's conversational preference format (`prompt`, `chosen`, `rejected`), with `problem_id` and `p_hat`, the "
    "share of right rollouts. Policies here are trained on the tokens beside them, as they were sampled (`prompt_ids`, "
    "`chosen_ids`, `rejected_ids`); TRL makes its own of the messages."
)
OF_PREFERENCES = {"task_categories": ["text-generation"], "tags": ["preference", "dpo", "reasoning", "g2d"]}
ROLLOUTS = "with verdict, reward, length and finish reason."


def model_card(
    key: PolicyKey,
    policy: Policy,
    base: Policy,
    results: pd.DataFrame,
    demonstration: str | None,
    *,
    place: str = HERE,
    metadata: Mapping[str, Any] | None = None,
) -> str:
    """Return the card of one policy.

    Args:
        results: its rows of the main or the ablations table.
        place: the folder or Hub repository that PEFT or transformers should load.
    """
    header = {
        **({"base_model": base.settings["id"]} if "id" in base.settings else {}),  # a link that the Hub follows
        "library_name": "transformers" if policy.weights else "peft",
        "pipeline_tag": "text-generation",
        "tags": [*([] if policy.weights else ["lora"]), "reasoning", "g2d", policy.regime],
        **(metadata or {}),
    }
    return _card(
        header,
        policy.policy_id,
        demonstration,
        f"{'All weights of' if policy.weights else 'A LoRA adapter for'} {_model(base)}, trained with "
        f"{_training(key, policy)}, seed {policy.seed}, by the [G2D workflow]({PAPER}). SHA-256 of its "
        f"weights: {code(str(policy.weights_sha256))}.",
        *_results(results),
        "## Use",
        *_use(policy, base, place),
        "## Settings",
        fenced(yaml.safe_dump(without_folders(policy.settings), sort_keys=False), "yaml"),
    )


def _use(policy: Policy, base: Policy, place: str) -> tuple[str, str]:
    name, loaded = base.public_base, json.dumps(place)
    of_base = json.dumps(name) + (f', revision="{base.revision}"' if base.revision else "")
    if policy.weights:
        serve = f"{shlex.quote(place)} --tokenizer {shlex.quote(name)}"
        lines = [
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n",
            f"policy = AutoModelForCausalLM.from_pretrained({loaded})",
            f"tokenizer = AutoTokenizer.from_pretrained({of_base})",
        ]
    else:
        serve = f"{shlex.quote(name)} --enable-lora --lora-modules {shlex.quote(f'g2d={place}')}"
        lines = [
            "from peft import PeftModel",
            "from transformers import AutoModelForCausalLM\n",
            f"base = AutoModelForCausalLM.from_pretrained({of_base})",
            f"policy = PeftModel.from_pretrained(base, {loaded})",
        ]
    if base.chat_template_kwargs:
        serve += f" --default-chat-template-kwargs {shlex.quote(json.dumps(base.chat_template_kwargs))}"
    return fenced("\n".join(lines), "python"), fenced(f"vllm serve {serve}")


def base_card(base: Policy, demonstration: str | None) -> str:
    header = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["reasoning", "g2d"]}
    return _card(
        header,
        base.policy_id,
        demonstration,
        "The model that the policies of a grid of the "
        f"[G2D workflow]({PAPER}) start from: a tiny Llama, trained on synthetic arithmetic.",
        "## Settings",
        fenced(yaml.safe_dump(without_folders(base.settings), sort_keys=False), "yaml"),
    )


def harvest_card(key: HarvestKey, base: Policy, counts: Informativeness, demonstration: str | None) -> str:
    # `datasets` reads one format per folder; the rollouts are Parquet.
    configs = [{"config_name": "pairs", "data_files": "pairs.jsonl", "default": True}]
    return _card(
        {"configs": configs, **OF_PREFERENCES},
        key.folder,
        demonstration,
        f"Rollouts of {_model(base)} {_warmup(key.k)}, {OF_A_HARVEST}",
        f"- `pairs.jsonl`: {counts.n_pairable} pairs {PAIRS}\n"
        f"- `rollouts.parquet`: {counts.n_rollouts} completions of {counts.n_prompts} prompts {ROLLOUTS}",
        _loading(f'"{HERE}"', f"{HERE}/rollouts.parquet"),
    )


def dataset_card(
    harvests: Sequence[tuple[HarvestKey, Policy, Informativeness]], repository: str, demonstration: str | None
) -> str:
    rows = [
        f"| {code(_config_name(key))} | {_model(base)} {_warmup(key.k)} | {key.seed} | {counts.n_prompts} | "
        f"{counts.n_rollouts} | {counts.n_pairable} |"
        for key, base, counts in harvests
    ]
    # `datasets` reads one format per repository, and no empty file.
    paired = [key for key, _, counts in harvests if counts.n_pairable]
    configs = [{"config_name": _config_name(key), "data_files": f"{key.folder}/pairs.jsonl"} for key in paired]
    example = (paired or [key for key, _, _ in harvests])[0]
    of_rollouts = f"hf://datasets/{repository}/{example.folder}/rollouts.parquet"
    return _card(
        {"configs": configs, **OF_PREFERENCES},
        repository,
        demonstration,
        f"Rollouts of policies, {OF_A_HARVEST}",
        f"- `pairs.jsonl`: pairs {PAIRS}\n- `rollouts.parquet`: completions {ROLLOUTS}",
        "\n".join(["| harvest | of | seed | prompts | rollouts | pairs |", "|---|---|---:|---:|---:|---:|", *rows]),
        _loading(f'"{repository}", "{_config_name(example)}"', of_rollouts),
    )


def _loading(pairs: str, rollouts: str) -> str:
    return fenced(
        "from datasets import load_dataset\n\n"
        f'pairs = load_dataset({pairs}, split="train")\n'
        f'rollouts = load_dataset("parquet", data_files="{rollouts}", split="train")',
        "python",
    )


def _config_name(key: HarvestKey) -> str:
    return key.folder.replace("/", "-")


def results_of(table: pd.DataFrame, key: PolicyKey) -> pd.DataFrame:
    mine = (table["model"] == key.model) & (table["policy"] == key.label) & (table["K"] == key.shown_k)
    return table[mine & (table["group_size"].fillna(0) == key.group_size)].drop_duplicates("benchmark")


def _card(header: dict[str, Any], title: str, demonstration: str | None, *parts: str) -> str:
    warning = [f"> **{literal(demonstration)}**"] if demonstration else []
    front = f"---\n{yaml.safe_dump(header, sort_keys=False)}---"
    return "\n\n".join([front, f"# {literal(title)}", *warning, *parts]) + "\n"


def _training(key: PolicyKey, policy: Policy) -> str:
    harvested = _warmup(policy.k, key.arm.online.regime, key.start)
    how = REGIMES[key.kind].card.format(
        regime=code(policy.regime), k=policy.k, group_size=policy.group_size, harvested=harvested
    )
    if key.arm.phase == "online" and key.start:
        how += f", begun {_warmup(key.start.k, key.start.kind, key.start.start)}"
    if key.arm.last_trained is not None:
        how += f", extrapolated from K={key.arm.last_trained}"
    if tried := policy.settings.get("selected_from"):
        how += f", the best on development prompts of K={', '.join(map(str, tried))}"
    settings = {**policy.settings.get(key.kind, {}), **policy.settings.get("prompts", {})}
    if (teacher := settings.get("teacher")) is not None:
        named = teacher if key.teacher else teacher.get("id") or Path(teacher["path"]).name
        how += f", taught by {code(named)}" + (f" at K={key.teacher.shown_k}" if key.teacher else "")
    if (prompts := settings.get("prompts", "verifiable")) != "verifiable":
        how += f", on {TRAINED_ON[prompts]}"
    return f"{how}, on {key.arm.other_reward} instead of the truth," if key.arm.other_reward else how


def _warmup(k: int, online: str = "grpo", start: PolicyKey | None = None) -> str:
    steps = [f"{k} {REGIMES[online].unit}"] if k else []
    while start:
        steps.insert(0, f"{start.k} {REGIMES[start.kind].unit}")
        start = start.start
    return f"after {' and '.join(steps)}" if steps else "before any online training"


def _model(base: Policy) -> str:
    revision = f" at revision {code(base.revision)}" if base.revision else ""
    converted = f" ({literal(origin(base.converted_from))})" if base.converted_from else ""
    return f"{code(base.settings.get('id') or base.model)}{revision}{converted}"


def _results(rows: pd.DataFrame) -> list[str]:
    if rows.empty:
        return []
    lines = [
        f"| {literal(row['benchmark'])} | {row['accuracy']:.3f} | {row['ci_low']:.3f} to {row['ci_high']:.3f} | "
        f"{row['n_seeds']} |"
        for row in rows.to_dict("records")
    ]
    head = "| benchmark | accuracy | 95 % interval | seeds |\n|---|---:|---:|---:|"
    return ["## Results", "Over all seeds of this policy, of which this is one.", "\n".join([head, *lines])]
