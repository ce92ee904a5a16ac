"""Jobs that run again after a change: the table of docs/reruns.md, row by row, as dry-runs of a finished grid."""

from __future__ import annotations

import copy
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.workflow.conftest import REPOSITORY, Project
from tests.workflow.micro import SUMMARIES as TABLES
from tests.workflow.test_released import NEW_KEY

Config = dict[str, Any]
Jobs = dict[str, int]
Change = Callable[[Project], AbstractContextManager[None]]

# Below a stage of the micro grid: 3 warm-ups, 3 harvests, 6 DPO policies, 9 policies.
TRAINED: Jobs = {"train_dpo": 6, "evaluate": 6} | TABLES
HARVESTED: Jobs = {"harvest_rollouts": 3, "build_pairs": 3} | TRAINED
SELECTED: Jobs = {"train_grpo": 3} | HARVESTED | {"evaluate": 8}
# Harvests at K=2 and 4, and the policies that read them: the N-matched control counts the pairs at K=4.
WARMED_UP: Jobs = {"train_grpo": 3, "harvest_rollouts": 2, "build_pairs": 2, "train_dpo": 5, "evaluate": 7} | TABLES


def configured(change: Callable[[Config], Any]) -> Change:
    """The grid with an edited configuration."""

    @contextmanager
    def apply(project: Project) -> Iterator[None]:
        before = (project.root / "config/config.yaml").read_text()
        config = yaml.safe_load(before)
        change(config)
        project.configure(config)
        try:
            yield
        finally:
            project.configure(yaml.safe_load(before))

    return apply


def edited(file: str, old: str, new: str) -> Change:
    return lambda project: project.edited(file, old, new)


def touched(*files: str) -> Change:
    @contextmanager
    def apply(project: Project) -> Iterator[None]:
        before = {}
        for file in files:
            before[file] = (project.root / file).stat()
            (project.root / file).touch()
        try:
            yield
        finally:
            for file, times in before.items():
                os.utime(project.root / file, ns=(times.st_atime_ns, times.st_mtime_ns))

    return apply


def away(folder: str) -> Change:
    @contextmanager
    def apply(project: Project) -> Iterator[None]:
        hidden = project.root.parent / "hidden"
        (project.root / folder).rename(hidden)
        try:
            yield
        finally:
            shutil.rmtree(project.root / folder, ignore_errors=True)
            hidden.rename(project.root / folder)

    return apply


def unchanged(_project: Project) -> AbstractContextManager[None]:
    return nullcontext()


def put(section: str, **values: Any) -> Change:
    return configured(lambda config: config.setdefault(section, {}).update(values))


def another_model(config: Config) -> None:
    config["models"]["second"] = {"source": "embedded", "settings": {"calibration": {"seed": 1}}}


def another_benchmark(config: Config) -> None:
    config["benchmarks"]["more"] = config["benchmarks"]["arithmetic"] | {"n": 10, "seed": 5}


def smaller_batches(config: Config) -> None:
    for section in ("calibration", "harvest", "evaluation"):
        config[section]["batch_size"] = 32


