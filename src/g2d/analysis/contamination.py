"""Partial-prompt probe: does a model continue the beginning of a question word for word (arXiv 2507.10532)?

A base model does not stop, so only as many words as are missing are compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from g2d.problems.problem import Problem

WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Partial:
    """A question cut in two at the end of a word; `shown` keeps its spaces and line breaks."""

    shown: str
    rest: str


def split_question(text: str, share: float) -> Partial | None:
    """Split after the first `share` of words, rounded down but at least one; None for fewer than two words."""
    words = list(WORD.finditer(text))
    if len(words) < 2:
        return None
    n_shown = max(int(share * len(words) + 1e-9), 1)  # 0.6 x 5 is 3, also in binary
    end = words[min(n_shown, len(words) - 1) - 1].end()
    return Partial(text[:end], text[end:].strip())


def partial_problems(problems: Sequence[Problem], share: float) -> list[Problem]:
    return [
        replace(problem, problem_id=partial_id(problem.problem_id, share), prompt=partial.shown)
        for problem in problems
        if (partial := split_question(problem.prompt, share)) is not None
    ]


def partial_id(problem_id: str, share: float) -> str:
    return f"{problem_id}@{share:g}"


def is_verbatim(completion: str, rest: str) -> bool:
    """Return whether a completion begins with exactly the missing words."""
    missing = rest.split()
    return completion.split()[: len(missing)] == missing


def rouge_l(completion: str, rest: str) -> float:
    """Return ROUGE-L, the F1 of the longest common subsequence of words (Lin 2004, eqs. 2 to 4, beta = 1), in 0..1;
    without lowering case or stemming.
    """
    missing = rest.split()
    written = completion.split()[: len(missing)]
    if not written or not missing:
        return 0.0
    return 2 * _longest_common(written, missing) / (len(written) + len(missing))


def _longest_common(a: Sequence[str], b: Sequence[str]) -> int:
    lengths = [0] * (len(b) + 1)
    for word in a:
        diagonal = 0
        for j, other in enumerate(b, 1):
            above = lengths[j]
            lengths[j] = diagonal + 1 if word == other else max(above, lengths[j - 1])
            diagonal = above
    return lengths[-1]
