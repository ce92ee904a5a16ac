"""What online RL before the harvest brings over all models and benchmarks, and what it would bring on another one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from g2d.analysis.comparisons import LEVEL
from g2d.analysis.crossed import centre, error_of_difference, possible
from g2d.analysis.statistics import simultaneous
from g2d.analysis.synthesis import FEWEST, Pooled, pool_studies
from g2d.experiment.keys import PolicyKey
from g2d.tables.evaluations import ROW_COLUMNS, Evaluations, by_policy, crossed, grid_order, named
from g2d.tables.families import paired, pool
from g2d.tables.frames import Rows, floats, integers, strings, table_of

SYNTHESIS_COLUMNS = {
    **strings("reference"),
    **{name: ROW_COLUMNS[name] for name in ("policy", "K", "group_size")},
    **strings("over", "model", "benchmark"),
    **integers("n_studies"),
    **floats("difference", "standard_error", "ci_low", "ci_high", "p_value"),
    "family_size": "Int64",
    **floats("family_low", "family_high", "p_holm"),
    **floats("tau", "i_squared", "p_heterogeneity", "prediction_low", "prediction_high"),
}
NO_ONLINE = "DPO at K=0"
STUDY = "one study"
OVER_MODELS = "models, mean of their benchmarks"


@dataclass(frozen=True)
class _Study:
    """The effect of a K on one model and benchmark, or on the mean of several benchmarks."""

    model: str
    benchmark: str
    difference: float
    of_questions: float  # variances of the difference
    of_seeds: float
    low: float = math.nan  # 95 % interval, and two-sided p-value, of this study alone
    high: float = math.nan
    p_value: float = math.nan

    @property
    def variance(self) -> float:
        return self.of_questions + self.of_seeds


@table_of(SYNTHESIS_COLUMNS)
def synthesis_table(evaluations: Evaluations) -> Rows:
    """Every K against DPO at K=0 and against GRPO alone, pooled over models and benchmarks.

    A study is a model on a benchmark. Trainings of a model are shared by its benchmarks, so with three models and more
    these are the studies: on each benchmark, and on the mean of their benchmarks. With fewer, all of a model's
    benchmarks are pooled, whose errors from seeds count as fully correlated; then nothing is said about other models.

    Args:
        evaluations: the answers of every policy, seed and benchmark.

    Returns:
        `SYNTHESIS_COLUMNS`: the studies, then what is pooled `over` them (`g2d.analysis.synthesis`).
    """
    effects = _effects(evaluations)
    for reference in dict.fromkeys(reference for _, reference in effects):
        found: dict[str, list[tuple[dict[str, Any], Pooled]]] = {}
        for (policy, other), studies in effects.items():
            if other != reference or len(studies) < FEWEST:
                continue
            said = {"reference": reference} | {
                key: value for key, value in named([policy], "").items() if key in ("policy", "K", "group_size")
            }
            yield from [said | _study(study) for study in studies]
            for over, benchmark, pooled in _pooled(studies):
                found.setdefault(over, []).append((said | {"over": over, "benchmark": benchmark}, pooled))
        for family in found.values():
            results = [pooled for _, pooled in family]
            adjusted = simultaneous(
                [pooled.p_value for pooled in results],
                [possible(*pooled.interval(LEVEL / len(family))) for pooled in results],
                [pooled.effect for pooled in results],
                LEVEL,
            )
            for (said, pooled), (p_holm, low, high) in zip(family, adjusted, strict=True):
                corrected = {"family_size": len(family), "family_low": low, "family_high": high, "p_holm": p_holm}
                yield said | _values(pooled) | corrected


def _effects(evaluations: Evaluations) -> dict[tuple[PolicyKey, str], list[_Study]]:
    """Studies by policy, whatever its model, and reference."""
    grouped = by_policy(evaluations, keep=lambda key: not key.is_ablation)
    order = grid_order(grouped)
    accuracies = {at: crossed(own, at[1]).mean(axis=1) for at, own in grouped.items()}
    found: dict[tuple[PolicyKey, str], list[_Study]] = {}
    for at in order:
        policy, benchmark = at
        if policy.role != "dpo":
            continue
        for other in order:
            if (other[0].model, other[1]) != (policy.model, benchmark) or other == at:
                continue
            if name := _reference(other[0]):
                answers, reference = paired(grouped, at, other)
                deltas = answers - reference
                alike = pool(grouped, accuracies, at, other) if len(answers) > 1 else None
                error = error_of_difference(deltas, alike, paired=len(reference) > 1)
                middle = centre(deltas)
                study = _Study(
                    *(policy.model, benchmark, float(deltas.mean()), error.questions, error.expected_seeds),
                    *error.interval(middle, LEVEL),
                    error.p_value(middle),
                )
                found.setdefault((replace(policy, model=""), name), []).append(study)
    return dict(sorted(found.items(), key=lambda item: item[0][1] != NO_ONLINE))


def _reference(other: PolicyKey) -> str:
    """What a policy is compared with, in words; empty for what is no reference here."""
    if other.role == "dpo" and other.k == 0:
        return NO_ONLINE
    return f"GRPO alone (G={other.group_size}, K={other.k})" if other.role == "grpo" else ""


def _pooled(studies: Sequence[_Study]) -> Iterator[tuple[str, str | None, Pooled]]:
    """What is pooled over them: its words, the benchmark where it is one, and the result."""
    models = list(dict.fromkeys(study.model for study in studies))
    benchmarks = list(dict.fromkeys(study.benchmark for study in studies))
    if len(models) < FEWEST:
        of_seeds, groups = [study.of_seeds for study in studies], [study.model for study in studies]
        result = pool_studies(
            [study.difference for study in studies], [study.variance for study in studies], of_seeds, groups
        )
        yield f"{len(benchmarks)} benchmarks", None, result
        return
    for benchmark in benchmarks:
        own = [study for study in studies if study.benchmark == benchmark]
        if len(own) >= FEWEST:
            result = pool_studies([study.difference for study in own], [study.variance for study in own])
            yield f"models, {benchmark}", benchmark, result
    if len(benchmarks) > 1:
        means = [_mean([study for study in studies if study.model == model]) for model in models]
        result = pool_studies([mean.difference for mean in means], [mean.variance for mean in means])
        yield OVER_MODELS, None, result


def _mean(studies: Sequence[_Study]) -> _Study:
    """The mean over the benchmarks of a model, whose errors from seeds count as fully correlated."""
    n = len(studies)
    return _Study(
        studies[0].model,
        "",
        math.fsum(study.difference for study in studies) / n,
        math.fsum(study.of_questions for study in studies) / n**2,
        (math.fsum(math.sqrt(study.of_seeds) for study in studies) / n) ** 2,
    )


def _study(study: _Study) -> dict[str, Any]:
    error = math.sqrt(study.variance)
    return {
        **{"over": STUDY, "model": study.model, "benchmark": study.benchmark, "n_studies": 1},
        **{"difference": study.difference, "standard_error": error},
        **{"ci_low": study.low, "ci_high": study.high, "p_value": study.p_value},
    }


def _values(pooled: Pooled) -> dict[str, Any]:
    low, high = possible(*pooled.interval(LEVEL))
    prediction_low, prediction_high = possible(*pooled.prediction(LEVEL))
    return {
        **{"n_studies": pooled.n_studies, "difference": pooled.effect, "standard_error": pooled.standard_error},
        **{"ci_low": low, "ci_high": high, "p_value": pooled.p_value, "tau": pooled.tau},
        **{"i_squared": pooled.i_squared, "p_heterogeneity": pooled.p_heterogeneity},
        **{"prediction_low": prediction_low, "prediction_high": prediction_high},
    }
