"""Contamination check: how often M0 completes questions of a benchmark verbatim (docs/contamination.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

import pandas as pd
import scipy

from g2d.analysis.contamination import is_verbatim, partial_id, rouge_l, split_question
from g2d.analysis.statistics import holm, wilson_interval
from g2d.problems.problem import Problem
from g2d.tables.frames import Rows, columns, estimate, table_of

CONTAMINATION_COLUMNS = columns(
    "model benchmark fresh share n_problems n_asked verbatim verbatim_share verbatim_low verbatim_high rouge_l",
    "rest_words right right_share right_low right_high fresh_asked fresh_verbatim p_value family_size p_holm",
    right="int64",
    family_size="Int64",
)


@table_of(CONTAMINATION_COLUMNS)
def contamination_table(
    continued: Mapping[tuple[str, str], pd.DataFrame],
    problems: Mapping[str, Sequence[Problem]],
    fresh: Sequence[str],
    share: float,
) -> Rows:
    """A row per model and benchmark, tested against the fresh benchmarks with Fisher's exact test.

    Args:
        continued: greedy rollouts of the first `share` of each question, by model and benchmark.
        fresh: benchmarks that were generated for this run.

    Raises:
        ValueError: a question was not continued.
    """
    rows = [
        {"model": model, "benchmark": name, "fresh": name in fresh, "share": share}
        | _counts(rollouts, problems[name], share, f"{model}, {name}")
        for (model, name), rollouts in continued.items()
    ]
    for model in dict.fromkeys(row["model"] for row in rows):
        _compare([row for row in rows if row["model"] == model])
    yield from rows


def _counts(rollouts: pd.DataFrame, problems: Sequence[Problem], share: float, name: str) -> dict[str, Any]:
    rests = {
        partial_id(problem.problem_id, share): partial.rest
        for problem in problems
        if (partial := split_question(problem.prompt, share)) is not None
    }
    written = dict(zip(rollouts["problem_id"], rollouts["completion_text"], strict=True))
    if rests.keys() != written.keys():
        raise ValueError(f"{name}: the rollouts do not continue the benchmark's questions: draw them again")
    n = len(rests)
    return {
        **{"n_problems": len(problems), "n_asked": n},
        **_share("verbatim", sum(is_verbatim(written[at], rest) for at, rest in rests.items()), n),
        **_share("right", int((rollouts["verdict"] == "correct").sum()), n),
        "rouge_l": fmean(rouge_l(written[at], rest) for at, rest in rests.items()) if n else None,
        "rest_words": median(len(rest.split()) for rest in rests.values()) if n else None,
    }


def _share(name: str, hits: int, n: int) -> dict[str, Any]:
    return estimate(name, hits, wilson_interval(hits, n)) | {f"{name}_share": hits / n if n else None}


def _compare(rows: Sequence[dict[str, Any]]) -> None:
    n_fresh, verbatim = (sum(row[name] for row in rows if row["fresh"]) for name in ("n_asked", "verbatim"))
    tested = [row for row in rows if not row["fresh"] and row["n_asked"] and n_fresh]
    for row in tested:
        table = [[row["verbatim"], row["n_asked"] - row["verbatim"]], [verbatim, n_fresh - verbatim]]
        row |= {"fresh_asked": n_fresh, "fresh_verbatim": verbatim, "family_size": len(tested)}
        row["p_value"] = float(scipy.stats.fisher_exact(table).pvalue)
    for row, corrected in zip(tested, holm([row["p_value"] for row in tested]), strict=True):
        row["p_holm"] = float(corrected)
