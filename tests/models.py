"""A model that has hardly learnt anything, for tests that need real weights and no ability; made once per run."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch

from g2d.config import ScratchModel
from g2d.policies import Policy


@cache
def tiny_policy(heads: int = 4) -> Policy:
    """M0 for a test. vLLM's CPU kernels know no head narrower than 32, which at this width leaves `heads=1`."""
    from g2d.policies.scratch import train_scratch

    folder = Path(mkdtemp(prefix="g2d-tiny-"))
    settings = ScratchModel(source="scratch", steps=150, batch_size=32, hidden_size=32, layers=1, heads=heads)
    train_scratch(settings, folder)
    return Policy("tiny/base", "tiny", "base", base=str(folder))


@cache
def two_ends_policy(heads: int = 4) -> Policy:
    """M0 that declares two tokens which end a completion and ends with the second, which also pads (as Qwen2.5's)."""
    from transformers import AutoModelForCausalLM

    folder = Path(mkdtemp(prefix="g2d-two-ends-"))
    shutil.copytree(tiny_policy(heads).base, folder, dirs_exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(folder)
    first, second = model.generation_config.eos_token_id, model.generation_config.pad_token_id
    with torch.no_grad():
        embedding = model.get_input_embeddings().weight  # of the logits too
        embedding[second] = 2 * embedding[first]  # where the first is likely, the second is twice as much so
    model.generation_config.eos_token_id = [first, second]
    model.save_pretrained(folder)
    return Policy("two/base", "two", "base", base=str(folder))
