"""Model and data set cards (README.md for the Hugging Face Hub) beside each policy and harvest."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pandas as pd
import yaml
from huggingface_hub import DatasetCard, DatasetCardData, EvalResult, ModelCard, ModelCardData

from g2d.analysis.informativeness import Informativeness
from g2d.grid.runs import Harvest, Policy
from g2d.markdown import code, fenced, literal
from g2d.policies.record import PolicyRecord
from g2d.regimes.catalogue import REGIMES
from g2d.report.provenance import without_folders
from g2d.report.sentences import TRAINED_ON
from g2d.tables.frames import Cells

PAPER = "https://arxiv.org/abs/2605.21266"
HERE = "path/to/this/folder"
TEMPLATES = Path(__file__).parent / "templates"


def model_card(
    policy: Policy, record: PolicyRecord, base: PolicyRecord, results: pd.DataFrame, demonstration: str | None
) -> str:
    """Return the card of one policy; `results` has its rows of `main.csv`."""
    rows = results.to_dict("records")
    tags = ["reasoning", "g2d", record.regime]
    if not record.weights:
        tags.insert(0, "lora")
    data = ModelCardData(
        base_model=base.settings.get("id"),  # a link that the Hub follows
        library_name="transformers" if record.weights else "peft",
        pipeline_tag="text-generation",
        tags=tags,
        model_name=record.policy_id,
        eval_results=[_eval_result(row) for row in rows],
    )
    trained = "All weights of" if record.weights else "A LoRA adapter for"
    load, serve = _use(record, base)
    card = ModelCard.from_template(
        data,
        template_path=str(TEMPLATES / "model_card.md"),
        title=literal(record.policy_id),
        demonstration=literal(demonstration or ""),
        description=f"{trained} {_model(base)}, trained with {_training(policy, record)}, seed {record.seed}, by the "
        f"[G2D workflow]({PAPER}). SHA-256 of its weights: {code(str(record.weights_sha256))}.",
        results=[row | {"benchmark": literal(row["benchmark"])} for row in rows],
        load=load,
        serve=serve,
        settings=fenced(yaml.safe_dump(without_folders(record.settings), sort_keys=False), "yaml"),
    )
    return f"{card}\n"


def _eval_result(row: Cells) -> EvalResult:
    return EvalResult(
        task_type="text-generation",
        dataset_type=row["benchmark"],
        dataset_name=row["benchmark"],
        metric_type="accuracy",
        metric_value=round(row["accuracy"], 4),
    )


def _use(record: PolicyRecord, base: PolicyRecord) -> tuple[str, str]:
    """Return code that loads a policy, and the command that serves it."""
    name = base.public_base
    of_base = json.dumps(name)
    if base.revision:
        of_base += f', revision="{base.revision}"'
    if record.weights:
        serve = f"{HERE} --tokenizer {shlex.quote(name)}"
        lines = [
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n",
            f'policy = AutoModelForCausalLM.from_pretrained("{HERE}")',
            f"tokenizer = AutoTokenizer.from_pretrained({of_base})",
        ]
    else:
        serve = f"{shlex.quote(name)} --enable-lora --lora-modules g2d={HERE}"
        lines = [
            "from peft import PeftModel",
            "from transformers import AutoModelForCausalLM\n",
            f"base = AutoModelForCausalLM.from_pretrained({of_base})",
            f'policy = PeftModel.from_pretrained(base, "{HERE}")',
        ]
    if base.chat_template_kwargs:
        serve += f" --default-chat-template-kwargs {shlex.quote(json.dumps(base.chat_template_kwargs))}"
    return fenced("\n".join(lines), "python"), fenced(f"vllm serve {serve}")


def harvest_card(
    harvest: Harvest, base: PolicyRecord, counts: Informativeness, reward: str, demonstration: str | None
) -> str:
    """Return the card of the pairs and rollouts of one harvest; `reward` chose the pairs, "" for correctness."""
    data = DatasetCardData(
        # `datasets` reads one format per folder; the rollouts are Parquet.
        configs=[{"config_name": "pairs", "data_files": "pairs.jsonl", "default": True}],
        task_categories=["text-generation"],
        tags=["preference", "dpo", "reasoning", "g2d"],
    )
    card = DatasetCard.from_template(
        data,
        template_path=str(TEMPLATES / "harvest_card.md"),
        title=literal(harvest.folder),
        demonstration=literal(demonstration or ""),
        description=f"Rollouts of {_model(base)} {_warmup(harvest.k)},",
        paper=PAPER,
        counts=counts,
        reward=literal(reward),
    )
    return f"{card}\n"


def results_of(table: pd.DataFrame, policy: Policy) -> pd.DataFrame:
    mine = (table["model"] == policy.model) & (table["policy"] == policy.label) & (table["K"] == policy.shown_k)
    return table[mine & (table["group_size"].fillna(0) == policy.group_size)].drop_duplicates("benchmark")


def _training(policy: Policy, record: PolicyRecord) -> str:
    online = policy.run.online
    assert online is not None
    harvested = _warmup(record.k, online.method, policy.start)
    how = REGIMES[policy.method].card.format(
        regime=code(record.regime), k=record.k, group_size=record.group_size, harvested=harvested
    )
    if policy.run == online and policy.start:
        how += f", begun {_warmup(policy.start.k, policy.start.method, policy.start.start)}"
    settings = {**record.settings.get(policy.method, {}), **record.settings.get("prompts", {})}
    prompts = settings.get("prompts", "verifiable")
    if prompts != "verifiable":
        how += f", on {TRAINED_ON[prompts]}"
    if policy.run.other_reward:
        how += f", on {policy.run.other_reward} instead of the truth,"
    return how


def _warmup(k: int, online: str = "grpo", start: Policy | None = None) -> str:
    steps = []
    if k:
        steps.append(f"{k} {REGIMES[online].unit}")
    while start:
        steps.insert(0, f"{start.k} {REGIMES[start.method].unit}")
        start = start.start
    if not steps:
        return "before any online training"
    return f"after {' and '.join(steps)}"


def _model(base: PolicyRecord) -> str:
    revision = f" at revision {code(base.revision)}" if base.revision else ""
    return f"{code(base.settings.get('id') or base.model)}{revision}"
