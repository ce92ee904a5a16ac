"""The micro grid through the real DAG: what it leaves behind, and what runs again when something changes."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import g2d
from g2d.jobs.cost import read_cost
from g2d.jobs.files import read_json
from g2d.policies import read_policy
from g2d.rollouts.pairs import read_pairs
from g2d.status.command import screen
from g2d.status.states import Folder, Snapshot
from g2d.tables.all_tables import tables_of
from g2d.tables.reads import Read
from g2d.tables.results import Results
from tests.shared import folder_of
from tests.workflow.conftest import REPOSITORY, Project, copy_of_micro
from tests.workflow.micro import SUMMARIES, lines, metrics

IMPORTED = r"^import time: .*\| *(\S+)$"
HEAVY = {"torch", "transformers", "trl", "peft", "datasets", "vllm", "huggingface_hub", "math_verify", "sympy"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMIUM_FLAGS = [
    *["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"],
    *["--disable-background-networking", "--disable-component-update"],
    *["--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"],
]


def rollouts(project: Project, folder: str) -> pd.DataFrame:
    return pd.read_parquet(project.results / folder / "rollouts.parquet")


# Outputs of every kind of job; slurm/test_grid.py makes the base model again. A chain of two warm-ups.
MADE_AGAIN = (
    "problems/arithmetic.jsonl",
    "problems/arithmetic.leakage.json",
    "micro/calibration",
    "micro/seed0/grpo/g2",
    "micro/seed0/harvest/g2/k2",
    "micro/base/eval/arithmetic.parquet",
    "answers/micro/base",
    "micro/seed0/dpo/g2/k2",
)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, micro_config: dict[str, Any]) -> Project:
    """Jobs that ran again in new Pythons: the DPO with its own imports, jobs before it with shared ones. Python
    reports every import on standard error, in the log once a stage has begun."""
    assert micro_config.get("share_imports", True)
    project = copy_of_micro(micro_config, tmp_path_factory.mktemp("started") / "g2d")
    for name in MADE_AGAIN:
        path = project.results / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    first = [
        "results/micro/seed0/grpo/g2/k4/policy.json",
        "results/micro/seed0/harvest/g2/k2/pairs.jsonl",
        "results/micro/base/eval/arithmetic.parquet",
        "results/problems/arithmetic.leakage.json",
    ]
    for shared, targets in ((True, first), (False, ["results/micro/seed0/dpo/g2/k2/policy.json"])):
        project.configure(micro_config | {"share_imports": shared})
        command = ["--cores", "2", "--quiet", "rules", "--", *targets]
        done = project.snakemake(*command, anew=True, PYTHONPROFILEIMPORTTIME="1")
        assert done.returncode == 0, done.stdout
    return project


@pytest.mark.parametrize("rule", ["load_problems", "check_leakage", "select_training_set", "build_pairs"])
def test_a_stage_without_a_model_imports_no_package_of_models(started: Project, rule: str) -> None:
    assert imports_of(started, rule).isdisjoint(HEAVY)


@pytest.mark.parametrize("rule", ["load_problems", "check_leakage", "select_training_set", "build_pairs"])
def test_a_stage_without_a_model_imports_no_statistics_of_scipy(started: Project, rule: str) -> None:
    assert "scipy.stats" not in imports_of(started, rule)


def imports_of(project: Project, rule: str) -> set[str]:
    logs = list((project.results / "logs" / rule).rglob("*.log"))
    assert logs, rule
    imported = set()
    for log in logs:
        imported.update(re.findall(IMPORTED, log.read_text(), re.M))
    return imported


# ----------------------------------------------------------------------------------------------------------- results


class RememberingResults(Results):
    """Results that remember which files of the grid were read."""

    def read(self, read: Read, *more: Any) -> dict[Any, Any]:
        self.__dict__.setdefault("remembered", set()).add(read)
        return super().read(read, *more)


def test_files_read_by_a_table_are_inputs_of_its_rule(micro_grid: Project) -> None:
    """Each table is built from new `Results`, and equals the written one."""
    for name, table in tables_of(g2d.open(micro_grid.results).grid).items():
        results = RememberingResults(micro_grid.results)
        built = results.build(name)
        written = results.tables[name]
        assert list(built) == list(written), name
        assert len(built) == len(written)
        assert vars(results).get("remembered", set()) <= set(table.reads), name


def test_the_main_table_has_every_policy_on_every_benchmark(micro_grid: Project) -> None:
    table = pd.read_csv(micro_grid.results / "tables/main.csv").fillna({"group_size": 0})
    for benchmark in ("arithmetic", "word-problems"):
        rows = table.loc[table["benchmark"] == benchmark, ["policy", "K", "group_size"]]
        policies = list(rows.itertuples(index=False, name=None))
        assert policies[:6] == [
            ("base", 0, 0),
            ("dpo", 0, 0),
            ("g2d", 2, 2),
            ("g2d", 4, 2),
            ("grpo", 4, 2),
            ("grpo", 4, 4),
        ]
        assert set(policies[6:]) == {("ipo", 2, 2), ("n-matched", 0, 0), ("from-warmup", 2, 2)}


def test_accuracy_is_the_mean_reward_of_the_evaluation(micro_grid: Project, main_row: Any) -> None:
    evaluation = pd.read_parquet(micro_grid.results / "micro/seed0/dpo/g2/k4/eval/arithmetic.parquet")
    assert len(evaluation) == 40
    assert main_row.accuracy == pytest.approx(evaluation["reward"].mean())


def test_device_hours_are_those_of_the_recorded_cost(micro_grid: Project, main_row: Any) -> None:
    cost = read_cost(micro_grid.results / "micro/seed0/dpo/g2/k4/cost.json")
    assert main_row.device_hours == pytest.approx(cost.device_hours, rel=1e-5)


@pytest.fixture
def main_row(micro_grid: Project) -> Any:
    """The row of G2D (K=4) on arithmetic in Table 1."""
    table = pd.read_csv(micro_grid.results / "tables/main.csv")
    [row] = table.query("policy == 'g2d' and K == 4 and benchmark == 'arithmetic'").itertuples()
    return row


def test_parts_of_a_gain_add_up(micro_grid: Project) -> None:
    parts = pd.read_csv(micro_grid.results / "tables/decomposition.csv").query("policy != 'base'")
    total = parts["from_finishing"] + parts["from_format"] + parts["from_reasoning"]
    assert total.to_numpy() == pytest.approx(parts["gain"].to_numpy(), abs=1e-5)


def test_a_comparison_has_the_difference_of_two_accuracies(micro_grid: Project, main_row: Any) -> None:
    tables = micro_grid.results / "tables"
    [base] = pd.read_csv(tables / "main.csv").query("policy == 'base' and benchmark == 'arithmetic'").itertuples()
    comparisons = pd.read_csv(tables / "comparisons.csv").query("benchmark == 'arithmetic' and reference == 'base'")
    [comparison] = comparisons.query("policy == 'g2d' and K == 4").itertuples()
    assert comparison.difference == pytest.approx(main_row.accuracy - base.accuracy, abs=1e-5)


# ------------------------------------------------------------------------------------------------------- for analysts


def test_the_example_for_analysts_gives_table_1(micro_grid: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The five lines of docs/analysis.md, in the folder where Snakemake runs."""
    [example] = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/analysis.md").read_text(), re.S)
    assert len(example.strip().splitlines()) == 5
    monkeypatch.chdir(micro_grid.root)
    names: dict[str, Any] = {}
    exec(example, names)
    table = pd.read_csv("results/tables/main.csv").fillna({"group_size": 0}).astype({"group_size": int})
    assert len(table) == 18  # with the ablations
    for _, row in table.iterrows():
        at = (row.policy, row.K, row.group_size, row.benchmark)
        assert names["accuracy"][at] == pytest.approx(row.accuracy, rel=1e-5), at


