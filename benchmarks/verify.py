r"""Verification of real completions: Math-Verify in a loop, and g2d's verifier with one and two workers, in one run.

    python benchmarks/verify.py --data DIR [--n 2500 5000 10000] [--repeats 3]

The completions are recorded model outputs on GSM8K, their answer boxed, and the published solutions of MATH. Each line
of the table judges the same items. The loop calls `parse(completion)` and `verify` as in Math-Verify's README. Imports
and the start of workers are not counted: a run pays them once. Differing verdicts are listed.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from g2d.verifier import Verifier, last_boxed
from g2d.verifier.pool import Pool

Item = tuple[str, str]
Timed = tuple[float, list[str]]  # seconds, verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("G2D_DATA"), help="folder with gsm8k/ and math/")
    parser.add_argument("--n", type=int, nargs="+", default=[2_500, 5_000, 10_000], help="numbers of completions")
    parser.add_argument("--repeats", type=int, default=3, help="rounds, of which the best counts")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("say where the data is: --data DIR or G2D_DATA")
    print(f"{os.cpu_count()} cores\n")
    items = load(arguments.data)
    for n in arguments.n:
        # Evenly over both sources, so that every size has the same mixture.
        compare([items[i * len(items) // n] for i in range(min(n, len(items)))], arguments.repeats)


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
        "Math-Verify": lambda: in_fresh_process(loop, items),
        "verifier, 1": lambda: through_verifier(1, items),
        "verifier, 2": lambda: through_verifier(2, items),
    }
    rounds = [{name: way() for name, way in ways.items()} for _ in range(repeats)]
    seconds = {name: min(results[name][0] for results in rounds) for name in ways}
    for name, best in seconds.items():
        speedup = seconds["Math-Verify"] / best
        print(f"{name:<16}{best:8.2f} s {len(items) / best:9.0f}/s {speedup:7.2f}x", flush=True)
    differences(items, rounds[0]["Math-Verify"][1], rounds[0]["verifier, 2"][1])


def loop(items: Sequence[Item]) -> Timed:
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)

    def judge(item: Item) -> str:
        reference, text = item
        return "correct" if verify(parse(rf"\boxed{{{reference}}}"), parse(text)) else "incorrect"

    return timed(lambda items: list(map(judge, items)), items)


def in_fresh_process(judge: Callable, items: Sequence[Item]) -> Timed:
    """Judge with cold parsers and caches; imports are not counted."""
    with multiprocessing.get_context("spawn").Pool(1) as process:
        return process.apply(judge, (items,))


def through_verifier(workers: int, items: Sequence[Item]) -> Timed:
    with Verifier(workers) as verifier:
        start(verifier._pool)
        seconds, judgements = timed(verifier.verify, items)
        return seconds, [judgement.verdict for judgement in judgements]


def start(pool: Pool) -> None:
    """Wait until every worker has started."""
    while len(pool.workers) < pool.size:
        pool.replies([(str(i), "1/2") for i in range(pool.size)])


def timed(work: Callable, items: Sequence[Item]) -> tuple[float, list]:
    begin = time.perf_counter()
    result = work(items)
    return time.perf_counter() - begin, result


def differences(items: Sequence[Item], theirs: list[str], ours: list[str]) -> None:
    """Print items with different verdicts of Math-Verify and the verifier."""
    disputed = [row for row in zip(items, theirs, ours, strict=True) if row[1] != row[2]]
    print("differing verdicts:", dict(Counter(row[1:] for row in disputed)) or "none")
    for (reference, text), their_verdict, our_verdict in disputed[:20]:
        print(f"    {reference!r} and {last_boxed(text)!r}: Math-Verify {their_verdict}, verifier {our_verdict}")
    print()


if __name__ == "__main__":
    main()
