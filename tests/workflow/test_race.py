"""Interim analyses as jobs: one command takes all looks, a stopped run resumes, and no look is taken twice.

The tests write the answers: nothing is trained.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from g2d.experiment.race import taken
from g2d.status.snapshot import Grid
from g2d.tables.looks import take
from tests import open_ended
from tests.race import race_config, race_values, write_answers
from tests.rewards.models import reward_model
from tests.workflow.conftest import REPOSITORY, Project
from tests.workflow.test_graph import require_equal

# A target after the looks, instead of tables, and without the rules that make answers.
RACED = """
include: "workflow/Snakefile"


rule raced:
    input:
        at_last("make_tables", "answers"),
    output:
        "raced.txt",
    run:
        Path(output[0]).write_text("\\n".join(input))
"""
COMMAND = ("raced.txt", "-s", "race.smk", "--allowed-rules", "raced", "take_look")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project.create(tmp_path_factory.mktemp("race") / "g2d", race_values())
    (made.root / "race.smk").write_text(RACED)
    return made


def looks_of(project: Project) -> dict[str, tuple[bytes, int]]:
    """Content and time of every look."""
    files = sorted(project.results.glob("looks/look*.json"))
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def test_a_race_resumes_after_a_stop_between_looks(project: Project) -> None:
    config = race_config()
    write_answers(config, project.results, 2)
    stopped = project.snakemake("--cores", "1", *COMMAND)  # no third seed: the run ends after the first look
    assert stopped.returncode != 0
    first = looks_of(project)
    assert list(first) == ["look1.json"]
    assert (
        Grid(project.results).look().looks[0].startswith("look 2: further seeds for 2 of the policies, about an unkn")
    )

    project.build(*COMMAND, "--config", "seeds={until: 1}")  # the seeds that exist
    assert not any("seed3" in file for file in (project.root / "raced.txt").read_text().split())
    assert looks_of(project) == first

    write_answers(config, project.results, 3)  # all answers are newer than the look now
    shutil.rmtree(project.results / "digests")  # recorded for other answers
    plan = project.snakemake("-n", *COMMAND).stdout
    assert "Jobs and hours are those until the next look." in plan
    assert "open: G2D (K=2, G=2) against DPO (K=0), settled by the next look with" in plan
    project.build(*COMMAND)
    both = looks_of(project)
    assert both["look1.json"] == first["look1.json"]
    answered = (project.root / "raced.txt").read_text().split()
    assert sorted(Path(file).parts[2:5] for file in answered if "seed3" in file) == [
        ("seed3", "dpo", "g0"),
        ("seed3", "dpo", "g2"),
    ]

    records = taken(config.looks, project.results)
    for number, look in enumerate(records.values(), 1):  # same as without a stop
        assert look == take(config, number, project.results) | {"cost": look["cost"]}

    for file in project.results.glob("m/**/*.parquet"):
        os.utime(file)
    assert "take_look" not in project.planned("--forceall", *COMMAND)
    assert looks_of(project) == both


def test_a_changed_plan_is_refused_before_any_job(project: Project) -> None:
    done = project.snakemake("-n", *COMMAND, "--config", "seeds={looks: [2, 4]}")
    assert done.returncode != 0
    assert "seeds.looks: models.m.looks is not what it was at the first look" in done.stdout


def test_the_shipped_race_lists_its_jobs_until_the_first_look(project: Project, tmp_path: Path) -> None:
    file = REPOSITORY / "config/race.yaml"
    jobs = project.planned("--configfile", str(file), "--directory", str(tmp_path))
    # Two seeds of DPO at three K, GRPO at the last of two and RFT on the harvest of M0.
    assert (jobs["train_dpo"], jobs["train_grpo"], jobs["train_rft"], jobs["evaluate"]) == (6, 4, 2, 1 + 2 * 5)
    assert jobs["take_look"] == 1


def test_jobs_after_the_looks_are_not_counted_before(tmp_path: Path) -> None:
    """Further benchmarks, samples, distances, replies, their checks and pairs of the page come after the looks; a sweep
    comes before."""
    values = race_values()
    benchmark = values["benchmarks"]["arithmetic"]
    values |= {
        "benchmarks": {"arithmetic": benchmark, "second": benchmark | {"seed": 9}},
        "calibration": values["calibration"] | {"factorial_temperatures": [0.5]},
        "evaluation": values["evaluation"] | {"sampled": {"n": 4, "beside_greedy": True}},
        "training_set": {"n": 60},
        "contamination": values["harvest"],
        "rewards": {"fair": open_ended.JUDGE, "coin": {"reward": "random"}},
        "open_ended": {"pool": open_ended.POOL, "held_out": open_ended.HELD_OUT, "reward": "fair"} | values["harvest"],
        "sweep": {"development": 20, "regimes": {"dpo": {"learning_rate": [1e-4, 1e-3]}}},
        "ablations": {
            "lucky": {"steps": [0], "reward": "coin"},
        },
        "regimes": {"sft": {"regime": "rft", "steps": [2]}},
    }
    project = Project.create(tmp_path / "g2d", values)  # without the looks of the tests above
    reward_model(project.root / "judge")
    require_equal(project, project.root / "config/config.yaml")