@pytest.fixture
def opened(micro_grid: Project) -> Results:
    return g2d.open(micro_grid.results)


def test_an_opened_table_has_the_columns_of_its_file(opened: Results) -> None:
    written = pd.read_csv(opened.folder / "tables/main.csv")
    assert list(opened.tables["main"].columns) == list(written.columns)


def test_an_unknown_table_is_refused_with_the_known_ones(opened: Results) -> None:
    with pytest.raises(KeyError, match="no such table here; there are main, "):
        opened.tables["mian"]


def test_opened_bills_add_up_to_table_1(opened: Results) -> None:
    bills = opened.bills[opened.bills["benchmark"].isna()]
    hours = bills.groupby(["policy", "K", "group_size"])["device_s"].sum() / 3600
    main = opened.tables["main"].query("policy != 'base'").fillna({"group_size": 0})
    for row in main.itertuples():
        assert hours[row.policy, row.K, row.group_size] == pytest.approx(row.device_hours, rel=1e-5)


def test_opened_evaluations_have_every_answer(opened: Results) -> None:
    policies = 1 + 3 + 2 + 3  # M0, the main ones, GRPO, ablations
    assert len(opened.evaluations) == policies * (40 + 20)


def test_opened_answers_have_the_clusters_of_their_problems(opened: Results) -> None:
    clusters = opened.problems("arithmetic").set_index("problem_id")["cluster"]
    answers = opened.evaluations.query("benchmark == 'arithmetic'")
    assert list(answers["cluster"]) == list(answers["problem_id"].map(clusters))


