"""Entries of `regimes`: further ways to train on the harvests of a finished grid."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
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
from tests.workflow.test_grid import SUMMARIES, metrics

RFT = {"regime": "rft", "learning_rate": 5e-4, "epochs": 1}


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
ENTRIES = {
    "rft": RFT,
    "z-one-right": RFT | {"per_prompt": 1, "steps": [2], "start": "warmup"},
    "chosen": RFT | {"examples": "chosen", "steps": [2]},
    "semi-online": SEMI_ONLINE,
    "second": SEMI_ONLINE | {"start": "warmup", "start_step": 2, "reference": "start"},
    "third": SEMI_ONLINE | {"start": "second", "start_step": 2, "steps": [2]},
    "all-pairs": SEMI_ONLINE | {"pairs": "all", "steps": [2]},
}
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
    trained = {"train_rft": 5, "train_grpo": 1, "train_semi_online_dpo": 6}
    assert planned == trained | {"evaluate": 12} | SUMMARIES
    assert project.planned() == {}


def test_an_entry_on_the_harvests_of_the_grid(project: Project, micro_config: dict[str, Any]) -> None:
    tables = project.results / "tables"
    main = pd.read_csv(tables / "main.csv").query("benchmark == 'arithmetic'")
    of_entries = ["chosen", "rft", "rft", "rft", "z-one-right"]
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
    billed = pd.read_csv(tables / "cost.csv").query("policy == 'z-one-right'")
    assert list(billed.stage) == ["calibrate", "train_grpo", "harvest_rollouts", "train_rft", "evaluate"]

    record = read_json(project.results / "micro/seed0/rft/g2/k2/policy.json")
    assert record["regime"] == "rft"
    assert record["settings"]["n_completions"] > 0
    paired = read_pairs(project.results / "micro/seed0/harvest/g2/k2/pairs.jsonl")
    record = read_json(project.results / "micro/seed0/chosen/g2/k2/policy.json")
    assert record["settings"]["n_completions"] == len(paired)
    harvest = pd.read_parquet(project.results / "micro/seed0/harvest/g2/k2/rollouts.parquet")
    drawn = harvest.set_index(["problem_id", "sample"]).completion_ids
    for pair in paired:
        assert pair["chosen_ids"] == [*drawn[pair["problem_id"], pair["chosen_sample"]]]
        assert pair["rejected_ids"] == [*drawn[pair["problem_id"], pair["rejected_sample"]]]
    card = (project.results / "micro/seed0/z-one-right/g2/k2/adapter/README.md").read_text()
    assert "trained with rejection-sampling fine-tuning (`z-one-right`) on right completions harvested after 2" in card
    assert "rft" in (project.results / "report/index.html").read_text()

    project.configure(changed(micro_config, later=RFT | {"steps": [4]}))
    assert project.planned() == {"train_rft": 1, "evaluate": 1} | SUMMARIES
    project.configure(changed(micro_config, rft=RFT | {"epochs": 2}))
    assert project.planned()["train_rft"] == 3


def test_an_online_entry_is_a_separate_chain(project: Project, micro_config: dict[str, Any]) -> None:
    folder = project.results / "micro/seed0/semi-online/g4"
    assert read_json(folder / "k4/policy.json")["continued_from"] == 2
    rows = [pd.read_parquet(folder / f"k{k}/rollouts.parquet") for k in (2, 4)]
    assert [sorted(set(part["step"])) for part in rows] == [[1, 2], [3, 4]]
    assert [set(part["generated_at"]) for part in rows] == [{1}, {3}]
    assert [len(part) for part in rows] == [2 * 8 * 4] * 2

    tables = project.results / "tables"
    main = pd.read_csv(tables / "main.csv").query("benchmark == 'arithmetic' and group_size == 4")
    main = main[main.policy.isin(["semi-online", "grpo"])]
    assert list(zip(main.policy, main.K, strict=True)) == [("semi-online", 2), ("semi-online", 4), ("grpo", 4)]
    billed = pd.read_csv(tables / "cost.csv").query("policy == 'semi-online' and K == 4")
    assert list(billed.stage) == ["calibrate", "train_semi_online_dpo", "evaluate"]
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
    project.configure(changed(micro_config, **{"semi-online": SEMI_ONLINE | {"steps": [2, 3, 4]}}))
    assert project.planned() == {"train_semi_online_dpo": 1, "evaluate": 1} | SUMMARIES


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

    table = pd.read_csv(results / "tables/main.csv").query("benchmark == 'arithmetic' and group_size == 4")
    spent = {(row.policy, row.K): row for row in table.itertuples()}
    assert [spent["second", k].updates for k in (2, 4)] == [4, 6]
    third = spent["third", 2]
    assert third.updates == 6
    assert third.tokens_generated == bill["tokens_generated"] + sum(job["tokens_generated"] for job in bill["ancestry"])

    compared = pd.read_csv(results / "tables/comparisons.csv").query("benchmark == 'arithmetic'")
    others = compared[(compared.policy == "third") & ~compared.reference.isin(["base", "dpo", "grpo"])]
    assert sorted(zip(others.reference, others.reference_K, strict=True)) == [("second", 2), ("second", 4)]
    card = (results / "micro/seed0/third/g4/k2/adapter/README.md").read_text()
    sentence = "begun after 2 steps of GRPO and 2 updates of DPO on fresh rollouts"
    assert sentence in " ".join(card.split())

    project.configure(changed(micro_config, second=ENTRIES["second"] | {"beta": 0.2}))
    assert project.planned() == {"train_semi_online_dpo": 3, "evaluate": 3} | SUMMARIES


def test_the_grid_has_an_entry_at_its_k(micro_config: dict[str, Any]) -> None:
    policies = Grid(load(with_entries(micro_config, rft=RFT | {"steps": [4, 0]}))).policies
    entries = [key for key in policies if key.role == "entry"]
    assert [(key.folder, key.method) for key in entries] == [
        ("micro/seed0/rft/g0/k0", "rft"),
        ("micro/seed0/rft/g2/k4", "rft"),
    ]


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
        (SEMI_ONLINE | {"examples": "chosen"}, "regimes.x.examples: unknown key"),
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


def test_a_harvest_without_tokens_is_refused_with_a_way_out(project: Project) -> None:
    """A file of 0.1.0."""
    file = project.results / "micro/seed0/harvest/g2/k2/rollouts.parquet"
    digest = project.results / "digests/harvest_rollouts/micro/seed0/g2/k2.sha256"
    before = (file.read_bytes(), digest.read_bytes())
    pd.read_parquet(file).drop(columns=list(OF_TOKENS)).to_parquet(file)
    digest.unlink()
    trained = [f"results/micro/seed0/{name}/g2/k2/policy.json" for name in ("rft", "chosen")]
    done = project.snakemake("--cores", "2", "--keep-going", *trained, "--quiet", "rules")
    file.write_bytes(before[0])
    digest.write_bytes(before[1])
    assert done.returncode != 0
    for rule in ("build_pairs", "train_rft"):
        refused = rf"{rule}: .*g2/k2/rollouts.parquet: has no sampled tokens.* delete it to have it drawn again"
        assert re.search(refused, done.stdout), done.stdout


TOY = '''
"""Fine-tuning on the shortest right completion of every prompt."""

from typing import Any, Literal

from g2d.regimes.run.microbatches import MicroBatches, longest
from g2d.regimes.run.job import Trained, TrainingJob
from g2d.regimes.run.offline import read_harvest, train_offline
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

        from g2d.regimes.run.checkpoints import Checkpointed

        class ToyTrainer(Checkpointed, SFTTrainer): ...

        return ToyTrainer(args=SFTConfig(**arguments, packing=False), **parts)

    lengths = longest([], (row["input_ids"] for row in job.data))
    parts = {"data": {"rows": job.data}, "statistics": {"n_completions": len(job.data)}, "lengths": lengths}
    return train_offline("toy", job, job.data, trainer=trainer, **parts)


TOY = Regime(
    name="toy",
    version=1,
    phase="offline",
    settings=Toy,
    read=read,
    train=train,
    label="toy",
    card="Fine-tuning ({regime}) on the shortest right completions harvested {harvested}",
)
'''
RULE = """

