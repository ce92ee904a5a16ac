"""Entries of `regimes`: further ways to train on the harvests of a finished grid."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pandas as pd
import pytest

from g2d.checks.load import load
from g2d.grid.grid import Grid
from g2d.jobs.files import read_json
from g2d.rollouts.pairs import read_pairs
from g2d.rollouts.rollout import OF_TOKENS
from g2d.settings import ConfigError
from tests.workflow.conftest import Project, copy_of_micro
from tests.workflow.micro import RFT, SEMI_ONLINE, SUMMARIES, metrics, on_one

ENTRIES = {
    "rft": RFT,
    "z-after-warmup": RFT | {"steps": [2], "start": "warmup"},
    "chosen": RFT | {"examples": "chosen", "steps": [2]},
    "semi-online": SEMI_ONLINE,
    "second": SEMI_ONLINE | {"start": "warmup", "start_step": 2, "reference": "start"},
    "third": SEMI_ONLINE | {"start": "second", "start_step": 2, "steps": [2]},
}


def with_entries(config: dict[str, Any], **entries: Any) -> dict[str, Any]:
    return config | {"regimes": entries}


def extended_by(config: dict[str, Any], **entries: Any) -> dict[str, Any]:
    """The configuration of the extended grid with further or changed entries."""
    return with_entries(config | on_one(config), **(ENTRIES | entries))


@pytest.fixture(scope="module")
def extended(micro_config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, dict[str, int]]:
    """The finished grid with entries of every kind, and the added jobs."""
    project = copy_of_micro(micro_config, tmp_path_factory.mktemp("regimes") / "g2d")
    return project, project.extended(extended_by(micro_config))


@pytest.fixture
def project(extended: tuple[Project, dict[str, int]], micro_config: dict[str, Any]) -> Iterator[Project]:
    """The extended grid, with its configuration restored after a test."""
    yield extended[0]
    extended[0].configure(extended_by(micro_config))


@pytest.fixture
def seed0(project: Project) -> Path:
    """The folder of its policies."""
    return project.results / "micro/seed0"


def table(project: Project, name: str, query: str) -> pd.DataFrame:
    return pd.read_csv(project.results / f"tables/{name}.csv").query(query)


def references(rows: pd.DataFrame) -> list[tuple[str, int]]:
    """The policies, with their K, that rows of comparisons compare with."""
    return sorted(zip(rows["reference"], rows["reference_K"], strict=True))


def test_only_jobs_of_the_entries_run(extended: tuple[Project, dict[str, int]]) -> None:
    _, planned = extended
    assert planned == {"train_rft": 5, "train_semi_online_dpo": 5, "evaluate": 10} | SUMMARIES


def test_a_finished_grid_with_entries_has_nothing_left_to_do(project: Project) -> None:
    assert project.planned() == {}


# ------------------------------------------------------------------------------------------------- on a harvest


def test_an_entry_is_at_every_k_of_the_warm_up_unless_it_says_which(project: Project) -> None:
    rows = table(project, "main", "policy in ['rft', 'chosen', 'z-after-warmup']")
    policies = list(zip(rows["policy"], rows["K"], strict=True))
    assert policies == [("chosen", 2), ("rft", 0), ("rft", 2), ("rft", 4), ("z-after-warmup", 2)]


def test_entries_are_between_g2d_and_grpo_in_table_1(project: Project) -> None:
    policies = table(project, "main", "policy in ['dpo', 'g2d', 'chosen', 'rft', 'z-after-warmup', 'grpo']")["policy"]
    assert list(policies.unique()) == ["dpo", "g2d", "chosen", "rft", "z-after-warmup", "grpo"]


def test_an_entry_is_compared_with_m0_and_with_g2d_at_its_k(project: Project) -> None:
    rows = table(project, "comparisons", "policy == 'rft' and K == 2")
    assert {("base", 0), ("g2d", 2)} <= set(references(rows))


def test_an_entry_is_compared_with_k_0_and_grpo_alone_by_exploratory_tests(project: Project) -> None:
    rows = table(project, "comparisons", "policy == 'rft' and K == 2")
    assert sorted(references(rows)) == [("base", 0), ("dpo", 0), ("g2d", 2), ("grpo", 4), ("grpo", 4)]
    assert set(rows["family"]) == {"exploratory"}


def test_an_entry_pays_for_the_warm_up_and_the_harvest(project: Project) -> None:
    cost = table(project, "cost", "policy == 'z-after-warmup'")
    assert list(cost["stage"]) == ["calibrate", "train_grpo", "harvest_rollouts", "train_rft", "evaluate"]


def test_rft_records_its_regime_and_number_of_completions(seed0: Path) -> None:
    record = read_json(seed0 / "rft/g2/k2/policy.json")
    assert record["regime"] == "rft"
    assert record["statistics"]["n_completions"] > 0


def test_rft_on_chosen_completions_has_one_per_pair(seed0: Path) -> None:
    pairs = read_pairs(seed0 / "harvest/g2/k2/pairs.jsonl")
    record = read_json(seed0 / "chosen/g2/k2/policy.json")
    assert record["statistics"]["n_completions"] == len(pairs)


def test_pairs_have_the_tokens_that_were_drawn(seed0: Path) -> None:
    harvest = pd.read_parquet(seed0 / "harvest/g2/k2/rollouts.parquet")
    drawn = harvest.set_index(["problem_id", "sample"])["completion_ids"]
    for pair in read_pairs(seed0 / "harvest/g2/k2/pairs.jsonl"):
        assert pair["chosen_ids"] == list(drawn[pair["problem_id"], pair["chosen_sample"]])
        assert pair["rejected_ids"] == list(drawn[pair["problem_id"], pair["rejected_sample"]])


def test_a_further_entry_trains_only_its_policies(project: Project, micro_config: dict[str, Any]) -> None:
    project.configure(extended_by(micro_config, later=RFT | {"steps": [4]}))
    assert project.planned() == {"train_rft": 1, "evaluate": 1} | SUMMARIES


def test_a_changed_entry_is_trained_again_at_each_k(project: Project, micro_config: dict[str, Any]) -> None:
    project.configure(extended_by(micro_config, rft=RFT | {"epochs": 2}))
    assert project.planned()["train_rft"] == 3


def test_a_harvest_without_tokens_is_refused_with_a_way_out(project: Project, tmp_path: Path) -> None:
    damaged = project.copied(tmp_path / "g2d")
    file = damaged.results / "micro/seed0/harvest/g2/k2/rollouts.parquet"
    pd.read_parquet(file).drop(columns=list(OF_TOKENS)).to_parquet(file)
    (damaged.results / "digests/harvest_rollouts/micro/seed0/g2/k2.sha256").unlink()
    trained = ["results/micro/seed0/rft/g2/k2/policy.json", "results/micro/seed0/chosen/g2/k2/policy.json"]
    refusal = damaged.refused("--cores", "2", "--keep-going", *trained, "--quiet", "rules")
    for rule in ("build_pairs", "train_rft"):
        reason = rf"{rule}: .*g2/k2/rollouts.parquet: has no sampled tokens.* delete it to have it drawn again"
        assert re.search(reason, refusal), refusal


# ------------------------------------------------------------------------------------------------------- online


def test_an_online_entry_continues_its_smaller_k(seed0: Path) -> None:
    assert read_json(seed0 / "semi-online/g4/k4/policy.json")["continued_from"] == 2


@pytest.mark.parametrize(("k", "steps", "generated_at"), [(2, {1, 2}, {1}), (4, {3, 4}, {3})])
def test_each_k_has_the_rollouts_of_its_updates(seed0: Path, k: int, steps: set[int], generated_at: set[int]) -> None:
    rollouts = pd.read_parquet(seed0 / f"semi-online/g4/k{k}/rollouts.parquet")
    assert set(rollouts["step"]) == steps
    assert set(rollouts["generated_at"]) == generated_at  # sync_every is 2
    assert len(rollouts) == 2 * 8 * 4  # updates, prompts, responses


def test_an_online_entry_is_in_table_1_at_its_k(project: Project) -> None:
    rows = table(project, "main", "policy == 'semi-online'")
    assert list(rows["K"]) == [2, 4]
    assert list(rows["group_size"]) == [4, 4]


def test_an_online_entry_pays_for_no_warm_up(project: Project) -> None:
    cost = table(project, "cost", "policy == 'semi-online' and K == 4")
    assert list(cost["stage"]) == ["calibrate", "train_semi_online_dpo", "evaluate"]


def test_an_online_entry_pays_for_the_rollouts_of_all_its_updates(project: Project, seed0: Path) -> None:
    [cost] = table(
        project, "cost", "policy == 'semi-online' and K == 4 and stage == 'train_semi_online_dpo'"
    ).itertuples()
    first = pd.read_parquet(seed0 / "semi-online/g4/k2/rollouts.parquet")
    second = pd.read_parquet(seed0 / "semi-online/g4/k4/rollouts.parquet")
    assert cost.tokens_generated == first["token_count"].sum() + second["token_count"].sum()


def test_the_training_table_has_the_staleness_of_each_update(project: Project) -> None:
    rows = table(project, "training", "policy == 'semi-online' and measure == 'staleness'")
    assert list(rows["step"]) == [1, 2, 3, 4]
    assert list(rows["value"]) == [0, 1, 0, 1]  # sync_every is 2


def test_the_training_table_has_the_entropies_and_tokens_that_were_logged(project: Project) -> None:
    rows = table(project, "training", "policy == 'semi-online' and measure == 'entropy'")
    logged = pd.DataFrame(metrics(project, "micro/seed0/semi-online/g4/k4"))
    logged = logged.dropna(subset="entropy")  # others had no pair
    assert list(rows["step"]) == list(logged["step"])
    assert list(rows["value"]) == pytest.approx(list(logged["entropy"]), rel=1e-5)
    assert list(rows["tokens"]) == pytest.approx(list(logged["num_tokens"]), rel=1e-5)


def test_the_training_table_has_groups_without_signal_of_grpo(project: Project) -> None:
    assert "no_signal" in set(table(project, "training", "policy == 'grpo'")["measure"])


def test_another_online_entry_trains_a_policy_of_its_own(project: Project, micro_config: dict[str, Any]) -> None:
    project.configure(extended_by(micro_config, longer=SEMI_ONLINE | {"steps": [3]}))
    assert project.planned() == {"train_semi_online_dpo": 1, "evaluate": 1} | SUMMARIES


def test_a_k_between_two_others_trains_only_that_k(project: Project, micro_config: dict[str, Any]) -> None:
    project.configure(extended_by(micro_config, **{"semi-online": SEMI_ONLINE | {"steps": [2, 3, 4]}}))
    assert project.planned() == {"train_semi_online_dpo": 1, "evaluate": 1} | SUMMARIES


# ------------------------------------------------------------------------- online, from another trained policy


@pytest.mark.parametrize(
    ("policy", "start"),
    [
        ("second/g4/k4", "micro/seed0/grpo/g2/k2"),
        ("third/g4/k2", "micro/seed0/second/g4/k2"),
        ("semi-online/g4/k4", None),
    ],
)
def test_the_record_names_the_policy_that_a_training_starts_from(seed0: Path, policy: str, start: str | None) -> None:
    assert read_json(seed0 / policy / "policy.json").get("started_from") == start


def test_an_entry_that_starts_from_a_policy_continues_its_smaller_k(seed0: Path) -> None:
    assert read_json(seed0 / "second/g4/k4/policy.json")["continued_from"] == 2


def test_the_third_stage_pays_for_the_two_before_it(seed0: Path) -> None:
    calibration, first, second = read_json(seed0 / "third/g4/k2/cost.json")["ancestry"]
    assert calibration["job"] == "results/micro/calibration/cost"
    assert first["job"] == "results/micro/seed0/grpo/g2/k2/cost"
    assert second["job"] == "results/micro/seed0/second/g4/k2/cost"


def test_table_1_counts_the_updates_of_all_stages(project: Project) -> None:
    rows = table(project, "main", "policy in ['second', 'third']")
    updates = list(zip(rows["policy"], rows["K"], rows["updates"], strict=True))
    assert updates == [("second", 2, 4), ("second", 4, 6), ("third", 2, 6)]


def test_table_1_counts_the_tokens_of_all_stages(project: Project, seed0: Path) -> None:
    cost = read_json(seed0 / "third/g4/k2/cost.json")
    earlier = sum(record["tokens_generated"] for record in cost["ancestry"])
    [row] = table(project, "main", "policy == 'third'").itertuples()
    assert row.tokens_generated == cost["tokens_generated"] + earlier


def test_an_entry_is_compared_with_the_entry_that_it_starts_from(project: Project) -> None:
    rows = table(project, "comparisons", "policy == 'third' and reference not in ['base', 'dpo', 'grpo']")
    assert references(rows) == [("second", 2), ("second", 4)]


def test_a_changed_entry_trains_the_entries_after_it_again(project: Project, micro_config: dict[str, Any]) -> None:
    project.configure(extended_by(micro_config, second=ENTRIES["second"] | {"beta": 0.2}))
    assert project.planned() == {"train_semi_online_dpo": 3, "evaluate": 3} | SUMMARIES


# ----------------------------------------------------------------------------------------------- configuration


def test_the_grid_has_an_entry_at_its_k(micro_config: dict[str, Any]) -> None:
    policies = Grid(load(with_entries(micro_config, rft=RFT | {"steps": [4, 0]}))).policies
    first, second = [policy for policy in policies if policy.role == "entry"]
    assert (first.folder, first.method) == ("micro/seed0/rft/g0/k0", "rft")
    assert (second.folder, second.method) == ("micro/seed0/rft/g2/k4", "rft")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "regimes.x.regime: missing"),
        ({"regime": "rtf"}, "regimes.x.regime: "),
        (RFT | {"step": [2]}, "regimes.x.step: unknown key; did you mean steps?"),
        (RFT | {"steps": [3]}, "regimes.x.steps: K=3 is not in warmup.steps [0, 2, 4] of micro"),
        (RFT | {"steps": []}, "regimes.x.steps: "),
        (RFT | {"steps": [2, 2]}, "regimes.x.steps: "),
        (RFT | {"steps": [0], "start": "warmup"}, "regimes.x.steps: at K=0 "),
        (SEMI_ONLINE | {"examples": "chosen"}, "regimes.x.examples: unknown key"),
        (SEMI_ONLINE | {"prompts_per_update": 61}, "regimes.x.prompts_per_update=61 exceeds training_set.n=60"),
        (SEMI_ONLINE | {"sync_every": "pass"}, "regimes.x.sync_every: pass: training_set.n=60 of micro"),
        (SEMI_ONLINE | {"reference": "sync"}, "regimes.x.reference: sync: with lora.dropout=0.05 of micro"),
        (SEMI_ONLINE | {"responses": 1}, "regimes.x.responses"),
        (SEMI_ONLINE | {"start": "warmup"}, "regimes.x: start_step: missing"),
        (SEMI_ONLINE | {"start": "warmup", "start_step": 3}, "regimes.x.start_step: K=3 is not in warmup.steps"),
        (SEMI_ONLINE | {"start": "other", "start_step": 3}, "regimes.x.start_step: K=3 is not in steps of other"),
        (SEMI_ONLINE | {"start": "nobody", "start_step": 2}, "regimes.x.start: nobody "),
        (SEMI_ONLINE | {"start": "rft", "start_step": 2}, "regimes.x.start: rft "),
        (SEMI_ONLINE | {"start": "x", "start_step": 2}, "regimes.x.start: x from x: "),
        (SEMI_ONLINE | {"start": "after", "start_step": 2}, "regimes.x.start: x from after from x: "),
    ],
)
def test_a_mistake_in_an_entry_is_named(micro_config: dict[str, Any], entry: dict[str, Any], message: str) -> None:
    entries = {"x": entry, "other": SEMI_ONLINE, "rft": RFT}
    if entry.get("start") == "after":
        entries["after"] = SEMI_ONLINE | {"start": "x", "start_step": 2}
    with pytest.raises(ConfigError, match=re.escape(message)):
        load(with_entries(micro_config, **entries))


@pytest.mark.parametrize("name", ["dpo", "GRPO", "ipo", "Ipo"])
def test_the_name_of_a_stage_or_of_an_ablation_is_refused(micro_config: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=f"regimes.{name}: "):
        load(with_entries(micro_config, **{name: RFT}))


# ---------------------------------------------------------------------------------------------- a regime of one's own

CATALOGUE = "src/g2d/regimes/catalogue.py"
RULES = "workflow/rules/offline.smk"
IMPORT = "from g2d.regimes.offline.simpo import SIMPO\n\n"


def documented() -> tuple[str, str]:
    """The module and the rule of the example in CONTRIBUTING.md."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    example = text.partition("## Adding a regime")[2]
    module, rule = re.findall(r"^ *```python\n(.*?)^ *```$", example, re.M | re.S)[:2]
    return module, "\n\n" + dedent(rule)


