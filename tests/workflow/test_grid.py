"""The micro grid through the real DAG: what it leaves behind, and what runs again when something changes."""

from __future__ import annotations

import copy
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import g2d
from g2d.jobs.cost import read_cost
from g2d.policies import read_policy
from g2d.status.screen import screen
from g2d.status.snapshot import Folder
from g2d.tables.all_tables import tables_of
from g2d.tables.reads import Read
from g2d.tables.results import Results
from tests.shared import folder_of
from tests.workflow.conftest import REPOSITORY, Project, copy_of_micro
from tests.workflow.micro import SUMMARIES, lines, metrics

IMPORTED = r"^import time: .*\| *(\S+)$"
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
    *("problems/arithmetic.jsonl", "problems/arithmetic.leakage.json", "micro/calibration"),
    *(
        "micro/seed0/grpo/g2",
        "micro/seed0/harvest/g2/k2",
        "micro/base/eval/arithmetic.parquet",
        "micro/seed0/dpo/g2/k2",
    ),
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
    first = ["micro/seed0/grpo/g2/k4/policy.json", "micro/seed0/harvest/g2/k2/pairs.jsonl"]
    first += ["micro/base/eval/arithmetic.parquet", "problems/arithmetic.leakage.json"]
    for shared, files in ((True, first), (False, ["micro/seed0/dpo/g2/k2/policy.json"])):
        project.configure(micro_config | {"share_imports": shared})
        command = ["--cores", "2", "--quiet", "rules", "--", *(f"results/{file}" for file in files)]
        done = project.snakemake(*command, anew=True, PYTHONPROFILEIMPORTTIME="1")
        assert done.returncode == 0, done.stdout
    return project


def test_a_stage_without_a_model_imports_no_package_of_models(started: Project) -> None:
    heavy = {"torch", "transformers", "trl", "peft", "datasets", "vllm", "huggingface_hub", "math_verify", "sympy"}
    for rule in ("load_problems", "check_leakage", "select_training_set", "build_pairs"):
        logs = [*(started.results / "logs" / rule).rglob("*.log")]
        imported = [name for log in logs for name in re.findall(IMPORTED, log.read_text(), re.M)]
        assert logs, rule
        assert {name.partition(".")[0] for name in imported} & heavy == set(), rule
        assert any(name.startswith("scipy.stats.") for name in imported) == (rule == "build_pairs")  # its intervals


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
        built, written = results.build(name), results.tables[name]
        assert list(built) == list(written), name
        assert len(built) == len(written)
        assert vars(results).get("remembered", set()) <= set(table.reads), name


def test_main_table_has_every_policy_and_is_computed_from_the_evaluations(micro_grid: Project) -> None:
    table = pd.read_csv(micro_grid.results / "tables/main.csv", keep_default_na=False)
    rows = [tuple(row) for row in table[["policy", "K", "group_size", "benchmark"]].astype(str).to_numpy()]
    ablations = [("ipo", "2", "2"), ("n-matched", "0", ""), ("from-warmup", "2", "2")]
    policies = [
        ("base", "0", ""),
        ("dpo", "0", ""),
        ("g2d", "2", "2"),
        ("g2d", "4", "2"),
        ("grpo", "4", "2"),
        ("grpo", "4", "4"),
    ]
    assert set(rows[12:]) == {(*policy, b) for policy in ablations for b in ("arithmetic", "word-problems")}
    assert rows[:12] == [(*policy, b) for policy in policies for b in ("arithmetic", "word-problems")]
    evaluation = pd.read_parquet(micro_grid.results / "micro/seed0/dpo/g2/k4/eval/arithmetic.parquet")
    assert len(evaluation) == 40
    row = table[(table.policy == "g2d") & (table.K == 4) & (table.benchmark == "arithmetic")].iloc[0]
    assert float(row.accuracy) == pytest.approx(evaluation.reward.mean())
    assert float(row.device_hours) == pytest.approx(
        read_cost(micro_grid.results / "micro/seed0/dpo/g2/k4/cost.json").device_hours, rel=1e-5
    )


