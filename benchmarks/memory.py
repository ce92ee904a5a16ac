"""`g2d plan`'s forecast of a training pass beside the peak of torch's allocator in the real one, on a CPU.

    python benchmarks/memory.py [--shapes tiny qwen2.5-0.5b] [--json FILE]

The real trainers of `g2d.regimes` train a model with random weights, one process for each case. Torch's profiler
records every allocation of the second micro-batch of a step: it generates nothing, and gradients exist already. The
measurement is the peak above the memory before. Precision and checkpointing are as on a CPU (float32, none) and as on
a GPU (bfloat16 with autocast, checkpointing). The memory of a GPU's kernels cannot be measured on a CPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["HF_HUB_OFFLINE"] = "1"

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"vocab_size": 500, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2}
    | {"num_attention_heads": 2, "num_key_value_heads": 2},
    # The sizes of Qwen2.5-0.5B, as a Llama: transformers replaces the tokenizer of a qwen2.
    "qwen2.5-0.5b": {"vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
    | {"num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 32768},
}
BUDGET = {"tiny": 96, "qwen2.5-0.5b": 32}  # tokens of a completion; a CPU generates slowly in bfloat16
PAIR = "1 + 1 = 2, so the answer is \\boxed{2}. " * 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument(
        "--case", nargs=3, metavar=("SHAPE", "REGIME", "PRECISION"), help="one, in this process, as JSON"
    )
    parser.add_argument("--json", type=Path, help="numbers, beside the table")
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(case(*arguments.case)))
        return
    cases = [(s, r, p) for s in arguments.shapes for r in ("grpo", "dpo") for p in ("cpu", "gpu")]
    print("| model | pass | precision | sequences x tokens | forecast, MiB | measured, MiB | ratio |")
    print("|---|---|---|---:|---:|---:|---:|")
    rows = []
    for one in cases:
        done = subprocess.run([sys.executable, __file__, "--case", *one], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{one}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            continue
        row = json.loads(done.stdout.strip().splitlines()[-1])
        rows.append(row)
        size, ratio = f"{row['rows']} x {row['tokens']}", row["forecast"] / row["measured"]
        numbers = f"{row['forecast'] / 2**20:,.1f} | {row['measured'] / 2**20:,.1f} | {ratio:.2f}"
        print(f"| {one[0]} | {one[1]} | {row['precision']} | {size} | {numbers} |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2))


def case(shape: str, regime: str, precision: str) -> dict[str, Any]:
    """Train two micro-batches, measure the second, and forecast a pass of its size."""
    import torch

    half = precision == "gpu"
    with tempfile.TemporaryDirectory() as folder:
        base = random_model(Path(folder, "model"), shape, torch.bfloat16 if half else torch.float32)
        with as_on_a_gpu(half), measured_pass() as measured:
            train(regime, base, Path(folder, "work"))
    rows, tokens, scored = measured["size"]
    return {
        "shape": shape,
        "regime": regime,
        "precision": "bfloat16, checkpointing" if half else "float32",
        "rows": rows,
        "tokens": tokens,
        "measured": measured["peak"],
        "forecast": forecast(shape, rows, tokens, half, reference=regime == "dpo"),
        "scored": scored,
    }


def forecast(shape: str, rows: int, tokens: int, half: bool, *, reference: bool) -> int:
    """Return the forecast of `g2d plan` for such a pass: kept memory and the largest peak."""
    from transformers import LlamaConfig

    from g2d.memory.passes import Counted
    from g2d.policies.model_keys import Lora

    counted = Counted(LlamaConfig(**SHAPES[shape], tie_word_embeddings=True), Lora(), half=half)
    passage = counted.training(rows, tokens)
    head = head_on_cpu(counted, rows * (tokens - 1))  # it scores the prompt too
    moments = [passage.peak - passage.kept, head]
    moments += [counted.reading(rows, tokens).peak + head // 2] * reference
    return passage.kept + max(moments)


def head_on_cpu(counted: Any, scored: int) -> int:
    """`Counted.head` without in-place kernels: a few copies of a tile of the logits, counted by running it."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from trl.trainer import utils as trl

    from g2d.memory.passes import Storages, precision

    width, vocabulary = counted.config.hidden_size, counted.config.vocab_size
    dtype = torch.bfloat16 if counted.half else torch.float32
    with FakeTensorMode(), precision(counted.half):
        hidden = torch.empty(scored, width, dtype=dtype, requires_grad=True)
        weight = torch.empty(vocabulary, width, dtype=dtype)
        targets = torch.empty(scored, dtype=torch.long)
        with Storages(iter((hidden, weight, targets))) as storages:
            function: Any = trl._ChunkedLogProbFunction
            chunk, outputs = trl._CHUNKED_LOGPROB_CHUNK_SIZE, ("log_probs", "entropy")
            scores = function.apply(hidden, weight, None, targets, 1.0, chunk, None, 1.0, outputs)[0]
            scores.backward(torch.empty_like(scores))
        return storages.peak


