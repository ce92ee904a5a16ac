"""Entries of `regimes`: further ways to train on the harvests of a finished grid."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from g2d.experiment import grid
from g2d.experiment.config import load
from g2d.experiment.keys import PolicyKey
from g2d.jobs.files import read_json
from g2d.rollouts.pairs import read_pairs
from g2d.settings import ConfigError
from tests.workflow.conftest import Project
from tests.workflow.test_grid import OF_REGIMES as SUMMARIES
from tests.workflow.test_grid import metrics

RFT = {"regime": "rft", "learning_rate": 5e-4, "epochs": 1}
KTO = {"regime": "kto", "learning_rate": 5e-4, "per_device_batch_size": 16}


def with_entries(config: dict[str, Any], **entries: Any) -> dict[str, Any]:
    return config | {"regimes": entries}


def test_an_entry_of_a_finished_grid_trains_and_evaluates_its_own_policies_alone(
    own_micro_grid: Project, micro_config: dict[str, Any]
) -> None:
    entries = {
        "rft": RFT,
        "z-one-right": RFT | {"per_prompt": 1, "steps": [2], "start": "warmup"},
        "chosen": RFT | {"examples": "chosen", "steps": [2]},
        "group-dpo": {"regime": "group_dpo", "steps": [2], "epochs": 1},
        "kto": KTO | {"steps": [2]},
    }
    own_micro_grid.configure(with_entries(micro_config, **entries))
    assert (
        own_micro_grid.planned() == {"train_rft": 5, "train_kto": 1, "train_group_dpo": 1, "evaluate": 14} | SUMMARIES
    )
    own_micro_grid.build("--quiet", "rules")

    tables = own_micro_grid.results / "tables"
    main = pd.read_csv(tables / "main.csv").query("benchmark == 'arithmetic'")
    of_entries = ["chosen", "group-dpo", "kto", "rft", "rft", "rft", "z-one-right"]
    assert list(main.policy) == ["base", "dpo", "g2d", "g2d", *of_entries, "grpo", "grpo"]
    assert list(main[main.policy == "rft"].K) == [0, 2, 4]
    compared = pd.read_csv(tables / "comparisons.csv").query("benchmark == 'arithmetic' and policy == 'rft' and K == 2")
    assert sorted(zip(compared.reference, compared.reference_K, strict=True)) == [("base", 0), ("g2d", 2)]
    assert "rft" not in set(pd.read_csv(tables / "ablations.csv").policy)
    billed = pd.read_csv(tables / "cost.csv").query("policy == 'z-one-right'")
    assert list(billed.stage) == ["calibrate", "train_grpo", "harvest_rollouts", "train_rft", "evaluate"]

    record = read_json(own_micro_grid.results / "micro/seed0/rft/g2/k2/policy.json")
    assert record["regime"] == "rft"
    assert record["settings"]["n_completions"] > 0
    paired = read_pairs(own_micro_grid.results / "micro/seed0/harvest/g2/k2/pairs.jsonl")
    record = read_json(own_micro_grid.results / "micro/seed0/chosen/g2/k2/policy.json")
    assert record["settings"]["n_completions"] == len(paired)
    found = read_json(own_micro_grid.results / "micro/seed0/kto/g2/k2/policy.json")["settings"]
    harvest = pd.read_parquet(own_micro_grid.results / "micro/seed0/harvest/g2/k2/rollouts.parquet")
    right, cut = harvest.reward == 1, harvest.finish_reason == "length"
    assert (found["n_right"], found["n_wrong"]) == ((right & ~cut).sum(), (~right).sum())
    card = (own_micro_grid.results / "micro/seed0/z-one-right/g2/k2/adapter/README.md").read_text()
    assert "trained with rejection-sampling fine-tuning (`z-one-right`) on right completions harvested after 2" in card
    said = (own_micro_grid.results / "methods.md").read_text()
    sentence = "Z-one-right (K=2): rejection-sampling fine-tuning of the warmed-up policy on up to 1 different right"
    assert sentence in said.replace("\\", "")
    assert "Kto (K=2): Kahneman-Tversky optimisation of a fresh copy of M0 on all rollouts" in said
    assert "fresh copy of M0 on the chosen completion of every preference pair (1 epochs, " in said
    card = (own_micro_grid.results / "micro/seed0/kto/g2/k2/adapter/README.md").read_text()
    assert "Kahneman-Tversky optimisation (`kto`) on right and wrong rollouts harvested after 2" in card
    assert "rft" in (own_micro_grid.results / "report/index.html").read_text()

    own_micro_grid.configure(with_entries(micro_config, **entries, later=RFT | {"steps": [4]}))
    assert own_micro_grid.planned() == {"train_rft": 1, "evaluate": 2} | SUMMARIES
    own_micro_grid.configure(with_entries(micro_config, **(entries | {"rft": RFT | {"epochs": 2}})))
    assert own_micro_grid.planned()["train_rft"] == 3


SEMI_ONLINE = {
    "regime": "semi_online_dpo",
    "steps": [2, 4],
    "sync_every": 2,
    "responses": 4,
    "prompts_per_update": 8,
    "max_completion_length": 24,
    "learning_rate": 1e-3,
}


def test_an_online_entry_is_a_chain_of_its_own_and_can_be_harvested(
    own_micro_grid: Project, micro_config: dict[str, Any]
) -> None:
    entries = {"semi-online": SEMI_ONLINE | {"policies": ["online", "dpo"]}}
    own_micro_grid.configure(with_entries(micro_config, **entries))
    trained = {"train_semi_online_dpo": 2, "harvest_rollouts": 2, "build_pairs": 2, "train_dpo": 2, "evaluate": 8}
    assert own_micro_grid.planned() == trained | SUMMARIES
    own_micro_grid.build("--quiet", "rules")

    folder = own_micro_grid.results / "micro/seed0/semi-online/g4"
    assert read_json(folder / "k4/policy.json")["continued_from"] == 2
    rows = [pd.read_parquet(folder / f"k{k}/rollouts.parquet") for k in (2, 4)]
    assert [sorted(set(part["step"])) for part in rows] == [[1, 2], [3, 4]]
    assert [set(part["generated_at"]) for part in rows] == [{1}, {3}]
    assert [len(part) for part in rows] == [2 * 8 * 4] * 2

    tables = own_micro_grid.results / "tables"
    main = pd.read_csv(tables / "main.csv").query("benchmark == 'arithmetic' and group_size == 4")
    own = ["semi-online", "semi-online", "semi-online/dpo", "semi-online/dpo"]
    assert list(zip(main.policy, main.K, strict=True)) == [*zip(own, [2, 4, 2, 4], strict=True), ("grpo", 4)]
    billed = pd.read_csv(tables / "cost.csv").query("policy == 'semi-online/dpo' and K == 4")
    stages = ["calibrate", "train_semi_online_dpo", "harvest_rollouts", "train_dpo", "evaluate"]
    assert list(billed.stage) == stages
    tokens = billed.set_index("stage").tokens_generated
    assert tokens["train_semi_online_dpo"] == sum(part["token_count"].sum() for part in rows)
    course = pd.read_csv(tables / "training.csv").query("policy == 'semi-online'")
    stale = course[course.measure == "staleness"]
    assert list(zip(stale.step, stale.value, strict=True)) == [(1, 0), (2, 1), (3, 0), (4, 1)]  # s = 2
    logged = [row for row in metrics(own_micro_grid, "micro/seed0/semi-online/g4/k4") if "entropy" in row]
    entropy = course[course.measure == "entropy"]  # nothing of an update without a pair
    assert list(entropy.step) == [row["step"] for row in logged]
    assert list(entropy.value) == pytest.approx([row["entropy"] for row in logged], rel=1e-5)
    assert list(entropy.tokens) == pytest.approx([row["num_tokens"] for row in logged], rel=1e-5)
    assert "no_signal" in set(pd.read_csv(tables / "training.csv").query("policy == 'grpo'").measure)
    card = (folder / "k4/adapter/README.md").read_text()
    assert "trained with 4 updates of DPO on its own fresh rollouts (`semi-online`)" in card
    said = (own_micro_grid.results / "methods.md").read_text().replace("\\", "")
    assert "Semi-online (K=2, 4): DPO on one pair of 4 rollouts of each of 8 prompts per update, drawn by" in said

    own_micro_grid.configure(with_entries(micro_config, **entries, longer=SEMI_ONLINE | {"steps": [3]}))
    assert own_micro_grid.planned() == {"train_semi_online_dpo": 1, "evaluate": 2} | SUMMARIES
    further = entries["semi-online"] | {"steps": [2, 3, 4]}
    own_micro_grid.configure(with_entries(micro_config, **{"semi-online": further}))
    changed = {"train_semi_online_dpo": 1, "harvest_rollouts": 1, "build_pairs": 1, "train_dpo": 1, "evaluate": 4}
    assert own_micro_grid.planned() == changed | SUMMARIES


def test_an_online_entry_starts_from_the_warm_up_or_from_another_entry(
    own_micro_grid: Project, micro_config: dict[str, Any]
) -> None:
    """Two and three stages, each with updates of its own; the bill and the tables have all that came before."""
    entries = {
        "second": SEMI_ONLINE | {"start": "warmup", "start_step": 2, "reference": "start"},
        "third": SEMI_ONLINE | {"start": "second", "start_step": 2, "steps": [2]},
        "alone": SEMI_ONLINE | {"steps": [4]},
    }
    own_micro_grid.configure(with_entries(micro_config, **entries))
    assert own_micro_grid.planned() == {"train_semi_online_dpo": 4, "evaluate": 8} | SUMMARIES
    own_micro_grid.build("--quiet", "rules")

    results = own_micro_grid.results
    records = {name: read_json(results / f"micro/seed0/{name}/policy.json") for name in ("second/g4/k4", "third/g4/k2")}
    assert records["second/g4/k4"]["started_from"] == "micro/seed0/grpo/g2/k2"
    assert records["second/g4/k4"]["continued_from"] == 2
    assert records["third/g4/k2"]["started_from"] == "micro/seed0/second/g4/k2"
    assert "started_from" not in read_json(results / "micro/seed0/alone/g4/k4/policy.json")
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
    others = compared[(compared.policy == "third") & (compared.reference != "base")]
    assert sorted(zip(others.reference, others.reference_K, strict=True)) == [("second", 2), ("second", 4)]
    card = (results / "micro/seed0/third/g4/k2/adapter/README.md").read_text()
    said = "begun after 2 steps of GRPO and 2 updates of DPO on fresh rollouts"
    assert said in " ".join(card.split())
    methods = (results / "methods.md").read_text().replace("\\", "")
    assert "Second (K=2, 4, from the warm-up at K=2 with a new optimizer and schedule): DPO on one pair" in methods

    own_micro_grid.configure(with_entries(micro_config, **(entries | {"second": entries["second"] | {"beta": 0.2}})))
    assert own_micro_grid.planned() == {"train_semi_online_dpo": 3, "evaluate": 6} | SUMMARIES


def test_an_online_entry_can_stop_by_itself(own_micro_grid: Project, micro_config: dict[str, Any]) -> None:
    """Its K is then what it took, also for DPO on its harvest, and it may begin after the warm-up."""
    stops = {"auto": {"every": 1, "prompts": 20, "patience": 1}, "steps": [3], "policies": ["online", "dpo"]}
    entries = {"stops": SEMI_ONLINE | stops | {"start": "warmup", "start_step": 2}}
    own_micro_grid.configure(with_entries(micro_config, **entries))
    trained = {"train_semi_online_dpo_auto": 1, "harvest_rollouts": 1, "build_pairs": 1, "train_dpo": 1, "evaluate": 4}
    assert own_micro_grid.planned() == trained | SUMMARIES
    own_micro_grid.build("--quiet", "rules")

    seed = own_micro_grid.results / "micro/seed0"
    record = read_json(seed / "stops/g4/k3/policy.json")
    probes = pd.read_csv(seed / "stops/g4/k3/probes.csv")
    assert record["k"] == probes[probes.chosen].step.item()
    assert record["settings"]["steps_trained"] == probes.step.max()
    assert record["started_from"] == "micro/seed0/grpo/g2/k2"
    assert read_json(seed / "stops/dpo/g4/k3/policy.json")["k"] == record["k"]
    tables = own_micro_grid.results / "tables"
    main = pd.read_csv(tables / "main.csv").query("benchmark == 'arithmetic' and policy in ['stops', 'stops/dpo']")
    assert list(main.K) == [record["k"]] * 2
    spent = pd.read_csv(tables / "regimes.csv").query("benchmark == 'arithmetic' and policy == 'stops'")
    assert spent.prompts.item() == 16 + 8 * record["k"]
    assert spent.updates.item() == 2 + record["k"]
    said = (own_micro_grid.results / "methods.md").read_text()
    assert "Every 1 updates the first 20 training prompts were sampled as in the harvest" in said
    assert own_micro_grid.planned() == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"start": "warmup", "start_step": 3},
            r"regimes.x.start_step: K=3 is not in warmup.steps \[0, 2, 4\] of micro",
        ),
        ({"start": "other", "start_step": 3}, r"regimes.x.start_step: K=3 is not in steps of other \[2, 4\] of micro"),
        (
            {"start": "nobody", "start_step": 2},
            "regimes.x.start: nobody is no entry of regimes that is trained on fresh",
        ),
        ({"start": "rft", "start_step": 2}, "regimes.x.start: rft is no entry of regimes that is trained on fresh"),
        ({"start": "x", "start_step": 2}, "regimes.x.start: x from x: start one of them from base or warmup"),
        ({"start": "round", "start_step": 2}, "regimes.x.start: x from round from x: start one of them from base or"),
        ({"start": "stops", "start_step": 4}, "regimes.x.start: stops stops by itself, at a K that is not known: name"),
        ({"start": "warmup"}, "regimes.x: start_step: missing: say which K of warmup to start from"),
    ],
)
def test_a_start_that_is_not_there_is_named(
    micro_config: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    entries = {"x": SEMI_ONLINE | changes, "other": SEMI_ONLINE, "rft": RFT}
    entries["stops"] = SEMI_ONLINE | {"steps": [4], "auto": {"every": 1, "prompts": 9}}
    if changes["start"] == "round":
        entries["round"] = SEMI_ONLINE | {"start": "x", "start_step": 2}
    with pytest.raises(ConfigError, match=message):
        load(with_entries(micro_config, **entries))


def test_an_offline_entry_can_be_trained_on_another_harvest(
    own_micro_grid: Project, micro_config: dict[str, Any]
) -> None:
    ablations = {"hot": {"steps": [2], "warmup": {"temperature": 1.1}, "policies": ["grpo"]}}
    entries = {
        "online": SEMI_ONLINE | {"steps": [2]},
        "all-pairs": {"regime": "group_dpo", "epochs": 1, "harvest": "online", "start": "warmup"},
        "rft": RFT | {"examples": "chosen", "harvest": "hot"},
    }
    own_micro_grid.configure(with_entries(micro_config | {"ablations": ablations}, **entries))
    trained = {"train_semi_online_dpo": 1, "train_grpo": 1, "train_group_dpo": 1, "train_rft": 1}
    harvested = {"harvest_rollouts": 2, "build_pairs": 1}
    assert own_micro_grid.planned() == trained | harvested | {"evaluate": 8} | SUMMARIES
    own_micro_grid.build("--quiet", "rules")

    folder = own_micro_grid.results / "micro/seed0/online/all-pairs/g4/k2"
    record = read_json(folder / "policy.json")
    assert record["regime"] == "online/all-pairs"
    assert "harvest" not in record["settings"]["group_dpo"]
    card = (folder / "adapter/README.md").read_text()
    assert "on all pairs of rollouts harvested after 2 updates of DPO on fresh rollouts" in card
    chosen = own_micro_grid.results / "micro/seed0/hot/rft/g2/k2"
    assert "harvested after 2 steps of GRPO" in (chosen / "adapter/README.md").read_text()
    said = (own_micro_grid.results / "methods.md").read_text().replace("\\", "")
    assert "All-pairs (every K of online): GroupDPO of the warmed-up policy on all pairs" in said
    tables = own_micro_grid.results / "tables"
    billed = pd.read_csv(tables / "cost.csv").query("policy == 'online/all-pairs'")
    stages = ["calibrate", "train_semi_online_dpo", "harvest_rollouts", "train_group_dpo", "evaluate"]
    assert list(billed.stage) == stages
    spent = pd.read_csv(tables / "regimes.csv").query("benchmark == 'arithmetic'").set_index("policy")
    assert spent.prompts["online/all-pairs"] == 2 * 8 + 60
    assert spent.prompts["hot/rft"] == 2 * 8 + 60
    assert spent.prompts["online"] == 2 * 8


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (RFT | {"harvest": "nobody"}, "regimes.x.harvest: nobody is neither an ablation with a warm-up of its own nor"),
        (RFT | {"harvest": "ipo"}, "regimes.x.harvest: ipo is neither an ablation with a warm-up of its own nor"),
        (RFT | {"harvest": "x"}, "regimes.x.harvest: x is neither an ablation with a warm-up of its own nor"),
        (
            RFT | {"harvest": "online", "steps": [3]},
            r"regimes.x.steps: K=3 is not in steps of online \[2, 4\] of micro",
        ),
    ],
)
def test_a_harvest_that_is_not_there_is_named(
    micro_config: dict[str, Any], entry: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(with_entries(micro_config, online=SEMI_ONLINE, x=entry))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompts_per_update": 61}, "regimes.x.prompts_per_update=61 exceeds training_set.n=60 of micro: lower it"),
        ({"sync_every": "pass"}, "regimes.x.sync_every: pass: training_set.n=60 of micro is no multiple of"),
        ({"reference": "sync"}, "regimes.x.reference: sync: with lora.dropout=0.05 of micro the policy differs"),
        ({"temperature": 0.7}, "regimes.x: temperature: rollouts drawn at 0.7"),
        ({"responses": 1}, "regimes.x.responses"),
    ],
)
def test_a_mistake_in_an_online_entry_is_named(
    micro_config: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(with_entries(micro_config, x=SEMI_ONLINE | changes))


def test_the_grid_has_an_entry_at_its_k(micro_config: dict[str, Any]) -> None:
    found = grid.policies(load(with_entries(micro_config, rft=RFT | {"steps": [4, 0]})))
    own = [key for key in found if key.role == "entry"]
    assert [(key.folder, key.kind) for key in own] == [
        ("micro/seed0/rft/g0/k0", "rft"),
        ("micro/seed0/rft/g2/k4", "rft"),
    ]
    assert own[1].reference == PolicyKey("micro", "dpo", 2, 4, 0)
    assert own[1].reference.label == "g2d"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "regimes.rft.regime: missing; add this key"),
        ({"regime": "rtf"}, "regimes.rft.regime: "),
        (RFT | {"step": [2]}, "regimes.rft.step: unknown key; did you mean steps?"),
        (RFT | {"steps": [3]}, r"regimes.rft.steps: K=3 is not in warmup.steps \[0, 2, 4\] of micro"),
        (RFT | {"steps": []}, "regimes.rft.steps: list every K once"),
        (RFT | {"steps": [2, 2]}, "regimes.rft.steps: list every K once"),
        (RFT | {"examples": "chosen", "per_prompt": 1}, "regimes.rft.per_prompt: a prompt has one chosen completion"),
        (
            KTO | {"per_device_batch_size": 1},
            "regimes.rft.per_device_batch_size: input should be greater than or equal",
        ),
        (KTO | {"balance": 0.9}, "regimes.rft.balance: input should be greater than or equal to 1, not 0.9"),
        (KTO | {"examples": "chosen"}, "regimes.rft.examples: unknown key"),
        (RFT | {"steps": [0], "start": "warmup"}, "regimes.rft.steps: at K=0 there is no warm-up to start from"),
    ],
)
def test_a_mistake_in_an_entry_is_named(micro_config: dict[str, Any], entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(with_entries(micro_config, rft=entry))


@pytest.mark.parametrize(
    ("name", "taken"), [("dpo", "a stage"), ("GRPO", "a stage"), ("ipo", "an ablation"), ("Ipo", "an ablation")]
)
def test_a_name_that_is_taken_is_refused(micro_config: dict[str, Any], name: str, taken: str) -> None:
    with pytest.raises(ConfigError, match=f"regimes.{name}: the name is taken by {taken}"):
        load(with_entries(micro_config, **{name: RFT}))
