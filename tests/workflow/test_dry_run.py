"""Dry-runs: the exact jobs of the shipped grids, and one message per mistake."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from g2d.grid.versions import VERSIONS
from tests import open_ended
from tests.workflow import forked
from tests.workflow.conftest import REPOSITORY, Project


@pytest.fixture(name="project")
def restored(project: Project, micro_config: dict[str, Any]) -> Iterator[Project]:
    yield project
    project.configure(micro_config)
    shutil.rmtree(project.results, ignore_errors=True)


def shipped(*files: str) -> list[str]:
    """Arguments of Snakemake for files of config/."""
    return ["--configfile", *(str(REPOSITORY / "config" / file) for file in files)]


def papers_with_one_seed(project: Project, *overlays: str) -> Counter[str]:
    """The jobs of the paper's grid with overlays; seeds differ in nothing but their number."""
    files = ["paper.yaml", *(f"overlays/{name}.yaml" for name in overlays)]
    return Counter(project.planned("--config", "seeds=[0]", *shipped(*files)))


def test_the_papers_grid_lists_its_jobs(project: Project) -> None:
    # Per model and seed: warm-up to 5 K with G=2 in a chain and to K=1000 with G=4; 6 harvests; 6 DPO and 2 ablations.
    # Evaluated: M0, and per seed 6 + 2 (GRPO) + 2 policies.
    per_seed = {"train_grpo": 6, "harvest_rollouts": 6, "build_pairs": 6, "train_dpo": 8}
    expected = {rule: 2 * 5 * n for rule, n in per_seed.items()}
    expected |= {"evaluate": 2 * (1 + 5 * 10), "calibrate": 2, "select_training_set": 2, "pretrained_model": 2}
    expected |= {"load_problems": 3, "check_leakage": 2}
    expected |= {"make_tables": 1, "plot_figures": 1, "all": 1}
    expected |= {"record_provenance": 1, "build_report": 1}
    assert project.planned(*shipped("paper.yaml")) == expected


def everything(micro_config: dict[str, Any]) -> dict[str, Any]:
    """A configuration with every kind of job: factorial temperatures, an early-stopping warm-up, ablations of warm-up
    and DPO, every regime, open-ended prompts and a benchmark that selects checkpoints."""
    short = {"max_completion_length": 24}
    online = {"regime": "semi_online_dpo", "steps": [2, 4], "responses": 4, "prompts_per_update": 4} | short
    return micro_config | {
        "seeds": [0, 1],
        "calibration": micro_config["calibration"] | {"factorial_temperatures": [0.5]},
        "warmup": micro_config["warmup"] | {"auto": {"every": 1, "prompts": 20}},
        "ablations": micro_config["ablations"]
        | {
            "two": {"steps": [0, 2], "dpo": {"epochs": 2}},
            "hot": {"steps": [2, 4], "warmup": {"temperature": 1.2}, "policies": ["grpo"]},
            "hot-matched": {"steps": [2, 4], "warmup": {"temperature": 1.4}, "dpo": {"match_pairs_to": "min"}},
        },
        "benchmarks": micro_config["benchmarks"]
        | {"picks": micro_config["benchmarks"]["arithmetic"] | {"split": "development", "select_by": True}},
        "baselines": {"grpo_steps": "all"},
        "evaluation": micro_config["evaluation"] | {"sampled": {"n": 4, "beside_greedy": True}},
        "rewards": {
            "polite": open_ended.JUDGE,
            "fair": open_ended.JUDGE | {"max_length": 110},
            "long": open_ended.JUDGE | {"max_length": 120},
            "unused": open_ended.JUDGE | {"max_length": 130},
        },
        "open_ended": {
            "pool": open_ended.POOL,
            "held_out": open_ended.HELD_OUT,
            "reward": "polite",
            "judge": "fair",
        }
        | short,
        "regimes": {
            "rft": {"regime": "rft"},
            "chosen": {"regime": "rft", "examples": "chosen", "steps": [2]},
            "online": online,
            "chat": online | {"prompts": "open_ended", "start": "online", "start_step": 4},
            "both": online | {"prompts": "mixed", "reward": "long"},
        },
    }


