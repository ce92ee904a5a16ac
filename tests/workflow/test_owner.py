"""A folder of results is of one configuration: another one does not replace it without being told to."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml

from tests.workflow.conftest import Project

Values = dict[str, Any]
SAYS = "results/ is of another configuration, 'Micro grid' (config/config.yaml): "
REMEDY = "(snakemake --directory runs/NAME ...), or delete results/config.yaml to have them replaced"


def given(project: Project, values: Values) -> list[str]:
    (project.root / "config/other.yaml").write_text(yaml.safe_dump(values))
    return ["--configfile", "config/other.yaml"]


def other_model(values: Values) -> None:
    values["models"] = {"mine": values["models"]["micro"]}


def other_rate(values: Values) -> None:
    values["dpo"]["learning_rate"] = 1e-4


def other_pool(values: Values) -> None:
    values["pool"]["n"] = 400


def other_training_set(values: Values) -> None:
    values["training_set"]["n"] -= 1


def other_budget_and_one_more_benchmark(values: Values) -> None:
    """The evaluations then lack an output."""
    values["evaluation"]["max_completion_length"] += 1
    one_more_benchmark(values)


def other_rate_and_one_more_benchmark(values: Values) -> None:
    other_rate(values)
    one_more_benchmark(values)


def one_more_seed(values: Values) -> None:
    values["seeds"] = [0, 1]


def one_more_benchmark(values: Values) -> None:
    values["benchmarks"]["more"] = {"source": "synthetic", "family": "facts", "split": "test", "n": 20}


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (other_model, "its tables would be replaced"),
        (other_rate, "12 finished jobs would run again"),
        (other_pool, "finished jobs would run again"),
        # What these change directly takes seconds, and what is trained from that does not.
        (other_training_set, "finished jobs would run again"),
        (other_budget_and_one_more_benchmark, "9 finished jobs would run again"),
        (other_rate_and_one_more_benchmark, "12 finished jobs would run again"),
    ],
)
def test_a_run_of_another_configuration_stops(
    micro_grid: Project, micro_config: Values, change: Any, lost: str
) -> None:
    before = (micro_grid.results / "config.yaml").read_bytes()
    values = copy.deepcopy(micro_config)
    change(values)
    arguments = given(micro_grid, values)
    done = micro_grid.snakemake("--cores", "1", *arguments)
    assert done.returncode == 1
    [line] = re.findall(f"^{re.escape(SAYS)}.*$", done.stdout, re.M)
    assert lost in line
    assert line.endswith(REMEDY)
    assert (micro_grid.results / "config.yaml").read_bytes() == before
    planned = micro_grid.snakemake("-n", *arguments)  # a plan replaces nothing
    assert planned.returncode == 0
    assert line in planned.stdout


def test_a_plan_names_what_changed_if_a_benchmark_is_added_too(micro_grid: Project, micro_config: Values) -> None:
    values = copy.deepcopy(micro_config)
    other_budget_and_one_more_benchmark(values)
    assert "evaluation.max_completion_length" in micro_grid.snakemake("-n", *given(micro_grid, values)).stdout


def test_an_unreadable_record_does_not_let_results_be_replaced(micro_grid: Project, micro_config: Values) -> None:
    record = micro_grid.results / "config.yaml"
    before = record.read_text()
    values = copy.deepcopy(micro_config)
    other_rate(values)
    record.write_text(f"{before}\nof_a_newer_version: 1\n")
    try:
        done = micro_grid.snakemake("--cores", "1", *given(micro_grid, values))
    finally:
        record.write_text(before)
    assert done.returncode == 1
    assert "of_a_newer_version" in done.stdout
    assert "12 finished jobs would run again" in done.stdout


@pytest.mark.parametrize("add", [one_more_seed, one_more_benchmark])
def test_additions_are_not_refused(micro_grid: Project, micro_config: Values, add: Any) -> None:
    values = copy.deepcopy(micro_config)
    add(values)
    assert SAYS not in micro_grid.snakemake("-n", *given(micro_grid, values)).stdout


def test_a_moved_configuration_is_the_same_one(own_micro_grid: Project, micro_config: Values) -> None:
    """A run folder is moved with its configuration, and then a key is edited."""
    record = own_micro_grid.results / "config.yaml"
    record.write_text(record.read_text().replace("config/config.yaml", "../before/other.yaml", 1))
    values = copy.deepcopy(micro_config)
    other_rate(values)
    arguments = given(own_micro_grid, values)
    assert own_micro_grid.planned(*arguments)["train_dpo"] == 6
    assert "another configuration" not in own_micro_grid.snakemake("-n", *arguments).stdout


def test_a_folder_of_an_older_version_is_accepted(micro_grid: Project, micro_config: Values) -> None:
    """Its record has no list of configuration files."""
    record = micro_grid.results / "config.yaml"
    before = record.read_text()
    record.write_text(before.partition("\n")[2])
    try:
        values = copy.deepcopy(micro_config)
        other_rate(values)
        arguments = given(micro_grid, values)
        assert micro_grid.planned(*arguments)["train_dpo"] == 6
        assert "another configuration" not in micro_grid.snakemake("-n", *arguments).stdout
        other_model(values)
        output = micro_grid.snakemake("-n", *given(micro_grid, values)).stdout
        assert "results/ is of another configuration, 'Micro grid': " in output
    finally:
        record.write_text(before)


def test_another_folder_keeps_the_results_of_another_configuration(micro_grid: Project, micro_config: Values) -> None:
    values = copy.deepcopy(micro_config)
    other_model(values)
    target = "results/mine/base/policy.json"
    micro_grid.build("--quiet", "rules", "--directory", "runs/mine", *given(micro_grid, values), "--", target)
    assert (micro_grid.root / "runs/mine" / target).is_file()
    assert not (micro_grid.results / "mine").exists()
    assert "embedded_model" in micro_grid.planned("--directory", "runs/default")  # the default configuration


def test_the_record_of_a_folder_stands_for_the_files_that_it_names(own_micro_grid: Project) -> None:
    before = (own_micro_grid.results / "config.yaml").read_text()
    own_micro_grid.build("--quiet", "rules", "--configfile", "results/config.yaml", "--touch", "--forceall")
    assert (own_micro_grid.results / "config.yaml").read_text() == before
    assert own_micro_grid.planned() == {}