def test_parts_of_a_gain_add_up(micro_grid: Project) -> None:
    tables = micro_grid.results / "tables"
    parts, main = (pd.read_csv(tables / f"{name}.csv") for name in ("decomposition", "main"))
    gains = parts[parts.policy != "base"]
    total = gains.from_finishing + gains.from_format + gains.from_reasoning
    assert total.to_numpy() == pytest.approx(gains.gain.to_numpy(), abs=1e-5)
    compared = pd.read_csv(tables / "comparisons.csv").query("reference == 'base' and policy == 'g2d' and K == 4")
    row = main[(main.policy == "g2d") & (main.K == 4)].set_index("benchmark").accuracy
    base = main[main.policy == "base"].set_index("benchmark").accuracy
    assert compared.set_index("benchmark").difference.to_numpy() == pytest.approx((row - base).to_numpy(), abs=1e-5)


# ------------------------------------------------------------------------------------------------------- for analysts

POLICY = ["policy", "K", "group_size"]


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


def test_frames_equal_the_files(micro_grid: Project) -> None:
    opened = g2d.open(micro_grid.results)
    main = opened.tables["main"]
    assert list(main.columns) == list(pd.read_csv(micro_grid.results / "tables/main.csv").columns)
    bills = opened.bills[opened.bills.benchmark.isna()]
    hours = bills.groupby(POLICY).device_s.sum() / 3600
    for _, row in main[main.policy != "base"].iterrows():
        assert hours[row.policy, row.K, 0 if pd.isna(row.group_size) else row.group_size] == pytest.approx(
            row.device_hours, rel=1e-5
        )
    evaluations = opened.evaluations
    assert len(evaluations) == (1 + 8) * (40 + 20)  # M0; 3 main, 2 GRPO and 3 ablations
    assert evaluations[evaluations.policy == "base"].seed.isna().all()
    assert set(evaluations[evaluations.policy != "base"].seed) == {0}
    harvest = opened.harvests.query("K == 2")
    texts = opened.rollouts("micro/seed0/harvest/g2/k2")
    assert list(harvest.reward) == list(texts.reward)
    assert texts.completion_text.str.len().gt(0).any()
    folder = opened.policies.query("policy == 'g2d' and K == 4").folder.item()
    assert len(opened.rollouts(folder, "arithmetic")) == 40
    metrics = opened.metrics.query("policy == 'grpo' and K == 4 and group_size == 2")
    assert list(metrics.step) == [row["step"] for row in map(json.loads, lines(micro_grid, "grpo/g2/k4"))]
    assert len(opened.pairs("micro/seed0/harvest/g2/k2")) == len(lines(micro_grid, "harvest/g2/k2", "pairs.jsonl"))
    assert len(opened.problems("arithmetic")) == 40
    assert opened.policies.finished.all()
    assert opened.config.title == "Micro grid"
    with pytest.raises(KeyError, match="no such table here; there are main, "):
        opened.tables["mian"]


def test_unfinished_policies_are_left_out(own_micro_grid: Project) -> None:
    results = own_micro_grid.results
    shutil.rmtree(results / "micro/seed0/dpo/g2/k4")
    (results / "tables/main.csv").unlink()
    opened = g2d.open(results)
    assert set(opened.evaluations.query("policy == 'g2d'").K) == {2}
    assert list(opened.policies[~opened.policies.finished].folder) == ["micro/seed0/dpo/g2/k4"]
    assert "main" not in opened.tables
    shutil.rmtree(results / "micro")
    empty = g2d.open(results)
    assert [len(frame) for frame in (empty.evaluations, empty.harvests, empty.metrics, empty.bills)] == [0, 0, 0, 0]
    assert list(empty.evaluations.columns) == list(opened.evaluations.columns[:6])
    with pytest.raises(FileNotFoundError, match="no results folder"):
        g2d.open(own_micro_grid.root)