def plan_and_hours(project: Project, file: str) -> tuple[dict[str, int], dict[str, float]]:
    """The jobs of a file of config/ by rule, and its GPU-hours by stage."""
    done = project.snakemake("-n", "--quiet", "rules", *shipped(file))
    stats, _, table = done.stdout.rpartition("Estimated GPU-hours")
    jobs = {}
    for rule, count in re.findall(r"^(\w+) +(\d+)$", stats, re.M):
        jobs[rule] = int(count)
    hours: dict[str, float] = defaultdict(float)
    for rule, of_rule in re.findall(r"^(\w+) +\d+ +([\d.]+)  ", table, re.M):
        hours[rule] += float(of_rule)
    return jobs, hours


def test_bridgings_grid_lists_its_jobs_and_their_hours(project: Project) -> None:
    # Seven trajectories with two K each, GRPO, and what any grid has at K=0 and at a warm-up: a harvest and DPO on it.
    # Evaluated: M0, 7 x 2, GRPO and two DPO.
    expected = {"train_semi_online_dpo": 7 * 2, "train_grpo": 1}
    expected |= dict.fromkeys(("harvest_rollouts", "build_pairs", "train_dpo"), 2)
    expected |= {"evaluate": 1 + 7 * 2 + 1 + 2, "calibrate": 1, "load_problems": 3, "check_leakage": 2}
    jobs, hours = plan_and_hours(project, "bridging.yaml")
    assert expected.items() <= jobs.items()
    # Seven trajectories with the batch of the single one of GRPO; GRPO draws separately for every step.
    assert 5 < hours["train_semi_online_dpo"] / hours["train_grpo"] < 9


def test_revisiting_grpos_grid_lists_its_jobs_and_their_hours(project: Project) -> None:
    # Per seed six runs with four K each and one with i=10; beside them a harvest of M0 and DPO on it.
    expected = {"train_grpo": 4 * (6 * 4 + 1), "harvest_rollouts": 4, "build_pairs": 4, "train_dpo": 4}
    expected |= {"evaluate": 1 + 4 * (6 * 4 + 1 + 1), "calibrate": 1, "load_problems": 2, "check_leakage": 1}
    jobs, hours = plan_and_hours(project, "off_policy.yaml")
    assert expected.items() <= jobs.items()
    assert 50 < hours["train_grpo"] < 500  # 27,244 at the paper's rates, measured on 7B models


def test_the_small_grid_lists_its_jobs(project: Project) -> None:
    # Per seed: GRPO at 3 K (its learning curve), two online entries with as many, harvests at 4, DPO on each,
    # RFT on two of them.
    expected = {"train_grpo": 3 * 3, "train_semi_online_dpo": 3 * 6, "harvest_rollouts": 3 * 4, "train_dpo": 3 * 4}
    expected |= {"train_rft": 3 * 2, "evaluate": 1 + 3 * (3 + 6 + 4 + 2)}
    jobs, hours = plan_and_hours(project, "small.yaml")
    assert expected.items() <= jobs.items()
    assert expected.keys() <= hours.keys()  # each has a price
    assert 3 < sum(hours.values()) < 30  # "some hours" in the file


def test_jobs_read_utf_8_whatever_the_locale(project: Project) -> None:
    (project.root / "encoding.smk").write_text('include: "Snakefile"\nprint("mode", os.environ["PYTHONUTF8"])\n')
    assert "mode 1" in project.snakemake("-n", "--snakefile", "encoding.smk", PYTHONUTF8="0").stdout


def test_more_benchmarks_are_merged(project: Project) -> None:
    jobs = papers_with_one_seed(project, "benchmarks")
    assert (jobs["check_leakage"], jobs["evaluate"]) == (5, 2 * (1 + 10))