def test_only_evaluations_of_m0_have_no_seed(opened: Results) -> None:
    of_m0 = opened.evaluations["policy"] == "base"
    assert opened.evaluations.loc[of_m0, "seed"].isna().all()
    assert set(opened.evaluations.loc[~of_m0, "seed"]) == {0}


def test_opened_harvests_have_the_rewards_of_their_rollouts(opened: Results) -> None:
    rollouts = opened.rollouts("micro/seed0/harvest/g2/k2")
    assert list(opened.harvests.query("K == 2")["reward"]) == list(rollouts["reward"])
    assert rollouts["completion_text"].str.len().gt(0).any()


def test_the_answers_of_an_opened_policy_are_found_by_its_folder(opened: Results) -> None:
    folder = opened.policies.query("policy == 'g2d' and K == 4")["folder"].item()
    assert len(opened.rollouts(folder, "arithmetic")) == 40


def test_opened_metrics_have_every_logged_step(micro_grid: Project, opened: Results) -> None:
    rows = opened.metrics.query("policy == 'grpo' and K == 4 and group_size == 2")
    assert list(rows["step"]) == [row["step"] for row in metrics(micro_grid, "micro/seed0/grpo/g2/k4")]


def test_opened_pairs_and_problems_are_those_of_the_files(micro_grid: Project, opened: Results) -> None:
    assert len(opened.pairs("micro/seed0/harvest/g2/k2")) == len(lines(micro_grid, "harvest/g2/k2", "pairs.jsonl"))
    assert len(opened.problems("arithmetic")) == 40


def test_all_policies_of_a_finished_grid_are_finished(opened: Results) -> None:
    assert opened.policies["finished"].all()


def test_an_opened_grid_has_its_configuration(opened: Results) -> None:
    assert opened.config.title == "Micro grid"


def test_an_unfinished_policy_and_a_missing_table_are_left_out(own_micro_grid: Project) -> None:
    shutil.rmtree(own_micro_grid.results / "micro/seed0/dpo/g2/k4")
    (own_micro_grid.results / "tables/main.csv").unlink()
    opened = g2d.open(own_micro_grid.results)
    assert set(opened.evaluations.query("policy == 'g2d'")["K"]) == {2}
    assert list(opened.policies.query("not finished")["folder"]) == ["micro/seed0/dpo/g2/k4"]
    assert "main" not in opened.tables


def test_a_grid_without_results_has_empty_frames_with_their_columns(own_micro_grid: Project, opened: Results) -> None:
    shutil.rmtree(own_micro_grid.results / "micro")
    empty = g2d.open(own_micro_grid.results)
    for frame in (empty.evaluations, empty.harvests, empty.metrics, empty.bills):
        assert len(frame) == 0
    assert list(empty.evaluations.columns) == list(opened.evaluations.columns[:6])


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no results folder"):
        g2d.open(tmp_path)


