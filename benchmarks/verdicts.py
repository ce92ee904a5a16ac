r"""Verdicts on real reference answers, rewritten so that they stay right and changed so that they become wrong.

    python benchmarks/verdicts.py --data DIR [--before CHECKOUT] [--n 500]

Every reference answer of MATH, MATH-500 and GSM8K is compared with itself in other words (a period, a second box, a
spaced thousand, a unit, an upright i, an inequality for an interval). It is also compared with answers that are nearly
it, in the same words (another number, digits exchanged, the sign flipped, another letter, the next problem's
reference). The first must pass, the second fail. The last rows are the recorded completions of GSM8K with their
publisher's labels.

A table has a row per rewriting and a column per verifier: Math-Verify as in its README, the verifier of another
checkout if one is given, and this one. Below it are the answers that only this one judges wrongly.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from g2d.verifier import last_boxed

ROOT = Path(__file__).parents[1]
Rewrite = Callable[[str], str | None]  # None if it does not apply


@dataclass(frozen=True)
class Case:
    kind: str
    reference: str
    answer: str
    equal: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("G2D_DATA"), help="folder with math/, gsm8k/, ...")
    parser.add_argument("--before", type=Path, help="checkout of another version, to compare with")
    parser.add_argument("--n", type=int, help="so many references, evenly chosen; default: all")
    parser.add_argument("--judge", choices=["bare", "g2d"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.judge:
        serve(arguments.judge)
        return
    if arguments.data is None:
        parser.error("say where the data is: --data DIR or G2D_DATA")
    references = list(dict.fromkeys(load(arguments.data)))
    n = min(arguments.n or len(references), len(references))
    references = [references[i * len(references) // n] for i in range(n)]
    cases = list(dict.fromkeys(case for case in rewritten(references) if case.answer.strip()))
    labelled = list(recorded(arguments.data))
    ways = {"Math-Verify": ("bare", ROOT), "before": ("g2d", arguments.before), "now": ("g2d", ROOT)}
    verdicts = {
        name: judged(way, checkout, [(case.reference, case.answer) for case in cases + labelled])
        for name, (way, checkout) in ways.items()
        if checkout
    }
    print(f"{len(references)} distinct references, {len(cases)} answers, {len(labelled)} labelled completions\n")
    table(cases + labelled, verdicts)
    worse(cases + labelled, verdicts)


def rows(path: Path) -> Iterator[dict]:
    with open(path, encoding="utf-8") as file:
        yield from map(json.loads, file)


def load(data: Path) -> Iterator[str]:
    yield from (answer for row in rows(data / "math" / "train.jsonl") if (answer := last_boxed(row["solution"])))
    yield from (row["answer"] for row in rows(data / "math500" / "test.jsonl"))
    for part in ("train", "test"):
        yield from (row["answer"].rpartition("####")[2].strip() for row in rows(data / "gsm8k" / f"{part}.jsonl"))


def recorded(data: Path) -> Iterator[Case]:
    """Recorded completions of GSM8K with their publisher's labels."""
    for row in rows(data / "gsm8k" / "example_model_solutions.jsonl"):
        reference = row["ground_truth"].rpartition("A: ")[2]
        for found in row.values():
            if isinstance(found, dict):
                answer = re.search(r"(?m)^A: *(.*?)\s*\Z", found["solution"])
                yield Case("recorded completion", reference, answer[1] if answer else "", found["is_correct"])


INTEGER = re.compile(r"-?[0-9]{1,3}(?:,(?:\\!)?[0-9]{3})+|-?[0-9]+")
IMAGINARY = re.compile(r"(?<![A-Za-z\\])i(?![A-Za-z])")
INTERVAL = re.compile(r"([\[(])\s*([^\[\](),]+?)\s*,\s*([^\[\](),]+?)\s*([\])])")


def of_integer(rewrite: Callable[[str], str]) -> Rewrite:
    return lambda answer: rewrite(answer) if INTEGER.fullmatch(answer) else None


def in_groups(space: str) -> Rewrite:
    def rewrite(answer: str) -> str | None:
        digits = answer.replace(r",\!", "").replace(",", "")
        grouped = f"{int(digits):,}".replace(",", space) if INTEGER.fullmatch(answer) else digits
        return grouped if grouped != digits else None

    return rewrite