def test_every_confounder_of_the_papers_grid(project: Project) -> None:
    # Per model and seed, beside the grid's own jobs: n-matched, equal-steps and ipo at 6 K, from-warmup at 5; per-k and
    # untruncated warm up, are harvested, trained and evaluated twice at 5 K each; untruncated-alone only warms up, at
    # 5 K.
    jobs = papers_with_one_seed(project, "confounders")
    expected = {"train_grpo": 2 * (6 + 10 + 5), "harvest_rollouts": 2 * (6 + 10), "build_pairs": 2 * (6 + 10)}
    expected |= {"train_dpo": 2 * (6 + 3 * 6 + 5 + 10), "evaluate": 2 * (1 + 6 + 2 + 3 * 6 + 5 + 20 + 5)}
    expected |= {"calibrate": 2, "calibrate_temperature": 2 * 2}
    assert expected.items() <= jobs.items()


def test_every_control_of_the_papers_grid(project: Project) -> None:
    """Per model and seed: three more warm-ups, and harvest, pairs and DPO at K=0 too, where M0's rollouts are there."""
    alone = papers_with_one_seed(project)
    jobs = papers_with_one_seed(project, "controls")
    expected = {"train_grpo": 2 * 3 * 5, "harvest_rollouts": 2 * 3 * 6, "build_pairs": 2 * 3 * 6}
    assert jobs - alone == expected | {"train_dpo": 2 * 3 * 6, "evaluate": 2 * 3 * (6 + 5)}
    assert jobs["calibrate"] == alone["calibrate"]


def test_one_k_of_the_papers_grid(project: Project) -> None:
    jobs = project.planned("k150", "--config", "seeds=[0]", "--configfile", str(REPOSITORY / "config/paper.yaml"))
    expected = {"train_grpo": 2, "harvest_rollouts": 2, "train_dpo": 2, "evaluate": 4}
    assert expected.items() <= jobs.items()


def test_a_value_on_the_command_line(project: Project) -> None:
    assert project.planned("harvest", "--config", "seeds=[0, 1, 2]")["harvest_rollouts"] == 9


