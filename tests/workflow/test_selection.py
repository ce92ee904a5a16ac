"""Selected checkpoints in a finished grid: chosen before a benchmark is opened, copies of what is trained, paid for."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import g2d
from g2d.experiment.config import load
from g2d.graph.build import grid_jobs
from g2d.jobs.files import read_json
from g2d.status.screen import screen
from g2d.status.snapshot import Grid
from tests import open_ended
from tests.workflow.conftest import Project
from tests.workflow.test_grid import OF_REGIMES as SUMMARIES
from tests.workflow.test_open_ended import POLICIES, SECTION, copy_with_prompts, with_prompts
from tests.workflow.test_sweep import DEVELOPMENT, behind

TRAINED = {"both": "both/g4/k{}", "best": "grpo/g2/k{}"}
ANSWERED = {"answer_development": 4, "reply_to_development": 2, "choose_checkpoint": 2}


@pytest.fixture(scope="module")
def selected_config(micro_config: dict[str, Any]) -> dict[str, Any]:
    return with_prompts(micro_config)


@pytest.fixture(scope="module")
def selected(micro_config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The finished grid with what selects added, as in test_open_ended.py, where the jobs are that this planned."""
    return copy_with_prompts(micro_config, tmp_path_factory.mktemp("selected") / "g2d")[0]


def test_candidates_are_trained_as_ever_and_two_policies_are_evaluated(
    selected: Project, selected_config: dict[str, Any]
) -> None:
    config = load(selected_config)
    everything = Counter(job.rule for job in grid_jobs(config))
    assert {rule: everything[rule] for rule in ANSWERED} == ANSWERED
    assert everything["check_development"] == 2
    snapshot = Grid(selected.results).look()
    assert snapshot.counts == {"finished": everything.total()}
    assert screen(snapshot, 80, 24).splitlines()[-1] == "all jobs have finished"


def test_no_benchmark_is_answered_before_a_checkpoint_is_chosen(selected: Project) -> None:
    jobs = selected.planned_jobs("--forceall")
    choices = [number for number, job in enumerate(jobs) if job["rule"] == "choose_checkpoint"]
    assert len(choices) == 2
    for number in choices:
        before = {jobs[other]["rule"] for other in behind(jobs, number)}
        assert not before & {"evaluate", "draw_replies"}
        assert "answer_development" in before
    for job in jobs:
        if job["rule"] == "evaluate" and "/selected/" in job["output"][0]:
            assert {jobs[other]["rule"] for other in job["needs"]} & {"choose_checkpoint"}


def test_prompts_that_choose_may_not_be_evaluated(tmp_path: Path, selected_config: dict[str, Any]) -> None:
    same = SECTION | {"development": open_ended.HELD_OUT}
    project = Project.create(tmp_path / "g2d", selected_config | {"open_ended": same})
    done = project.snakemake("--cores", "2", "results/problems/open-ended-held-out.development.json")
    assert done.returncode != 0
    assert re.search(r"open_ended.held_out: 8 of 8 problems are in open_ended.development \(", done.stdout)


def scores(project: Project, name: str) -> dict[int, dict[str, float]]:
    """Return the scores of the candidates, by K, computed from their files."""
    folders = {k: project.results / "micro/seed0" / TRAINED[name].format(k) / "development" for k in (2, 4)}
    scores_of: dict[int, dict[str, float]] = {}
    for k, folder in folders.items():
        answers = pd.read_parquet(folder / "verifiable.parquet")
        assert len(answers) == 30
        scores_of[k] = {"accuracy": (answers.verdict == "correct").mean()}
    if name == "best":
        assert not (folders[2] / "open_ended.parquet").exists()
        return scores_of
    replies = {k: pd.read_parquet(folder / "open_ended.parquet") for k, folder in folders.items()}
    every = pd.concat(frame.assign(k=k, length=frame.completion_text.str.len()) for k, frame in replies.items())
    assert (len(every), every.reward.notna().all()) == (2 * 6 * 2, True)
    assert every.problem_id.str.startswith("open-ended-development-").all()
    cells = every.groupby(["k", "problem_id"])
    longer, better = (every[name] - cells[name].transform("mean") for name in ("length", "reward"))
    slope = (longer * better).sum() / (longer**2).sum() if (longer != 0).any() else 0.0
    means = every.groupby("k")[["reward", "length"]].mean()
    for k in (2, 4):
        scores_of[k] |= {"reward": means.reward[k], "length": means.length[k], "reward_per_1000": 1000 * slope}
        scores_of[k]["reward_at_equal_length"] = means.reward[k] - slope * (means.length[k] - means.length.mean())
    return scores_of


