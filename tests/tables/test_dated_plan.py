"""The dated plan: written before the first evaluation, kept afterwards, and read as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from g2d.checks.load import load
from g2d.grid.grid import Grid
from g2d.jobs.files import read_json, write_json
from g2d.settings import ConfigError
from g2d.tables.dated_plan import plan_words, primary, read_plan, write_plan

LISTED = {
    "seeds": [1, 2],
    "models": {"m": {"source": "embedded"}},
    "pool": {"source": "synthetic", "family": "arithmetic", "split": "train", "n": 2000},
    "benchmarks": {"arithmetic": {"source": "synthetic", "family": "arithmetic", "split": "test", "n": 40}},
    "warmup": {"steps": [0, 2, 4], "horizon": 6, "max_completion_length": 16},
    "baselines": {"grpo_group_sizes": [2]},
    "noninferiority_margin": 0.1,
    "calibration": {"max_completion_length": 24},
    "harvest": {"max_completion_length": 24},
    "evaluation": {"max_completion_length": 24},
}


def evaluated(results: Path, seed: int) -> None:
    file = results / f"m/seed{seed}/dpo/g2/k2/eval/arithmetic.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def test_the_primary_comparison_is_each_k_against_k_0() -> None:
    plan = primary(Grid(load(LISTED)))
    pairs = [["m/dpo/g2/k2", "m/dpo/g0/k0"], ["m/dpo/g2/k4", "m/dpo/g0/k0"]]
    expected = {"family": "DPO against K=0", "policies_and_references": pairs}
    assert plan == {"benchmark": "arithmetic", "margin": 0.1, "models": {"m": expected}}
    without = primary(Grid(load(LISTED | {"warmup": LISTED["warmup"] | {"steps": [2, 4]}})))
    assert without["models"] == {}


def test_the_plan_names_a_verifier_and_a_reward_of_the_user(tmp_path: Path) -> None:
    own = {"warmup": LISTED["warmup"] | {"reward": {"file": "mine.py"}}}
    write_plan(Grid(load(LISTED | own | {"verifier": {"source": "python", "file": "judge.py"}})), tmp_path)
    words = "of 10 points, judged by judge.py, of policies trained on rewards of mine.py; all other"
    assert words in plan_words(read_plan(tmp_path))


def test_a_change_replaces_the_plan_before_evaluations_and_is_added_after_them(tmp_path: Path) -> None:
    write_plan(Grid(load(LISTED | {"noninferiority_margin": 0.05})), tmp_path)
    write_plan(Grid(load(LISTED)), tmp_path)
    (first,) = read_plan(tmp_path)
    assert (first["evaluations"], first["plan"]["primary"]["margin"]) == (0, 0.1)
    before = (tmp_path / "plan.json").read_bytes()
    evaluated(tmp_path, 1)
    write_plan(Grid(load(LISTED | {"title": "another title"})), tmp_path)
    assert (tmp_path / "plan.json").read_bytes() == before
    write_plan(Grid(load(LISTED | {"seeds": [1, 2, 3]})), tmp_path)
    kept, second = read_plan(tmp_path)
    assert kept == first
    assert (second["evaluations"], second["plan"]["seeds"]) == (1, [1, 2, 3])


def test_without_a_plan_there_is_no_sentence(tmp_path: Path) -> None:
    assert plan_words(read_plan(tmp_path)) == ""


def test_the_sentence_names_the_plan_before_the_evaluations(tmp_path: Path) -> None:
    write_plan(Grid(load(LISTED)), tmp_path)
    planned = plan_words(read_plan(tmp_path))
    assert "planned before" in planned
    assert "each K against K=0 (Holm) on arithmetic, with a margin of 10 points" in planned


def test_the_sentence_counts_the_evaluations_before_a_change(tmp_path: Path) -> None:
    write_plan(Grid(load(LISTED)), tmp_path)
    planned = plan_words(read_plan(tmp_path))
    evaluated(tmp_path, 1)
    evaluated(tmp_path, 2)
    write_plan(Grid(load(LISTED | {"seeds": [1, 2, 3]})), tmp_path)
    changed = plan_words(read_plan(tmp_path))
    assert changed.startswith(planned)
    assert "2 evaluations" in changed


def test_after_a_change_of_the_margin_all_comparisons_are_exploratory(tmp_path: Path) -> None:
    write_plan(Grid(load(LISTED)), tmp_path)
    evaluated(tmp_path, 1)
    write_plan(Grid(load(LISTED | {"noninferiority_margin": 0.05})), tmp_path)
    words = plan_words(read_plan(tmp_path))
    assert "all comparisons are exploratory" in words
    assert "plan from before any evaluation had another primary comparison" in words


def test_a_plan_that_returns_was_planned_when_it_was_first_written(tmp_path: Path) -> None:
    write_plan(Grid(load(LISTED)), tmp_path)
    planned = plan_words(read_plan(tmp_path))
    evaluated(tmp_path, 1)
    further = {"warmup": LISTED["warmup"] | {"steps": [0, 2, 4, 6]}}
    write_plan(Grid(load(LISTED | further)), tmp_path)
    assert "all comparisons are exploratory" in plan_words(read_plan(tmp_path))
    write_plan(Grid(load(LISTED)), tmp_path)
    assert plan_words(read_plan(tmp_path)) == f"{planned} The folder had another plan meanwhile."
    assert len(read_plan(tmp_path)) == 3


def test_a_folder_that_was_evaluated_without_a_plan_says_so(tmp_path: Path) -> None:
    evaluated(tmp_path, 1)
    write_plan(Grid(load(LISTED)), tmp_path)
    assert "set when 1 evaluation of" in plan_words(read_plan(tmp_path))


def test_an_entry_that_was_edited_is_refused(tmp_path: Path) -> None:
    write_plan(Grid(load(LISTED)), tmp_path)
    file = tmp_path / "plan.json"
    record = read_json(file)
    record["entries"][0]["date"] = "2020-01-01T00:00:00+00:00"
    write_json(file, record)
    with pytest.raises(ConfigError, match=r"plan\.json.*sha256"):
        read_plan(tmp_path)
    file.write_text("[]")
    with pytest.raises(ConfigError, match=r"plan\.json"):
        write_plan(Grid(load(LISTED)), tmp_path)
