"""Entries of `regimes`: further ways to train on the harvests of a finished grid."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from html import unescape
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from g2d.experiment import grid
from g2d.experiment.config import load
from g2d.experiment.keys import PolicyKey
from g2d.jobs.files import read_json
from g2d.rollouts.pairs import read_pairs
from g2d.rollouts.rollout import OF_TOKENS
from g2d.settings import ConfigError
from tests.workflow.conftest import Project, copy_of_micro
from tests.workflow.test_grid import OF_REGIMES as SUMMARIES
from tests.workflow.test_grid import metrics

RFT = {"regime": "rft", "learning_rate": 5e-4, "epochs": 1}
ROUNDS = {"regime": "iterative_dpo", "rounds": [1, 2]}
STAGED = {"regime": "staged_grpo", "stages": [1, 2], "warmup": {"prompts_per_step": 30}}
KTO = {"regime": "kto", "learning_rate": 5e-4, "per_device_batch_size": 16}


def with_entries(config: dict[str, Any], **entries: Any) -> dict[str, Any]:
    return config | {"regimes": entries}


SEMI_ONLINE = {
    "regime": "semi_online_dpo",
    "steps": [2, 4],
    "sync_every": 2,
    "responses": 4,
    "prompts_per_update": 8,
    "max_completion_length": 24,
    "learning_rate": 1e-3,
}
STOPS = {"auto": {"every": 1, "prompts": 20, "patience": 1}, "steps": [3], "policies": ["online", "dpo"]}
STUDENT = {
    "regime": "distillation",
    "teacher": "dpo",
    "teacher_step": 2,
    "steps": [2],
    "responses": 2,
    "prompts_per_update": 8,
    "max_completion_length": 24,
    "learning_rate": 1e-3,
}
FAR = {"regime": "extrapolated", "from": [2, 4], "to": [6], "policies": ["extrapolated", "dpo"]}
ENTRIES = {
    "rft": RFT,
    "z-one-right": RFT | {"per_prompt": 1, "steps": [2], "start": "warmup"},
    "chosen": RFT | {"examples": "chosen", "steps": [2]},
    "group-dpo": {"regime": "group_dpo", "steps": [2], "epochs": 1},
    "kto": KTO | {"steps": [2]},
    "semi-online": SEMI_ONLINE | {"policies": ["online", "dpo"]},
    "second": SEMI_ONLINE | {"start": "warmup", "start_step": 2, "reference": "start"},
    "third": SEMI_ONLINE | {"start": "second", "start_step": 2, "steps": [2]},
    "stops": SEMI_ONLINE | STOPS | {"start": "warmup", "start_step": 2},
    "all-pairs": {"regime": "group_dpo", "epochs": 1, "harvest": "semi-online", "start": "warmup"},
    "hot-chosen": RFT | {"examples": "chosen", "harvest": "hot"},
    "rounds": ROUNDS,
    "student": STUDENT,
    "staged": STAGED,
    "near": {"regime": "extrapolated", "from": [0, 2], "to": [4]},
    "far": FAR,
    "far-chosen": RFT | {"examples": "chosen", "harvest": "far", "start": "warmup"},
}
LINEARITY = {"make_linearity_table": 1}
HOT = {"steps": [2], "warmup": {"temperature": 1.1}, "policies": ["grpo"]}


@pytest.fixture(scope="module")
def extended(micro_config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, dict[str, int]]:
    """The finished grid with entries of every kind, and the added jobs."""
    project = copy_of_micro(micro_config, tmp_path_factory.mktemp("regimes") / "g2d")
    return project, project.extended(with_entries(with_hot(micro_config), **ENTRIES))


@pytest.fixture
def project(extended: tuple[Project, dict[str, int]], micro_config: dict[str, Any]) -> Iterator[Project]:
    """The extended grid, with its configuration restored after a test."""
    yield extended[0]
    extended[0].configure(with_entries(with_hot(micro_config), **ENTRIES))


def with_hot(config: dict[str, Any]) -> dict[str, Any]:
    return config | on_one(config) | {"ablations": config["ablations"] | {"hot": HOT}}


def on_one(config: dict[str, Any]) -> dict[str, Any]:
    """One of the two benchmarks, so that new policies answer fewer questions."""
    return {"benchmarks": {"arithmetic": config["benchmarks"]["arithmetic"]}}


def changed(config: dict[str, Any], **entries: Any) -> dict[str, Any]:
    return with_entries(with_hot(config), **(ENTRIES | entries))


def test_only_jobs_of_the_entries_run(extended: tuple[Project, dict[str, int]]) -> None:
    project, planned = extended
    offline = {"train_rft": 7, "train_kto": 1, "train_group_dpo": 3, "train_dpo": 4, "train_iterative_dpo": 2}
    offline |= {"train_staged_grpo": 3}
    online = {"train_grpo": 1, "train_semi_online_dpo": 5, "train_semi_online_dpo_auto": 1, "train_distillation": 1}
    drawn = {"harvest_rollouts": 9, "build_pairs": 6, "evaluate": 29}
    assert planned == offline | online | drawn | {"train_extrapolated": 2} | LINEARITY | SUMMARIES
    assert project.planned() == {}


def test_an_entry_on_the_harvests_of_the_grid(project: Project, micro_config: dict[str, Any]) -> None:
    tables = project.results / "tables"
    main = pd.read_csv(tables / "main.csv").query("benchmark == 'arithmetic'")
    of_entries = ["chosen", "group-dpo", "kto", "rft", "rft", "rft", "z-one-right"]
    shown = [policy for policy in main.policy if policy in {"base", "dpo", "g2d", "grpo", *of_entries}]
    assert shown == ["base", "dpo", "g2d", "g2d", *of_entries, "grpo", "grpo"]
    assert list(main[main.policy == "rft"].K) == [0, 2, 4]
    compared = pd.read_csv(tables / "comparisons.csv").query("benchmark == 'arithmetic' and policy == 'rft' and K == 2")
    common = compared.family == "regimes against K=0 and GRPO alone"
    entries, shared = (
        sorted(zip(rows.reference, rows.reference_K, strict=True)) for rows in (compared[~common], compared[common])
    )
    assert entries == [("base", 0), ("g2d", 2)]
    assert shared == [("dpo", 0), ("grpo", 4), ("grpo", 4)]
    assert "rft" not in set(pd.read_csv(tables / "ablations.csv").policy)
    billed = pd.read_csv(tables / "cost.csv").query("policy == 'z-one-right'")
    assert list(billed.stage) == ["calibrate", "train_grpo", "harvest_rollouts", "train_rft", "evaluate"]

    record = read_json(project.results / "micro/seed0/rft/g2/k2/policy.json")
    assert record["regime"] == "rft"
    assert record["settings"]["n_completions"] > 0
    paired = read_pairs(project.results / "micro/seed0/harvest/g2/k2/pairs.jsonl")
    record = read_json(project.results / "micro/seed0/chosen/g2/k2/policy.json")
    assert record["settings"]["n_completions"] == len(paired)
    kto_settings = read_json(project.results / "micro/seed0/kto/g2/k2/policy.json")["settings"]
    harvest = pd.read_parquet(project.results / "micro/seed0/harvest/g2/k2/rollouts.parquet")
    drawn = harvest.set_index(["problem_id", "sample"]).completion_ids
    for pair in paired:
        assert pair["chosen_ids"] == [*drawn[pair["problem_id"], pair["chosen_sample"]]]
        assert pair["rejected_ids"] == [*drawn[pair["problem_id"], pair["rejected_sample"]]]
    right, cut = harvest.reward == 1, harvest.finish_reason == "length"
    assert (kto_settings["n_right"], kto_settings["n_wrong"]) == ((right & ~cut).sum(), (~right).sum())
    card = (project.results / "micro/seed0/z-one-right/g2/k2/adapter/README.md").read_text()
    assert "trained with rejection-sampling fine-tuning (`z-one-right`) on right completions harvested after 2" in card
    card = (project.results / "micro/seed0/kto/g2/k2/adapter/README.md").read_text()
    assert "Kahneman-Tversky optimisation (`kto`) on right and wrong rollouts harvested after 2" in card
    assert "rft" in (project.results / "report/index.html").read_text()

    project.configure(changed(micro_config, later=RFT | {"steps": [4]}))
    assert project.planned() == {"train_rft": 1, "evaluate": 1} | SUMMARIES
    project.configure(changed(micro_config, rft=RFT | {"epochs": 2}))
    assert project.planned()["train_rft"] == 3


def test_an_online_entry_is_a_separate_chain_and_can_be_harvested(
    project: Project, micro_config: dict[str, Any]
) -> None:
    folder = project.results / "micro/seed0/semi-online/g4"
    assert read_json(folder / "k4/policy.json")["continued_from"] == 2
    rows = [pd.read_parquet(folder / f"k{k}/rollouts.parquet") for k in (2, 4)]
    assert [sorted(set(part["step"])) for part in rows] == [[1, 2], [3, 4]]
    assert [set(part["generated_at"]) for part in rows] == [{1}, {3}]
    assert [len(part) for part in rows] == [2 * 8 * 4] * 2

    tables = project.results / "tables"
    main = pd.read_csv(tables / "main.csv").query("benchmark == 'arithmetic' and group_size == 4")
    main = main[main.policy.isin(["semi-online", "semi-online/dpo", "grpo"])]
    names = ["semi-online", "semi-online", "semi-online/dpo", "semi-online/dpo"]
    assert list(zip(main.policy, main.K, strict=True)) == [*zip(names, [2, 4, 2, 4], strict=True), ("grpo", 4)]
    billed = pd.read_csv(tables / "cost.csv").query("policy == 'semi-online/dpo' and K == 4")
    stages = ["calibrate", "train_semi_online_dpo", "harvest_rollouts", "train_dpo", "evaluate"]
    assert list(billed.stage) == stages
    tokens = billed.set_index("stage").tokens_generated
    assert tokens["train_semi_online_dpo"] == sum(part["token_count"].sum() for part in rows)
    course = pd.read_csv(tables / "training.csv").query("policy == 'semi-online'")
    stale = course[course.measure == "staleness"]
    assert list(zip(stale.step, stale.value, strict=True)) == [(1, 0), (2, 1), (3, 0), (4, 1)]  # s = 2
    logged = [row for row in metrics(project, "micro/seed0/semi-online/g4/k4") if "entropy" in row]
    entropy = course[course.measure == "entropy"]  # updates without a pair have none
    assert list(entropy.step) == [row["step"] for row in logged]
    assert list(entropy.value) == pytest.approx([row["entropy"] for row in logged], rel=1e-5)
    assert list(entropy.tokens) == pytest.approx([row["num_tokens"] for row in logged], rel=1e-5)
    assert "no_signal" in set(pd.read_csv(tables / "training.csv").query("policy == 'grpo'").measure)
    card = (folder / "k4/adapter/README.md").read_text()
    assert "trained with 4 updates of DPO on its own fresh rollouts (`semi-online`)" in card

    project.configure(changed(micro_config, longer=SEMI_ONLINE | {"steps": [3]}))
    assert project.planned() == {"train_semi_online_dpo": 1, "evaluate": 1} | SUMMARIES
    project.configure(changed(micro_config, **{"semi-online": ENTRIES["semi-online"] | {"steps": [2, 3, 4]}}))
    trained = {"train_semi_online_dpo": 1, "train_dpo": 1, "train_group_dpo": 1}
    assert project.planned() == trained | {"harvest_rollouts": 1, "build_pairs": 1, "evaluate": 3} | SUMMARIES


def test_an_online_entry_starts_from_the_warm_up_or_from_another_entry(
    project: Project, micro_config: dict[str, Any]
) -> None:
    """Costs and tables of two and three stages include all earlier stages."""
    results = project.results
    records = {name: read_json(results / f"micro/seed0/{name}/policy.json") for name in ("second/g4/k4", "third/g4/k2")}
    assert records["second/g4/k4"]["started_from"] == "micro/seed0/grpo/g2/k2"
    assert records["second/g4/k4"]["continued_from"] == 2
    assert records["third/g4/k2"]["started_from"] == "micro/seed0/second/g4/k2"
    assert "started_from" not in read_json(results / "micro/seed0/semi-online/g4/k4/policy.json")
    bill = read_json(results / "micro/seed0/third/g4/k2/cost.json")
    jobs = ["calibration/cost", "seed0/grpo/g2/k2/cost", "seed0/second/g4/k2/cost"]
    assert [record["job"] for record in bill["ancestry"]] == [f"results/micro/{job}" for job in jobs]

    table = pd.read_csv(results / "tables/regimes.csv").query("benchmark == 'arithmetic' and group_size == 4")
    spent = {(row.policy, row.K): row for row in table.itertuples()}
    assert [spent["second", k].prompts for k in (2, 4)] == [16 + 2 * 8, 16 + 4 * 8]
    assert [spent["second", k].updates for k in (2, 4)] == [4, 6]
    third = spent["third", 2]
    assert (third.prompts, third.updates) == (16 + 2 * 8 + 2 * 8, 6)
    parts = ("grpo/g2/k2", "second/g4/k2", "third/g4/k2")
    logs = [pd.read_json(results / f"micro/seed0/{part}/metrics.jsonl", lines=True) for part in parts]
    assert third.tokens_trained == sum(log.num_tokens.max() for log in logs)
    hours = pd.read_csv(results / "tables/frontier.csv").query("benchmark == 'arithmetic' and axis == 'paper_hours'")
    paid = {(row.policy, row.K): row.cost for row in hours.itertuples()}
    assert paid["third", 2] / paid["grpo", 4] == pytest.approx((2 * 16 + 2 * 32 + 2 * 32) / (4 * 16))

    compared = pd.read_csv(results / "tables/comparisons.csv").query("benchmark == 'arithmetic'")
    others = compared[(compared.policy == "third") & ~compared.reference.isin(["base", "dpo", "grpo"])]
    assert sorted(zip(others.reference, others.reference_K, strict=True)) == [("second", 2), ("second", 4)]
    card = (results / "micro/seed0/third/g4/k2/adapter/README.md").read_text()
    sentence = "begun after 2 steps of GRPO and 2 updates of DPO on fresh rollouts"
    assert sentence in " ".join(card.split())

    project.configure(changed(micro_config, second=ENTRIES["second"] | {"beta": 0.2}))
    assert project.planned() == {"train_semi_online_dpo": 3, "evaluate": 3} | SUMMARIES


def test_a_student_depends_on_its_teacher_and_pays_for_it(project: Project, micro_config: dict[str, Any]) -> None:
    results, tables = project.results, project.results / "tables"
    bill = read_json(results / "micro/seed0/student/g2/k2/cost.json")
    jobs = ["calibration", "seed0/grpo/g2/k2", "seed0/harvest/g2/k2", "seed0/dpo/g2/k2"]
    assert [record["job"] for record in bill["ancestry"]] == [f"results/micro/{job}/cost" for job in jobs]
    rows = {}
    for row in pd.read_csv(tables / "regimes.csv").query("benchmark == 'arithmetic'").itertuples():
        rows[row.policy, row.K, row.group_size] = row
    student, teacher = rows["student", 2, 2], rows["g2d", 2, 2]
    steps = metrics(project, "micro/seed0/student/g2/k2")
    assert student.updates == teacher.updates + 2
    assert student.prompts == teacher.prompts + 2 * 8
    assert student.tokens_scored == sum(row["tokens/scored"] for row in steps) == steps[-1]["num_tokens"]
    assert student.tokens_trained == teacher.tokens_trained + steps[-1]["num_tokens"]
    assert student.tokens_generated == teacher.tokens_generated + bill["tokens_generated"]
    compared = pd.read_csv(tables / "comparisons.csv").query("policy == 'student'")
    assert ("g2d", 2) in set(zip(compared.reference, compared.reference_K, strict=True))
    card = (results / "micro/seed0/student/g2/k2/adapter/README.md").read_text()
    assert "2 updates of on-policy distillation (`student`), taught by `dpo` at K=2" in card

    project.configure(changed(micro_config, student=STUDENT | {"teacher_step": 4}))
    assert project.planned() == {"train_distillation": 1, "evaluate": 1} | SUMMARIES
    project.configure(changed(micro_config | {"dpo": micro_config["dpo"] | {"epochs": 2}}))  # the teacher's training
    assert project.planned()["train_distillation"] == 1


def test_an_online_entry_can_stop_early(project: Project) -> None:
    """Its K is then what it took, also for DPO on its harvest, and it may begin after the warm-up."""
    seed = project.results / "micro/seed0"
    record = read_json(seed / "stops/g4/k3/policy.json")
    probes = pd.read_csv(seed / "stops/g4/k3/probes.csv")
    assert record["k"] == probes[probes.chosen].step.item()
    assert record["settings"]["steps_trained"] == probes.step.max()
    assert record["started_from"] == "micro/seed0/grpo/g2/k2"
    assert read_json(seed / "stops/dpo/g4/k3/policy.json")["k"] == record["k"]
    tables = project.results / "tables"
    main = pd.read_csv(tables / "main.csv").query("benchmark == 'arithmetic' and policy in ['stops', 'stops/dpo']")
    assert list(main.K) == [record["k"]] * 2
    spent = pd.read_csv(tables / "regimes.csv").query("benchmark == 'arithmetic' and policy == 'stops'")
    assert spent.prompts.item() == 16 + 8 * record["k"]
    assert spent.updates.item() == 2 + record["k"]


def test_rounds_are_steps_of_the_graph_and_the_first_is_dpo(project: Project, micro_config: dict[str, Any]) -> None:
    seed = project.results / "micro/seed0"
    first, second = (read_json(seed / f"rounds/g0/k{k}/policy.json") for k in (1, 2))
    assert first["weights_sha256"] == read_json(seed / "dpo/g0/k0/policy.json")["weights_sha256"]
    assert second["weights_sha256"] != first["weights_sha256"]
    assert (second["regime"], second["k"], second["settings"]["n_pairs"] > 0) == ("rounds", 2, True)
    harvest = seed / "rounds/harvest/g0/k1"
    assert set(pd.read_parquet(harvest / "rollouts.parquet").policy_id) == {"micro/seed0/rounds/g0/k1"}
    assert read_json(harvest / "informativeness.json")["n_prompts"] == 60

    tables = project.results / "tables"
    billed = pd.read_csv(tables / "cost.csv").query("policy == 'rounds' and K == 2").set_index("stage").n_jobs
    assert dict(billed) == {"calibrate": 1, "harvest_rollouts": 2, "train_iterative_dpo": 2, "evaluate": 1}
    compared = pd.read_csv(tables / "comparisons.csv").query("benchmark == 'arithmetic' and policy == 'rounds'")
    compared = compared[compared.reference != "grpo"]
    others = zip(compared.K, compared.reference, compared.reference_K, strict=True)
    assert sorted(others) == [(1, "base", 0), (1, "dpo", 0), (2, "base", 0), (2, "dpo", 0), (2, "rounds", 1)]
    rows = pd.read_csv(tables / "regimes.csv").query("benchmark == 'arithmetic'").to_dict("records")
    spent = {(row["policy"], row["K"]): row for row in rows}
    assert [spent[at]["prompts"] for at in (("dpo", 0), ("rounds", 1), ("rounds", 2))] == [60, 60, 120]
    steps = [read_json(seed / f"rounds/g0/k{k}/policy.json")["settings"]["gradient_steps"] for k in (1, 2)]
    assert spent["rounds", 2]["updates"] == sum(steps)
    card = (seed / "rounds/g0/k2/adapter/README.md").read_text()
    assert "trained with 2 rounds of harvest and DPO (`rounds`), each from the policy of the round before" in card

    project.configure(changed(micro_config, rounds=ROUNDS | {"rounds": [1, 2, 3]}))
    further = {"train_iterative_dpo": 1, "harvest_rollouts": 1, "build_pairs": 1, "evaluate": 1}
    assert project.planned() == further | SUMMARIES


def test_stages_are_harvests_and_trainings_with_equal_updates_and_completions(
    project: Project, micro_config: dict[str, Any]
) -> None:
    seed = project.results / "micro/seed0/staged"
    n_tokens = {}
    for folder, n in (("1/harvest/g0/k0", 4), ("2/harvest/g0/k0", 2), ("2/harvest/g2/k1", 2)):
        drawn = pd.read_parquet(seed / folder / "rollouts.parquet")
        assert list(drawn.groupby("problem_id").size()) == [n] * 60
        n_tokens[folder] = drawn.token_count.sum()
    policies = {at: read_json(seed / at / "policy.json") for at in ("1/g2/k1", "2/g2/k1", "2/g2/k2")}
    assert [policy["k"] for policy in policies.values()] == [1, 1, 2]
    assert policies["2/g2/k2"]["continued_from"] == 1
    trained = [pd.read_parquet(seed / at / "rollouts.parquet") for at in policies]
    assert [(len(rows), sorted(set(rows.step))) for rows in trained] == [
        *((240, [1, 2, 3, 4]), (120, [1, 2]), (120, [3, 4]))
    ]
    assert [rows.token_count.sum() for rows in trained] == list(n_tokens.values())
    assert (seed / "2/g2/k1/checkpoint").is_dir()

    tables = project.results / "tables"
    billed = pd.read_csv(tables / "cost.csv").query("policy == 'staged/2'").set_index("stage")
    assert dict(billed.n_jobs) == {"calibrate": 1, "harvest_rollouts": 2, "train_staged_grpo": 2, "evaluate": 1}
    assert billed.tokens_generated["train_staged_grpo"] == 0
    assert billed.tokens_generated["harvest_rollouts"] == sum(list(n_tokens.values())[1:])
    stages = pd.read_csv(tables / "stages.csv").query("benchmark == 'arithmetic'")
    assert list(zip(stages.policy, stages.stages, stages.updates, stages.prompts, strict=True))[1:3] == [
        *(("staged/1", 1, 4, 120), ("staged/2", 2, 4, 120))
    ]
    assert list(stages.policy) == ["dpo", "staged/1", "staged/2", "grpo"]
    assert "stages/micro, arithmetic" in (project.results / "report/index.html").read_text()
    card = (seed / "2/g2/k2/adapter/README.md").read_text()
    assert "2 stages of harvest and GRPO (`staged/2`, group size 2)" in " ".join(card.split())

    project.configure(changed(micro_config, staged=STAGED | {"stages": [1, 2, 4]}))
    further = {"train_staged_grpo": 4, "harvest_rollouts": 4, "evaluate": 1}
    assert project.planned() == further | SUMMARIES
    project.configure(changed(micro_config, staged=STAGED | {"negative_veto": None}))
    assert project.planned()["train_staged_grpo"] == 3


def test_an_offline_entry_can_be_trained_on_another_harvest(project: Project) -> None:
    folder = project.results / "micro/seed0/semi-online/all-pairs/g4/k2"
    record = read_json(folder / "policy.json")
    assert record["regime"] == "semi-online/all-pairs"
    assert "harvest" not in record["settings"]["group_dpo"]
    card = (folder / "adapter/README.md").read_text()
    assert "on all pairs of rollouts harvested after 2 updates of DPO on fresh rollouts" in card
    chosen = project.results / "micro/seed0/hot/hot-chosen/g2/k2"
    assert "harvested after 2 steps of GRPO" in (chosen / "adapter/README.md").read_text()
    tables = project.results / "tables"
    billed = pd.read_csv(tables / "cost.csv").query("policy == 'semi-online/all-pairs' and K == 2")
    stages = ["calibrate", "train_semi_online_dpo", "harvest_rollouts", "train_group_dpo", "evaluate"]
    assert list(billed.stage) == stages
    spent = pd.read_csv(tables / "regimes.csv").query("benchmark == 'arithmetic' and K == 2").set_index("policy")
    assert spent.prompts["semi-online/all-pairs"] == 2 * 8 + 60
    assert spent.prompts["hot/hot-chosen"] == 2 * 8 + 60
    assert spent.prompts["semi-online"] == 2 * 8


def test_an_extrapolated_policy_is_harvested_and_trained_on(project: Project, micro_config: dict[str, Any]) -> None:
    seed, tables = project.results / "micro/seed0", project.results / "tables"
    trained = {k: read_json(seed / f"grpo/g2/k{k}/policy.json") for k in (2, 4)}
    near, far = (read_json(seed / f"{name}/policy.json") for name in ("near/g2/k4", "far/g2/k6"))
    assert (near["k"], far["k"], far["settings"]["extrapolated"]) == (4, 6, {"from": [2, 4]})
    assert far["weights_sha256"] != trained[4]["weights_sha256"]
    scaled, whole, last = (
        load_file(seed / f"{name}/adapter/adapter_model.safetensors")
        for name in ("near/g2/k4", "far/g2/k6", "grpo/g2/k2")
    )
    for name, weights in scaled.items():
        assert torch.equal(weights, last[name] * (2 if ".lora_B." in name else 1))
        assert sorted(whole[name].shape)[0] == 2 * sorted(weights.shape)[0]
    harvest = seed / "far/harvest/g2/k6"
    assert set(pd.read_parquet(harvest / "rollouts.parquet").policy_id) == {"micro/seed0/far/g2/k6"}
    dpo = read_json(seed / "far/dpo/g2/k6/policy.json")
    assert dpo["settings"]["n_pairs"] == len(read_pairs(harvest / "pairs.jsonl"))
    assert read_json(seed / "far/far-chosen/g2/k6/policy.json")["started_from"] == "micro/seed0/far/g2/k6"

    billed = pd.read_csv(tables / "cost.csv").query("policy == 'far/dpo'")
    stages = ["calibrate", "train_grpo", "train_extrapolated", "harvest_rollouts", "train_dpo", "evaluate"]
    assert list(billed.stage) == stages
    assert billed.set_index("stage").n_jobs["train_grpo"] == 2
    spent = pd.read_csv(tables / "regimes.csv").query("benchmark == 'arithmetic' and group_size == 2")
    spent = spent.set_index(["policy", "K"])
    assert (spent.prompts["near", 4], spent.updates["near", 4]) == (16, 2)
    assert (spent.prompts["far", 6], spent.updates["far", 6]) == (32, 4)
    assert spent.prompts["far/dpo", 6] == 32 + 60

    (row,) = pd.read_csv(tables / "extrapolation.csv").to_dict("records")  # only GRPO's last K is evaluated, K=4
    main = pd.read_csv(tables / "main.csv").query("group_size == 2").set_index(["policy", "K"])
    assert (row["policy"], row["K"], row["last_trained"]) == ("near", 4, 2)
    assert (row["accuracy"], row["trained"]) == (main.accuracy["near", 4], main.accuracy["grpo", 4])
    compared = pd.read_csv(tables / "comparisons.csv").query("policy == 'near' and reference == 'grpo'")
    assert row["difference"] == compared.difference.iloc[0]
    linearity = pd.read_csv(tables / "linearity.csv")
    assert list(zip(linearity.group_size, linearity.K, linearity.n_checkpoints, strict=True)) == [(2, 4, 3)]
    assert linearity.linear.between(0, 1).all()
    page = unescape((project.results / "report/index.html").read_text())
    assert "near (K=4), extrapolated from K=2, is" in page
    card = (seed / "far/dpo/g2/k6/adapter/README.md").read_text()
    assert "harvested after 6 steps of GRPO, extrapolated from K=4" in card

    project.configure(changed(micro_config, far=FAR | {"to": [6, 8]}))
    assert project.planned()["train_extrapolated"] == 1
    project.configure(changed(micro_config, far=FAR | {"from": [0, 4]}))
    assert project.planned()["train_extrapolated"] == 1


def test_the_grid_has_an_entry_at_its_k(micro_config: dict[str, Any]) -> None:
    policies = grid.policies(load(with_entries(micro_config, rft=RFT | {"steps": [4, 0]})))
    entries = [key for key in policies if key.role == "entry"]
    assert [(key.folder, key.kind) for key in entries] == [
        ("micro/seed0/rft/g0/k0", "rft"),
        ("micro/seed0/rft/g2/k4", "rft"),
    ]
    assert entries[1].reference == PolicyKey("micro", "dpo", 2, 4, 0)
    assert entries[1].reference.label == "g2d"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "regimes.x.regime: missing"),
        ({"regime": "rtf"}, "regimes.x.regime: "),
        (RFT | {"step": [2]}, "regimes.x.step: unknown key; did you mean steps?"),
        (RFT | {"steps": [3]}, "regimes.x.steps: K=3 is not in warmup.steps [0, 2, 4] of micro"),
        (RFT | {"steps": []}, "regimes.x.steps: "),
        (RFT | {"steps": [2, 2]}, "regimes.x.steps: "),
        (RFT | {"examples": "chosen", "per_prompt": 1}, "regimes.x.per_prompt: "),
        (RFT | {"steps": [0], "start": "warmup"}, "regimes.x.steps: at K=0 "),
        (RFT | {"harvest": "nobody"}, "regimes.x.harvest: nobody "),
        (RFT | {"harvest": "ipo"}, "regimes.x.harvest: ipo "),
        (RFT | {"harvest": "x"}, "regimes.x.harvest: x "),
        (RFT | {"harvest": "other", "steps": [3]}, "regimes.x.steps: K=3 is not in steps of other [2, 4] of micro"),
        (KTO | {"per_device_batch_size": 1}, "regimes.x.per_device_batch_size: "),
        (KTO | {"balance": 0.9}, "regimes.x.balance: "),
        (KTO | {"examples": "chosen"}, "regimes.x.examples: unknown key"),
        (SEMI_ONLINE | {"prompts_per_update": 61}, "regimes.x.prompts_per_update=61 exceeds training_set.n=60"),
        (SEMI_ONLINE | {"sync_every": "pass"}, "regimes.x.sync_every: pass: training_set.n=60 of micro"),
        (SEMI_ONLINE | {"reference": "sync"}, "regimes.x.reference: sync: with lora.dropout=0.05 of micro"),
        (SEMI_ONLINE | {"temperature": 0.7}, "regimes.x: temperature: "),
        (SEMI_ONLINE | {"responses": 1}, "regimes.x.responses"),
        (SEMI_ONLINE | {"start": "warmup"}, "regimes.x: start_step: missing"),
        (SEMI_ONLINE | {"start": "warmup", "start_step": 3}, "regimes.x.start_step: K=3 is not in warmup.steps"),
        (SEMI_ONLINE | {"start": "other", "start_step": 3}, "regimes.x.start_step: K=3 is not in steps of other"),
        (SEMI_ONLINE | {"start": "nobody", "start_step": 2}, "regimes.x.start: nobody "),
        (SEMI_ONLINE | {"start": "rft", "start_step": 2}, "regimes.x.start: rft "),
        (SEMI_ONLINE | {"start": "x", "start_step": 2}, "regimes.x.start: x from x: "),
        (SEMI_ONLINE | {"start": "after", "start_step": 2}, "regimes.x.start: x from after from x: "),
        (SEMI_ONLINE | {"start": "stops", "start_step": 4}, "regimes.x.start: stops "),
        (STUDENT | {"teacher": "nobody"}, "regimes.x.teacher: nobody "),
        (STUDENT | {"teacher_step": 3}, "regimes.x.teacher_step: dpo has no K=3 for micro: choose from [0, 2, 4]"),
        (STUDENT | {"teacher": "x"}, "regimes.x.teacher: x "),
        (STUDENT | {"teacher": "after/dpo"}, "regimes.x.teacher: after/dpo "),
        (FAR | {"from": [0, 3]}, "regimes.x.from: K=3 is not in warmup.steps [0, 2, 4] of micro"),
        (FAR | {"from": [4, 2]}, "regimes.x: from: "),
        (FAR | {"from": [2]}, "regimes.x: from: "),
        (FAR | {"to": [3]}, "regimes.x: to: K=3 is not beyond from: [2, 4]"),
    ],
)
def test_a_mistake_in_an_entry_is_named(micro_config: dict[str, Any], entry: dict[str, Any], message: str) -> None:
    entries = {"x": entry, "other": SEMI_ONLINE, "rft": RFT}
    entries["stops"] = SEMI_ONLINE | {"steps": [4], "auto": {"every": 1, "prompts": 9}}
    if entry.get("start") == "after" or entry.get("regime") == "distillation":
        entries["after"] = SEMI_ONLINE | {"start": "x", "start_step": 2, "policies": ["dpo"]}
    with pytest.raises(ConfigError, match=re.escape(message)):
        load(with_entries(micro_config, **entries))


def test_only_a_chain_is_extrapolated(micro_config: dict[str, Any]) -> None:
    warmup = {"warmup": micro_config["warmup"] | {"schedule": "per_k"}}
    with pytest.raises(ConfigError, match=r"regimes.x: warmup.schedule: per_k "):
        load(with_entries(micro_config, x=FAR) | warmup)


@pytest.mark.parametrize("name", ["dpo", "GRPO", "ipo", "Ipo"])
def test_the_name_of_a_stage_or_of_an_ablation_is_refused(micro_config: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=f"regimes.{name}: "):
        load(with_entries(micro_config, **{name: RFT}))


def test_a_harvest_of_before_has_no_tokens_and_is_trained_on_as_text(project: Project) -> None:
    """Nothing is drawn again, pairs are the same, and regimes train on it. The last test: it changes the harvest."""
    folder = project.results / "micro/seed0/harvest/g2/k2"
    paired = read_pairs(folder / "pairs.jsonl")
    pd.read_parquet(folder / "rollouts.parquet").drop(columns=list(OF_TOKENS)).to_parquet(folder / "rollouts.parquet")
    (project.results / "digests/harvest_rollouts/micro/seed0/g2/k2.sha256").unlink()  # 0.1.0 left none
    trained = [f"results/micro/seed0/{name}/g2/k2/policy.json" for name in ("kto", "chosen")]
    assert project.planned(*trained) == {"build_pairs": 1, "train_kto": 1, "train_rft": 1}
    project.build(*trained, "--quiet", "rules")
    made = ("chosen_ids", "rejected_ids")  # tokens of the text may differ from those drawn
    for pair, before in zip(read_pairs(folder / "pairs.jsonl"), paired, strict=True):
        assert pair.keys() == before.keys()
        assert all(pair[name] == before[name] for name in pair.keys() - made)  # type: ignore[literal-required]


TOY = '''
"""Fine-tuning on the shortest right completion of every prompt."""

from typing import Any, Literal

from g2d.regimes.run.microbatches import MicroBatches, longest
from g2d.regimes.run.job import Trained, TrainingJob
from g2d.regimes.offline.training import read_harvest, train_offline
from g2d.regimes.regime import OfflineEntry, Regime
from g2d.settings import key


class Toy(OfflineEntry):
    """Fine-tuning on the shortest right completion of every prompt."""

    regime: Literal["toy"] = key(..., "Fine-tune on the shortest right completions.")
    epochs: int = key(1, "Passes over them.", ge=1)
    max_steps: int | None = key(None, "Gradient steps.", ge=1)
    learning_rate: float = key(5e-5, "Peak learning rate.", gt=0)
    lr_schedule: Literal["cosine", "linear", "constant"] = key("cosine", "Learning-rate schedule.")
    per_device_batch_size: int = key(4, "Completions per device and accumulation step.", ge=1)
    gradient_accumulation_steps: int = key(1, "Accumulation steps per gradient step.", ge=1)


def read(job: TrainingJob, inputs: Any) -> list[dict[str, Any]]:
    rollouts, _ = read_harvest(job, inputs)
    right = rollouts[rollouts["reward"] == 1].sort_values(["token_count", "sample"]).groupby("problem_id").head(1)
    drawn = zip(right["prompt_ids"], right["completion_ids"], strict=True)
    rows = [(asked.tolist(), answered.tolist()) for asked, answered in drawn]
    return [{"input_ids": asked + answered, "labels": [-100] * len(asked) + answered} for asked, answered in rows]


def train(job: TrainingJob) -> Trained:
    def trainer(arguments: dict[str, Any], microbatches: MicroBatches, **parts: Any) -> Any:
        from trl import SFTConfig, SFTTrainer

        return SFTTrainer(args=SFTConfig(**arguments, packing=False), **parts)

    lengths = longest([], (row["input_ids"] for row in job.data))
    parts = {"data": {"rows": job.data}, "statistics": {"n_completions": len(job.data)}, "lengths": lengths}
    return train_offline("toy", job, job.data, trainer=trainer, **parts)


TOY = Regime(
    name="toy",
    version=1,
    phase="offline",
    consumes="rollouts",
    settings=Toy,
    read=read,
    train=train,
    label="toy",
    card="Fine-tuning ({regime}) on the shortest right completions harvested {harvested}",
    message="Fine-tune {wildcards.model} on the shortest right completions at K={wildcards.k}",
)
'''
CATALOGUE = "src/g2d/regimes/catalogue.py"


def test_a_further_regime_is_a_module_and_a_line(project: Project, micro_config: dict[str, Any]) -> None:
    """The steps of CONTRIBUTING.md: the workflow trains it by the rule of all offline regimes."""
    module, folder = project.root / "src/g2d/regimes/toy.py", "results/micro/seed0/toy/g2/k2"
    project.configure(changed(micro_config, toy={"regime": "toy", "steps": [2]}))
    module.write_text(TOY)
    line = "from g2d.regimes.on_policy.semi_online_dpo import SEMI_ONLINE_DPO\n"
    try:
        with (
            project.edited(CATALOGUE, line, line + "from g2d.regimes.toy import TOY\n"),
            project.edited(CATALOGUE, "STAGED_GRPO)", "STAGED_GRPO, TOY)"),
        ):
            planned = project.snakemake("-n", "--quiet", "rules")
            assert re.search(r"^train_toy +1$", planned.stdout, re.M), planned.stdout
            built = project.build(f"{folder}/policy.json")
            assert "Fine-tune micro on the shortest right completions at K=2" in built
    finally:
        module.unlink()
    record = read_json(project.root / folder / "policy.json")
    assert (record["regime"], record["k"]) == ("toy", 2)
    assert record["settings"]["toy"]["epochs"] == 1
    assert record["settings"]["n_completions"] > 0
    assert (project.root / folder / "adapter/adapter_model.safetensors").is_file()
    shutil.rmtree((project.root / folder).parents[1])
