"""Costs behind a policy, and comparisons of entries; every number worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from g2d.checks.load import read
from g2d.grid.grid import Grid
from g2d.grid.runs import OnlineRun, Policy, Run
from g2d.jobs.cost import Cost
from g2d.regimes.on_policy.semi_online_dpo import SemiOnlineDpo
from g2d.tables.families import comparison_table
from g2d.tables.trainings import calibration_hours, spent_on

from .test_tables import solved

MICRO = Path(__file__).parents[1] / "workflow/micro.yaml"


def test_tokens_and_steps_of_all_trainings_behind_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = read(MICRO)
    [key] = [key for key in Grid(config).policies if (key.run_name, key.k) == ("dpo", 4)]
    for folder, row in (
        ("results/micro/seed0/grpo/g2/k2", '{"step": 2, "num_tokens": 90.0}'),
        (
            "results/micro/seed0/grpo/g2/k4",
            '{"step": 3, "num_tokens": 150.0, "pairs": 0}\n{"step": 4, "num_tokens": 200.0, "pairs": 2}',
        ),
        (f"results/{key.folder}", '{"step": 7, "num_tokens": 1000.0}'),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "metrics.jsonl").write_text(f"{row}\n")
    jobs = [
        ("calibrate", "results/micro/calibration/cost", 5),
        ("train_grpo", "results/micro/seed0/grpo/g2/k2/cost", 7),
        ("train_grpo", "results/micro/seed0/grpo/g2/k4/cost", 11),
        ("harvest_rollouts", "results/micro/seed0/harvest/g2/k4/cost", 13),
        ("train_dpo", f"results/{key.folder}/cost", 0),
    ]
    bill = [Cost(job, name, 1.0, 1.0, 1, "cpu", 1.0, tokens, 1, None) for name, job, tokens in jobs]
    assert spent_on(bill) == {"tokens_generated": 36, "updates": 11}
    assert calibration_hours(bill) == 1 / 3600
    (tmp_path / f"results/{key.folder}/metrics.jsonl").write_text("\n")  # a training on a harvest without pairs
    assert spent_on(bill) == {"tokens_generated": 36, "updates": 4}


def test_online_entries_are_compared_with_those_before_them_at_the_same_k_and_g() -> None:
    def entry(name: str, k: int, group_size: int = 8, kind: str = "semi_online_dpo") -> Policy:
        run = Run(name, kind, "entry")
        if kind == "semi_online_dpo":
            settings = SemiOnlineDpo(regime="semi_online_dpo", steps=[10, 20])
            run = OnlineRun(name, kind, "entry", settings=settings)
        return Policy("m", run, group_size, k, 0)

    base = Policy("m")
    keys = [entry("s1", 10), entry("s1", 20), entry("s10", 10), entry("s10", 20), entry("never", 20)]
    keys += [entry("narrow", 20, 4), entry("s1/dpo", 20, kind="dpo"), entry("rft", 20, kind="rft")]
    table = comparison_table({(key, "id"): solved(2) for key in [base, *keys]})
    against_entries = table[table.reference != "base"]
    assert against_entries[["policy", "K", "reference"]].to_numpy().tolist() == [
        ["s10", 10, "s1"],
        ["s10", 20, "s1"],
        ["never", 20, "s1"],
        ["never", 20, "s10"],
    ]
    assert set(table[table.reference == "base"].policy) == {key.run_name for key in keys}
