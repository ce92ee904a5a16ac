"""A model that has hardly learnt anything, for tests that need real weights and no ability; made once per run."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from g2d.jobs.files import sha256
from g2d.policies import PolicyRecord, load_base, load_model, load_tokenizer
from g2d.policies.model_keys import Lora
from g2d.problems import Problem
from g2d.problems.prompts import Prompt, conversation, render
from g2d.problems.synthetic import generate
from g2d.rollouts.engine import Decoding, Engine
from g2d.rollouts.rollout import Rollout
from g2d.rollouts.rollout_keys import EngineSettings
from g2d.rollouts.sample import engine_for, sample_rollouts
from g2d.verifier import Verifier
from tests.shared import made_once

# No test may depend on what these models happen to answer: with another seed here all have to pass.
SEED = int(os.environ.get("G2D_TEST_SEED", "0"))


@cache
def tiny_policy(heads: int = 4) -> PolicyRecord:
    """M0 for a test. vLLM's CPU kernels need heads of at least 32, so `heads=1` at this width.

    It answers 0 in about half of its samples and another digit in the others. If 0 is right, only some rollouts earn a
    reward, so GRPO can learn.
    """
    folder = made_once(f"tiny-{heads}", lambda folder: _make(folder, heads))
    return PolicyRecord("tiny/base", "tiny", "base", base=str(folder))


def _make(folder: Path, heads: int) -> None:
    import torch

    from benchmarks.scratch import Recipe, train_scratch

    shape = {"hidden_size": 32, "layers": 1, "heads": heads}
    train_scratch(Recipe(steps=20, batch_size=32, seed=SEED, **shape), folder)
    policy = PolicyRecord("tiny/base", "tiny", "base", base=str(folder))
    model = load_base(policy)
    tokenizer = load_tokenizer(policy)
    rng = random.Random(SEED)
    problems = generate("arithmetic", "train", 200, seed=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    for _ in range(60):
        prompts = [render(tokenizer, conversation(rng.choice(problems), Prompt())) for _ in range(32)]
        questions = [tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
        answers = [tokenizer(_answer(rng), add_special_tokens=False)["input_ids"] for _ in prompts]
        length = max(len(a) + len(b) for a, b in zip(questions, answers, strict=True))
        rows = []
        labels = []
        for prompt, answer in zip(questions, answers, strict=True):
            padding = length - len(prompt) - len(answer)
            rows.append(prompt + answer + [tokenizer.pad_token_id] * padding)
            labels.append([-100] * len(prompt) + answer + [-100] * padding)
        loss = model(input_ids=torch.tensor(rows), labels=torch.tensor(labels)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)


def _answer(rng: random.Random) -> str:
    words = f"{rng.choice(['Clearly', 'First'])} {rng.randint(1, 30)}"
    return f"{words} \\boxed{{{rng.choice([0, rng.randint(1, 9)])}}}<|im_end|>"


@cache
def two_ends_policy(heads: int = 4) -> PolicyRecord:
    """M0 that declares two end tokens and ends with the second, also its padding token (as in Qwen2.5)."""
    folder = made_once(f"two-ends-{heads}", lambda folder: _with_two_ends(folder, heads))
    return PolicyRecord("two/base", "two", "base", base=str(folder))


def _with_two_ends(folder: Path, heads: int) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    shutil.copytree(tiny_policy(heads).base, folder, dirs_exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(folder)
    first = model.generation_config.eos_token_id
    second = model.generation_config.pad_token_id
    with torch.no_grad():
        embedding = model.get_input_embeddings().weight  # tied to the logits
        embedding[second] = 2 * embedding[first]  # where the first is likely, the second is twice as much so
    model.generation_config.eos_token_id = [first, second]
    model.save_pretrained(folder)


CONVERTED = ("gpt_neox", "mixtral", "qwen2_moe", "qwen3_moe")  # the file has other names than the model in memory


@cache
def converted_policy(kind: str) -> PolicyRecord:
    """M0 of one of the architectures `CONVERTED`, with random weights and the tiny model's tokenizer."""
    folder = made_once(kind, lambda folder: _converted(kind, folder))
    return PolicyRecord(f"{kind}/base", kind, "base", base=str(folder))


