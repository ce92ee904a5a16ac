"""A finished grid in miniature, made of frames instead of training, and the page that is built from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from g2d.config.sections import Ablation, Config
from g2d.grid.grid import Grid
from g2d.grid.runs import Harvest, Policy, Run
from g2d.policies import PolicyRecord
from g2d.problems import Problem
from g2d.report.browsers import Answered, Series, browse_answers, browse_pairs
from g2d.report.page import build
from g2d.report.provenance import provenance
from g2d.rollouts.pairs import build_pairs
from g2d.rollouts.rollout import to_frame
from g2d.tables.accuracy import main_table
from g2d.tables.captions import captions
from g2d.tables.families import comparison_table
from g2d.tables.frames import write_table
from g2d.verifier import Verdict
from tests.frames import group, rollout, solved, spelled
from tests.report.rows import HOSTILE


@pytest.fixture(scope="session")
def config() -> Config:
    synthetic = {"source": "synthetic", "family": "arithmetic", "n": 10}
    return Config.model_validate(
        {
            "title": "A small grid",
            "demonstration": "Made of frames.",
            "seeds": [0, 1],
            "models": {"tiny": {"source": "embedded"}},
            "pool": {**synthetic, "split": "train", "n": 2000},
            "benchmarks": {"easy": {**synthetic, "split": "test"}, "hard": {**synthetic, "split": "development"}},
            "warmup": {"steps": [0, 10, 20]},
            "baselines": {"grpo_group_sizes": [2, 4]},
        }
    )


# Model texts of this grid: formulas and injected markup.
MODEL_TEXTS = HOSTILE + [rf"Since $\frac{{{n}}}{{2}} < {n}$, \boxed{{{n}}}" for n in range(40)]


@pytest.fixture(scope="session")
def grid_problems() -> list[Problem]:
    problems = []
    for i, text in enumerate(MODEL_TEXTS):
        question = f"What is $\\frac{{{i}}}{{1}}$? {text}"
        problems.append(Problem(f"p{i:02d} <b>", question, text, 1, None, "test"))
    return problems


def harvest_frame(problems: Iterable[Problem], k: int) -> pd.DataFrame:
    """Rollouts of pi_K: problem i is solved in (i + K / 10) mod 5 of 4 attempts, so some are pairable and some not."""
    rows = []
    for i, problem in enumerate(problems):
        for attempt in group(problem.problem_id, (i + k // 10) % 5, 4):
            text = f"K={k}, attempt {attempt.sample}: {problem.answer}"
            answer = problem.answer
            rows.append(replace(attempt, completion_text=text, extracted_answer=answer, reference_answer=answer))
    return spelled(to_frame(rows))


def answer_frame(key: Policy, benchmark: str) -> pd.DataFrame:
    """The answers of a policy: M0 has every other question right, K=10 every third, others every fourth; of the others
    every fifth is cut off."""
    every = {0: 2, 10: 3}.get(key.k, 4)
    rows = []
    for i, text in enumerate(MODEL_TEXTS):
        verdict: Verdict = "incorrect"
        if i % every == 0:
            verdict = "correct"
        elif i % 5 == 0:
            verdict = "truncated"
        completion = f"{key.label} at K={key.k} on {benchmark}: {text}"
        rows.append(rollout(f"p{i:02d} <b>", 0, verdict, completion_text=completion, extracted_answer=text))
    return to_frame(rows)


def browsed_pairs(
    harvests: Sequence[Harvest], rollouts_of: Callable[[Harvest], pd.DataFrame], problems: list[Problem], config: Config
) -> list[Series]:
    """Browse the pairs of these rollouts."""
    return browse_pairs(
        harvests,
        pairs=lambda harvest: build_pairs(rollouts_of(harvest), problems, config.prompt, harvest.seed),
        rollouts=rollouts_of,
        problems={"tiny": {problem.problem_id: problem for problem in problems}},
    )


def browsed_answers(config: Config, problems: list[Problem]) -> list[Answered]:
    return browse_answers(Grid(config), lambda policy: policy, answer_frame, lambda name: problems)


@pytest.fixture(scope="session")
def page(config: Config, grid_problems: list[Problem], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the small grid."""
    results = tmp_path_factory.mktemp("report") / "results"
    written = write_tables(results / "tables", config)
    figure = results / "figures/accuracy.svg"
    figure.parent.mkdir()
    figure.write_text('<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><circle r="9"/></svg>')
    manifests = {}
    for name, source in config.problem_sources.items():
        manifests[name] = {"source": source.model_dump(), "n": 10, "sha256": "0" * 64}
    record = provenance(config, [PolicyRecord("tiny/base", "tiny", "base", "")], manifests, ["cpu"], __file__)
    harvests = Grid(config).harvests
    series = browsed_pairs(harvests, lambda harvest: harvest_frame(grid_problems, harvest.k), grid_problems, config)
    out = results / "report/index.html"
    out.parent.mkdir()
    out.write_text(
        build(
            tables=written,
            figures={"accuracy": figure},
            captions=captions(config, [*written, "accuracy"]),
            grid=Grid(config),
            series=series,
            answered=browsed_answers(config, grid_problems),
            provenance=record,
            folder=out.parent,
            plan="The primary comparison is of this page.",
        ),
        encoding="utf-8",
    )
    return out


