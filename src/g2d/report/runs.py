"""Sentences about several runs: progress, differences and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd

from g2d.analysis.comparisons import LEVEL
from g2d.experiment import grid
from g2d.report.replication import other_settings, other_software
from g2d.report.styles import names
from g2d.tables.results import Results


def about(runs: Mapping[str, Results]) -> dict[str, dict[str, Any]]:
    facts = {}
    for name, run in runs.items():
        policies, evaluated = grid.policies(run.config), {key for key, _ in run.answers}
        facts[name] = {
            "folder": str(run.folder),
            "title": run.config.title,
            "policies": len(policies),
            "evaluated": sum(key in evaluated for key in policies),
            "g2d": run.provenance["workflow"]["g2d"] if run.provenance else None,
        }
    return facts


def differing_in(
    runs: Mapping[str, Results], shown: Callable[[Any], Any] = lambda identity: identity
) -> dict[str, dict[str, dict[str, Any]]]:
    parts = {
        "configuration": other_settings(*(shown(run.config.identity) for run in runs.values())),
        "software": other_software(*(run.provenance for run in runs.values())),
    }
    return {
        kind: {key: dict(zip(runs, values, strict=True)) for key, values in keys.items()}
        for kind, keys in parts.items()
    }


def sentences(rows: pd.DataFrame, first: str) -> Iterator[str]:
    for name, run_rows in rows[rows["run"] != first].groupby("run", sort=False):
        tested = run_rows[run_rows["difference"].notna()]
        if len(tested):
            significant = int((tested["p_holm"] <= LEVEL).sum())
            one_seed = (tested["seeds"] != "").any() and (tested["n_paired_seeds"] == 1).all()
            weights = "; with one seed, that is about these weights" if one_seed else ""
            yield (
                f"{name} against {first}: {significant} of {len(tested)} policies differ significantly, paired by "
                f"question and seed, corrected for {int(tested['family_size'].iloc[0])} comparisons{weights}"
            )
        reasons = run_rows["not_compared"].fillna("")
        refused = run_rows[(reasons != "") & ~reasons.str.startswith("only in ")]
        for reason, which in refused.groupby("not_compared", sort=False):
            whose = "" if len(which) == len(run_rows) else f" ({', '.join(names(which))})"
            yield f"{name} is not comparable with {first}{whose}: {reason}"
