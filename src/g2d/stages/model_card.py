"""Card of a policy (README.md for the Hugging Face Hub)."""

from __future__ import annotations

import json

import yaml
from huggingface_hub import ModelCard, ModelCardData

from g2d.markdown import code, fenced, literal
from g2d.plain import without_folders
from g2d.policies.record import PolicyRecord

TEXT = """\
---
{metadata}
---

# {title}

{weights} {base}, trained by the [G2D workflow](https://arxiv.org/abs/2605.21266).

- method: {method}, K={k}, G={group_size}, seed {seed}
- started from: {start}
- SHA-256 of the weights: {digest}

The run that trained it has its accuracies in `results/tables/main.csv` and `results/report/index.html`.

## Use

{use}

## Settings

{settings}
"""


def model_card(policy: PolicyRecord, base: PolicyRecord, method: str) -> ModelCard:
    """Return the card of a trained policy.

    Args:
        base: M0.
        method: name of the regime, for people.
    """
    metadata = ModelCardData(
        base_model=base.settings.get("id"),  # a link that the Hub follows
        library_name="transformers" if policy.weights else "peft",
        pipeline_tag="text-generation",
        tags=["reasoning", "g2d", policy.regime],
        model_name=policy.policy_id,
    )
    settings = dict(policy.settings)
    if policy.chat_template_kwargs:
        settings["chat_template_kwargs"] = dict(policy.chat_template_kwargs)
    text = TEXT.format(
        metadata=metadata,
        title=literal(policy.policy_id),
        weights="All weights of" if policy.weights else "A LoRA adapter for",
        base=code(base.public_base),
        method=f"{method} ({code(policy.regime)})",
        k=policy.k,
        group_size=policy.group_size,
        seed=policy.seed,
        start=code(policy.started_from) if policy.started_from else "the base model",
        digest=code(str(policy.weights_sha256)),
        use=fenced(_use(policy, base), "python"),
        settings=fenced(yaml.safe_dump(without_folders(settings), sort_keys=False), "yaml"),
    )
    return ModelCard(text)


def _use(policy: PolicyRecord, base: PolicyRecord) -> str:
    """Return code that loads a policy and its tokenizer."""
    of_base = json.dumps(base.public_base)
    if base.revision:
        of_base += f', revision="{base.revision}"'
    lines = ["from transformers import AutoModelForCausalLM, AutoTokenizer", ""]
    if policy.weights:
        lines.append('policy = AutoModelForCausalLM.from_pretrained("path/to/this/folder")')
    else:
        lines.insert(0, "from peft import PeftModel")
        lines.append(f"base = AutoModelForCausalLM.from_pretrained({of_base})")
        lines.append('policy = PeftModel.from_pretrained(base, "path/to/this/folder")')
    lines.append(f"tokenizer = AutoTokenizer.from_pretrained({of_base})")
    return "\n".join(lines)