def write_tables(folder: Path, config: Config) -> dict[str, Path]:
    """The tables of the small grid."""
    accuracy = {"base": 0.3, "dpo": 0.5, "g2d": 0.6, "grpo": 0.45, "ipo": 0.55}
    run = Run("ipo", "dpo", "ablation", entry=Ablation(steps=[20], dpo={"loss": "ipo"}))
    policies = [*Grid(config).policies, Policy("tiny", run, 2, 20, seed=0), Policy("tiny", run, 2, 20, seed=1)]
    evaluations = {}
    hours = {}
    costs = []
    for policy in policies:
        percent = round(100 * accuracy[policy.label]) + policy.k // 5
        evaluations[policy, "easy"] = solved(percent, of=100)
        evaluations[policy, "hard"] = solved(percent - 20, of=100)
        hours[policy] = 1 + policy.k / 10
        of_policy = {"policy": policy.label, "K": policy.k, "group_size": policy.group_size or None}
        costs.append(of_policy | {"seed": policy.seed, "stage": "calibrate"})
        costs.append(of_policy | {"seed": policy.seed, "stage": "train_dpo"})
    hours[policies[0]] = 0.0  # M0
    harvest = {"model": "tiny", "group_size": [None, 2, 2], "K": [0, 10, 20], "n_seeds": 2, "n_pairs": 30.0}
    harvest |= {"pairability": [0.6, 0.7, 0.6], "entropy": [0.8, 0.9, 0.8], "mid_band": [0.3, 0.4, None]}
    harvest |= {"pairability_low": 0.5, "pairability_high": 0.75}
    calibration = {"model": "tiny", "levels": ["1", "2", "all"], "selected": [False, True, False], "n": [9, 10, 19]}
    calibration |= {"pass_at_1": [0.9, 0.5, 0.7], "pairable": [1, 8, 9], "all_wrong": [0, 1, 1]}
    calibration |= {"all_correct": [8, 1, 9], "pairable_share": [0.1, 0.8, 0.5]}
    calibration |= {"all_wrong_share": [0.0, 0.1, 0.05], "all_correct_share": [0.9, 0.1, 0.45]}
    selection = pd.DataFrame({"benchmark": MODEL_TEXTS, "policy": "first", "model": "tiny", "K": 10, "group_size": 2})
    selection.loc[1::2, "policy"] = "second"
    tables = {
        "main": main_table(evaluations, hours),
        "harvest": pd.DataFrame(harvest).astype({"group_size": "Int64"}),
        "calibration": pd.DataFrame(calibration),
        "comparisons": comparison_table(evaluations),
        "cost": pd.DataFrame(costs).assign(model="tiny", device_hours=0.5, device="cpu"),
        "selection": selection,
        "published": pd.DataFrame({"model": []}),
    }
    for name, table in tables.items():
        write_table(folder / f"{name}.csv", table)
    return {name: folder / f"{name}.csv" for name in tables}