def test_importing_g2d_imports_no_pandas() -> None:
    command = (
        "import sys, g2d, g2d.status.command; print(sorted({'pandas', 'numpy', 'torch', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ------------------------------------------------------------------------------------------------------------- status


def test_the_status_of_a_finished_grid_names_every_job_that_ran(
    micro_grid: Project, micro_config: dict[str, Any]
) -> None:
    micro_grid.snakemake("--cores", "1")  # lists the jobs of all targets, whatever another test has asked for
    folder = Folder(micro_grid.results)
    snapshot = folder.look()
    jobs = {(state.job.rule, state.job.name) for state in snapshot.states}
    assert jobs <= set(folder.records.read())  # other tests of this file may have added to the grid
    planned = Counter(job["rule"] for job in micro_grid.planned_jobs())
    assert Counter(rule for rule, _ in jobs) == planned - Counter({"all": 1})
    assert snapshot.counts == {"finished": len(snapshot.states)}
    assert screen(snapshot, 80, 24).splitlines()[-1] == "all jobs have finished"
    trained = [
        state.last for state in snapshot.states if state.job.rule == "train_grpo" and state.job.wildcards["k"] == "4"
    ]
    assert [last.progress and last.progress.step for last in trained if last] == [4, 4]


def test_the_status_of_another_folder_is_the_same_from_anywhere(micro_grid: Project, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "g2d.cli", "status", str(micro_grid.results), "--watch"]
    environment = os.environ | {"PYTHONPATH": str(micro_grid.root / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "all jobs have finished" in done.stdout


def test_only_jobs_of_a_missing_policy_are_missing(own_micro_grid: Project) -> None:
    folder = own_micro_grid.results / "micro/seed0/dpo/g2/k4"
    shutil.rmtree(folder)
    missing = {state.job.name for state in Folder(own_micro_grid.results).look().of("missing")}
    assert missing == {
        f"results/micro/seed0/dpo/g2/k4/{name}" for name in ("cost", "eval/arithmetic.cost", "eval/word-problems.cost")
    }


# ---------------------------------------------------------------------------------------------------------- the bill


def test_a_policys_cost_counts_its_ancestry_once(micro_grid: Project) -> None:
    bill = read_cost(micro_grid.results / "micro/seed0/dpo/g2/k4/cost.json")
    assert [record.stage for record in bill.records] == [
        "calibrate",
        "train_grpo",
        "train_grpo",
        "harvest_rollouts",
        "train_dpo",
    ]
    assert len({record.job for record in bill.records}) == 5


def test_costs_list_every_stage_and_add_up_to_table_1(micro_grid: Project) -> None:
    bill = pd.read_csv(micro_grid.results / "tables/cost.csv")
    cost = bill[(bill.policy == "g2d") & (bill.K == 4)]
    stages = ["calibrate", "train_grpo", "harvest_rollouts", "train_dpo", "evaluate"]
    assert list(cost.stage) == stages
    assert list(cost.n_jobs) == [1, 2, 1, 1, 2]
    assert (cost[cost.stage != "train_dpo"].tokens_generated > 0).all()
    main = pd.read_csv(micro_grid.results / "tables/main.csv")
    row = main[(main.policy == "g2d") & (main.K == 4)].iloc[0]
    assert cost[cost.stage != "evaluate"].device_hours.sum() == pytest.approx(row.device_hours, rel=1e-4)


def test_harvest_has_eight_judged_rollouts_per_prompt(micro_grid: Project) -> None:
    frame = rollouts(micro_grid, "micro/seed0/harvest/g2/k2")
    assert len(frame) == 60 * 8
    assert (frame.groupby("problem_id")["sample"].apply(list).map(lambda s: s == list(range(8)))).all()
    assert set(frame.temperature) == {1.3}
    assert ((frame.reward == 1) == (frame.verdict == "correct")).all()
    assert frame.policy_id.unique() == ["micro/seed0/grpo/g2/k2"]


def test_pairs_load_in_trls_format_and_contrast_right_with_wrong(micro_grid: Project) -> None:
    from datasets import load_dataset

    file = str(micro_grid.results / "micro/seed0/harvest/g2/k2/pairs.jsonl")
    pairs = load_dataset("json", data_files=file, split="train")
    frame = rollouts(micro_grid, "micro/seed0/harvest/g2/k2").set_index(["problem_id", "sample"])
    summary = json.loads((micro_grid.results / "micro/seed0/harvest/g2/k2/informativeness.json").read_text())
    assert len(pairs) == summary["n_pairable"] > 0
    for side in ("chosen", "rejected"):
        sampled = [frame.loc[(pair["problem_id"], pair[f"{side}_sample"])] for pair in pairs]
        assert summary[f"n_{side}_truncated"] == sum(row.finish_reason == "length" for row in sampled)
    for pair in pairs:
        chosen = frame.loc[(pair["problem_id"], pair["chosen_sample"])]
        rejected = frame.loc[(pair["problem_id"], pair["rejected_sample"])]
        assert (chosen.reward, rejected.reward) == (1, 0)
        assert pair["chosen"] == [{"role": "assistant", "content": chosen.completion_text}]
        assert pair["rejected"] == [{"role": "assistant", "content": rejected.completion_text}]


def test_warmup_reaches_k_and_keeps_its_metrics(micro_grid: Project) -> None:
    rows = metrics(micro_grid, "micro/seed0/grpo/g2/k4")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    for name in ("reward", "frac_reward_zero_std", "completions/clipped_ratio", "entropy", "completions/mean_length"):
        assert all(math.isfinite(row[name]) for row in rows)
    assert read_policy(micro_grid.results / "micro/seed0/grpo/g2/k4/policy.json").continued_from == 2
    assert read_policy(micro_grid.results / "micro/seed0/grpo/g4/k4/policy.json").continued_from is None


def test_dpo_starts_at_the_loss_of_an_untrained_policy(micro_grid: Project) -> None:
    assert metrics(micro_grid, "micro/seed0/dpo/g2/k2")[0]["loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert metrics(micro_grid, "micro/seed0/ipo/g2/k2")[0]["loss"] == pytest.approx(25, rel=1e-4)
    last = metrics(micro_grid, "micro/seed0/dpo/g2/k2")[-1]
    assert {"logps/chosen", "logps/rejected", "rewards/margins"} <= set(last)


def test_n_matched_control_trains_on_as_many_pairs_as_the_other_k(micro_grid: Project) -> None:
    pairs = {k: len(metrics_of.read_text().splitlines()) for k, metrics_of in _pair_files(micro_grid).items()}
    control = read_policy(micro_grid.results / "micro/seed0/n-matched/g0/k0/policy.json")
    assert control.settings["n_pairs"] == min(pairs[0], pairs[4])


def _pair_files(project: Project) -> dict[int, Any]:
    harvest = project.results / "micro/seed0/harvest"
    return {k: harvest / f"g{2 if k else 0}/k{k}/pairs.jsonl" for k in (0, 2, 4)}


def test_adapters_load_elsewhere_and_name_nothing_of_this_machine(micro_grid: Project, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(micro_grid.results / "micro/base/model")
    for folder in ("grpo/g2/k4", "dpo/g2/k4", "from-warmup/g2/k2"):
        adapter = shutil.copytree(micro_grid.results / f"micro/seed0/{folder}/adapter", tmp_path / folder)
        for file in adapter.iterdir():
            for root in (micro_grid.root, folder_of("micro")):  # the folder that made it
                assert str(root).encode() not in file.read_bytes(), file
        described = json.loads((adapter / "adapter_config.json").read_text())
        assert described["base_model_name_or_path"] == "./results/micro/base/model"
        model = PeftModel.from_pretrained(base, adapter)
        assert model.peft_config["default"].r == 16
        base = model.unload()


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
    page, profile = (tmp_path / "report.html").as_uri(), f"--user-data-dir={tmp_path / 'profile'}"
    command = [CHROMIUM, *CHROMIUM_FLAGS, profile, page]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    visible = re.sub(r"<(script|style)\b.*?</\1>", "", done.stdout, flags=re.S)
    for heading in ("Page", "Tables", "Figures"):
        assert f"{heading} (synthetic demonstration)" in visible
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line and "Error" in line] == []


def test_until_a_rule_ends_well(tmp_path: Path, micro_config: dict[str, Any]) -> None:
    project = Project.create(tmp_path / "g2d", micro_config)
    printed = project.build("--until", "load_problems")
    assert (project.results / "problems/arithmetic.jsonl").exists()
    assert "report/index.html" not in printed.split("total")[-1]


# ----------------------------------------------------------------------------------------------------------- re-runs


def test_the_same_run_twice_gives_the_same_files(
    micro_grid: Project, started: Project, tmp_path: Path, micro_config: dict[str, Any]
) -> None:
    """And the tables again from the same results."""
    kinds = ("*.parquet", "train.jsonl", "pairs.jsonl", "*.safetensors")
    made = [started.results / name for name in MADE_AGAIN]
    files = {file for at in made for kind in kinds for file in (at.rglob(kind) if at.is_dir() else [at])}
    assert len(files) >= 13
    for file in files:
        twin = micro_grid.results / file.relative_to(started.results)
        assert file.read_bytes() == twin.read_bytes(), file

    again = micro_grid.copied(tmp_path / "g2d")
    again.configure(micro_config | {"share_imports": False})
    assert again.planned() == {}  # how jobs import is no part of a result
    tables = again.results / "tables"
    before = {file: file.read_bytes() for file in tables.glob("*.csv")}
    again.build("--quiet", "rules", "--force", "--", "results/tables/main.csv")
    assert len(before) >= 8
    assert {file: file.read_bytes() for file in before} == before


def test_adding_a_k_between_two_others_runs_only_that_k(own_micro_grid: Project, micro_config: dict[str, Any]) -> None:
    more = copy.deepcopy(micro_config)
    more["warmup"]["steps"] = [0, 2, 3, 4]
    adapter = own_micro_grid.results / "micro/seed0/grpo/g2/k4/adapter/adapter_model.safetensors"
    before = adapter.stat().st_mtime_ns
    own_micro_grid.configure(more)
    expected = {"train_grpo": 1, "harvest_rollouts": 1, "build_pairs": 1, "train_dpo": 1, "evaluate": 2}
    assert own_micro_grid.planned() == expected | SUMMARIES
    printed = own_micro_grid.build("--quiet", "rules", "--", "k3")
    assert re.search(r"^micro, \w+: G2D \(K=3\) \d+\.\d\s% \[", printed, re.M)
    own_micro_grid.build("--quiet", "rules")
    assert own_micro_grid.planned() == {}
    table = pd.read_csv(own_micro_grid.results / "tables/main.csv")
    assert sorted(table[table.policy == "g2d"].K.unique()) == [2, 3, 4]
    # K=3 and K=4 both continue the checkpoint of K=2.
    assert adapter.stat().st_mtime_ns == before
    assert read_policy(own_micro_grid.results / "micro/seed0/grpo/g2/k3/policy.json").continued_from == 2
    own_micro_grid.configure(micro_config)
    assert own_micro_grid.planned() == SUMMARIES  # removing the K changes only the tables


def test_one_k_can_be_built_and_its_harvest_forced(micro_grid: Project) -> None:
    assert micro_grid.planned("k2") == {}
    assert micro_grid.planned("k2", "-R", "harvest") == {
        "harvest_rollouts": 1,
        "build_pairs": 1,
        "train_dpo": 3,
        "evaluate": 6,
        "k2": 1,
    }


def test_named_targets(micro_grid: Project) -> None:
    assert micro_grid.planned("calibration", "harvest", "tables", "k0", "k2", "k4") == {}
