"""`g2d compare` on runs made of frames."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from scipy.stats import t

import g2d
from g2d.cli import main
from g2d.experiment.config import load
from g2d.jobs.files import write_json
from g2d.problems import Problem, write_problems
from g2d.report.browsers import browse_runs
from g2d.report.compare import opened as opened_runs
from g2d.rollouts.rollout import to_frame, write_rollouts
from g2d.tables.runs import differing, runs_table
from tests.experiment.test_config import MINIMAL
from tests.frames import rollout
from tests.report.browser import chromium, opened, require_accessible

N = 100
SEEDED = ("base", "seed0/dpo/g0/k0")
Change = Callable[[pd.DataFrame], pd.DataFrame]


def run(folder: Path, right: Mapping[str, int], change: Change = lambda rows: rows, **keys: Any) -> Path:
    """A results folder of `MINIMAL` with one seed: of every policy in `right`, by folder, the first so many of 100
    answers are right."""
    given = {"seeds": [0], "warmup": {"steps": [0, 20]}, "baselines": {"grpo_group_sizes": [2]}}
    keys = given | {"title": f"The run in {folder.name}"} | keys
    load(MINIMAL | keys).save(folder / "config.yaml")
    packages = {"math-verify": "0.8.0", "latex2sympy2_extended": "1.10.2"}
    workflow = {"g2d": "0.2.0", "stage_versions": {"evaluate": 3}}
    write_json(folder / "provenance.json", {"workflow": workflow, "software": {"packages": packages}})
    for policy, n in right.items():
        rows = [rollout(f"q{i:03d}", 0, "correct" if i < n else "incorrect") for i in range(N)]
        file = folder / f"demo/{policy}/eval/held-out.parquet"
        file.parent.mkdir(parents=True)
        write_rollouts(file, change(to_frame(rows)))
    return folder


def compared(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main(["compare", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return run(tmp_path / "a", {"base": 40, "seed0/dpo/g0/k0": 50, "seed0/dpo/g2/k20": 60})


def test_policies_stand_beside_each_other_with_paired_differences(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = {"base": 40, "seed0/dpo/g0/k0": 70, "seed0/grpo/g2/k20": 45}
    second = run(tmp_path / "b", right, lambda rows: rows.sample(frac=1, random_state=0), dpo={"beta": 0.2})
    output = compared(capsys, first, second)
    assert output["configuration"] == {"dpo.beta": {"A": 0.1, "B": 0.2}}
    assert output["software"] == {}
    assert output["runs"]["B"]["evaluated"] == 3
    by_row = {(row["policy"], row["run"]): row for row in output["policies"]}
    assert [(*at, row["accuracy"]) for at, row in by_row.items()] == [
        *(("base", "A", 0.4), ("base", "B", 0.4)),
        *(("dpo", "A", 0.5), ("dpo", "B", 0.7)),
        *(("g2d", "A", 0.6), ("grpo", "B", 0.45)),
    ]
    assert [by_row[at]["not_compared"] for at in [("g2d", "A"), ("grpo", "B")]] == ["only in A", "only in B"]
    assert by_row["base", "B"]["difference"] == 0
    assert by_row["base", "B"]["p_holm"] == 1
    # 20 of 100 questions gained; one more gained and one lost are added, and the family has two comparisons.
    middle = 20 / 102
    error = math.sqrt((22 / 102 - middle**2) / 102)
    p = 2 * t.sf(middle / error, 101)
    b = by_row["dpo", "B"]
    assert b["difference"] == pytest.approx(0.2)
    assert (b["n_paired_seeds"], b["family_size"]) == (1, 2)
    assert b["p_value"] == pytest.approx(p, rel=1e-6)
    assert b["p_holm"] == pytest.approx(2 * p, rel=1e-6)
    reach = t.isf(0.025 / 2, 101) * error
    assert (b["difference_low"], b["difference_high"]) == pytest.approx((middle - reach, middle + reach), rel=1e-6)


def test_the_text_says_what_differs(first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = run(tmp_path / "b", {"base": 40, "seed0/dpo/g0/k0": 70}, dpo={"beta": 0.2})
    (second / "provenance.json").unlink()
    assert main(["compare", str(first), str(second)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        f"A  {first}: The run in a (3 of 4 policies evaluated; g2d 0.2.0)",
        f"B  {second}: The run in b (2 of 4 policies evaluated; no provenance.json, so what judged its answers is "
        "unknown)",
    ]
    assert "dpo.beta       0.1  0.2" in lines
    [dpo] = [line for line in lines if "70.0 [" in line]
    assert dpo.endswith("+20.0 [+10.1, +29.1]  1.6e-05")
    assert lines[-1] == (
        "B against A: 1 of 2 policies differ significantly, paired by question and seed, corrected for 2 comparisons; "
        "with one seed, that is about these weights"
    )


def reworded(rows: pd.DataFrame) -> pd.DataFrame:
    """Change the words of three questions."""
    return rows.assign(prompt_text=rows["prompt_text"].where(rows.index >= 3, "Please: " + rows["prompt_text"]))


@pytest.mark.parametrize(
    ("change", "keys", "reason"),
    [
        (lambda rows: rows.iloc[:60], {}, "other questions: 100 | 60, 60 in common"),
        (lambda rows: rows.assign(reference_answer="2"), {}, "other reference answers at 100 of 100 questions"),
        (reworded, {}, "other prompts (text of the problem, key `prompt` or chat template) at 3 of 100 questions"),
        (
            lambda rows: rows,
            {"evaluation": {"max_completion_length": 64, "batch_size": 2}},
            "evaluation.max_completion_length: 1024 | 64",
        ),
    ],
)
def test_answers_to_other_questions_are_not_compared(
    change: Change, keys: dict[str, Any], reason: str, first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = run(tmp_path / "b", dict.fromkeys(SEEDED, 50), change, **keys)
    rows = [row for row in compared(capsys, first, second)["policies"] if row["run"] == "B"]
    assert [row["not_compared"] for row in rows] == [reason, reason]
    assert {row["p_holm"] for row in rows} == {None}
    assert main(["compare", str(first), str(second)]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith(f"B is not comparable with A: {reason}\n")
    assert printed.count("not comparable") == 3


def test_one_policy_that_answered_other_questions_does_not_keep_others_from_being_compared(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = run(tmp_path / "b", {"base": 40, "seed0/dpo/g0/k0": 50})
    run(second, {"seed0/dpo/g2/k20": 60}, lambda rows: rows.assign(problem_id="other " + rows["problem_id"]))
    rows = {row["policy"]: row for row in compared(capsys, first, second)["policies"] if row["run"] == "B"}
    assert rows["g2d"]["not_compared"] == "other questions: 100 | 100, 0 in common"
    assert [rows[name]["difference"] for name in ("base", "dpo", "g2d")] == [0, 0, None]
    assert main(["compare", str(first), str(second)]) == 0
    *_, compared_line, refused = capsys.readouterr().out.splitlines()
    assert compared_line.startswith("B against A: 0 of 2 policies differ significantly")
    assert refused == "B is not comparable with A (G2D (K=20)): other questions: 100 | 100, 0 in common"


@pytest.mark.parametrize(
    ("version", "recorded", "reason"),
    [
        ("0.7.0", {}, "verifier.math-verify: 0.8.0 | 0.7.0; verifier.version of the stage evaluate: 3 | 2"),
        ("0.8.0", {"antlr4-python3-runtime": "4.11.0"}, "verifier.antlr4-python3-runtime: 4.13.2 | 4.11.0"),
        ("0.8.0", {"sympy": "1.13.0"}, "verifier.sympy: 1.14.0 | 1.13.0"),
        ("0.8.0", {}, None),  # 0.1.0 recorded neither
        ("0.8.0", {"sympy": None}, None),  # not installed there
    ],
)
def test_answers_that_another_verifier_judged_are_not_compared(
    version: str,
    recorded: dict[str, str | None],
    reason: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Packages that parse answers count if both runs recorded them."""
    whole = {"math-verify": "0.8.0", "antlr4-python3-runtime": "4.13.2", "sympy": "1.14.0"}
    folders = [run(tmp_path / name, {"base": 50}) for name in "ab"]
    stages = (3, 2 if version == "0.7.0" else 3)
    for folder, stage, packages in zip(folders, stages, (whole, {"math-verify": version} | recorded), strict=True):
        workflow = {"g2d": "0.2.0", "stage_versions": {"evaluate": stage}}
        write_json(folder / "provenance.json", {"workflow": workflow, "software": {"packages": packages}})
    [base] = [row for row in compared(capsys, *folders)["policies"] if row["run"] == "B"]
    assert base["not_compared"] == reason
    assert (base["difference"] is None) == (reason is not None)