NEW_MODEL: Jobs = {"embedded_model": 1, "calibrate": 1, "select_training_set": 1} | SELECTED | {"evaluate": 9}
NEW_BENCHMARK: Jobs = {"load_problems": 1, "check_leakage": 1, "evaluate": 9} | TABLES
CASES: dict[str, tuple[Change, Jobs]] = {
    "nothing": (unchanged, {}),
    "add a K": (
        put("warmup", steps=[0, 1, 2, 4]),
        {"train_grpo": 1, "harvest_rollouts": 1, "build_pairs": 1, "train_dpo": 1, "evaluate": 1} | TABLES,
    ),
    "add a seed": (configured(lambda config: config.update(seeds=[0, 1])), SELECTED),
    "add a model": (configured(another_model), NEW_MODEL),
    "add a benchmark": (configured(another_benchmark), NEW_BENCHMARK),
    "add an ablation": (
        configured(lambda config: config["ablations"].update(beta={"steps": [2], "dpo": {"beta": 0.2}})),
        {"train_dpo": 1, "evaluate": 1} | TABLES,
    ),
    "set warmup.auto": (
        put("warmup", auto={"every": 2, "prompts": 20, "patience": 1}),
        {"train_grpo_auto": 1, "harvest_rollouts": 1, "build_pairs": 1, "train_dpo": 1, "evaluate": 1} | TABLES,
    ),
    "add a benchmark that selects checkpoints": (
        configured(
            lambda config: config["benchmarks"].update(
                picks=config["benchmarks"]["arithmetic"] | {"split": "development", "select_by": True}
            )
        ),
        {"load_problems": 1, "check_leakage": 1, "evaluate": 9} | TABLES,
    ),
    "set evaluation.sampled, beside_greedy": (
        put("evaluation", sampled={"n": 4, "beside_greedy": True}),
        {"sample_answers": 9} | TABLES,
    ),
    "set evaluation.sampled": (put("evaluation", sampled={"n": 4}), {"evaluate": 9} | TABLES),
    "set baselines.grpo_steps to all": (put("baselines", grpo_steps="all"), {"evaluate": 1} | TABLES),
    "remove a K": (
        configured(lambda config: (config["warmup"].update(steps=[0, 4]), config.update(ablations={}))),
        TABLES,
    ),
    "remove a benchmark": (configured(lambda config: config["benchmarks"].pop("word-problems")), TABLES),
    "remove an ablation": (configured(lambda config: config["ablations"].pop("ipo")), TABLES),
    "change warmup.learning_rate": (put("warmup", learning_rate=1e-4), WARMED_UP),
    "change dpo.learning_rate": (put("dpo", learning_rate=1e-4), TRAINED),
    "change harvest.temperature": (put("harvest", temperature=1.2), HARVESTED),
    "change calibration.temperature": (
        put("calibration", temperature=1.2),
        {"calibrate": 1, "select_training_set": 1} | SELECTED,
    ),
    "change calibration.levels": (put("calibration", levels=[1, 2]), {"select_training_set": 1} | SELECTED),
    "change evaluation.max_completion_length": (put("evaluation", max_completion_length=20), {"evaluate": 9} | TABLES),
    "change engine.tensor_parallel_size": (put("engine", tensor_parallel_size=2), {}),
    "change calibration.batch_size, harvest.batch_size, evaluation.batch_size": (configured(smaller_batches), {}),
    "set training.gradient_checkpointing": (put("training", gradient_checkpointing=True), {}),
    "set training.threads, training.shared_prompts, training.precision": (
        put("training", threads=2, shared_prompts=False, precision="float32"),
        {},
    ),
    "change title": (configured(lambda config: config.update(title="Another")), TABLES),
    "add a comment in src/g2d": (
        edited("src/g2d/regimes/grpo/train.py", "def train_grpo(", "# A comment.\ndef train_grpo("),
        {},
    ),
    "add a comment in workflow/scripts": (
        edited("workflow/scripts/train.py", "def main(", "# A comment.\ndef main("),
        {},
    ),
    "add a comment in workflow/rules": (
        edited("workflow/rules/online.smk", "# Stage 1: GRPO", "# A comment.\n# Stage 1: GRPO"),
        {},
    ),
    "raise the number of train_dpo in g2d.regimes.offline.dpo": (
        edited("src/g2d/regimes/offline/dpo.py", "version=1,", "version=9,"),
        TRAINED,
    ),
    "change a caption in src/g2d/tables/captions.yaml": (
        edited("src/g2d/tables/captions.yaml", "A device is a", "A device is always a"),
        {"build_report": 1, "all": 1},
    ),
    "touch a script, a rule file or the configuration": (
        touched("workflow/scripts/train.py", "workflow/rules/online.smk", "config/config.yaml"),
        {},
    ),
    "touch a result": (touched("results/micro/seed0/grpo/g2/k2/policy.json", "results/problems/pool.jsonl"), {}),
    "upgrade a package": (edited("envs/g2d.yaml", "trl==", "trl==99."), {}),
    "update g2d to a version with new keys": (edited(*NEW_KEY), {}),
    "change a partition, a time limit or memory": (unchanged, {}),
    "lose .snakemake": (away(".snakemake"), {}),
    "lose results/logs, results/benchmarks or results/attempts": (away("results/attempts"), {}),
}


REMOVALS: dict[str, Callable[[Config], Any]] = {
    "remove a seed": lambda config: config.update(seeds=[0]),
    "remove a model": lambda config: config["models"].pop("second"),
}


