"""`g2d compare --files` on folders that are not finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from g2d.cli import main
from g2d.experiment import grid
from g2d.experiment.config import Config, load, read
from g2d.jobs.files import write_json
from g2d.problems import write_problems
from g2d.problems.generated import generate, with_seed
from g2d.problems.manifest import manifest
from g2d.problems.settings import SyntheticProblems
from g2d.report.replication import compare_results
from g2d.verifier import verify_batch
from tests.experiment.test_config import MINIMAL

CONFIG = read(Path(__file__).parents[2] / "config/config.yaml")


@pytest.mark.parametrize("config", [CONFIG, load(MINIMAL | {"lora": "none"})], ids=["adapters", "all weights"])
def test_everything_that_is_missing_is_listed_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: Config
) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        config.save(folder / "config.yaml")
    assert main(["compare", *map(str, folders), "--files"]) == 1
    *lines, verdict = capsys.readouterr().out.splitlines()
    policies = grid.policies(config)
    expected = ["provenance.json", *(f"problems/{name}.jsonl" for name in config.problem_sources)]
    trained = "adapter/adapter_model" if config is CONFIG else "weights/model"
    weights = {"base": "model/model"}  # the embedded one
    expected += [f"{key.folder}/{weights.get(key.role, trained)}.safetensors" for key in policies]
    expected += [f"{key.folder}/rollouts.parquet" for key in grid.harvests(config)]
    expected += [f"{key.folder}/eval/{benchmark}.parquet" for key in policies for benchmark in config.benchmarks]
    missing = {line.split(": ")[1].removesuffix(" is missing") for line in lines}
    assert missing == {str(folder / name) for folder in folders for name in expected}
    assert verdict.startswith(f"incomplete: {len(lines)} files are missing")


def test_problems_of_other_runs_are_told_by_their_seeds(tmp_path: Path) -> None:
    source = SyntheticProblems(source="synthetic", family="calculation", split="test", n=4, seed="run")
    seeds = []
    for name in "ab":
        drawn = with_seed(source)
        problems, results = generate(drawn), tmp_path / name
        load(MINIMAL | {"benchmarks": {"fresh": source.model_dump()}}).save(results / "config.yaml")
        write_problems(results / "problems/fresh.jsonl", problems)
        write_json(results / "problems/fresh.manifest.json", manifest("fresh", drawn, problems, verify_batch))
        seeds.append(drawn.seed)
    differences = compare_results(tmp_path / "a", tmp_path / "b")
    [fresh] = [difference for difference in differences if difference.name == "fresh"]
    assert fresh.detail == f"other problems, generated with the seeds {seeds[0]} | {seeds[1]}"
    assert fresh.weight == "asked"
    assert not [d for d in differences if d.kind in ("evaluation", "configuration")], "no answers to other questions"