def test_seeds_are_paired_with_the_same_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seeds 0, 1, 2 and 1, 2, 3 have two pairs; seeds 0, 1, 2 and 3 have none."""
    policies = [{f"seed{seed}/dpo/g0/k0": 40 + seed for seed in answers} for answers in ((0, 1, 2), (1, 2, 3), (3,))]
    a, b, c = (run(tmp_path / name, answers, seeds=[0, 1, 2, 3]) for name, answers in zip("abc", policies, strict=True))
    rows = {row["run"]: row for row in compared(capsys, a, b, c)["policies"]}
    assert [rows[name]["seeds"] for name in "ABC"] == ["0, 1, 2", "1, 2, 3", "3"]
    assert (rows["B"]["n_paired_seeds"], rows["B"]["difference"]) == (2, 0)  # accuracies differ by 1/100
    assert rows["C"]["not_compared"] == "no seed in common"


def test_what_cannot_be_compared_gets_one_line(first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = run(tmp_path / "empty", {})
    none = tmp_path / "none"
    newer = run(tmp_path / "newer", {"base": 40})
    with (newer / "config.yaml").open("a") as file:
        file.write("quantum: true\n")
    (tmp_path / "link").symlink_to(first)
    for folders, message in {
        (first,): f"{first}: one run alone: name the results folder of another one beside it",
        (first, none): f"{none}: no results folder (it has no config.yaml): name the results folder of a run",
        (first, empty): f"{empty}: no policy has been evaluated yet: nothing to compare",
        (first, empty, "--benchmark", "held-out"): f"{empty}: no policy has been evaluated on held-out yet",
        (first, empty, "--benchmark", "math500"): "--benchmark math500: no run has it; there are held-out",
        (none, tmp_path / "also none", "--files"): f"{none} and {tmp_path / 'also none'}: no config.yaml",
        (first, newer): f"{newer}/config.yaml: quantum: unknown key",
        (first, tmp_path / "link"): f"{tmp_path / 'link'}: the same folder as {first}: name each run once",
        (first, empty, none, "--files"): "--files: compares all of two folders: leave out --benchmark, --page and "
        "further folders",
    }.items():
        assert main(["compare", *map(str, folders)]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"g2d compare: {message}")
        assert error.count("\n") == 1


@pytest.mark.parametrize("text", ["- no\n- mapping\n", None])
def test_verify_run_names_a_configuration_that_cannot_be_read(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "config.yaml").write_text(text)
    assert main(["verify-run", str(tmp_path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"g2d verify-run: {tmp_path / 'config.yaml'}: ")


def test_the_error_for_an_unknown_table_names_the_tables(first: Path) -> None:
    with pytest.raises(KeyError, match=r"nonsense.* main, comparisons, "):
        g2d.open(first).build("nonsense")
    with pytest.raises(KeyError, match=r"advise"):  # a rule makes it
        g2d.open(first).build("advice")


def test_a_section_that_one_run_lacks_is_one_difference() -> None:
    a = {"seeds": [0], "regimes": {"rft": {"steps": [0], "lr": 1}}, "dpo": {"beta": 0.1, "loss": "ipo"}}
    b = {"seeds": [0], "regimes": {}, "dpo": {"beta": 0.2, "loss": "ipo"}}
    assert differing(a, b) == {"dpo.beta": (0.1, 0.2), "regimes.rft": ({"steps": [0], "lr": 1}, "absent")}
    assert differing(a, a, b)["dpo.beta"] == (0.1, 0.1, 0.2)


HOSTILE = "<img src=x onerror=alert(1)>"


def test_the_page_has_the_runs_with_their_figures_and_answers(first: Path, tmp_path: Path) -> None:
    second = run(tmp_path / "b", {"base": 40, "seed0/dpo/g0/k0": 70}, title=f"Another run {HOSTILE}", dpo={"beta": 0.2})
    questions = [Problem(f"q{i:03d}", f"Question {i}? {HOSTILE}", "1", 1, None, "test") for i in range(N)]
    for folder in (first, second):
        write_problems(folder / "problems/held-out.jsonl", questions)
    file = tmp_path / "page.html"
    assert main(["compare", str(first), str(second), "--page", str(file)]) == 0
    with chromium() as browser, opened(browser, file) as (tab, complaints):
        assert tab.locator("#rows-about td:nth-child(2)").all_inner_texts() == ["a", "b"]  # names, not paths
        assert tab.locator("#section-0 > p").inner_text() == (
            "B against A: 1 of 2 policies differ significantly, paired by question and seed, corrected for 2 "
            "comparisons; with one seed, that is about these weights."
        )
        rows = tab.locator("#rows-policies-0 tbody tr").all_inner_texts()
        assert [row.split("\t")[:2] for row in rows] == [
            *(["M0", "A"], ["M0", "B"], ["DPO (K=0)", "A"], ["DPO (K=0)", "B"], ["G2D (K=20)", "A"])
        ]
        assert tab.locator("#rows-configuration tbody tr").all_inner_texts() == ["dpo.beta\t0.1\t0.2"]
        assert "The same in all runs." in tab.locator("#other-software").inner_text()
        tab.locator("figure.chart svg.marks").first.wait_for()
        names = tab.locator("#answer-first option").all_inner_texts()
        assert names == ["A: M0", "A: DPO (K=0)", "A: G2D (K=20)", "B: M0", "B: DPO (K=0)"]
        tab.locator("#answer-first").select_option("B: DPO (K=0)")
        tab.locator("#answer-second").select_option("A: DPO (K=0)")
        cells = tab.locator("#answer-browser .cells button b").all_inner_texts()
        assert cells == ["20", "0", "50", "30"]  # only B right, only A right, both, neither
        assert tab.locator("#answer-stage .card h3").first.inner_text().startswith("B: DPO (K=0)")
        assert not complaints, complaints
        require_accessible(tab)


def test_answers_to_other_questions_stand_on_no_page(first: Path, tmp_path: Path) -> None:
    second = run(tmp_path / "b", {"base": 40, "seed0/dpo/g0/k0": 70})
    for folder, text in ((first, "one"), (second, "two")):
        problems = [Problem(f"q{i:03d}", f"Question {i}, {text}?", "1", 1, None, "test") for i in range(N)]
        write_problems(folder / "problems/held-out.jsonl", problems)
    [answered] = browse_runs(opened_runs([first, second]))
    assert answered.policies == ("A: M0", "A: DPO (K=0)", "A: G2D (K=20)")
    assert browse_runs(opened_runs([first, second]), ["another"]) == []
    assert runs_table(opened_runs([first, second]), ["another"]).empty
