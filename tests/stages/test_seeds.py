"""Every training has the seed of its policy."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.iocontainers import InputFiles

from g2d.checks.load import load
from g2d.grid.grid import Grid
from g2d.jobs.cost import Meter
from g2d.policies.record import PolicyRecord, write_policy
from g2d.regimes.catalogue import REGIMES
from g2d.stages.train_policy import _job
from tests.configs import MINIMAL

CONFIG: dict[str, Any] = MINIMAL | {
    "seeds": [5, 3, 8],
    "warmup": {"steps": [0, 2]},
    "ablations": {"apart": {"steps": "all", "warmup": {"beta": 0.1}, "policies": ["grpo", "dpo"]}},
    "regimes": {
        "rft": {"regime": "rft", "steps": [2]},
        "online": {"regime": "semi_online_dpo", "steps": [2]},
    },
}


@pytest.fixture
def seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The seed of each training's job, by the folder of its policy."""
    monkeypatch.chdir(tmp_path)
    Path("demo/base").mkdir(parents=True)
    write_policy("demo/base/policy.json", PolicyRecord("demo/base", "demo", "base", base="m"))
    grid = Grid(load(CONFIG))
    snakemake = SimpleNamespace(
        input=InputFiles(fromdict={"base": "demo/base/policy.json"}), params=SimpleNamespace(version=1), threads=1
    )
    made: dict[str, int] = {}
    for policy in grid.trained:
        job = _job(snakemake, grid, policy, {}, work=tmp_path, meter=Meter("tests", "train"))
        made[policy.folder] = job.seed
    return made


def test_every_training_has_the_seed_of_its_folder(seeds: dict[str, int]) -> None:
    for policy, seed in seeds.items():
        assert policy.split("/")[1] == f"seed{seed}"
    assert {*seeds.values()} == {5, 3, 8}
    assert {name for name in REGIMES if any(f"/{name}/" in policy for policy in seeds)} >= {"grpo", "dpo", "rft"}