@pytest.mark.parametrize("name", ["both", "best"])
def test_the_checkpoint_with_the_best_score_is_the_policy(selected: Project, name: str) -> None:
    project = selected
    results, expected = project.results, scores(project, name)
    other = {k: values.get("reward_at_equal_length", values["accuracy"]) for k, values in expected.items()}
    total = {k: (values["accuracy"] + other[k]) / 2 for k, values in expected.items()}
    best = 4 if total[4] > total[2] else 2

    folder = results / f"micro/seed0/{name}/selected/{'g4' if name == 'both' else 'g2'}/k4"
    table = pd.read_csv(folder / "selection.csv").set_index("K")
    for k, values in expected.items():
        assert table.loc[k, list(values)].to_dict() == pytest.approx(values, rel=1e-4, abs=1e-4)
        assert table.score[k] == pytest.approx(total[k], rel=1e-4, abs=1e-4)
    assert list(table.index[table.chosen]) == [best]

    trained = results / "micro/seed0" / TRAINED[name].format(best)
    record, chosen = (read_json(at / "policy.json") for at in (folder, trained))
    assert (record["k"], record["weights_sha256"]) == (best, chosen["weights_sha256"])
    assert record["settings"] == chosen["settings"] | {"selected_from": [2, 4]}
    assert record["policy_id"] == f"micro/seed0/{folder.relative_to(results / 'micro/seed0')}"
    answers = pd.read_parquet(folder / "eval/arithmetic.parquet")
    assert set(answers.policy_id) == {record["policy_id"]}

    # Tables show the chosen K; its costs have separate rows for the selection.
    main = pd.read_csv(results / f"tables/{'main' if name == 'both' else 'ablations'}.csv").query(
        f"policy == '{name}/selected'"
    )
    assert list(main.K) == [best]
    assert main.accuracy.item() == pytest.approx((answers.verdict == "correct").mean(), rel=1e-5)
    billed = pd.read_csv(results / "tables/cost.csv").query(f"policy == '{name}/selected'").set_index("stage")
    kinds = {"answer_development": "verifiable", "reply_to_development": "open_ended"}
    assert {stage for stage in kinds if stage in billed.index} == set(list(kinds)[: 2 if name == "both" else 1])
    for stage in set(kinds) & set(billed.index):
        parts = [results / "micro/seed0" / TRAINED[name].format(k) / "development" for k in (2, 4)]
        tokens = sum(pd.read_parquet(part / f"{kinds[stage]}.parquet").token_count.sum() for part in parts)
        assert billed.loc[stage, ["n_jobs", "tokens_generated"]].tolist() == [2, tokens]
    assert billed.n_jobs["choose_checkpoint"] == 1
    assert billed.n_jobs["train_semi_online_dpo" if name == "both" else "train_grpo"] == 2


def test_tables_card_and_page_show_the_choice(selected: Project) -> None:
    results = selected.results
    table = pd.read_csv(results / "tables/selection.csv")
    assert list(table.policy) == ["both/selected"] * 2 + ["best/selected"] * 2
    for name, g in (("both", 4), ("best", 2)):
        selection = pd.read_csv(results / f"micro/seed0/{name}/selected/g{g}/k4/selection.csv")
        shown = table[table.policy == f"{name}/selected"].reset_index(drop=True)[list(selection)]
        pd.testing.assert_frame_equal(shown, selection, check_dtype=False)
    # Both K were trained to have the one.
    spent = pd.read_csv(results / "tables/main.csv").set_index("policy")
    assert spent.updates["both/selected"] == 4
    card = (results / "micro/seed0/both/selected/g4/k4/adapter/README.md").read_text()
    assert "the best on development prompts of K=2, 4" in " ".join(card.split())
    page = (results / "report/index.html").read_text()
    assert "Checkpoint selection" in page
    assert "both/selected" in page
    opened = g2d.open(results)
    policy = opened.policies.query("policy == 'both/selected'")
    assert policy.K.item() == table.query("policy == 'both/selected' and chosen").K.item()
    assert set(opened.bills.query("policy == 'both/selected' and benchmark.isna()").stage) >= {"answer_development"}


def test_selecting_trains_nothing_again_and_a_benchmark_chooses_nothing_again(
    selected: Project, selected_config: dict[str, Any]
) -> None:
    project = selected
    more = selected_config["benchmarks"] | {"more": DEVELOPMENT | {"split": "test", "n": 10, "seed": 5}}
    both = selected_config["regimes"]["both"] | {"select": False}
    plain = {key: value for key, value in selected_config.items() if key != "sweep"}
    plain |= {"open_ended": SECTION, "ablations": {}, "regimes": {"both": both}}
    try:
        project.configure(selected_config | {"benchmarks": more})
        checked = {"load_problems": 1, "check_leakage": 1, "check_development": 1}
        assert project.planned() == checked | {"evaluate": POLICIES, "make_win_rates": 1} | SUMMARIES
        project.configure(plain)
        asked_again = {"evaluate": 2, "draw_replies": 2, "make_win_rates": 1}
        assert project.planned() == asked_again | SUMMARIES
    finally:
        project.configure(selected_config)
    assert project.planned() == {}
