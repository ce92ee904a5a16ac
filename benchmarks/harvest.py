"""Tokens per second of a harvest: a plain loop, TRL's generation and the engines, in one run.

    python benchmarks/harvest.py [--model DIR] [--prompts 75 150 300] [--batch-size 512] [--repeats 3]

The model is the embedded one unless a folder is given. Each line draws the same prompts at the harvest's settings.

- loop: one `generate(num_return_sequences=8)` per prompt.
- trl: GRPOTrainer's function for rollouts, in batches of the same size as the next line.
- transformers: `TransformersEngine`.
- vllm: `VllmEngine` on M0, then with an adapter, merged or applied. The adapter is untrained and changes no output, so
  all three generate the same tokens.

The rates exclude imports, loading and start-up (listed below the table) and verification (benchmarks/verify.py). The
best round counts. On a shared machine use `--cpu-time` and OMP_NUM_THREADS=1, because waiting threads count.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

import torch

from g2d.policies import PolicyRecord, embedded, load_base, load_model, load_tokenizer
from g2d.policies.model_keys import Lora, lora_config
from g2d.problems import Problem
from g2d.problems.prompts import Prompt, conversation
from g2d.problems.synthetic import generate
from g2d.regimes.common.trainers import trainer_arguments
from g2d.rollouts.engine import Decoding, Engine
from g2d.rollouts.rollout_keys import EngineSettings
from g2d.rollouts.transformers_engine import TransformersEngine

Clock = Callable[[], float]  # seconds
SamplingJob = Callable[[list[Problem]], int]  # returns the number of tokens generated


def main() -> None:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="folder of a model; default: the embedded model")
    parser.add_argument("--prompts", type=int, nargs="+", default=[75, 150, 300], help="numbers of prompts")
    parser.add_argument("--samples", type=int, default=8, help="completions per prompt")
    parser.add_argument("--tokens", type=int, default=48, help="longest completion")
    parser.add_argument(
        "--batch-size", type=int, default=512, help="completions generated together by trl and transformers"
    )
    parser.add_argument("--repeats", type=int, default=3, help="rounds, of which the best counts")
    parser.add_argument("--cpu-time", action="store_true", help="count CPU seconds instead of seconds on the wall")
    arguments = parser.parse_args()
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} thread(s)"
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    unit = "CPU second" if arguments.cpu_time else "second"
    print(f"{device}; G'={arguments.samples}, T=1.3, at most {arguments.tokens} tokens\n", flush=True)
    base = PolicyRecord("base", "base", "base", base=str(arguments.model or embedded.FOLDER))
    adapted = replace(base, policy_id="adapted", adapter=str(fresh_adapter(base)))
    decoding = Decoding(arguments.samples, 1.3, 1.0, arguments.tokens, arguments.batch_size, 0)
    problems = generate("arithmetic", "train", max(arguments.prompts), seed=0)

    rates: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    for name, make in ways(base, adapted, decoding).items():
        began = time.perf_counter()
        draw = make()
        draw(problems[:2])  # compiles, and fills caches
        seconds[name] = time.perf_counter() - began
        rates[name] = [rate(draw, problems[:n], arguments.repeats, clock) for n in arguments.prompts]
    sizes = " | ".join(f"{n} prompts" for n in arguments.prompts)
    print(f"| tokens per {unit} | {sizes} | against the loop |")
    print("|---|" + "---:|" * (len(arguments.prompts) + 1))
    for name, values in rates.items():
        cells = [*(f"{value:,.0f}" for value in values), f"{values[-1] / rates['loop'][-1]:.1f}"]
        print(f"| {name} | {' | '.join(cells)} |")
    print("\nuntil the first completion (s): " + ", ".join(f"{name} {value:.1f}" for name, value in seconds.items()))
    if find_spec("vllm"):
        print(f"greedy completions that vllm and transformers share: {agreement(base)}")


def ways(base: PolicyRecord, adapted: PolicyRecord, decoding: Decoding) -> dict[str, Callable[[], SamplingJob]]:
    """Engines to compare, by name; each is created when it is measured."""
    engines: dict[str, Callable[[], SamplingJob]] = {
        "loop": lambda: loop(base, decoding),
        "trl": lambda: trl(base, decoding),
        "transformers": lambda: engine(TransformersEngine.of(base), decoding),
    }
    if not find_spec("vllm"):
        print("vLLM is not installed: left out\n")
        return engines
    from g2d.rollouts.vllm_engine import VllmEngine

    def vllm(policy: PolicyRecord, adapters: str) -> Callable[[], SamplingJob]:
        settings = EngineSettings.model_validate({"name": "vllm", "adapters": adapters})

        return lambda: engine(VllmEngine(policy, settings), decoding)

    return engines | {
        "vllm": vllm(base, "merge"),
        "vllm, adapter merged": vllm(adapted, "merge"),
        "vllm, adapter applied": vllm(adapted, "lora"),
    }


def rate(draw: SamplingJob, problems: list[Problem], repeats: int, clock: Clock) -> float:
    """Tokens per second of the best round."""
    best = 0.0
    for _ in range(repeats):
        began = clock()
        tokens = draw(problems)
        best = max(best, tokens / (clock() - began))
    return best


def engine(engine: Engine, decoding: Decoding) -> SamplingJob:
    def draw(problems: list[Problem]) -> int:
        requests = [engine.request(p.problem_id, conversation(p, Prompt())) for p in problems]
        return sum(c.token_count for completions in engine.generate(requests, decoding) for c in completions)

    return draw


def loop(base: PolicyRecord, decoding: Decoding) -> SamplingJob:
    model, tokenizer = load_model(base), load_tokenizer(base)

    def draw(problems: list[Problem]) -> int:
        tokens = 0
        for problem in problems:
            encoded = tokenizer.apply_chat_template(
                conversation(problem, Prompt()), add_generation_prompt=True, return_tensors="pt", return_dict=True
            ).to(model.device)
            with torch.inference_mode():
                generated = model.generate(
                    **encoded,
                    do_sample=True,
                    temperature=decoding.temperature,
                    top_k=0,
                    num_return_sequences=decoding.samples_per_prompt,
                    max_new_tokens=decoding.max_completion_length,
                    pad_token_id=tokenizer.pad_token_id,
                )
            for row in generated[:, encoded["input_ids"].shape[1] :].tolist():
                tokens += row.index(tokenizer.eos_token_id) + 1 if tokenizer.eos_token_id in row else len(row)
        return tokens

    return draw


def trl(base: PolicyRecord, decoding: Decoding) -> SamplingJob:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    size = decoding.batch_size
    trainer = GRPOTrainer(
        model=load_base(base),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(
            **trainer_arguments(mkdtemp(prefix="g2d-benchmark-"), 0),
            num_generations=decoding.samples_per_prompt,
            per_device_train_batch_size=size,
            max_completion_length=decoding.max_completion_length,
            temperature=decoding.temperature,
            top_k=0,
        ),
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": "1 + 1"}]}]),
        processing_class=load_tokenizer(base),
    )

    def draw(problems: list[Problem]) -> int:
        prompts = [conversation(p, Prompt()) for p in problems for _ in range(decoding.samples_per_prompt)]
        tokens = 0
        for start in range(0, len(prompts), size):
            _, completions, *_ = trainer._generate(prompts[start : start + size])
            tokens += sum(map(len, completions))
        return tokens

    return draw


def agreement(base: PolicyRecord) -> str:
    """Count the demonstration's test problems on which both engines give the same tokens."""
    from g2d.rollouts.vllm_engine import VllmEngine

    problems = [*generate("arithmetic", "test", 500, seed=0), *generate("word_problems", "test", 200, seed=0)]
    greedy = Decoding(1, 0.0, 1.0, 56, 512, 0)
    answers = []
    for one in (VllmEngine(base), TransformersEngine.of(base)):
        requests = [one.request(p.problem_id, conversation(p, Prompt())) for p in problems]
        answers.append(one.generate(requests, greedy))
    return f"{sum(a == b for a, b in zip(*answers, strict=True))} of {len(problems)}"


def fresh_adapter(base: PolicyRecord) -> Path:
    from peft import get_peft_model

    folder = Path(mkdtemp(prefix="g2d-benchmark-"))
    get_peft_model(load_base(base), lora_config(Lora())).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