def random_model(folder: Path, shape: str, dtype: Any) -> Any:
    """A model of this shape with random weights, and the demonstration's tokenizer."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from g2d.policies import PolicyRecord
    from g2d.policies.embedded import FOLDER

    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    model = LlamaForCausalLM(LlamaConfig(**SHAPES[shape], tie_word_embeddings=True, **ends))
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return PolicyRecord(f"{shape}/base", shape, "base", base=str(folder))


@contextmanager
def as_on_a_gpu(wanted: bool) -> Iterator[None]:
    """Give trainers the arguments and weights of a GPU; the device stays a CPU."""
    import torch
    from transformers import AutoModelForCausalLM

    from g2d.regimes.common import offline, trainers
    from g2d.regimes.grpo import train as grpo

    def arguments(*given: Any, **named: Any) -> dict[str, Any]:
        return trainers.trainer_arguments(*given, **named) | {"bf16": True, "gradient_checkpointing": True}

    def load(base: Any) -> Any:
        return AutoModelForCausalLM.from_pretrained(base.base, dtype=torch.bfloat16)

    places = [(grpo, "trainer_arguments", arguments), (offline, "trainer_arguments", arguments)]
    places += [(trainers, "load_base", load)]
    with ExitStack() as stack:
        for module, name, ours in places if wanted else []:
            stack.enter_context(mock.patch.object(module, name, ours))
        yield


@contextmanager
def measured_pass() -> Iterator[dict[str, Any]]:
    """Profile the second micro-batch of a trainer in the block: its size, and the peak of its allocations in bytes."""
    import torch
    from transformers import Trainer
    from trl import DPOTrainer, GRPOTrainer

    measurement: dict[str, Any] = {}
    calls, whole_step = 0, Trainer.training_step

    def step(self: Any, *given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != 2:
            return whole_step(self, *given, **named)
        gc.collect()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            out = whole_step(self, *given, **named)
        measurement["peak"] = peak_of(profile)
        return out

    def sized(original: Any) -> Any:
        def loss(self: Any, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
            if calls == 2:
                if "prompt_ids" in inputs:
                    rows, scored = inputs["completion_ids"].shape
                    measurement["size"] = rows, inputs["prompt_ids"].shape[1] + scored, scored
                else:
                    rows, tokens = inputs["input_ids"].shape
                    measurement["size"] = rows, tokens, tokens
            return original(self, model, inputs, *given, **named)

        return loss

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Trainer, "training_step", step))
        for kind in (DPOTrainer, GRPOTrainer):
            stack.enter_context(mock.patch.object(kind, "compute_loss", sized(kind.compute_loss)))
        yield measurement


def peak_of(profile: Any) -> int:
    """Return the peak of allocated bytes since a profile began."""
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def train(regime: str, base: Any, work: Path) -> None:
    """A step of two micro-batches, two sequences each, with the settings of the regime otherwise."""
    from g2d.policies.model_keys import Lora
    from g2d.policies.record import load_tokenizer
    from g2d.problems.prompts import Prompt, conversation, conversation_ids, plain_ids
    from g2d.problems.synthetic import generate
    from g2d.regimes.common.regime import TrainingJob
    from g2d.regimes.grpo.keys import Warmup
    from g2d.regimes.grpo.train import train_grpo
    from g2d.regimes.offline.dpo import Dpo, train_dpo

    problems, prompt = generate("arithmetic", "train", 8, seed=0), Prompt()
    if regime == "grpo":
        warmup = Warmup(
            steps=[0, 1],
            max_completion_length=BUDGET[base.model],
            per_device_batch_size=2,
            gradient_accumulation_steps=2,
        )
        train_grpo(TrainingJob(base, problems, warmup, lora=Lora(), group_size=2, k=1, seed=0, work=work))
        return
    tokenizer = load_tokenizer(base)
    chosen, rejected = ([*plain_ids(tokenizer, text), tokenizer.eos_token_id] for text in (PAIR, PAIR + "3"))
    asked = [conversation_ids(tokenizer, conversation(problem, prompt)) for problem in problems]
    pairs = [{"prompt_ids": ids, "chosen_ids": chosen, "rejected_ids": rejected} for ids in asked]
    dpo = Dpo(per_device_batch_size=1, gradient_accumulation_steps=2, max_steps=1)
    train_dpo(TrainingJob(base, pairs, dpo, lora=Lora(), seed=0, work=work))


if __name__ == "__main__":
    main()