def test_importing_g2d_imports_no_pandas() -> None:
    heavy = {"pandas", "numpy", "torch", "pyarrow"}
    command = f"import sys, g2d, g2d.status.command; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ------------------------------------------------------------------------------------------------------------- status


@pytest.fixture(scope="module")
def snapshot(micro_grid: Project) -> Snapshot:
    """The status of the finished grid."""
    micro_grid.snakemake("--cores", "1")  # lists the jobs of all targets, whatever another test has asked for
    return Folder(micro_grid.results).look()


def test_the_status_of_a_finished_grid_names_every_job_that_ran(micro_grid: Project, snapshot: Snapshot) -> None:
    jobs = {(state.job.rule, state.job.name) for state in snapshot.states}
    assert jobs <= set(Folder(micro_grid.results).records.read())  # other tests of this file may have added to the grid
    planned = Counter(job["rule"] for job in micro_grid.planned_jobs())
    assert Counter(rule for rule, _ in jobs) == planned - Counter({"all": 1})


def test_the_status_of_a_finished_grid_says_that_all_have_finished(snapshot: Snapshot) -> None:
    assert snapshot.counts == {"finished": len(snapshot.states)}
    assert screen(snapshot, 80, 24).splitlines()[-1] == "all jobs have finished"


def test_the_status_of_a_training_has_its_last_step(snapshot: Snapshot) -> None:
    states = [state for state in snapshot.states if state.job.rule == "train_grpo" and state.job.wildcards["k"] == "4"]
    assert len(states) == 2  # G = 2 and 4
    for state in states:
        assert state.last is not None
        assert state.last.progress is not None
        assert state.last.progress.step == 4


