"""Provenance is complete, the same on any machine, and names neither machine nor user."""

from __future__ import annotations

import getpass
import json
import os
import platform
import subprocess
from pathlib import Path

import pytest

from g2d.checks.load import read
from g2d.config.sections import Config
from g2d.policies import PolicyRecord
from g2d.report.provenance import commit, config_digest, packages, provenance, steps_without_loss

CONFIG = Path(__file__).parents[2] / "config"
MANIFEST = {"source": {"source": "local", "path": "/home/me/pool.jsonl"}, "n": 3, "sha256": "a" * 64}


def record(config: Config) -> dict:
    policies = [
        PolicyRecord("demo/base", "demo", "base", base="/home/me/model", weights_sha256="b" * 64),
        PolicyRecord("demo/seed0/dpo/g0/k0", "demo", "dpo", base="/home/me/model", seed=0, weights_sha256="c" * 64),
    ]
    return provenance(config, policies, {"pool": MANIFEST}, ["cpu", "cpu"], __file__)


@pytest.fixture
def recorded() -> dict:
    return record(read(CONFIG / "config.yaml"))


def test_it_has_the_digests_of_weights(recorded: dict) -> None:
    assert recorded["models"]["demo"]["weights_sha256"] == "b" * 64
    assert recorded["policies"] == {"demo/seed0/dpo/g0/k0": "c" * 64}


def test_it_has_the_digest_of_problems_and_the_name_of_their_file(recorded: dict) -> None:
    assert recorded["problems"]["pool"]["sha256"] == "a" * 64
    assert recorded["problems"]["pool"]["file"] == "pool.jsonl"


def test_it_has_seeds_and_each_kind_of_device_once(recorded: dict) -> None:
    assert recorded["seeds"] == [0, 1, 2]
    assert recorded["devices"] == ["cpu"]


def test_it_has_versions_of_packages_and_the_kernels_of_the_cpu(recorded: dict) -> None:
    software = recorded["software"]
    assert software["packages"]["trl"] == packages()["trl"]
    assert software["kernels"]["cpu_capability"]
    assert software["kernels"]["ATEN_CPU_CAPABILITY"] == os.environ.get("ATEN_CPU_CAPABILITY")


def test_it_names_no_place_and_no_person(recorded: dict) -> None:
    text = json.dumps(recorded)
    for private in ("/home", str(Path.cwd()), platform.node(), f'"{getpass.getuser()}"'):
        assert private not in text


def test_the_share_of_an_adapters_effect_is_recorded_if_it_was_measured() -> None:
    policy = PolicyRecord("demo/seed0/dpo/g0/k0", "demo", "dpo", "m", effect_left=0.5)
    measured = provenance(read(CONFIG / "config.yaml"), [policy], {"pool": MANIFEST}, ["cpu"], __file__)
    assert measured["effect_left"] == {"demo/seed0/dpo/g0/k0": 0.5}
    assert "effect_left" not in record(read(CONFIG / "config.yaml"))


def test_losses_that_were_not_finite_are_counted(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"loss": 0.5, "step": 1}\n{"loss": null, "step": 2}\n')
    assert steps_without_loss(tmp_path / "metrics.jsonl") == 1
    config, lost = read(CONFIG / "config.yaml"), {"demo/seed0/dpo/g0/k0": 3}
    assert provenance(config, [], {"pool": MANIFEST}, ["cpu"], __file__, lost)["lost_losses"] == lost
    assert "lost_losses" not in record(config)


def test_the_digest_of_a_configuration_changes_with_its_meaning_alone() -> None:
    config = read(CONFIG / "config.yaml")
    faster = config.model_copy(update={"engine": config.engine.model_copy(update={"gpu_memory_utilization": 0.5})})
    assert config_digest(config) == config_digest(Config.model_validate(config.model_dump()))
    assert config_digest(config) == config_digest(faster)
    assert config_digest(config) != config_digest(config.model_copy(update={"seeds": [7]}))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "Snakefile").write_text("")
    git("add", "Snakefile")
    git("commit", "--message", "first")
    return tmp_path


def test_the_commit_and_whether_something_was_changed_since(repository: Path) -> None:
    clean = commit(repository / "Snakefile")
    assert len(clean["commit"]) == 40
    assert clean["dirty"] is False
    (repository / "results.csv").write_text("not the workflow's")
    assert commit(repository / "Snakefile") == clean
    (repository / "Snakefile").write_text("changed")
    assert commit(repository / "Snakefile") == clean | {"dirty": True}
    (repository / "copy").mkdir()  # inside another repository, whose commit it does not have
    (repository / "copy/Snakefile").write_text("")
    assert commit(repository / "copy/Snakefile") == {"commit": None, "dirty": None}
