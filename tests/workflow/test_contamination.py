"""Memory or reasoning in a finished grid: fresh questions are made once, M0 continues all, the page says so."""

from __future__ import annotations

from html import unescape
from typing import Any

import pandas as pd
import pytest
import scipy

from g2d.experiment.config import load
from g2d.jobs.files import read_json
from g2d.problems import Problem, read_problems
from g2d.problems.generated import generate
from tests.workflow.conftest import Project
from tests.workflow.test_grid import SUMMARIES

FRESH = {"source": "synthetic", "family": "calculation", "split": "test", "n": 12, "steps": [2, 3], "seed": "run"}
POLICIES = 6  # M0, DPO at K = 0, 2, 4 and GRPO with G = 2 and 4
CONTINUED = {"continue_questions": 2, "make_contamination_table": 1}


def missing_words(problem: Problem) -> list[str]:
    """The last four tenths of a question's words, rounded up."""
    words = problem.prompt.split()
    return words[len(words) * 6 // 10 :]


def test_fresh_questions_and_the_probe_are_added_to_a_finished_grid(
    own_micro_grid: Project, micro_config: dict[str, Any]
) -> None:
    project, results = own_micro_grid, own_micro_grid.results
    benchmarks = {"arithmetic": micro_config["benchmarks"]["arithmetic"], "fresh": FRESH}
    config = micro_config | {"benchmarks": benchmarks, "ablations": {}}
    config["contamination"] = {"max_completion_length": 24, "batch_size": 256}
    made = {"load_problems": 1, "check_leakage": 1, "evaluate": POLICIES} | CONTINUED
    of_other_sections, of_the_user = ["controls.csv", "auto.csv", "auto.html"], ["advice.csv", "mine.csv"]
    for name in (*of_other_sections, *of_the_user):
        (results / "tables" / name).write_text("a,b\n1,2\n")
    assert project.extended(config) == made | SUMMARIES
    assert project.planned() == {}

    tables = {path.name for path in (results / "tables").iterdir()}
    assert tables & {*of_other_sections, *of_the_user} == {*of_the_user}
    assert sorted(path.name for path in results.glob(".trash/*/tables/*")) == sorted(of_other_sections)

    problems = {name: read_problems(results / f"problems/{name}.jsonl") for name in benchmarks}
    seed = read_json(results / "problems/fresh.manifest.json")["source"]["seed"]
    assert problems["fresh"] == generate(load(config).benchmarks["fresh"].model_copy(update={"seed": seed}))
    assert f"seed {seed}, drawn for this run" in (results / "methods.md").read_text()

    # The table is what the files of continuations come to.
    table = pd.read_csv(results / "tables/contamination.csv").set_index("benchmark")
    counts = {}
    for name, asked in problems.items():
        rows = pd.read_parquet(results / f"micro/contamination/{name}/rollouts.parquet").set_index("problem_id")
        assert set(rows.index) == {f"{problem.problem_id}@0.6" for problem in asked}
        written = {problem.problem_id: rows.completion_text[f"{problem.problem_id}@0.6"].split() for problem in asked}
        missing = {problem.problem_id: missing_words(problem) for problem in asked}
        counts[name] = sum(written[at][: len(rest)] == rest for at, rest in missing.items())
        found = table.loc[name]
        assert (found.n_asked, found.verbatim) == (len(asked), counts[name])
        assert found.right == (rows.verdict == "correct").sum()
        assert found.rest_words == pd.Series([len(rest) for rest in missing.values()]).median()
    assert list(table.fresh) == [False, True]
    assert table.p_value.isna()["fresh"]
    others = [[counts[name], len(problems[name]) - counts[name]] for name in ("arithmetic", "fresh")]
    p = scipy.stats.fisher_exact(others).pvalue
    assert table.p_value["arithmetic"] == table.p_holm["arithmetic"] == pytest.approx(p, rel=1e-5)

    # One sentence, about the benchmark that might have been read; beside the answer only where it may be memory.
    page = unescape((results / "report/index.html").read_text()).replace("\N{NO-BREAK SPACE}", " ")
    said = f"micro wrote the rest word for word for {counts['arithmetic']} of 40 "
    may_be_memory = p <= 0.05 and counts["arithmetic"] / 40 > counts["fresh"] / 12
    assert page.count(said) == 1 + may_be_memory
    assert f"fresh questions, {counts['fresh']} of 12" in page
    assert "Fisher's exact test, p = " in page
    assert ("may be memory" in page) == may_be_memory
    assert "of a question of fresh, micro wrote" not in page

    # A longer budget continues the same questions; a seed that is written down, or lost, makes others.
    longer = config | {"contamination": config["contamination"] | {"max_completion_length": 25}}
    project.configure(longer)
    assert project.planned() == CONTINUED | SUMMARIES
    project.configure(config)
    assert project.planned() == {}
    (results / "problems/fresh.jsonl").unlink()
    again = {"continue_questions": 1, "make_contamination_table": 1}
    assert project.planned() == {"load_problems": 1, "check_leakage": 1, "evaluate": POLICIES} | again | SUMMARIES
