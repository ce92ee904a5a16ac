"""The files that Snakemake names for each kind of job, worked out by hand, and its GPUs."""

from __future__ import annotations

import copy
import re
import shutil
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from g2d.checks.load import load
from g2d.grid.grid import Grid
from g2d.policies.record import PolicyRecord, write_policy
from tests.rewards.models import reward_model
from tests.workflow.conftest import Project
from tests.workflow.test_dry_run import everything

Job = dict[str, Any]
BASE = {"base": ["results/micro/base/policy.json"], "model": ["results/micro/base/model"]}
CALIBRATION = "results/micro/calibration/cost.json"
TRAINING_SET = "results/micro/calibration/train.jsonl"
SEED = "results/micro/seed0"
BENCHMARKS = ("arithmetic", "picks", "word-problems")  # of `everything`


def record(folder: str) -> str:
    return f"{SEED}/{folder}/policy.json"


def weights(folder: str) -> list[str]:
    adapter = f"{SEED}/{folder}/adapter"
    return [f"{adapter}/adapter_model.safetensors", f"{adapter}/adapter_config.json"]


def planned(project: Project, values: dict[str, Any]) -> list[Job]:
    file = project.root / "planned.yaml"
    file.write_text(yaml.safe_dump(values))
    return project.planned_jobs("--configfile", str(file))


def jobs_by_output(project: Project, values: dict[str, Any]) -> dict[str, Job]:
    jobs = {}
    for job in planned(project, values):
        jobs |= dict.fromkeys(job["output"], job)
    return jobs


@pytest.fixture(scope="module")
def jobs(project: Project, micro_config: dict[str, Any]) -> dict[str, Job]:
    """Every kind of job, by output."""
    reward_model(project.root / "judge")
    values = everything(micro_config)
    values["rewards"]["coin"] = {"reward": "random"}
    values["ablations"]["on-coin"] = {"steps": [0, 2], "reward": "coin"}
    return jobs_by_output(project, values)


def inputs(jobs: dict[str, Job], output: str) -> dict[str, list[str]]:
    """Inputs of the job of a file by name; every input has one."""
    job = jobs[output]
    named = {name: files for name, files in job["named"]["input"].items() if files}
    assert sorted(job["input"]) == sorted(chain.from_iterable(named.values()))
    return named


def test_a_finished_training_keeps_the_k_that_it_continued(project: Project, micro_config: dict[str, Any]) -> None:
    """So adding a K makes no finished one stale. With other settings it runs again, from the K before."""
    grid = Grid(load(micro_config))
    fourth = grid.at("micro/seed0/grpo/g2/k4")
    file = project.root / record("grpo/g2/k4")
    # On a CPU the training of a pretrained model also has statistics.
    finished = PolicyRecord(fourth.folder, "micro", "grpo", "m", continued_from=1, statistics={"shared_prompts": True})
    file.parent.mkdir(parents=True)
    try:
        for settings, k in ((grid.settings_of(fourth), 1), ({}, 2)):
            write_policy(file, replace(finished, settings=settings))
            training = inputs(jobs_by_output(project, micro_config), record("grpo/g2/k4"))
            assert training["checkpoint"] == [f"{SEED}/grpo/g2/k{k}/checkpoint"]
    finally:
        shutil.rmtree(file.parent)


def test_grpo_continues_the_k_before_and_is_charged_for_it(jobs: dict[str, Job]) -> None:
    first = inputs(jobs, record("grpo/g2/k2"))
    assert first == BASE | {"problems": [TRAINING_SET], "costs": [CALIBRATION]}
    before = f"{SEED}/grpo/g2/k2"
    continued = {"checkpoint": [f"{before}/checkpoint"], "costs": [CALIBRATION, f"{before}/cost.json"]}
    assert inputs(jobs, record("grpo/g2/k4")) == first | continued


