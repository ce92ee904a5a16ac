"""What online RL before the harvest brings over all models and benchmarks, and what it would bring on another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

from g2d.analysis.comparisons import LEVEL
from g2d.analysis.crossed import error_of_difference, possible
from g2d.analysis.statistics import simultaneous
from g2d.analysis.synthesis import FEWEST, Pooled, pool_studies
from g2d.experiment.keys import PolicyKey
from g2d.tables.evaluations import Evaluations, by_grid, by_policy, named
from g2d.tables.families import Paired
from g2d.tables.frames import Rows, columns, interval, table_of

SYNTHESIS_COLUMNS = columns(
    "reference policy K group_size over model benchmark n_studies difference standard_error ci_low ci_high p_value",
    "mean mean_low mean_high p_mean",
    "family_size family_low family_high p_holm tau i_squared p_heterogeneity prediction_low prediction_high",
    family_size="Int64",
)
NO_ONLINE = "DPO at K=0"
STUDY = "one study"
OVER_MODELS = "models, mean of their benchmarks"


@table_of(SYNTHESIS_COLUMNS)
def synthesis_table(evaluations: Evaluations) -> Rows:
    """Every K against DPO at K=0 and against GRPO alone: the studies, each a model on a benchmark, then what is pooled
    `over` them (`g2d.analysis.synthesis`; docs/analysis.md says what is pooled)."""
    effects = _effects(evaluations)
    for reference in dict.fromkeys(reference for _, reference in effects):
        found: dict[str, list[tuple[dict[str, Any], Pooled]]] = {}
        for (policy, other), studies in effects.items():
            if other != reference or len(studies) < FEWEST:
                continue
            said = named([policy], "") | {"reference": reference}
            yield from (said | {"over": STUDY, "n_studies": 1} | study for study in studies.to_dict("records"))
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
            means = simultaneous(
                [pooled.mean_p_value for pooled in results],
                [possible(*pooled.mean_interval(LEVEL / len(family))) for pooled in results],
                [pooled.mean for pooled in results],
            )
            for (said, pooled), (p_holm, *ends), (p_mean, *of_mean) in zip(family, adjusted, means, strict=True):
                yield {
                    **said,
                    "p_mean": p_mean,
                    **interval("mean", (of_mean[0], of_mean[1])),
                    **asdict(pooled),
                    "difference": pooled.effect,
                    **interval("ci", possible(*pooled.interval(LEVEL))),
                    **interval("prediction", possible(*pooled.prediction(LEVEL))),
                    **interval("family", (ends[0], ends[1])),
                    **{"family_size": len(family), "p_holm": p_holm},
                }


def _effects(evaluations: Evaluations) -> dict[tuple[PolicyKey, str], pd.DataFrame]:
    """Studies by policy, whatever its model, and reference: a row per model and benchmark, with the variances of the
    difference from questions and from seeds."""
    grouped = by_policy(evaluations, keep=lambda key: not key.is_ablation)
    found: dict[tuple[PolicyKey, str], list[dict[str, Any]]] = {}
    for (model, benchmark), rows in by_grid(grouped).items():
        answers = Paired(grouped, rows)
        for at, other in permutations(rows, 2):
            if at[0].role != "dpo" or not (name := _reference(other[0])):
                continue
            own, reference = answers.pair(at, other)
            deltas = own - reference
            alike = answers.pool(at, other) if len(own) > 1 else None
            error = error_of_difference(deltas, alike, paired=len(reference) > 1, clusters=answers.clusters)
            study = {"model": model, "benchmark": benchmark, "difference": deltas.mean()}
            study |= {"of_questions": error.questions, "of_seeds": error.expected_seeds, "p_value": error.p_value()}
            study["degrees"] = error.degrees
            study |= {"standard_error": error.standard_error} | interval("ci", error.interval(LEVEL))
            found.setdefault((replace(at[0], model=""), name), []).append(study)
    ordered = sorted(found.items(), key=lambda item: item[0][1] != NO_ONLINE)
    return {at: pd.DataFrame(studies) for at, studies in ordered}


def _reference(other: PolicyKey) -> str:
    """What a policy is compared with, in words; empty for what is no reference here."""
    if other.role == "dpo" and other.k == 0:
        return NO_ONLINE
    return f"GRPO alone (G={other.group_size}, K={other.k})" if other.role == "grpo" else ""


def _pooled(studies: pd.DataFrame) -> Iterator[tuple[str, str | None, Pooled]]:
    """What is pooled over them: its words, the benchmark where it is one, and the result."""

    def pooled(own: pd.DataFrame, **correlated: Sequence[Any]) -> Pooled:
        variances = [*(own["of_questions"] + own["of_seeds"])]
        return pool_studies([*own["difference"]], variances, degrees=[*own["degrees"]], **correlated)

    of_model, benchmarks = studies.groupby("model", sort=False), studies.groupby("benchmark", sort=False)
    if len(of_model) < FEWEST:
        yield (
            f"{len(benchmarks)} benchmarks",
            None,
            pooled(studies, shared=[*studies["of_seeds"]], groups=[*studies["model"]]),
        )
        return
    for benchmark, own in benchmarks:
        if len(own) >= FEWEST:
            yield f"models, {benchmark}", str(benchmark), pooled(own)
    if len(benchmarks) > 1:
        means = of_model.agg(
            difference=("difference", "mean"),
            of_questions=("of_questions", lambda variances: variances.sum() / len(variances) ** 2),
            of_seeds=("of_seeds", lambda variances: np.sqrt(variances).mean() ** 2),  # fully correlated
            degrees=("degrees", "min"),
        )
        yield OVER_MODELS, None, pooled(means)