def test_jobs_import_packages_of_the_users_path(project: Project) -> None:
    """For example the plugin of a reward."""
    (project.root / "plugins").mkdir()
    (project.root / "plugins/brevity.py").touch()
    rule = "rule probe:\n    output: 'probe.txt'\n    shell: 'python -c \"import brevity, g2d\" && touch {output}'\n"
    (project.root / "probe.smk").write_text(f'include: "workflow/Snakefile"\n\n\n{rule}')
    path = f"{project.root}/src:{project.root}/plugins"
    done = project.snakemake("--snakefile", "probe.smk", "--cores", "1", "probe.txt", PYTHONPATH=path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"warmup": {"stepss": [0]}}, "config.yaml: warmup.stepss: unknown key; did you mean steps?"),
        ({"pool": {"source": "local", "path": "absent.jsonl"}}, "pool.path: absent.jsonl does not exist"),
    ],
)
def test_a_mistake_is_one_message_before_any_job(
    project: Project, micro_config: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    project.configure({**micro_config, **changes, "ablations": {}})
    assert message in project.refused("--cores", "1")
    assert not project.results.exists()


def test_a_key_given_twice_is_refused_in_every_file_that_snakemake_reads(
    project: Project, micro_config: dict[str, Any]
) -> None:
    (project.root / "first.yaml").write_text(yaml.safe_dump(micro_config))
    (project.root / "second.yaml").write_text("seeds: [0]\ntitle: Merged\nseeds: [1]\n")
    printed = project.refused("-n", "--configfile", "first.yaml", "second.yaml")
    assert "second.yaml: seeds: given twice, in lines 1 and 3, and the last would win: drop one" in printed


def test_a_mistake_in_config_is_not_called_one_of_the_file(project: Project) -> None:
    assert re.search(r"^--config: seeds: ", project.refused("-n", "--config", "seeds=3"), re.M)


def test_an_unreachable_model_is_named_before_any_job(project: Project, micro_config: dict[str, Any]) -> None:
    model = {"source": "hub", "id": "nobody/nothing", "revision": "a" * 40}
    project.configure(micro_config | {"models": {"mine": model}})
    printed = project.refused("--cores", "1", HF_HOME=str(project.root / "cache"))
    assert "models.mine: nobody/nothing at aaaaaaaa is not in the local cache" in printed
    assert not project.results.exists()


def test_configuration_files_are_the_ones_shipped(project: Project) -> None:
    """The demonstration is what `snakemake --cores 2` runs; its grid stays small."""
    demo = yaml.safe_load(Path(REPOSITORY / "config/config.yaml").read_text())
    project.configure(demo)
    jobs = project.planned()
    assert jobs["embedded_model"] == 1
    n = sum(jobs.values())
    assert 100 < n < 200
    # So many are folded: one of every rule is listed.
    plan = project.snakemake("-n").stdout
    assert f"{n} jobs, of which the first of every rule is listed; --verbose lists all." in plan
    listed = plan.partition("\ntotal ")[2].partition("\nJob stats:")[0].split("\n\n")[-1].strip().splitlines()
    assert len(listed) == len(jobs)
    assert "All tables, figures and the page" in listed


def test_files_of_the_configuration_may_be_in_the_results(project: Project, micro_config: dict[str, Any]) -> None:
    """Only results that jobs need from each other must have a rule."""
    mine = project.results / "of-another-run/problems.jsonl"
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text('{"problem": "1 + 1", "answer": "2"}\n')
    named = {"source": "local", "path": str(mine.relative_to(project.root))}
    project.configure(micro_config | {"benchmarks": {"mine": named}})
    assert project.planned()["load_problems"] == 2


def test_independent_runs_instead_of_a_chain(project: Project, micro_config: dict[str, Any]) -> None:
    project.configure(micro_config | {"warmup": micro_config["warmup"] | {"schedule": "per_k"}})
    assert project.planned("results/micro/seed0/grpo/g2/k4/policy.json")["train_grpo"] == 1


def test_every_rule_has_a_message_a_log_and_a_benchmark(project: Project) -> None:
    rules = set(project.snakemake("--list-rules").stdout.split())
    scripts = set()
    for file in (REPOSITORY / "workflow/rules").glob("*.smk"):
        _, *blocks = re.split(r"^ *(?:rule|checkpoint)(?= \w+:|:\n)", file.read_text(), flags=re.M)
        for block in blocks:
            name = block.split(":")[0].strip()  # none in a loop
            rules |= {name} - {""}
            for directive in ("log", "benchmark", "message", "params"):
                assert re.search(rf"\n +{directive}:", block), f"{file.name}: rule {name} lacks {directive}"
            assert (f'version=VERSIONS["{name}"]' if name else "version=VERSIONS[") in block
            scripts |= set(re.findall(r'"\.\./scripts/(\w+)\.py"', block))
            script = "train" if name.startswith("train_") else name  # one for all trainings
            assert script in ("", *re.findall(r"/(\w+)\.py", block))
    assert scripts == {file.stem for file in (REPOSITORY / "workflow/scripts").glob("*.py")}
    assert set(VERSIONS) <= rules


def test_scripts_import_no_heavy_package_before_their_stage() -> None:
    """Imports at the top of a script are in no cost and no log, and would leave the Hub's client online."""
    heavy = {"torch", "transformers", "trl", "peft", "datasets", "vllm", "huggingface_hub", "math_verify", "sympy"}
    heavy.add("scipy.stats")
    scripts = sorted(map(str, (REPOSITORY / "workflow/scripts").glob("*.py")))
    lines = ["import runpy, sys", f"for script in {scripts}:", "    runpy.run_path(script, run_name='imported')"]
    lines.append(f"print(sorted({heavy} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_leak_stops_the_run(project: Project, micro_config: dict[str, Any]) -> None:
    (project.root / "pool.jsonl").write_text(
        '{"problem": "Compute $2 + 1$.", "answer": "3", "level": 1}\n'
        '{"problem": "Compute $3 + 1$.", "answer": "4", "level": 2}\n'
        '{"problem": "Compute $4 + 1$.", "answer": "5", "level": 3}\n'
    )
    (project.root / "held-out.jsonl").write_text('{"problem": "compute  3 + 1", "answer": "4"}\n')
    local = {"pool": {"source": "local", "path": "pool.jsonl", "fields": {"level": "level"}}, "training_set": {"n": 3}}
    project.configure(
        micro_config | local | {"benchmarks": {"held-out": {"source": "local", "path": "held-out.jsonl"}}}
    )
    done = project.snakemake("--cores", "1", "results/problems/held-out.leakage.json")
    assert done.returncode != 0
    assert "check_leakage: " in done.stdout
    assert "held-out" in done.stdout
    assert not (project.results / "problems/held-out.leakage.json").exists()


def test_lint_passes_where_only_snakemake_is_installed(project: Project, tmp_path: Path) -> None:
    """As the workflow catalogue runs it."""
    script = tmp_path / "only_snakemake.py"
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "sys.path[:] = [folder for folder in sys.path if not Path(folder, 'g2d').is_dir()]\n"
        "from snakemake.cli import main\n"
        "sys.modules.update(dict.fromkeys(['numpy', 'pandas', 'pyarrow', 'scipy', 'torch', 'transformers', 'trl']))\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, str(script)]
    environment = os.environ | {"PYTHONPATH": ""}
    for arguments, status, said in (
        (["--lint"], 0, "your workflow is in a good condition"),
        (["--cores", "1", "k0"], 1, "install the package into this environment first"),
    ):
        done = subprocess.run(
            [*command, *arguments], cwd=project.root, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stderr
        assert said in done.stdout + done.stderr


def test_another_snakemake_is_refused_by_name(project: Project, tmp_path: Path) -> None:
    """One in which what the workflow patches may be another thing."""
    for change, version in (
        ("sys.modules['snakemake'].__version__ = '10.1.0'", "10.1.0"),
        ("del sys.modules['snakemake.dag'].DAG.reason", ""),
    ):
        script = tmp_path / "another.py"
        script.write_text(f"import sys; from snakemake.cli import main; {change}; main(['-n'])")
        environment = os.environ | {"PYTHONPATH": str(project.root / "src")}
        status, printed = forked.call([str(script)], project.root, environment)
        assert status != 0
        assert re.search(rf"Snakemake {version}.* is not one that this workflow is made for", printed)


def test_the_plan_of_the_paper_is_short_and_its_reasons_are_printed_if_asked_for(project: Project) -> None:
    plan = project.snakemake("-n", *shipped("paper.yaml")).stdout
    assert len(plan.encode()) < 20_000
    assert "Missing output files" not in plan
    assert "Missing output files" in project.snakemake("-n", "--quiet", "host", *shipped("paper.yaml")).stdout


def test_targets_are_listed(project: Project) -> None:
    listed = project.snakemake("--list-target-rules").stdout
    assert {"calibration", "harvest", "tables", "k0", "k2"} <= set(listed.split())


@pytest.mark.skipif(find_spec("snakemake_storage_plugin_fs") is None, reason="needs a storage plugin")
def test_a_storage_is_refused(project: Project) -> None:
    output = project.refused("-n", "--default-storage-provider", "fs", "--default-storage-prefix", "somewhere")
    assert "--default-storage-provider fs: results cannot be in a storage: drop it, and name a folder of" in output