def test_a_warmup_that_stops_automatically_starts_anew_and_its_record_says_where(jobs: dict[str, Job]) -> None:
    [warmup] = [output for output in jobs if re.fullmatch(f"{SEED}/auto/grpo/g2/k.*/policy.json", output)]
    assert inputs(jobs, warmup) == BASE | {"problems": [TRAINING_SET], "costs": [CALIBRATION]}
    assert "checkpoint" not in jobs[warmup]["named"]["output"]
    after = inputs(jobs, warmup.replace("/grpo/", "/dpo/"))
    assert after["warmup"] == [warmup]
    assert after["pairs"] == [warmup.replace("/grpo/", "/harvest/").replace("policy.json", "pairs.jsonl")]
    assert "warmup" not in inputs(jobs, record("dpo/g2/k2"))


def test_an_online_entry_reads_its_prompts(jobs: dict[str, Job]) -> None:
    open_ended = "results/problems/open-ended.jsonl"
    asked = {}
    for name in ("online", "chat", "both"):
        asked[name] = inputs(jobs, f"{SEED}/{name}/g4/k2/policy.json")["problems"]
    assert asked == {"online": [TRAINING_SET], "chat": [open_ended], "both": [TRAINING_SET, open_ended]}


def test_an_online_entry_reads_the_policy_that_it_starts_from(jobs: dict[str, Job]) -> None:
    chat = inputs(jobs, f"{SEED}/chat/g4/k2/policy.json")
    assert chat["start"] == [record("online/g4/k4"), *weights("online/g4/k4")]
    assert chat["costs"] == [CALIBRATION, f"{SEED}/online/g4/k4/cost.json"]
    online = inputs(jobs, f"{SEED}/online/g4/k2/policy.json")
    assert "start" not in online and online["costs"] == [CALIBRATION]


def test_an_online_entry_continues_the_k_before(jobs: dict[str, Job]) -> None:
    later = inputs(jobs, f"{SEED}/chat/g4/k4/policy.json")
    assert later["checkpoint"] == [f"{SEED}/chat/g4/k2/checkpoint"]
    assert later["costs"] == [CALIBRATION, f"{SEED}/online/g4/k4/cost.json", f"{SEED}/chat/g4/k2/cost.json"]


def test_a_harvest_samples_pi_k_and_m0_at_k_0(jobs: dict[str, Job]) -> None:
    of_m0 = inputs(jobs, f"{SEED}/harvest/g0/k0/rollouts.parquet")
    common = {"model": BASE["model"], "problems": [TRAINING_SET]}
    assert of_m0 == common | {"policy": BASE["base"], "costs": [CALIBRATION]}
    of_2 = inputs(jobs, f"{SEED}/harvest/g2/k2/rollouts.parquet")
    trained = {"policy": [record("grpo/g2/k2")], "weights": weights("grpo/g2/k2")}
    assert of_2 == common | trained | {"costs": [f"{SEED}/grpo/g2/k2/cost.json"]}
    pairs = inputs(jobs, f"{SEED}/harvest/g2/k2/pairs.jsonl")
    assert pairs == BASE | {"rollouts": [f"{SEED}/harvest/g2/k2/rollouts.parquet"], "problems": [TRAINING_SET]}


def test_another_reward_judges_the_rollouts_of_m0_again(jobs: dict[str, Job]) -> None:
    of_m0 = f"{SEED}/on-coin/harvest/g0/k0/rollouts.parquet"
    again = inputs(jobs, of_m0)
    assert again["judged"] == [f"{SEED}/harvest/g0/k0/rollouts.parquet"]
    assert again["costs"] == [f"{SEED}/harvest/g0/k0/cost.json"]
    assert jobs[of_m0]["gpus"] == 0
    later = f"{SEED}/on-coin/harvest/g2/k2/rollouts.parquet"
    assert "judged" not in inputs(jobs, later)
    assert inputs(jobs, later)["policy"] == [record("on-coin/grpo/g2/k2")]
    assert jobs[later]["gpus"] == 1


