"""Growth of a harvest and its verification with prompts, with G', and with the number of shards.

    python benchmarks/growth.py [--model DIR] [--engine transformers|vllm] [--cpu-time]

One size varies at a time, around 300 prompts, G'=8 and one shard; the rest is the demonstration's harvest. Shards are
drawn one after another in this process: the sum of their jobs' costs without their start. The completions of each line
are then verified by one worker, with a verifier for each shard. The script checks that all shards together give the
same completions as one job.

Then shards run side by side: a process for each, like jobs on as many devices, with one thread and one engine, all
starting at the same time. The slowest counts, on the wall. On a CPU more processes than cores gain nothing.

`--cpu-time` is explained in benchmarks/harvest.py; it counts the workers too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from g2d.policies import Policy, embedded
from g2d.problems import Problem
from g2d.problems.prompts import Prompt, conversation
from g2d.problems.synthetic import generate
from g2d.rollouts.draw import engine_for
from g2d.rollouts.engine import Completion, Decoding, Engine, Request
from g2d.rollouts.rollout import shard
from g2d.rollouts.settings import EngineSettings
from g2d.verifier import Verifier

PROMPTS, SAMPLES, SHARDS = (75, 150, 300), (2, 8, 32), (1, 2, 4)


def main() -> None:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="folder of a model; the embedded one without")
    parser.add_argument("--engine", choices=["transformers", "vllm"], default="transformers")
    parser.add_argument("--batch-size", type=int, default=512, help="completions generated together, where one chooses")
    parser.add_argument("--repeats", type=int, default=3, help="rounds, of which the best counts")
    parser.add_argument("--cpu-time", action="store_true", help="count CPU seconds instead of seconds on the wall")
    arguments = parser.parse_args()
    clock = cpu_seconds if arguments.cpu_time else time.perf_counter
    policy = Policy("base", "base", "base", base=str(arguments.model or embedded.FOLDER))
    engine = engine_for(policy, EngineSettings.model_validate({"name": arguments.engine}))
    problems = generate("arithmetic", "train", max(PROMPTS), seed=0)
    draw(engine, problems[:2], decoding(8, arguments.batch_size))  # whatever happens once happens here

    whole = None
    print(f"{arguments.engine}, {'CPU ' if arguments.cpu_time else ''}seconds")
    print(
        "| prompts | G' | shards | completions | harvest | tokens per second | verification | completions per second |"
    )
    print("|" + "---:|" * 8)
    sizes = [(n, 8, 1) for n in PROMPTS] + [(300, g, 1) for g in SAMPLES] + [(300, 8, shards) for shards in SHARDS]
    for n, samples, shards in dict.fromkeys(sizes):
        parts = [shard(problems[:n], number, shards) for number in range(1, shards + 1)]
        harvest = verification = float("inf")
        for _ in range(arguments.repeats):
            began = clock()
            drawn = [draw(engine, part, decoding(samples, arguments.batch_size)) for part in parts]
            harvest = min(harvest, clock() - began)
            began = clock()
            for part, completions in zip(parts, drawn, strict=True):
                verify(part, completions)
            verification = min(verification, clock() - began)
        completions_of = {
            p.problem_id: c for part, cs in zip(parts, drawn, strict=True) for p, c in zip(part, cs, strict=True)
        }
        if (n, samples) == (300, 8):
            whole = whole or completions_of
            assert completions_of == whole, f"{shards} shards draw other completions than one"
        tokens = sum(c.token_count for completions in completions_of.values() for c in completions)
        print(
            f"| {n} | {samples} | {shards} | {n * samples:,} | {harvest:.2f} | {tokens / harvest:,.0f} "
            f"| {verification:.2f} | {n * samples / verification:,.0f} |",
            flush=True,
        )

    print("\n| shards side by side | seconds of the slowest | against one |")
    print("|---:|---:|---:|")
    alone = None
    for shards in SHARDS:
        parts = [shard(problems, number, shards) for number in range(1, shards + 1)]
        seconds = side_by_side(policy, arguments.engine, parts, arguments.batch_size, arguments.repeats)
        alone = alone or seconds
        print(f"| {shards} | {seconds:.2f} | {alone / seconds:.2f} |", flush=True)


def side_by_side(policy: Policy, name: str, parts: Sequence[Sequence[Problem]], batch_size: int, repeats: int) -> float:
    """Seconds until the last of several processes has drawn its part, G'=32; the best round counts."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(len(parts)), context.SimpleQueue()
    jobs = [
        context.Process(target=_draw_part, args=(policy, name, p, batch_size, repeats, start, results)) for p in parts
    ]
    for job in jobs:
        job.start()
    rounds = [results.get() for _ in jobs]
    for job in jobs:
        job.join()
    return min(max(seconds) for seconds in zip(*rounds, strict=True))


def _draw_part(
    policy: Policy, name: str, part: Sequence[Problem], batch_size: int, repeats: int, start: Any, results: Any
) -> None:
    import torch

    torch.set_num_threads(1)
    engine = engine_for(policy, EngineSettings.model_validate({"name": name}))
    draw(engine, part[:2], decoding(32, batch_size))
    rounds = []
    for _ in range(repeats):
        start.wait()
        began = time.perf_counter()
        draw(engine, part, decoding(32, batch_size))
        rounds.append(time.perf_counter() - began)
    results.put(rounds)


def decoding(samples: int, batch_size: int) -> Decoding:
    return Decoding(samples, 1.3, 1.0, 48, batch_size, 0)


def draw(engine: Engine, problems: Sequence[Problem], settings: Decoding) -> list[list[Completion]]:
    requests = [Request(p.problem_id, engine.render(conversation(p, Prompt()))) for p in problems]
    return engine.generate(requests, settings)


def verify(problems: Sequence[Problem], drawn: Sequence[Sequence[Completion]]) -> None:
    pairs = [(p.answer, c) for p, completions in zip(problems, drawn, strict=True) for c in completions]
    with Verifier(1) as verifier:
        verifier.verify([(answer, c.text) for answer, c in pairs], [c.finish_reason for _, c in pairs])


def cpu_seconds() -> float:
    """CPU seconds of this process and of those it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    main()