@pytest.fixture
def with_module(project: Project, micro_config: dict[str, Any]) -> Iterator[Project]:
    """The extended grid with the module of SimPO, neither in the catalogue nor with a rule."""
    module = project.root / "src/g2d/regimes/offline/simpo.py"
    module.write_text(documented()[0])
    yield project
    module.unlink()


def in_catalogue(project: Project) -> AbstractContextManager[None]:
    return project.edited(CATALOGUE, "ALL = (\n", IMPORT + "ALL = (\n    SIMPO,\n")


def with_rule(project: Project) -> AbstractContextManager[None]:
    rules = (project.root / RULES).read_text()
    return project.edited(RULES, rules, rules + documented()[1])


def test_a_further_regime_is_a_module_a_line_and_a_rule(with_module: Project, micro_config: dict[str, Any]) -> None:
    """The steps of CONTRIBUTING.md."""
    project = with_module
    folder = "results/micro/seed0/simpo/g2/k2"
    project.configure(extended_by(micro_config, simpo={"regime": "simpo", "steps": [2]}))
    with in_catalogue(project), with_rule(project):
        planned = project.snakemake("-n", "--quiet", "rules")
        assert re.search(r"^train_simpo +1$", planned.stdout, re.M), planned.stdout
        project.build(f"{folder}/policy.json")
    record = read_json(project.root / folder / "policy.json")
    assert (record["regime"], record["k"]) == ("simpo", 2)
    assert record["settings"]["simpo"]["gamma"] == 1
    assert record["statistics"]["n_pairs"] > 0
    assert (project.root / folder / "adapter/adapter_model.safetensors").is_file()
    shutil.rmtree((project.root / folder).parents[1])


def test_a_rule_of_a_regime_that_is_not_in_the_catalogue_is_refused(with_module: Project) -> None:
    with with_rule(with_module):
        refusal = with_module.refused("-n")
    assert "train_simpo: src/g2d/regimes/catalogue.py has no regime simpo: add it to ALL there" in refusal


def test_a_regime_without_a_rule_is_refused(with_module: Project) -> None:
    with in_catalogue(with_module):
        refusal = with_module.refused("-n")
    assert "simpo: no rule trains this regime" in refusal
    assert "add train_simpo to workflow/rules/offline.smk" in refusal
