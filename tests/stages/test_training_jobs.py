"""The job of each training runs with the settings of its policy, which are params of its rule, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.iocontainers import InputFiles

from g2d.checks.load import read
from g2d.grid.grid import Grid
from g2d.grid.runs import OfflineRun, OnlineRun, Policy
from g2d.jobs.cost import Meter
from g2d.policies.record import PolicyRecord, write_policy
from g2d.regimes.catalogue import REGIMES
from g2d.regimes.common.checkpoints import MANIFEST, job_key
from g2d.regimes.common.prompt_choice import PromptMix
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.grpo.keys import Warmup
from g2d.rewards.registry import TRUTH
from g2d.stages.train_policy import _job
from tests.configs import CONFIG

BASE = "results/demo/base/policy.json"


@pytest.fixture
def job_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Grid, Policy], TrainingJob]:
    """Make the job of a policy of its params, as its script does."""
    monkeypatch.chdir(tmp_path)
    Path(BASE).parent.mkdir(parents=True)
    write_policy(BASE, PolicyRecord("demo/base", "demo", "base", base="m"))

    def make(grid: Grid, policy: Policy) -> TrainingJob:
        settings = grid.settings_of(policy)
        assert json.loads(json.dumps(settings)) == settings  # policy.json has the same
        machine = grid.job_settings[policy.model].machine(policy)
        snakemake = SimpleNamespace(
            input=InputFiles(fromdict={"base": BASE}),
            output=SimpleNamespace(policy=f"results/{policy.folder}/policy.json"),
            params=SimpleNamespace(version=1, settings=settings, machine=machine),
            wildcards={"seed": str(policy.seed), "g": str(policy.group_size), "k": str(policy.k)},
            threads=1,
        )
        return _job(snakemake, work=tmp_path, meter=Meter("tests", "train"))

    return make


@pytest.mark.parametrize("file", sorted(CONFIG.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_job_has_the_sections_of_its_policy(file: Path, job_of: Callable[[Grid, Policy], TrainingJob]) -> None:
    """So two policies have the same params only if their sections are the same."""
    grid = Grid(read(file))
    for policy in grid.trained:
        job = job_of(grid, policy)
        keys: Any = job.settings
        run = policy.run
        sections = grid.settings[policy.model]
        assert isinstance(run, OnlineRun | OfflineRun)
        assert isinstance(job.settings, REGIMES[run.method].settings)
        assert keys.params() == run.settings_at(policy.group_size, policy.k).params()
        assert keys.per_device_batch_size == run.settings.per_device_batch_size
        assert getattr(keys, "batch_size", None) == getattr(run.settings, "batch_size", None)
        assert (job.lora, job.prompt, job.engine) == (sections.lora, sections.prompt, sections.engine)
        assert (job.seed, job.k, job.group_size) == (policy.seed, policy.k, policy.group_size)
        assert job.policy_id == policy.folder
        if isinstance(run, OnlineRun):
            assert job.reward == (grid.job_settings[policy.model].reward_for(run) or TRUTH)
        if isinstance(run.settings, Warmup):
            assert job.prompt_mix.params() == run.prompt_mix.params(only={*PromptMix.model_fields})
            assert keys.workload(policy.group_size).update == run.settings.workload(policy.group_size).update
        if run.stops and isinstance(run, OnlineRun):
            assert job.harvest == sections.harvest


# ----------------------------------------------------------------------------------------------- the key of checkpoints

Change = dict[str, Any]


@pytest.fixture
def key_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, object]]:
    monkeypatch.chdir(tmp_path)
    inputs = {"base": "m0.json", "problems": ["a.jsonl", "b.jsonl"], "checkpoint": ["before"], "costs": "cost.json"}
    Path("before").mkdir()
    for file in ("m0.json", "a.jsonl", "b.jsonl", "cost.json", f"before/{MANIFEST}", "before/optimizer.pt"):
        Path(file).write_text(file)

    def key(**changes: Any) -> dict[str, object]:
        values: Change = {"version": 1, "settings": {"warmup": {"beta": 0.1}}, "machine": {}}
        values |= {"seed": "0", "g": "2", "k": "4"} | changes
        params = SimpleNamespace(version=values["version"], settings=values["settings"], machine=values["machine"])
        return job_key(params, values, InputFiles(fromdict=inputs))

    return key


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"settings": {"warmup": {"beta": 0.2}}}, {"seed": "1"}, {"g": "4"}, {"k": "2"}],
    ids=lambda change: next(iter(change)),
)
def test_another_setting_is_another_key(key_of: Callable[..., dict[str, object]], change: Change) -> None:
    assert key_of(**change) != key_of()


@pytest.mark.parametrize("file", ["m0.json", "a.jsonl", "b.jsonl", f"before/{MANIFEST}"])
def test_other_data_are_another_key(key_of: Callable[..., dict[str, object]], file: str) -> None:
    before = key_of()
    Path(file).write_text("edited")
    assert key_of() != before


def test_costs_and_the_machine_are_no_part_of_the_key(key_of: Callable[..., dict[str, object]]) -> None:
    before = key_of()
    Path("cost.json").write_text("edited")
    assert key_of(machine={"rows_as_fit": True}) == before