def _converted(kind: str, folder: Path) -> None:
    import torch
    import transformers

    shutil.copytree(tiny_policy().base, folder, dirs_exist_ok=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "eos_token_id": tokenizer.eos_token_id,
    }
    if kind != "gpt_neox":
        shape |= {"num_key_value_heads": 4, "router_aux_loss_coef": 0.5}
    if kind == "mixtral":
        shape["num_local_experts"] = 4
    if kind.startswith("qwen"):
        shape |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    if kind == "qwen2_moe":
        shape["shared_expert_intermediate_size"] = 16
    if kind == "qwen3_moe":
        shape["head_dim"] = 8
    torch.manual_seed(SEED)
    config = transformers.AutoConfig.for_model(kind, **shape)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def random_model(kind: str) -> Any:
    """A model of some architecture with random weights."""
    import torch
    import transformers

    shape = {
        "vocab_size": 300,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 128,
    }
    models: dict[str, Callable[[], Any]] = {
        "grouped": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**shape)),
        "scaled": lambda: transformers.GraniteForCausalLM(
            transformers.GraniteConfig(**shape, attention_multiplier=0.05)  # instead of 1 / sqrt(8)
        ),
        "sliding": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**shape, sliding_window=9)),
        "alternating": lambda: transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**shape, sliding_window=9)),
        "capped": lambda: transformers.Gemma2ForCausalLM._from_config(
            transformers.Gemma2Config(**shape, sliding_window=9, attn_logit_softcapping=0.5),
            attn_implementation="eager",
        ),
        "learned positions": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=4, n_positions=128)
        ),
        "state space": lambda: transformers.MambaForCausalLM(
            transformers.MambaConfig(vocab_size=300, hidden_size=32, num_hidden_layers=2, state_size=4)
        ),
        "causal by column": lambda: transformers.GPTNeoForCausalLM(
            transformers.GPTNeoConfig(
                vocab_size=300,
                hidden_size=32,
                num_layers=2,
                num_heads=4,
                attention_types=[[["global", "local"], 1]],
                window_size=9,
                max_position_embeddings=128,
            )
        ),
    }
    torch.manual_seed(0)
    model = models[kind]().eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.3)
    model.generation_config.repetition_penalty = 1.5  # Qwen's models set one; decodings must ignore it
    return model


def completion_logprobs(policy: PolicyRecord, prompt: Sequence[int], completion: Sequence[int]) -> list[float]:
    """Compute the log-probability of every token of a completion."""
    import torch

    whole = [*prompt, *completion]
    with torch.no_grad():
        scores = load_model(policy)(torch.tensor([whole])).logits[0].log_softmax(-1)
    return [float(scores[i - 1, whole[i]]) for i in range(len(prompt), len(whole))]


def adapted(base: PolicyRecord, folder: Path, *, std: float, seed: int = 0, dropout: float = 0.05) -> PolicyRecord:
    """Return the policy with an adapter in `folder`; a larger `std` changes its outputs more."""
    import torch
    from peft import get_peft_model

    from g2d.policies.model_keys import lora_config

    torch.manual_seed(seed)
    model = get_peft_model(load_base(base), lora_config(Lora(dropout=dropout)))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=std)
    model.save_pretrained(folder)
    weights = sha256(folder / "adapter_model.safetensors")
    return replace(base, policy_id=f"tiny/adapted{seed}", adapter=str(folder), weights_sha256=weights)


def rollouts_of(
    policy: PolicyRecord,
    problems: Sequence[Problem],
    prompt: Prompt,
    decoding: Decoding,
    *,
    engine: Engine | None = None,
    token_ids: bool = False,
) -> list[Rollout]:
    """Draw rollouts of a policy, with transformers unless there is an engine, and judge them by Math-Verify."""
    engine = engine or engine_for(policy, EngineSettings())
    with Verifier() as verifier:
        return sample_rollouts(
            policy, problems, prompt, decoding, engine=engine, verifier=verifier, token_ids=token_ids
        )


def texts_of(rollouts: Sequence[Rollout]) -> list[str]:
    return [rollout.completion_text for rollout in rollouts]


def same_logits(policy: PolicyRecord, other: PolicyRecord) -> bool:
    import torch

    tokens = torch.arange(2, 12).reshape(2, 5)
    with torch.no_grad():
        return torch.equal(load_model(policy)(tokens).logits, load_model(other)(tokens).logits)
