"""Meta-analysis: the effect of online RL before the harvest over models and benchmarks, and on another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

from g2d.analysis import FEWEST_STUDIES
from g2d.analysis.comparisons import LEVEL
from g2d.analysis.crossed import error_of_difference, possible
from g2d.analysis.statistics import simultaneous
from g2d.analysis.synthesis import Pooled, pool_studies
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
    """A row per K, reference (DPO at K=0, GRPO) and study (a model on a benchmark), then rows `over` studies."""
    effects = _effects(evaluations)
    for reference in dict.fromkeys(reference for _, reference in effects):
        families: dict[str, list[tuple[dict[str, Any], Pooled]]] = {}
        for (policy, other), studies in effects.items():
            if other != reference or len(studies) < FEWEST_STUDIES:
                continue
            labels = named([policy], "") | {"reference": reference}
            yield from (labels | {"over": STUDY, "n_studies": 1} | study for study in studies.to_dict("records"))
            for over, benchmark, pooled in _pooled(studies):
                place = {"over": over, "model": None, "benchmark": benchmark}
                families.setdefault(over, []).append((labels | place, pooled))
        for family in families.values():
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
            for (labels, pooled), (p_holm, *ends), (p_mean, *of_mean) in zip(family, adjusted, means, strict=True):
                yield {
                    **labels,
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
    """Return the studies of each policy and reference, a row per model and benchmark."""
    grouped = by_policy(evaluations, keep=lambda key: not key.is_ablation)
    effects: dict[tuple[PolicyKey, str], list[dict[str, Any]]] = {}
    for (model, benchmark), rows in by_grid(grouped).items():
        answers = Paired(grouped, rows)
        for at, other in permutations(rows, 2):
            if at[0].role != "dpo" or not (name := _reference(other[0])):
                continue
            policy, reference = answers.pair(at, other)
            deltas = policy - reference
            pool = answers.pool(at, other) if len(policy) > 1 else None
            error = error_of_difference(deltas, pool, paired=len(reference) > 1, clusters=answers.clusters)
            study = {"model": model, "benchmark": benchmark, "difference": deltas.mean()}
            study |= {"of_questions": error.questions, "of_seeds": error.expected_seeds, "p_value": error.p_value()}
            study["degrees"] = error.degrees
            study |= {"standard_error": error.standard_error} | interval("ci", error.interval(LEVEL))
            effects.setdefault((replace(at[0], model=""), name), []).append(study)
    ordered = sorted(effects.items(), key=lambda item: item[0][1] != NO_ONLINE)
    return {at: pd.DataFrame(studies) for at, studies in ordered}


def _reference(other: PolicyKey) -> str:
    if other.role == "dpo" and other.k == 0:
        return NO_ONLINE
    return f"GRPO alone (G={other.group_size}, K={other.k})" if other.role == "grpo" else ""


def _pooled(studies: pd.DataFrame) -> Iterator[tuple[str, str | None, Pooled]]:

    def pooled(rows: pd.DataFrame, **correlated: Sequence[Any]) -> Pooled:
        variances = [*(rows["of_questions"] + rows["of_seeds"])]
        return pool_studies([*rows["difference"]], variances, degrees=[*rows["degrees"]], **correlated)

    of_model, benchmarks = studies.groupby("model", sort=False), studies.groupby("benchmark", sort=False)
    if len(of_model) < FEWEST_STUDIES:
        result = pooled(studies, shared=[*studies["of_seeds"]], groups=[*studies["model"]])
        yield f"{len(benchmarks)} benchmarks", None, result
        return
    for benchmark, rows in benchmarks:
        if len(rows) >= FEWEST_STUDIES:
            yield f"models, {benchmark}", str(benchmark), pooled(rows)
    if len(benchmarks) > 1:
        means = of_model.agg(
            difference=("difference", "mean"),
            of_questions=("of_questions", lambda variances: variances.sum() / len(variances) ** 2),
            of_seeds=("of_seeds", lambda variances: np.sqrt(variances).mean() ** 2),  # fully correlated
            degrees=("degrees", "min"),
        )
        yield OVER_MODELS, None, pooled(means)
