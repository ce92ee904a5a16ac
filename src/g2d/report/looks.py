"""Interim analyses on the page: plan, decisions, and a chart of each difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from g2d.analysis.looks import SETTLED, Compared, Look
from g2d.experiment.config import Config
from g2d.experiment.race import further_words, last_of, next_look_words, policy_words, taken
from g2d.experiment.sections import Looks
from g2d.report.phrases import listed, numbers, points
from g2d.report.styles import OKABE_ITO, SHAPES
from g2d.report.vega import Spec, dashed_line, finished, named_scale, tips
from g2d.tables.looks import looks_of, other_plans

SPENDING = {"obrien_fleming": "O'Brien and Fleming's type", "pocock": "Pocock's type"}
SAID = {"better": "better than", "worse": "worse than", "within": "within the margin of"}


def look_sentences(config: Config, results: str | Path = "results") -> list[str]:
    """Return paragraphs about the interim analyses, [] if there are none."""
    others = other_plans(config.looks, results)
    if config.looks is None:
        sentence = (
            f"This folder has interim analyses ({listed(others)}). This configuration lists its seeds by hand: the "
            "error of that plan does not hold for its seeds, tests and intervals."
        )
        return [sentence] if others else []
    looks = dict(list(taken(config.looks, results).items())[: config.looks.until])
    sentences = [_plan_sentence(config.looks, next(iter(config.benchmarks)))]
    if others:
        sentences.append(
            f"There were interim analyses by another plan before ({listed(others)}): the error of this plan does not "
            "include theirs."
        )
    for model in config.models:
        analyses = looks_of(model, looks)
        sentences += [
            _sentence(look, list(looks.values())[look.number - 1], len(config.models) > 1) for look in analyses
        ]
        for verdict in SETTLED if analyses else ():
            fell = [_verdict(one) for one in analyses[-1].comparisons if one.verdict == verdict]
            sentences += ["; ".join(fell) + "."] if fell else []
    if (last := last_of(looks)) and last["next"]:
        sentences += next_look_words(config, looks)
    return sentences


CAVEAT = (
    "Seeds were added in stages, and interim analyses decided which policies got more: the tests and intervals here "
    "are not corrected for that, those under Interim analyses are."
)


def _plan_sentence(looks: Looks, benchmark: str) -> str:
    return (
        f"Interim analyses after {numbers(looks.looks)} seeds, on {benchmark}, were planned before the first. Within a "
        "family of comparisons, the probability of a wrong verdict of one kind (different, or within the margin) is at "
        f"most {100 * looks.error:g} % over all analyses (spending: {SPENDING[looks.spending]}); over several families "
        "it is higher (10 to 17 % in simulations with five families). A significant difference is biased upwards "
        "because it had to pass the boundary (by 0.3 of 4 points in simulations). A comparison is given up if, for "
        f"every further seed, the chance that a later analysis settles it is below {100 * looks.futility:g} %. Tests "
        "and intervals of the other tables are not corrected for interim analyses."
    )


def _sentence(look: Look, file: Mapping[str, Any], several: bool) -> str:
    fell: Counter[str] = Counter(compared.verdict for compared in look.comparisons if compared.look == look.number)
    verdicts = ", ".join(f"{fell[verdict]} {verdict}" for verdict in (*SETTLED, "given up", "open") if fell[verdict])
    name = f"Analysis {look.number}" + (f", {next(iter(look.plan.policies)).partition('/')[0]}" if several else "")
    further = further_words(file) if look.next else "it was the last"
    return f"{name}: of {len(look.comparisons)} comparisons {verdicts}; {further}."


def _verdict(pair: Compared) -> str:
    p, boundary = (pair.p_margin, pair.boundary_margin) if pair.verdict == "within" else (pair.p_value, pair.boundary)
    return (
        f"{policy_words(pair.policy)} is {SAID[pair.verdict]} {policy_words(pair.reference)} "
        f"({points(pair.estimate, pair.low, pair.high)}; analysis {pair.look}, p = {p:.2g}, boundary {boundary:.2g})"
    )


def path(looks: pd.DataFrame) -> Spec:
    policies, references = (list(map(policy_words, looks[name])) for name in ("policy", "reference"))
    only = references[0] if len(set(references)) == 1 else ""
    pairs = [f"{policy} against {reference}" for policy, reference in zip(policies, references, strict=True)]
    rows = looks.assign(name=policies if only else pairs)
    rows = rows[["name", "look", "n_seeds", "difference", "low", "high", "p_value", "boundary", "verdict"]]
    names, verdicts = list(dict.fromkeys(rows["name"])), list(dict.fromkeys(rows["verdict"]))
    color = alt.Color("name:N", title=None, scale=named_scale(names, OKABE_ITO))
    x, offset = (
        alt.X("look:O", title="interim analysis", axis=alt.Axis(labelAngle=0)),
        alt.XOffset("name:N", sort=names),
    )
    y = alt.Y("low:Q", title=f"difference from {only}" if only else "difference", axis=alt.Axis(format="+.1~%"))
    shares, tests = dict.fromkeys(("difference", "low", "high"), "+.1%"), {"p_value": ".2g", "boundary": ".2g"}
    tooltip = tips({"name": None, "verdict": None, "n_seeds": None} | shares | tests)
    base = alt.Chart(rows).encode(x=x, xOffset=offset, color=color, tooltip=tooltip)
    bars = base.mark_rule(strokeWidth=2).encode(y=y, y2="high:Q")
    shape = alt.Shape("verdict:N", title="verdict", scale=named_scale(verdicts, SHAPES))
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(y=alt.Y("difference:Q"), shape=shape)
    return finished(dashed_line("y"), bars, dots, height=220)
