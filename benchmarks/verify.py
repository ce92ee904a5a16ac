r"""Verification of real completions: Math-Verify in a loop against the verifier, side by side in one run.

    python benchmarks/verify.py --data DIR [--n 2500 5000 10000] [--repeats 3] [--hostile]

The completions are recorded model outputs on GSM8K, their answer boxed, and the published solutions of MATH. Each line
of the table judges the same items.

- loop, defaults: `parse(completion)` and `verify` as in Math-Verify's README.
- loop, strict: the same on the last box only, like the verifier's workers.
- workers: every item through the pool, without a cache.
- verifier: equal questions are judged once, plain integers compared directly.

Imports and the start of workers are not counted: a run pays them once. If both loops give a verdict, the verifier's is
compared with both, and differences are listed.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from g2d.verifier import Limits, Verifier, last_boxed
from g2d.verifier.pool import Pool

Item = tuple[str, str]
Timed = tuple[float, list[str]]  # seconds, verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("G2D_DATA"), help="folder with gsm8k/ and math/")
    parser.add_argument("--n", type=int, nargs="+", default=[2_500, 5_000, 10_000], help="numbers of completions")
    parser.add_argument("--repeats", type=int, default=3, help="rounds, of which the best counts")
    parser.add_argument("--hostile", action="store_true", help="also measure the worst latency over the hostile set")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("say where the data is: --data DIR or G2D_DATA")
    print(f"{os.cpu_count()} cores; Math-Verify's own time limits are on in the first loop only\n")
    items = load(arguments.data)
    for n in arguments.n:
        # Evenly over both sources, so that every size has the same mixture.
        compare([items[i * len(items) // n] for i in range(min(n, len(items)))], arguments.repeats)
    if arguments.hostile:
        worst_latency(Limits(deadline_s=1.0))


def load(data: Path) -> list[Item]:
    """(reference, completion), all with a terminated box."""
    items = [item for item in [*gsm8k(data), *math(data)] if last_boxed(item[1])]
    return items[:5_000] + items[-5_000:]


def gsm8k(data: Path) -> Iterator[Item]:
    with open(data / "gsm8k" / "example_model_solutions.jsonl", encoding="utf-8") as file:
        for row in map(json.loads, file):
            reference = row["ground_truth"].rpartition("A: ")[2]
            for recorded in row.values():
                if isinstance(recorded, dict):
                    yield reference, re.sub(r"(?m)^A: *(.*?)\s*\Z", r"A: $\\boxed{\1}$", recorded["solution"])


def math(data: Path) -> Iterator[Item]:
    with open(data / "math" / "train.jsonl", encoding="utf-8") as file:
        for row in map(json.loads, file):
            yield last_boxed(row["solution"]) or "", row["solution"]


def compare(items: Sequence[Item], repeats: int) -> None:
    """Print a table for one number of completions: the best of a few interleaved rounds."""
    distinct = len({(reference, last_boxed(text)) for reference, text in items})
    print(f"{len(items)} completions, {distinct} distinct pairs of answers")
    ways: dict[str, Callable[[], Timed]] = {
        "loop, defaults": lambda: in_fresh_process(loop_defaults, items),
        "loop, strict": lambda: in_fresh_process(loop_strict, items),
        "workers, 1": lambda: through_pool(1, items),
        "workers, 2": lambda: through_pool(2, items),
        "verifier, 1": lambda: through_verifier(1, items),
        "verifier, 2": lambda: through_verifier(2, items),
    }
    rounds = [{name: way() for name, way in ways.items()} for _ in range(repeats)]
    seconds = {name: min(results[name][0] for results in rounds) for name in ways}
    verdicts = {name: rounds[0][name][1] for name in ways}
    for name, best in seconds.items():
        speedup = seconds["loop, defaults"] / best
        print(f"{name:<16}{best:8.2f} s {len(items) / best:9.0f}/s {speedup:7.2f}x", flush=True)
    for name in list(ways)[2:]:
        assert verdicts[name] == verdicts["loop, strict"], f"{name} changes verdicts"
    differences(items, verdicts["loop, defaults"], verdicts["loop, strict"])


def loop_defaults(items: Sequence[Item]) -> Timed:
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)

    def judge(item: Item) -> str:
        reference, text = item
        return "correct" if verify(parse(rf"\boxed{{{reference}}}"), parse(text)) else "incorrect"

    return timed(lambda items: list(map(judge, items)), items)


def loop_strict(items: Sequence[Item]) -> Timed:
    from g2d.verifier.symbolic import judge

    return timed(lambda items: [judge(reference, last_boxed(text) or "") for reference, text in items], items)


def in_fresh_process(loop: Callable, items: Sequence[Item]) -> Timed:
    """Run a loop with cold parsers and caches; imports are not counted."""
    with multiprocessing.get_context("spawn").Pool(1) as process:
        return process.apply(loop, (items,))


def through_pool(workers: int, items: Sequence[Item]) -> Timed:
    pool = Pool(workers, Limits())
    try:
        start(pool)
        return timed(lambda items: pool.judge([(ref, last_boxed(text) or "") for ref, text in items]), items)
    finally:
        pool.close()


def through_verifier(workers: int, items: Sequence[Item]) -> Timed:
    with Verifier(workers) as verifier:
        start(verifier._pool)
        seconds, judgements = timed(verifier.verify, items)
        return seconds, [judgement.verdict for judgement in judgements]


def start(pool: Pool) -> None:
    """Wait until every worker is there."""
    while len(pool.workers) < pool.size:
        pool.judge([(str(i), "1/2") for i in range(pool.size)])


def timed(work: Callable, items: Sequence[Item]) -> tuple[float, list]:
    begin = time.perf_counter()
    result = work(items)
    return time.perf_counter() - begin, result


def differences(items: Sequence[Item], defaults: list[str], strict: list[str]) -> None:
    """Print items with different verdicts of the two loops."""
    disputed = [
        (item, theirs, ours)
        for item, theirs, ours in zip(items, defaults, strict, strict=True)
        if ours in ("correct", "incorrect") and theirs != ours
    ]
    counts = Counter(f"{theirs} by default, {ours} strictly" for _, theirs, ours in disputed)
    print("differing verdicts:", dict(counts) or "none")
    for (reference, text), theirs, ours in disputed[:20]:
        print(f"    {reference!r} against {last_boxed(text)!r}: {theirs} by default, {ours} strictly")
    print()


def worst_latency(limits: Limits) -> None:
    """The slowest items of the test suite's hostile set, one at a time."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "verifier"))
    from hostile import HOSTILE

    latencies = {}
    with Verifier(1, limits) as verifier:
        for name, (completion, _) in HOSTILE.items():
            verifier.verify([("1/2", r"\boxed{0.5}"), ("1/3", f"\\boxed{{{len(latencies)}/3}}")])  # a worker is ready
            latencies[name], _ = timed(verifier.verify, [("5", completion)])
    print(f"hostile set, deadline {limits.deadline_s} s of CPU time: slowest of {len(latencies)}")
    for name in sorted(latencies, key=lambda name: -latencies[name])[:5]:
        print(f"    {latencies[name]:6.2f} s  {name}")


if __name__ == "__main__":
    main()
