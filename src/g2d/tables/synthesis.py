"""What online RL before the harvest brings over all models and benchmarks, and what it would bring on another one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import permutations
from typing import Any

from g2d.analysis.comparisons import LEVEL
from g2d.analysis.crossed import centre, error_of_difference, possible
from g2d.analysis.statistics import simultaneous
from g2d.analysis.synthesis import FEWEST, Pooled, pool_studies
from g2d.experiment.keys import PolicyKey
from g2d.tables.evaluations import ROW_COLUMNS, Evaluations, by_grid, by_policy, named
from g2d.tables.families import Paired
from g2d.tables.frames import Rows, floats, integers, interval, strings, table_of

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
    ci_low: float = math.nan  # 95 % interval, and two-sided p-value, of this study alone
    ci_high: float = math.nan
    p_value: float = math.nan

    @property
    def variance(self) -> float:
        return self.of_questions + self.of_seeds


@table_of(SYNTHESIS_COLUMNS)
def synthesis_table(evaluations: Evaluations) -> Rows:
    """Every K against DPO at K=0 and against GRPO alone, pooled over models and benchmarks.

    A study is a model on a benchmark; docs/analysis.md says what is pooled.

    Returns:
        `SYNTHESIS_COLUMNS`: the studies, then what is pooled `over` them (`g2d.analysis.synthesis`).
    """
    effects = _effects(evaluations)
    for reference in dict.fromkeys(reference for _, reference in effects):
        found: dict[str, list[tuple[dict[str, Any], Pooled]]] = {}
        for (policy, other), studies in effects.items():
            if other != reference or len(studies) < FEWEST:
                continue
            said = named([policy], "") | {"reference": reference}
            for study in studies:
                yield (
                    said | asdict(study) | {"over": STUDY, "n_studies": 1, "standard_error": math.sqrt(study.variance)}
                )
            for over, benchmark, pooled in _pooled(studies):
                place = {"over": over, "model": None, "benchmark": benchmark}
                found.setdefault(over, []).append((said | place, pooled))
        for family in found.values():
            results = [pooled for _, pooled in family]
            adjusted = simultaneous(
                [pooled.p_value for pooled in results],
                [possible(*pooled.interval(LEVEL / len(family))) for pooled in results],
                [pooled.effect for pooled in results],
            )
            for (said, pooled), (p_holm, *ends) in zip(family, adjusted, strict=True):
                yield {
                    **said,
                    **asdict(pooled),
                    "difference": pooled.effect,
                    **interval("ci", possible(*pooled.interval(LEVEL))),
                    **interval("prediction", possible(*pooled.prediction(LEVEL))),
                    **interval("family", (ends[0], ends[1])),
                    **{"family_size": len(family), "p_holm": p_holm},
                }


def _effects(evaluations: Evaluations) -> dict[tuple[PolicyKey, str], list[_Study]]:
    """Studies by policy, whatever its model, and reference."""
    grouped = by_policy(evaluations, keep=lambda key: not key.is_ablation)
    found: dict[tuple[PolicyKey, str], list[_Study]] = {}
    for (model, benchmark), rows in by_grid(grouped).items():
        answers = Paired(grouped, rows)
        for at, other in permutations(rows, 2):
            if at[0].role != "dpo" or not (name := _reference(other[0])):
                continue
            own, reference = answers.pair(at, other)
            deltas = own - reference
            alike = answers.pool(at, other) if len(own) > 1 else None
            error = error_of_difference(deltas, alike, paired=len(reference) > 1)
            middle = centre(deltas)
            study = _Study(
                *(model, benchmark, float(deltas.mean()), error.questions, error.expected_seeds),
                *error.interval(middle, LEVEL),
                error.p_value(middle),
            )
            found.setdefault((replace(at[0], model=""), name), []).append(study)
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

    def pooled(own: Sequence[_Study], *correlated: Sequence[Any]) -> Pooled:
        return pool_studies([study.difference for study in own], [study.variance for study in own], *correlated)

    if len(models) < FEWEST:
        of_seeds, groups = [study.of_seeds for study in studies], [study.model for study in studies]
        yield f"{len(benchmarks)} benchmarks", None, pooled(studies, of_seeds, groups)
        return
    for benchmark in benchmarks:
        own = [study for study in studies if study.benchmark == benchmark]
        if len(own) >= FEWEST:
            yield f"models, {benchmark}", benchmark, pooled(own)
    if len(benchmarks) > 1:
        means = [_mean([study for study in studies if study.model == model]) for model in models]
        yield OVER_MODELS, None, pooled(means)


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