use rule train_rft as train_toy with:
    input:
        base_files,
        rollouts="results/{model}/seed{seed}/harvest/g{g}/k{k}/rollouts.parquet",
        problems="results/{model}/calibration/train.jsonl",
        costs="results/{model}/seed{seed}/harvest/g{g}/k{k}/cost.json",
        base="results/{model}/base/policy.json",
    output:
        policy=f"{OF_ENTRY}/policy.json",
        weights=f"{OF_ENTRY}/{WEIGHTS}",
        weights_config=f"{OF_ENTRY}/{WEIGHTS_CONFIG}",
        metrics=f"{OF_ENTRY}/metrics.jsonl",
        cost=f"{OF_ENTRY}/cost.json",
    log:
        "results/logs/train_toy/{model}/seed{seed}/{regime}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_toy/{model}/seed{seed}/{regime}/g{g}/k{k}.tsv"
    wildcard_constraints:
        regime=names(GRID.names_of("toy")),
    params:
        version=VERSIONS["train_toy"],
        settings=training_settings,
    message:
        "Fine-tune {wildcards.model} on the shortest right completions at K={wildcards.k}"
"""
LAST_LINES = """"Fine-tune {wildcards.model} on the right completions at K={wildcards.k} ({wildcards.regime}), "
        "G={wildcards.g}, seed {wildcards.seed}"
"""
CATALOGUE, RULES = "src/g2d/regimes/catalogue.py", "workflow/rules/offline.smk"


def test_a_further_regime_is_a_module_a_line_and_a_rule(project: Project, micro_config: dict[str, Any]) -> None:
    """The steps of CONTRIBUTING.md."""
    module, folder = project.root / "src/g2d/regimes/toy.py", "results/micro/seed0/toy/g2/k2"
    project.configure(changed(micro_config, toy={"regime": "toy", "steps": [2]}))
    module.write_text(TOY)
    line = "from g2d.regimes.on_policy.semi_online_dpo import SEMI_ONLINE_DPO\n"
    try:
        with (
            project.edited(CATALOGUE, line, line + "from g2d.regimes.toy import TOY\n"),
            project.edited(CATALOGUE, "DPO, RFT)", "DPO, RFT, TOY)"),
            project.edited(RULES, LAST_LINES, LAST_LINES + RULE),
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