def test_dpo_reads_its_pairs_and_counts_those_it_is_matched_to(jobs: dict[str, Job]) -> None:
    plain = inputs(jobs, f"{SEED}/dpo/g2/k2/policy.json")
    harvest = f"{SEED}/harvest/g2/k2"
    assert plain == BASE | {"pairs": [f"{harvest}/pairs.jsonl"], "costs": [f"{harvest}/cost.json"]}
    matched = inputs(jobs, f"{SEED}/n-matched/g0/k0/policy.json")
    assert matched["matched"] == [f"{SEED}/harvest/g2/k4/pairs.jsonl"]
    own = inputs(jobs, f"{SEED}/hot-matched/dpo/g2/k4/policy.json")
    harvest = f"{SEED}/hot-matched/harvest/g2"
    assert own["matched"] == [f"{harvest}/k2/pairs.jsonl", f"{harvest}/k4/pairs.jsonl"]
    continued = inputs(jobs, record("from-warmup/g2/k2"))
    assert continued["start"] == [record("grpo/g2/k2"), *weights("grpo/g2/k2")]


def test_rft_reads_rollouts_and_pairs_only_for_chosen_completions(jobs: dict[str, Job]) -> None:
    harvest = f"{SEED}/harvest/g2/k2"
    right = inputs(jobs, record("rft/g2/k2"))
    reads = {"rollouts": [f"{harvest}/rollouts.parquet"], "problems": [TRAINING_SET], "costs": [f"{harvest}/cost.json"]}
    assert right == BASE | reads
    assert inputs(jobs, record("chosen/g2/k2")) == right | {"pairs": [f"{harvest}/pairs.jsonl"]}


def test_a_policy_is_evaluated_after_the_check_of_all_benchmarks(jobs: dict[str, Job]) -> None:
    for kind in ("eval", "samples"):
        read = inputs(jobs, f"{SEED}/dpo/g2/k2/{kind}/arithmetic.parquet")
        assert read == {
            "policy": [record("dpo/g2/k2")],
            "weights": weights("dpo/g2/k2"),
            "model": BASE["model"],
            "benchmarks": [f"results/problems/{name}.jsonl" for name in BENCHMARKS],
            "leakage": [f"results/problems/{name}.leakage.json" for name in BENCHMARKS],
        }
    assert inputs(jobs, "results/micro/base/eval/arithmetic.parquet")["policy"] == BASE["base"]


def test_a_training_has_one_gpu_although_vllm_divides_a_policy(project: Project, micro_config: dict[str, Any]) -> None:
    values = copy.deepcopy(micro_config)
    values["engine"] = {"name": "vllm", "tensor_parallel_size": 2}
    jobs = {job["rule"]: job for job in planned(project, values)}
    expected = {"train_dpo": 1, "train_grpo": 1, "calibrate": 2, "harvest_rollouts": 2, "build_pairs": 0}
    assert {rule: jobs[rule]["gpus"] for rule in expected} == expected
    assert jobs["calibrate"]["params"]["engine"] == "'vllm'"


def test_a_job_that_is_not_asked_for_is_named(project: Project) -> None:
    for folder, file in {
        "seed9/dpo/g2/k2": "seed9/dpo/g2/k2/policy.json",
        "seed0/dpo/g2/k3": "seed0/dpo/g2/k3/policy.json",
        "seed9/grpo/g2/k2": "seed9/harvest/g2/k2/rollouts.parquet",
    }.items():
        done = project.snakemake("-n", f"results/micro/{file}")
        assert done.returncode == 1
        assert f"this configuration has no policy micro/{folder}" in done.stdout


def test_a_rule_is_found_by_its_name() -> None:
    """`grep -rnw train_grpo workflow` finds each rule, and no loop defines one."""
    rules = "\n".join(file.read_text() for file in (Path(__file__).parents[2] / "workflow/rules").glob("*.smk"))
    online = ["train_grpo", "train_grpo_auto", "train_semi_online_dpo"]
    for name in [*online, "train_dpo", "train_rft", "harvest_rollouts"]:
        assert f"rule {name}:" in rules or f"as {name} with:" in rules, name