def as_inequality(less_or_equal: str) -> Rewrite:
    """`[1,\\infty)` as an inequality; a pair in round brackets may be a point."""

    def part(match: re.Match[str]) -> str:
        opening, low, high, closing = match.groups()
        left = "" if "infty" in low else f"{low} {less_or_equal if opening == '[' else '<'} "
        right = "" if "infty" in high else f" {less_or_equal if closing == ']' else '<'} {high}"
        return f"{left}x{right}"

    def rewrite(answer: str) -> str | None:
        parts = [INTERVAL.fullmatch(p.strip()) for p in re.split(r"\\cup", re.sub(r"\\left|\\right", "", answer))]
        written = [part(match) for match in parts if match]
        if None in parts or "x" in written or not ("infty" in answer or re.search(r"[\[\]]", answer)):
            return None
        return r" \text{ or } ".join(written)

    return rewrite


RIGHT: dict[str, Rewrite] = {
    "itself": lambda answer: answer,
    "a period": lambda answer: answer + ".",
    "a comma": lambda answer: answer + ",",
    "boxed twice": lambda answer: rf"\boxed{{{answer}}}",
    "in braces": lambda answer: f"{{{answer}}}",
    "box behind x=": of_integer(lambda answer: rf"x=\boxed{{{answer}}}"),
    "spaced thousands": in_groups(" "),
    "thinly spaced thousands": in_groups(r"\,"),
    "dollars": of_integer(lambda answer: f"{answer} dollars"),
    "eggs": of_integer(lambda answer: f"{answer} eggs"),
    "text units": of_integer(lambda answer: rf"{answer}\text{{ people}}"),
    "text of number and unit": of_integer(lambda answer: rf"\text{{{answer} people}}"),
    "upright i": lambda answer: IMAGINARY.sub(r"\\mathrm{i}", answer) if IMAGINARY.search(answer) else None,
    "spaced i": lambda answer: IMAGINARY.sub(" i", answer) if IMAGINARY.search(answer) else None,
    "sized brackets": lambda answer: (
        answer.replace("(", r"\bigl(").replace(")", r"\bigr)") if re.search(r"(?<!\\left)\(", answer) else None
    ),
    "inequality": as_inequality(r"\le"),
    "inequality with leqq": as_inequality(r"\leqq"),
}


def another_number(answer: str) -> str | None:
    """The last integer, one larger."""
    numbers = list(re.finditer(r"[0-9]+", answer))
    if not numbers:
        return None
    start, end = numbers[-1].span()
    return f"{answer[:start]}{int(answer[start:end]) + 1:0{end - start}}{answer[end:]}"


def digits_exchanged(answer: str) -> str | None:
    match = re.search(r"([1-9])([0-9])(?!\1)", answer)
    if not match or match[1] == match[2]:
        return None
    return answer[: match.start()] + match[2] + match[1] + answer[match.end() :]


def sign_flipped(answer: str) -> str | None:
    if not re.fullmatch(r"-?(?:[0-9.,]*[1-9][0-9.,]*|\\[dt]?frac\{[1-9][0-9]*\}\{[0-9]+\})", answer):
        return None
    return answer[1:] if answer.startswith("-") else "-" + answer


def another_letter(answer: str) -> str | None:
    changed = re.sub(r"(?<![A-Za-z\\])x(?![A-Za-z])", "w", answer)
    return changed if changed != answer and "w" not in answer else None


def in_reverse(answer: str) -> str | None:
    word = re.fullmatch(r"(?:\\text\{)?([A-Za-z]{3,})\}?", answer)
    return word[1][::-1] if word and word[1].lower() != word[1][::-1].lower() else None


def other_brackets(answer: str) -> str | None:
    if not INTERVAL.fullmatch(answer) or not re.search(r"[\[\]]", answer):
        return None
    return answer.translate(str.maketrans("[]", "()"))


def sum_with_a_letter(answer: str) -> str | None:
    return f"{int(answer) - 5} + 5 m" if re.fullmatch("[1-9][0-9]{0,14}", answer) else None