@pytest.fixture(scope="module")
def wide_grid(micro_grid: Project, micro_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The micro grid with a second seed and a second model; their results are copies of the first one's."""
    project = micro_grid.copied(tmp_path_factory.mktemp("wide") / "g2d")
    shutil.copytree(project.results / "micro/seed0", project.results / "micro/seed1")
    shutil.copytree(project.results / "micro", project.results / "second")
    config = copy.deepcopy(micro_config) | {"seeds": [0, 1]}
    another_model(config)
    project.configure(config)
    project.build("--quiet", "all", "--touch", "--forceall")  # Snakemake's record of them
    assert project.planned() == {}
    return project


# One of these could hide what another change runs.
LOSSES = {change for change in CASES if change.startswith("lose ")}
WITHOUT_JOBS = [change for change, (_, jobs) in CASES.items() if not jobs and change not in LOSSES]


@pytest.mark.parametrize("change", [change for change in CASES if change not in WITHOUT_JOBS])
def test_only_jobs_that_depend_on_a_change_run_again(micro_grid: Project, change: str) -> None:
    apply, expected = CASES[change]
    with apply(micro_grid):
        assert micro_grid.planned() == expected


def test_changes_that_no_job_depends_on_run_nothing(micro_grid: Project) -> None:
    """All at once: a job that one of them ran would be planned."""
    with ExitStack() as changes:
        for change in WITHOUT_JOBS:
            changes.enter_context(CASES[change][0](micro_grid))
        assert micro_grid.planned("--default-resources", "slurm_partition=other", "runtime=5") == {}


def test_a_results_folder_at_another_depth_plans_no_job(micro_grid: Project, tmp_path: Path) -> None:
    """The relative path from results to the workflow changes with `--directory`."""
    moved = Project(tmp_path / "far/below")
    for part in ("config", "results", ".snakemake"):
        shutil.copytree(micro_grid.root / part, moved.root / part, symlinks=True)
    assert moved.planned("--snakefile", str(micro_grid.root / "Snakefile")) == {}


@pytest.mark.parametrize("change", REMOVALS)
def test_removing_a_seed_or_a_model_runs_only_the_summaries(wide_grid: Project, change: str) -> None:
    with configured(REMOVALS[change])(wide_grid):
        assert wide_grid.planned() == TABLES


def test_two_changes_run_the_jobs_of_both(micro_grid: Project) -> None:
    """A new benchmark must not hide a changed setting."""

    def both(config: Config) -> None:
        another_benchmark(config)
        config["dpo"]["learning_rate"] = 1e-4

    with configured(both)(micro_grid):
        jobs = micro_grid.planned()
    assert jobs == {"load_problems": 1, "check_leakage": 1, "train_dpo": 6, "evaluate": 9} | TABLES


def test_the_documentation_has_the_same_table() -> None:
    """First column: the change; second: the rules that run, with the tables and figures as one."""
    text = (REPOSITORY / "docs/reruns.md").read_text()
    _, *rows = re.findall(r"^\| (.+?) \| (.+?) \| .+ \|$", text.replace("`", ""), re.M)
    tested = dict.fromkeys(REMOVALS, "tables")
    for change, (_, jobs) in CASES.items():
        runs = [rule for rule in jobs if rule not in TABLES]
        if "make_tables" in jobs:
            runs.append("tables")
        elif "build_report" in jobs:
            runs.append("build_report")
        tested[change] = ", ".join(runs) or "nothing"
    assert dict(rows) == tested


def test_a_dry_run_says_why(micro_grid: Project) -> None:
    with put("dpo", learning_rate=1e-4)(micro_grid):
        plan = micro_grid.snakemake("-n").stdout
    assert re.search(r"params have changed since last execution:\s+train_dpo", plan), plan
    assert re.search(r"input files updated by another job:\s+.*evaluate", plan)
    assert re.search(r"^dpo\.learning_rate \S+ -> 0\.0001: 6 finished jobs run again \(train_dpo\)$", plan, re.M), plan
    assert re.search(r"^6 more finished jobs run again$", plan, re.M), plan
    assert re.search(r"^What they replace took \S+ device-hours$", plan, re.M), plan


def test_nothing_is_said_of_changes_without_any(micro_grid: Project) -> None:
    assert "run again" not in micro_grid.snakemake("-n").stdout


def test_without_a_record_of_the_settings_a_changed_configuration_is_refused(own_micro_grid: Project) -> None:
    project = own_micro_grid
    shutil.rmtree(project.root / ".snakemake")
    with put("dpo", learning_rate=1e-4)(project):
        assert "have no record in .snakemake" in project.refused("-n")
        kept = (project.results / "config.yaml").read_bytes()
        (project.results / "config.yaml").write_bytes(b"\xff")
        assert "It tells what" in project.snakemake("-n").stdout
        (project.results / "config.yaml").unlink()
        assert "they are taken for results of this configuration" in project.snakemake("-n").stdout
        (project.results / "config.yaml").write_bytes(kept)
        recorded = project.snakemake("--configfile", "results/config.yaml", "--touch", "--forceall", "--cores", "1")
        assert recorded.returncode == 0, recorded.stdout
        assert project.planned() == TRAINED
    assert project.planned() == {}


def test_a_configuration_is_read_as_written_after_the_trainings(
    micro_grid: Project, micro_config: dict[str, Any], tmp_path: Path
) -> None:
    """30 completions per step are no multiple of the 4 that stand for `per_device_batch_size: auto` in params."""
    project = micro_grid.copied(tmp_path / "g2d")
    config = copy.deepcopy(micro_config)
    config["warmup"]["prompts_per_step"] = 15
    project.configure(config)
    rules = ("record_provenance", "build_report")
    project.build("--rerun-triggers", "mtime", "--forcerun", *rules, "--quiet", "rules")
    assert yaml.safe_load((project.results / "config.yaml").read_text())["warmup"]["prompts_per_step"] == 15