def test_the_status_of_another_folder_is_the_same_from_anywhere(micro_grid: Project, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "g2d.cli", "status", str(micro_grid.results), "--watch"]
    environment = os.environ | {"PYTHONPATH": str(micro_grid.root / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "all jobs have finished" in done.stdout


def test_only_jobs_of_a_missing_policy_are_missing(own_micro_grid: Project) -> None:
    shutil.rmtree(own_micro_grid.results / "micro/seed0/dpo/g2/k4")
    missing = {state.job.name for state in Folder(own_micro_grid.results).look().of("missing")}
    assert missing == {
        "results/micro/seed0/dpo/g2/k4/cost",
        "results/micro/seed0/dpo/g2/k4/eval/arithmetic.cost",  # the job of both benchmarks
    }


# ---------------------------------------------------------------------------------------------------------- the bill


def test_a_policys_cost_counts_its_ancestry_once(micro_grid: Project) -> None:
    bill = pd.DataFrame(read_cost(micro_grid.results / "micro/seed0/dpo/g2/k4/cost.json").records)
    assert list(bill["stage"]) == ["calibrate", "train_grpo", "train_grpo", "harvest_rollouts", "train_dpo"]
    assert bill["job"].is_unique


def test_costs_list_every_stage_with_its_jobs(micro_grid: Project) -> None:
    cost = pd.read_csv(micro_grid.results / "tables/cost.csv").query("policy == 'g2d' and K == 4")
    assert list(zip(cost["stage"], cost["n_jobs"], strict=True)) == [
        ("calibrate", 1),
        ("train_grpo", 2),
        ("harvest_rollouts", 1),
        ("train_dpo", 1),
        ("evaluate", 2),
    ]
    sampling = cost[cost["stage"] != "train_dpo"]
    assert (sampling["tokens_generated"] > 0).all()


def test_costs_without_evaluations_add_up_to_table_1(micro_grid: Project, main_row: Any) -> None:
    cost = pd.read_csv(micro_grid.results / "tables/cost.csv").query("policy == 'g2d' and K == 4")
    training = cost[cost["stage"] != "evaluate"]
    assert training["device_hours"].sum() == pytest.approx(main_row.device_hours, rel=1e-4)


def test_a_harvest_has_eight_rollouts_per_prompt(micro_grid: Project) -> None:
    frame = rollouts(micro_grid, "micro/seed0/harvest/g2/k2")
    samples = frame.groupby("problem_id")["sample"].apply(list)
    assert samples.tolist() == [list(range(8))] * 60
    assert set(frame["temperature"]) == {1.3}
    assert set(frame["policy_id"]) == {"micro/seed0/grpo/g2/k2"}


def test_only_correct_rollouts_earn_a_reward(micro_grid: Project) -> None:
    frame = rollouts(micro_grid, "micro/seed0/harvest/g2/k2")
    assert ((frame["reward"] == 1) == (frame["verdict"] == "correct")).all()


def test_pairs_load_in_trls_format_and_contrast_right_with_wrong(micro_grid: Project) -> None:
    from datasets import load_dataset

    file = str(micro_grid.results / "micro/seed0/harvest/g2/k2/pairs.jsonl")
    pairs = load_dataset("json", data_files=file, split="train")
    frame = rollouts(micro_grid, "micro/seed0/harvest/g2/k2").set_index(["problem_id", "sample"])
    assert len(pairs) > 0
    for pair in pairs:
        chosen = frame.loc[(pair["problem_id"], pair["chosen_sample"])]
        rejected = frame.loc[(pair["problem_id"], pair["rejected_sample"])]
        assert (chosen.reward, rejected.reward) == (1, 0)
        assert pair["chosen"] == [{"role": "assistant", "content": chosen.completion_text}]
        assert pair["rejected"] == [{"role": "assistant", "content": rejected.completion_text}]


def test_the_table_of_harvests_counts_pairs_and_those_that_were_cut_off(micro_grid: Project) -> None:
    [summary] = (
        pd.read_csv(micro_grid.results / "tables/harvest.csv").query("K == 2 and group_size == 2").to_dict("records")
    )
    pairs = read_pairs(micro_grid.results / "micro/seed0/harvest/g2/k2/pairs.jsonl")
    ends = rollouts(micro_grid, "micro/seed0/harvest/g2/k2").set_index(["problem_id", "sample"])["finish_reason"]
    assert summary["n_pairs"] == len(pairs)
    truncated: Counter[str] = Counter()
    for pair in pairs:
        truncated["chosen"] += ends[pair["problem_id"], pair["chosen_sample"]] == "length"
        truncated["rejected"] += ends[pair["problem_id"], pair["rejected_sample"]] == "length"
    assert summary["n_chosen_truncated"] == truncated["chosen"]
    assert summary["n_rejected_truncated"] == truncated["rejected"]


def test_a_warm_up_logs_every_step_to_k(micro_grid: Project) -> None:
    rows = pd.DataFrame(metrics(micro_grid, "micro/seed0/grpo/g2/k4"))
    assert list(rows["step"]) == [1, 2, 3, 4]
    for name in ("reward", "frac_reward_zero_std", "completions/clipped_ratio", "entropy", "completions/mean_length"):
        assert np.isfinite(rows[name]).all(), name


def test_a_warm_up_continues_the_smaller_k_of_its_group_size(micro_grid: Project) -> None:
    seed0 = micro_grid.results / "micro/seed0"
    assert read_policy(seed0 / "grpo/g2/k4/policy.json").continued_from == 2
    assert read_policy(seed0 / "grpo/g4/k4/policy.json").continued_from is None


def test_dpo_starts_at_the_loss_of_an_untrained_policy(micro_grid: Project) -> None:
    assert metrics(micro_grid, "micro/seed0/dpo/g2/k2")[0]["loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert metrics(micro_grid, "micro/seed0/ipo/g2/k2")[0]["loss"] == pytest.approx(25, rel=1e-4)


def test_dpo_logs_margins_and_log_probabilities(micro_grid: Project) -> None:
    last = metrics(micro_grid, "micro/seed0/dpo/g2/k2")[-1]
    assert {"logps/chosen", "logps/rejected", "rewards/margins"} <= set(last)


def test_n_matched_control_trains_on_as_many_pairs_as_the_other_k(micro_grid: Project) -> None:
    control = read_policy(micro_grid.results / "micro/seed0/n-matched/g0/k0/policy.json")
    of_control = len(lines(micro_grid, "harvest/g0/k0", "pairs.jsonl"))
    of_other = len(lines(micro_grid, "harvest/g2/k4", "pairs.jsonl"))
    assert control.statistics["n_pairs"] == min(of_control, of_other)


ADAPTERS = ("grpo/g2/k4", "dpo/g2/k4", "from-warmup/g2/k2")


def test_adapters_load_elsewhere(micro_grid: Project, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(micro_grid.results / "micro/base/model")
    for folder in ADAPTERS:
        adapter = shutil.copytree(micro_grid.results / f"micro/seed0/{folder}/adapter", tmp_path / folder)
        model = PeftModel.from_pretrained(base, adapter)
        assert model.peft_config["default"].r == 16
        base = model.unload()


@pytest.mark.parametrize("folder", ADAPTERS)
def test_adapters_name_no_folder_of_this_machine(micro_grid: Project, folder: str) -> None:
    adapter = micro_grid.results / f"micro/seed0/{folder}/adapter"
    for file in adapter.iterdir():
        for root in (micro_grid.root, folder_of("micro")):  # the folder that made it
            assert str(root).encode() not in file.read_bytes(), file
    assert read_json(adapter / "adapter_config.json")["base_model_name_or_path"] == "./results/micro/base/model"


def test_the_report_of_snakemake_draws_itself(micro_grid: Project, tmp_path: Path) -> None:
    """Needs no network; skipped after the text if there is no browser."""
    assert not (micro_grid.results / "report.html").exists()
    done = micro_grid.snakemake("--report", str(tmp_path / "report.html"))
    assert done.returncode == 0, done.stdout
    report = (tmp_path / "report.html").read_text()
    for text in ("Micro grid of the tests.", "Table 1: accuracy and cost", "accuracy.svg", "Values are in Table 2."):
        assert text in report
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    page = (tmp_path / "report.html").as_uri()
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [CHROMIUM, *CHROMIUM_FLAGS, profile, page]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    visible = re.sub(r"<(script|style)\b.*?</\1>", "", done.stdout, flags=re.S)
    for heading in ("Page", "Tables", "Figures"):
        assert f"{heading} (synthetic demonstration)" in visible
    assert not re.search(r"CONSOLE.*Error", done.stderr)


def test_until_a_rule_ends_well(tmp_path: Path, micro_config: dict[str, Any]) -> None:
    project = Project.create(tmp_path / "g2d", micro_config)
    printed = project.build("--until", "load_problems")
    assert (project.results / "problems/arithmetic.jsonl").exists()
    assert "report/index.html" not in printed.split("total")[-1]


# ----------------------------------------------------------------------------------------------------------- re-runs


def test_the_same_run_twice_gives_the_same_files(micro_grid: Project, started: Project) -> None:
    files = []
    for name in MADE_AGAIN:
        made = started.results / name
        for kind in ("*.parquet", "train.jsonl", "pairs.jsonl", "*.safetensors"):
            files += made.rglob(kind) if made.is_dir() else [made]
    assert len(set(files)) >= 13
    for file in files:
        twin = micro_grid.results / file.relative_to(started.results)
        assert file.read_bytes() == twin.read_bytes(), file


def test_how_jobs_import_is_no_part_of_a_result(own_micro_grid: Project, micro_config: dict[str, Any]) -> None:
    own_micro_grid.configure(micro_config | {"share_imports": False})
    assert own_micro_grid.planned() == {}


def test_tables_made_again_have_the_same_bytes(own_micro_grid: Project) -> None:
    before = {file: file.read_bytes() for file in (own_micro_grid.results / "tables").glob("*.csv")}
    assert len(before) >= 8
    own_micro_grid.build("--quiet", "rules", "--force", "--", "results/tables/main.csv")
    for file, content in before.items():
        assert file.read_bytes() == content, file


@dataclass(frozen=True)
class WithOneMoreK:
    """The finished grid with K=3 between 2 and 4."""

    project: Project
    planned: dict[str, int]
    printed: str  # by its target k3
    k4_before: int  # time stamp of the adapter at K=4

    @property
    def k4_after(self) -> int:
        return adapter_of(self.project, 4).stat().st_mtime_ns


def adapter_of(project: Project, k: int) -> Path:
    return project.results / f"micro/seed0/grpo/g2/k{k}/adapter/adapter_model.safetensors"


@pytest.fixture(scope="module")
def with_k3(tmp_path_factory: pytest.TempPathFactory, micro_config: dict[str, Any]) -> WithOneMoreK:
    project = copy_of_micro(micro_config, tmp_path_factory.mktemp("k3") / "g2d")
    before = adapter_of(project, 4).stat().st_mtime_ns
    project.configure(micro_config | {"warmup": micro_config["warmup"] | {"steps": [0, 2, 3, 4]}})
    planned = project.planned()
    printed = project.build("--quiet", "rules", "--", "k3")
    project.build("--quiet", "rules")
    return WithOneMoreK(project, planned, printed, before)


def test_adding_a_k_between_two_others_runs_only_that_k(with_k3: WithOneMoreK) -> None:
    expected = {"train_grpo": 1, "harvest_rollouts": 1, "build_pairs": 1, "train_dpo": 1, "evaluate": 1}
    assert with_k3.planned == expected | SUMMARIES
    assert with_k3.project.planned() == {}


def test_the_target_of_a_k_prints_its_accuracies_and_m0s_also_when_nothing_is_left_to_do(with_k3: WithOneMoreK) -> None:
    again = with_k3.project.build("--quiet", "rules", "--", "k3")
    for printed in (with_k3.printed, again):
        for policy in ("G2D (K=3)", "M0"):
            assert re.search(rf"^micro, \w+: {re.escape(policy)} \d+\.\d\s% \[", printed, re.M)


def test_the_target_of_a_k_evaluates_m0(with_k3: WithOneMoreK, tmp_path: Path) -> None:
    project = with_k3.project.copied(tmp_path / "g2d")
    (project.results / "micro/base/eval/arithmetic.parquet").unlink()
    assert project.planned("k3") == {"evaluate": 1, "k3": 1}


def test_a_target_of_another_k_is_refused_with_the_key(with_k3: WithOneMoreK) -> None:
    refused = with_k3.project.snakemake("-n", "k75")
    assert refused.returncode != 0
    assert "k75: K=75 is not in warmup.steps" in refused.stdout


def test_an_added_k_is_in_table_1(with_k3: WithOneMoreK) -> None:
    table = pd.read_csv(with_k3.project.results / "tables/main.csv").query("policy == 'g2d'")
    assert sorted(table["K"].unique()) == [2, 3, 4]


def test_both_larger_k_continue_the_same_checkpoint(with_k3: WithOneMoreK) -> None:
    assert read_policy(with_k3.project.results / "micro/seed0/grpo/g2/k3/policy.json").continued_from == 2
    assert with_k3.k4_after == with_k3.k4_before


def test_removing_a_k_changes_only_the_tables(
    with_k3: WithOneMoreK, micro_config: dict[str, Any], tmp_path: Path
) -> None:
    project = with_k3.project.copied(tmp_path / "g2d")
    project.configure(micro_config)
    assert project.planned() == SUMMARIES


def test_one_k_can_be_built_and_its_harvest_forced(micro_grid: Project) -> None:
    assert micro_grid.planned("k2") == {}
    below = {"harvest_rollouts": 1, "build_pairs": 1, "train_dpo": 3, "evaluate": 3, "k2": 1}
    assert micro_grid.planned("k2", "-R", "harvest") == below


def test_named_targets(micro_grid: Project) -> None:
    assert micro_grid.planned("calibration", "harvest", "tables", "k0", "k2", "k4") == {}


def test_the_terminal_has_a_line_at_the_start_and_at_the_end_of_a_job_and_the_log_has_the_reason(
    with_k3: WithOneMoreK, tmp_path: Path
) -> None:
    project = with_k3.project.copied(tmp_path / "g2d")
    printed = project.build("-R", "make_tables", "--until", "make_tables")
    assert re.search(r"^\d\d:\d\d:\d\d  Make the tables$", printed, re.M)
    assert re.search(r"^\d\d:\d\d:\d\d  1 of \d+ done: Make the tables \(\d+ s\)$", printed, re.M)
    assert "Reason" not in printed
    [log] = [file for file in (project.root / ".snakemake/log").iterdir() if "Make the tables" in file.read_text()]
    assert "Reason: Forced execution" in log.read_text()