WRONG: dict[str, Rewrite] = {
    "another number": another_number,
    "digits exchanged": digits_exchanged,
    "sign flipped": sign_flipped,
    "another letter": another_letter,
    "word reversed": in_reverse,
    "other brackets": other_brackets,
    "sum with a unit letter": sum_with_a_letter,
}
# These must not make a wrong answer acceptable.
DRESSES = ("itself", "a period", "boxed twice", "spaced thousands", "eggs", "inequality", "upright i")


def rewritten(references: list[str]) -> Iterator[Case]:
    for i, reference in enumerate(references):
        for name, rewrite in RIGHT.items():
            if (answer := rewrite(reference)) is not None:
                yield Case(name, reference, answer, True)
        yield Case("reference in a box", rf"\boxed{{{reference}}}", reference, True)
        misses = {name: miss(reference) for name, miss in WRONG.items()}
        misses["the next reference"] = references[(i + 1) % len(references)]
        for name, wrong in misses.items():
            if wrong is None:
                continue
            for dress in DRESSES:
                if (answer := RIGHT[dress](wrong)) is not None:
                    yield Case(f"{name}: {dress}" if dress != "itself" else name, reference, answer, False)
            yield Case(f"{name}: reference in a box", rf"\boxed{{{reference}}}", wrong, False)


def judged(way: str, checkout: Path, pairs: list[tuple[str, str]]) -> list[bool]:
    """Judge pairs by a checkout's verifier, in a separate process."""
    environment = os.environ | {"PYTHONPATH": str(checkout.resolve() / "src")}
    command = [sys.executable, __file__, "--judge", way]
    done = subprocess.run(
        command, input=json.dumps(pairs), stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    return json.loads(done.stdout)


def serve(way: str) -> None:
    """Judge the pairs on stdin."""
    pairs = json.load(sys.stdin)
    if way == "g2d":
        from g2d.verifier import Verifier

        with Verifier(2) as verifier:
            judgements = verifier.verify([(reference, rf"\boxed{{{answer}}}") for reference, answer in pairs])
        verdicts = [judgement.verdict == "correct" for judgement in judgements]
    else:
        import logging

        from math_verify import parse, verify

        logging.getLogger("math_verify").setLevel(logging.CRITICAL)
        verdicts = [
            verify(parse(rf"\boxed{{{reference}}}"), parse(rf"\boxed{{{answer}}}")) for reference, answer in pairs
        ]
    json.dump(verdicts, sys.stdout)


def table(cases: list[Case], verdicts: dict[str, list[bool]]) -> None:
    """Right verdicts of each way, by kind of answer."""
    print(f"{'right verdicts':<50}{'answers':>8}" + "".join(f"{name:>13}" for name in verdicts))
    kinds = list(dict.fromkeys((case.equal, case.kind) for case in sorted(cases, key=lambda case: not case.equal)))
    for equal in (True, False):
        groups = {
            kind: [i for i, case in enumerate(cases) if (case.equal, case.kind) == (equal, kind)]
            for e, kind in kinds
            if e == equal
        }
        groups["all that are right" if equal else "all that are wrong"] = [
            i for i, c in enumerate(cases) if c.equal == equal
        ]
        for kind, members in groups.items():
            counts = [sum(found[i] == equal for i in members) for found in verdicts.values()]
            print(f"{kind:<50}{len(members):>8}" + "".join(f"{count:>13}" for count in counts))
        print()


def worse(cases: list[Case], verdicts: dict[str, list[bool]]) -> None:
    """Print wrong verdicts of this verifier, and answers that another one judges rightly."""
    wrong = [i for i, case in enumerate(cases) if verdicts["now"][i] != case.equal]
    for name, found in verdicts.items():
        listed = wrong if name == "now" else [i for i in wrong if found[i] == cases[i].equal]
        print(f"wrong now{'' if name == 'now' else f', right by {name}'}: {len(listed)}")
        for case in (cases[i] for i in listed[:40]):
            print(f"    {case.kind}: {case.reference!r} and {case.answer!r} are {'' if case.equal else 'not '}equal")


if __name__ == "__main__":
    main()
