"""A finished grid in miniature, made of frames instead of training, and the page that is built from it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pytest

from g2d.config.sections import Ablation, Config
from g2d.grid.grid import Grid
from g2d.grid.runs import Policy, Run
from g2d.policies import PolicyRecord
from g2d.problems import Problem
from g2d.report.browsers import browse_answers, browse_pairs
from g2d.report.page import build
from g2d.report.provenance import provenance
from g2d.rollouts.pairs import build_pairs
from g2d.rollouts.rollout import to_frame
from g2d.tables.accuracy import main_table
from g2d.tables.captions import captions
from g2d.tables.families import comparison_table
from g2d.tables.frames import write_table
from tests.frames import rollout, spelled
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


def texts() -> Iterable[str]:
    """Model texts of this grid: formulas and injected markup."""
    yield from HOSTILE
    yield from (rf"Since $\frac{{{n}}}{{2}} < {n}$, \boxed{{{n}}}" for n in range(40))


@pytest.fixture(scope="session")
def grid_problems() -> list[Problem]:
    return [
        Problem(f"p{i:02d} <b>", f"What is $\\frac{{{i}}}{{1}}$? {text}", text, 1, None, "test")
        for i, text in enumerate(texts())
    ]


def harvest_frame(problems: Iterable[Problem], k: int) -> pd.DataFrame:
    """Rollouts of pi_K: problem i is solved in (i + K / 10) mod 5 of 4 attempts, so some are pairable and some not."""
    rows = []
    for i, problem in enumerate(problems):
        correct = (i + k // 10) % 5
        rows += [
            rollout(
                problem.problem_id,
                sample,
                "correct" if sample < correct else "incorrect",
                completion_text=f"K={k}, attempt {sample}: {problem.answer}",
                extracted_answer=problem.answer,
                reference_answer=problem.answer,
            )
            for sample in range(4)
        ]
    return spelled(to_frame(rows))


def evaluation_frame(accuracy: float, n: int = 100) -> pd.DataFrame:
    return to_frame([rollout(f"q{i}", 0, "correct" if i < accuracy * n else "incorrect") for i in range(n)])


def answer_frame(key: Policy, benchmark: str) -> pd.DataFrame:
    """The answers of a policy: M0 has every other question right, K=10 every third, others every fourth; of the others
    every fifth is cut off."""
    every = {0: 2, 10: 3}.get(key.k, 4)
    texts_of = [(f"p{i:02d} <b>", text) for i, text in enumerate(texts())]
    return to_frame(
        [
            rollout(
                name,
                0,
                "correct" if i % every == 0 else "truncated" if i % 5 == 0 else "incorrect",
                completion_text=f"{key.label} at K={key.k} on {benchmark}: {text}",
                extracted_answer=text,
            )
            for i, (name, text) in enumerate(texts_of)
        ]
    )


@pytest.fixture(scope="session")
def page(config: Config, grid_problems: list[Problem], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the small grid."""
    results = tmp_path_factory.mktemp("report") / "results"
    written = write_tables(results / "tables", config)
    figure = results / "figures/accuracy.svg"
    figure.parent.mkdir()
    figure.write_text('<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><circle r="9"/></svg>')
    manifests = {
        name: {"source": source.model_dump(), "n": 10, "sha256": "0" * 64}
        for name, source in config.problem_sources.items()
    }
    record = provenance(config, [PolicyRecord("tiny/base", "tiny", "base", "")], manifests, ["cpu"], __file__)
    series = browse_pairs(
        Grid(config).harvests,
        pairs=lambda key: build_pairs(harvest_frame(grid_problems, key.k), grid_problems, config.prompt, key.seed),
        rollouts=lambda key: harvest_frame(grid_problems, key.k),
        problems={"tiny": {problem.problem_id: problem for problem in grid_problems}},
    )
    out = results / "report/index.html"
    out.parent.mkdir()
    out.write_text(
        build(
            tables=written,
            figures={"accuracy": figure},
            captions=captions(config, [*written, "accuracy"]),
            grid=Grid(config),
            series=series,
            answered=browse_answers(Grid(config), lambda policy: policy, answer_frame, lambda name: grid_problems),
            provenance=record,
            folder=out.parent,
            plan="The primary comparison is of this page.",
        ),
        encoding="utf-8",
    )
    return out


def write_tables(folder: Path, config: Config) -> dict[str, Path]:
    """The tables of the small grid."""
    ipo = Ablation(steps=[20], dpo={"loss": "ipo"})
    run = Run("ipo", "dpo", "ablation", entry=ipo)
    grid = [*Grid(config).policies, *(Policy("tiny", run, 2, 20, seed) for seed in config.seeds)]
    accuracy = {"base": 0.3, "dpo": 0.5, "g2d": 0.6, "grpo": 0.45, "ipo": 0.55}
    evaluations = {
        (key, benchmark): evaluation_frame(accuracy[key.label] + key.k / 500 - (benchmark == "hard") * 0.2)
        for key in grid
        for benchmark in config.benchmarks
    }
    hours = {key: 0.0 if key.run_name == "base" else 1 + key.k / 10 for key in grid}
    jobs = [(key, stage) for key in grid for stage in ("calibrate", "train_dpo")]
    made = {
        "main": main_table(evaluations, hours),
        "harvest": pd.DataFrame(
            {
                **{"model": "tiny", "group_size": [None, 2, 2], "K": [0, 10, 20], "n_seeds": 2, "n_pairs": 30.0},
                **{"pairability": [0.6, 0.7, 0.6], "entropy": [0.8, 0.9, 0.8], "mid_band": [0.3, 0.4, None]},
                **{"pairability_low": 0.5, "pairability_high": 0.75},
            }
        ).astype({"group_size": "Int64"}),
        "calibration": pd.DataFrame(
            {
                "model": "tiny",
                **{"levels": ["1", "2", "all"], "selected": [False, True, False], "n": [9, 10, 19]},
                **{"pass_at_1": [0.9, 0.5, 0.7], "pairable": [1, 8, 9], "all_wrong": [0, 1, 1]},
                **{"all_correct": [8, 1, 9], "pairable_share": [0.1, 0.8, 0.5]},
                **{"all_wrong_share": [0.0, 0.1, 0.05], "all_correct_share": [0.9, 0.1, 0.45]},
            }
        ),
        "comparisons": comparison_table(evaluations),
        "cost": pd.DataFrame(
            {
                **{"model": "tiny", "policy": key.label, "K": key.k, "group_size": key.group_size or None},
                **{"seed": key.seed, "stage": stage, "device_hours": 0.5, "device": "cpu"},
            }
            for key, stage in jobs
        ),
        "selection": pd.DataFrame(
            {"model": "tiny", "policy": ("first", "second")[n % 2], "K": 10, "group_size": 2, "benchmark": text}
            for n, text in enumerate(texts())
        ),
        "published": pd.DataFrame({"model": []}),
    }
    for name, table in made.items():
        write_table(folder / f"{name}.csv", table)
    return {name: folder / f"{name}.csv" for name in made}
