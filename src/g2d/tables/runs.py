"""Several runs side by side: policies of the same name (model, regime, K, G) and seed are paired."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from g2d.analysis.comparisons import Comparison, compare, corrected
from g2d.experiment.keys import PolicyKey
from g2d.rollouts.rollout import read_rollouts
from g2d.tables.accuracy import accuracy_row
from g2d.tables.evaluations import BY_BENCHMARK, Grouped, Row, by_grid, by_policy, clusters_of, crossed
from g2d.tables.frames import Rows, columns, estimate, mean, table_of
from g2d.tables.results import Results

RUN_COLUMNS = columns(
    *(BY_BENCHMARK, "run seeds n_seeds n_problems accuracy ci_low ci_high device_hours tokens_generated"),
    "n_paired_seeds difference difference_low difference_high p_value p_holm family_size not_compared",
    family_size="Int64",
)
ABSENT = "absent"
# Packages whose versions affect verdicts.
VERIFIER = ("math-verify", "latex2sympy2_extended", "antlr4-python3-runtime", "sympy")


@table_of(RUN_COLUMNS)
def runs_table(runs: Mapping[str, Results], benchmarks: Sequence[str] = ()) -> Rows:
    """A row per run, policy and benchmark (all if none is named).

    It has the difference from the same policy of the first run over shared seeds, or the reason if there is none. The
    variance over seeds is not pooled, because it may differ between runs.
    """
    first = next(iter(runs))
    grouped = {
        name: by_policy({at: rows for at, rows in run.answers.items() if not benchmarks or at[1] in benchmarks})
        for name, run in runs.items()
    }
    costs = {name: (run.device_hours, _tokens(run)) for name, run in runs.items()}
    for (model, benchmark), policies in by_grid(dict.fromkeys(at for rows in grouped.values() for at in rows)).items():
        reasons = {name: _reasons([runs[first], runs[name]], model, benchmark) for name in runs if name != first}
        tests, refused = _tests(grouped, policies, reasons)
        family = [
            compare(policy, reference, family=len(tests), clusters=clusters_of(grouped[first][at]))
            for (at, _), (policy, reference) in tests.items()
        ]
        compared = dict(zip(tests, corrected(family), strict=True))
        for at in policies:
            owners = [name for name in runs if at in grouped[name]]
            for name in owners:
                by_key, (hours, tokens) = grouped[name][at], costs[name]
                seeds = [str(key.seed) for key in by_key if key.seed is not None]
                row = accuracy_row(by_key, hours, benchmark) | {"run": name, "seeds": ", ".join(seeds)}
                row["tokens_generated"] = mean(tokens.get(key) for key in by_key)
                row["not_compared"] = f"only in {name}" if len(owners) == 1 else refused.get((at, name))
                yield row | (_difference(compared[at, name]) if (at, name) in compared else {})


def _tokens(run: Results) -> dict[PolicyKey, float]:
    base = {key: 0.0 for key, _ in run.answers if key.role == "base"}
    return base | {key: float(sum(job.tokens_generated for job in cost.records)) for key, cost in run.costs.items()}


Pairs = dict[tuple[Row, str], tuple[np.ndarray, np.ndarray]]  # answers of both, (n_seeds, n_problems), by row and run


def _tests(
    grouped: Mapping[str, Grouped], policies: Sequence[Row], reasons: Mapping[str, Sequence[str]]
) -> tuple[Pairs, dict[tuple[Row, str], str]]:
    first = next(iter(grouped.values()))
    tests: Pairs = {}
    refused = {}
    for at, name in product(policies, reasons):
        if at not in first or at not in grouped[name]:
            continue
        policy, reference = grouped[name][at], first[at]
        keys = [key for key in policy if key in reference]
        against = [*reasons[name], *([] if keys else ["no seed in common"])]
        if against := against or [*_other_questions(reference[keys[0]], policy[keys[0]])]:
            refused[at, name] = "; ".join(against)
        else:
            paired = (crossed({key: answers[key] for key in keys}, at[1]) for answers in (policy, reference))
            tests[at, name] = (next(paired), next(paired))
    return tests, refused


def _difference(test: Comparison) -> dict[str, Any]:
    cells: dict[str, Any] = {"n_paired_seeds": test.n_seeds, "family_size": test.family_size}
    cells |= {"p_value": test.p_value, "p_holm": test.p_holm}
    return cells | estimate("difference", test.difference, (test.family_low, test.family_high))


def _reasons(both: Sequence[Results], model: str, benchmark: str) -> list[str]:
    if not all(model in run.config.models for run in both):
        return []  # nothing to compare
    # Prompts are compared below, from the answers.
    settings = [run.config.for_model(model).evaluation.answers for run in both]
    compared = differing(*({"evaluation": keys.params(without={"batch_size", "token_budgets"})} for keys in settings))
    if all(run.provenance for run in both):  # written at the end of a run
        compared |= differing(*_verifiers(both))
    reasons = [f"{key}: {' | '.join(map(str, values))}" for key, values in compared.items()]
    answered = [[key.folder for key, name in run.answers if (key.model, name) == (model, benchmark)] for run in both]
    if all(answered):
        files = [run.folder / keys[0] / f"eval/{benchmark}.parquet" for run, keys in zip(both, answered, strict=True)]
        columns = ["problem_id", "reference_answer", "prompt_text"]
        reasons += _other_questions(*(read_rollouts(file, columns) for file in files))
    return reasons


def _verifiers(runs: Sequence[Results]) -> list[dict[str, Any]]:
    packages = [run.provenance["software"]["packages"] for run in runs]
    names = [name for name in VERIFIER if all(versions.get(name) for versions in packages)]
    stages = [run.provenance["workflow"]["stage_versions"].get("evaluate") for run in runs]
    return [
        {"verifier": {"version of the stage evaluate": stage} | {name: versions[name] for name in names}}
        for stage, versions in zip(stages, packages, strict=True)
    ]


def _other_questions(first: pd.DataFrame, other: pd.DataFrame) -> Iterator[str]:
    first, other = (rows.drop_duplicates("problem_id").set_index("problem_id").sort_index() for rows in (first, other))
    shared = first.index.intersection(other.index)
    if not len(first) == len(other) == len(shared):
        yield f"other questions: {len(first)} | {len(other)}, {len(shared)} in common"
        return
    for column, words in {
        "reference_answer": "other reference answers",
        "prompt_text": "other prompts (text of the problem, key `prompt` or chat template)",
    }.items():
        if column in first and (n := int((first[column] != other[column]).sum())):
            yield f"{words} at {n} of {len(shared)} questions"


def differing(*settings: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the dotted keys and values that differ between nested mappings; a missing section is one key."""
    differences: dict[str, tuple[Any, ...]] = {}
    for key in sorted(set().union(*settings)):
        values = tuple(mapping.get(key, ABSENT) for mapping in settings)
        if all(isinstance(value, Mapping) for value in values):
            differences |= {f"{key}.{name}": inner for name, inner in differing(*values).items()}
        elif any(value != values[0] for value in values):
            differences[key] = values
    return differences
