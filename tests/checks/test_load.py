"""The configuration: mistakes are named with file, key and fix, the docs are generated."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from docs import keys as config_docs
from g2d.checks.load import load, read
from g2d.checks.requirements import require_files, require_installed
from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.problems import Problem
from g2d.problems.prompts import conversation
from g2d.regimes.common.checkpoints import Checkpointing
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.offline.dpo import Dpo
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
    read(*(CONFIG.parent / named for named in [*bases, last]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seeds", [0, 1, 2, 3, 4]),
        ("warmup.steps", [0, 150, 300, 500, 700, 1000]),
        ("warmup.learning_rate", 1e-5),
        ("warmup.max_completion_length", 384),
        ("warmup.temperature", 0.8),
        ("lora.r", 16),
        ("lora.alpha", 32),
        ("lora.dropout", 0.05),
        ("harvest.samples_per_prompt", 8),
        ("harvest.temperature", 1.3),
        ("dpo.beta", 0.1),
        ("dpo.epochs", 3),
        ("dpo.learning_rate", 5e-5),
    ],
)
def test_a_default_is_the_papers_value(name: str, value: object) -> None:
    assert attrgetter(name)(load(MINIMAL)) == value


def test_paper_grid_states_the_papers_budgets() -> None:
    paper = read(CONFIG / "paper.yaml")
    budgets = {name: paper.for_model(name).harvest.max_completion_length for name in paper.models}
    assert budgets == {"qwen2.5-7b-instruct": 512, "llama-3.1-8b-instruct": 896}
    assert paper.warmup.max_completion_length == 384
    assert paper.baselines.grpo_group_sizes == [2, 4]


@pytest.fixture(scope="module")
def bridging() -> Config:
    return read(CONFIG / "bridging.yaml")


def test_bridgings_entries_differ_in_their_syncs_and_references(bridging: Config) -> None:
    periods = {name: (entry.sync_every, entry.reference) for name, entry in bridging.regimes.items()}
    assert periods == {
        "offline": ("never", "base"),
        "s100": (100, "sync"),
        "s10": (10, "sync"),
        "s5": (5, "sync"),
        "online": (1, "sync"),
        "online-fixed-reference": (1, "base"),
        "group-dpo": (100, "sync"),
    }
    assert [name for name, entry in bridging.regimes.items() if entry.pairs == "all"] == ["group-dpo"]


def test_bridgings_settings_are_those_of_table_4(bridging: Config) -> None:
    grpo = bridging.warmup
    assert (grpo.beta, grpo.prompts_per_step, grpo.group_sizes) == (0.001, 64, [8])
    for entry in bridging.regimes.values():
        assert (entry.beta, entry.max_grad_norm) == (0.1, 1.0)
        assert (entry.prompts_per_update, entry.responses, entry.max_completion_length) == (64, 8, 2048)


def test_bridgings_adam_epsilon_has_the_relation_to_the_gradient_of_full_fine_tuning(bridging: Config) -> None:
    """Weights of Llama-3.1-8B, and of adapters on q, k, v, o, gate, up and down: rank x (inputs + outputs)."""
    full = 8_030_261_248
    of_layer = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)
    adapter = bridging.lora.r * 32 * of_layer
    for entry in bridging.regimes.values():
        assert entry.adam_epsilon == pytest.approx(1e-4 * (full / adapter) ** 0.5, rel=0.02)


def test_bridgings_grpo_has_the_optimizer_of_dpo_for_its_scale_of_the_loss(bridging: Config) -> None:
    """Equation 1 sums over the tokens of a group, dr_grpo divides by this number."""
    grpo = bridging.warmup
    scale = grpo.group_sizes[0] * grpo.max_completion_length
    for entry in bridging.regimes.values():
        assert entry.learning_rate == grpo.learning_rate
        assert entry.adam_epsilon / scale == pytest.approx(grpo.adam_epsilon, rel=0.01)
        assert entry.max_grad_norm / scale == pytest.approx(grpo.max_grad_norm, rel=0.01)


def test_bridgings_prompt_asks_for_reasoning_and_a_boxed_answer(bridging: Config) -> None:
    [message] = conversation(Problem("p", "1 + 1?", "2", None, None, "a test"), bridging.prompt)
    assert message["content"].startswith("Given the following problem, reason and give a final answer")
    assert "Problem: 1 + 1?" in message["content"]
    assert r"$\boxed{[answer]}$" in message["content"]


@pytest.fixture(scope="module")
def off_policy() -> dict[str, Warmup]:
    """The warm-ups of "Revisiting GRPO" by the names of their ablations."""
    config = read(CONFIG / "off_policy.yaml")
    runs = Grid(config).any_runs
    return {name: runs[f"{name}/grpo"].settings for name in config.ablations}


def test_revisiting_grpos_runs_have_its_settings(off_policy: dict[str, Warmup]) -> None:
    for run in off_policy.values():
        assert run.completions_per_step(16) == 28 * 16
        assert (run.beta, run.temperature, run.max_completion_length) == (0.1, 0.1, 200)


def test_revisiting_grpos_runs_end_with_its_epochs(off_policy: dict[str, Warmup]) -> None:
    """GSM8K has 7,473 problems; `i10` takes one epoch, the others four."""
    assert off_policy["i10"].total_steps == 2670
    assert off_policy["i10"].prompts_asked(2670, 16) == 7476
    for name in off_policy.keys() - {"i10"}:
        run = off_policy[name]
        assert 4 * 7473 <= run.prompts_asked(run.total_steps, 16) < 4 * 7473 + 10 * 28, name


def test_revisiting_grpos_reference_is_swapped_after_each_epoch(off_policy: dict[str, Warmup]) -> None:
    for name, run in off_policy.items():
        steps = range(1, run.total_steps + 1)
        swaps = [step for step in steps if run.swaps_reference(step, 16, 7473)]
        if name == "i10":
            assert swaps == []
        elif run.updates_per_generation == 1:
            assert swaps == [267, 534, 801, 1068]
        else:
            assert swaps == run.steps


def test_revisiting_grpos_runs_differ_in_updates_ratios_and_masks(off_policy: dict[str, Warmup]) -> None:
    assert {run.updates_per_generation for run in off_policy.values()} == {1, 10}
    assert {run.ratio for run in off_policy.values()} == {"sampler", "none"}
    assert {name for name, run in off_policy.items() if run.mask_uniform_groups} == {"masked", "v10-masked"}


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
        ({"warmup": {"schedule": "per_k", "auto": {}}}, "my.yaml: warmup: auto continues one training"),
        ({"warmup": {"sync_every": 5, "auto": {"every": 12}}}, "auto.every=12 is no multiple of warmup.sync_every=5"),
        ({"warmup": {"steps": [100], "auto": {}}}, "auto could never stop: a decline shows at step 200"),
        ({"warmup": {"auto": {"prompts": 2000}}}, "warmup.auto.prompts=2000 exceeds training_set.n=1500 of demo"),
        ({"ablations": {"x": {"steps": [150], "warmup": {"auto": {}}}}}, "ablations.x: warmup.auto: "),
        ({"calibration": {"window": [0.6, 0.3]}}, "window [0.6, 0.3] is empty"),
        ({"calibration": {"levels": []}}, "levels is empty"),
        ({"calibration": {"factorial_temperatures": [1.3]}}, "factorial_temperatures repeat"),
        ({"prompt": {"template": "Solve it."}}, "the template never mentions {problem}"),
        ({"prompt": {"template": "Q: {{problem}}"}}, "write {problem}: the outer braces would be printed"),
        ({"prompt": {"open_ended": "{{ problem }}"}}, "write {problem}: the outer braces would be printed"),
        (
            {"prompt": {"template": "{question}"}},
            "the template has {question}, but the problem is {problem}: write that",
        ),
        (
            {"prompt": {"template": "{question}: {problem}"}},
            "the template has {question}, but the problem is {problem}: write that, or drop it",
        ),
        ({"models": {"demo": {"source": "scrach"}}}, "models.demo.source: 'scrach' is unknown; use 'embedded'"),
        ({"models": {"a/b": {"source": "embedded"}}}, "models.a/b"),
        ({"models": {"demo": {"source": "hub", "id": "a/b"}}}, "models.demo.revision: missing; add this key"),
        ({"models": {"demo": {"source": "hub", "id": "a/b", "revision": "main"}}}, "my.yaml: models.demo.revision: "),
        (
            of_demo({"harvest": {"temprature": 1}}),
            "models.demo.settings.harvest.temprature: unknown key; did you mean temperature?",
        ),
        (of_demo({"seeds": [1]}), "models.demo.settings.seeds: "),
        ({"verifier": "x.py"}, "my.yaml: verifier: expected a section with keys such as file, source, not 'x.py'"),
        (
            {"regimes": {True: {"regime": "rft"}}},
            "my.yaml: regimes: True is no name: YAML reads on, off, yes and no as",
        ),
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
        (
            {"ablations": {"x": {"steps": [150], "dpo": {"beta": 0.1}}}},
            "my.yaml: ablations.x: dpo.beta has the value of the main policies, which would be trained again: ",
        ),
        (
            {"ablations": {"x": {"steps": "all", "dpo": {"beta": 0.1}, "warmup": {"temperature": 0.8}}}},
            "my.yaml: ablations.x: dpo.beta, warmup.temperature have the values of the main policies",
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
    for line in str(error.value).splitlines():
        assert line.startswith("my.yaml: ")


HELD_OUT = MINIMAL["benchmarks"]["held-out"]


@pytest.mark.parametrize(
    "changes",
    [
        {"benchmarks": {"more": HELD_OUT | {"n": 20}, "other": HELD_OUT | {"seed": 1}}},
        {"models": MINIMAL["models"] | {"hot": {"source": "embedded", "settings": {"harvest": {"temperature": 1.5}}}}},
        {"calibration": {"samples_per_prompt": 1, "levels": [1]}, "training_set": {"n": 400}},
        {"ablations": {"x": {"steps": [150], "dpo": {"beta": 0.1, "epochs": 1}}}},
        of_demo({"dpo": {"beta": 0.3}}) | {"ablations": {"x": {"steps": [150], "dpo": {"beta": 0.1}}}},
        {
            "models": MINIMAL["models"] | {"other": {"source": "embedded", "settings": {"dpo": {"beta": 0.3}}}},
            "ablations": {"x": {"steps": [150], "dpo": {"beta": 0.1}}},
        },
        {"ablations": {"x": {"steps": [170], "warmup": {"temperature": 0.8}}}},
        {"prompt": {"template": r"\text{{problem}} in \boxed{answer}, {answer} or <solution>{solution}</solution>."}},
    ],
    ids=[
        "almost one benchmark twice",
        "a model with other settings",
        "one sample for pinned levels",
        "an ablation with one changed key of two",
        "an ablation of a model with settings",
        "an ablation that equals one model of two",
        "an ablation at another K",
        "braces",
    ],
)
def test_unusual_valid_values_are_accepted(changes: dict[str, Any]) -> None:
    load(MINIMAL | changes)


def test_a_training_set_larger_than_the_file_of_the_pool_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "pool.jsonl"
    file.write_text('{"problem": "1 + 1?", "answer": "2"}\n\n' * 3)
    values = MINIMAL | {"pool": {"source": "local", "path": str(file)}}
    with pytest.raises(ConfigError, match=r"^training_set\.n=4 of demo exceeds the 3 problems of .*pool\.jsonl"):
        require_files(load(values | {"training_set": {"n": 4}}))
    require_files(load(values | {"training_set": {"n": 3}}))


def test_every_mistake_has_its_line() -> None:
    changes = {
        "seeds": [1, 1],
        "models": {name: {"source": "embedded"} for name in ("tables", "Provenance.json", "x", "X")},
        "ablations": {"grpo": {"steps": [0], "dpo": {"beta": 1}}},
        "baselines": {"grpo_group_sizes": [5]},
    }
    with pytest.raises(ConfigError) as error:
        load(MINIMAL | changes, "my.yaml")
    assert [line.split(": ")[1] for line in str(error.value).splitlines()] == [
        "seeds repeat",
        "models.tables",
        "models.Provenance.json",
        "ablations.grpo",
        "models.X",
        "baselines.grpo_group_sizes",
    ]


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


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": {"tensor_parallel_size": 2}},
        of_demo({"engine": {"tensor_parallel_size": 2}}),
        {"logging": {"report_to": "wandb"}},
        {"training": {"gradient_checkpointing": True}},
    ],
)
def test_technical_keys_are_not_part_of_the_identity(changes: dict[str, Any]) -> None:
    assert load(MINIMAL | changes).identity == load(MINIMAL).identity


def test_the_engine_is_part_of_the_identity() -> None:
    assert load(MINIMAL | {"engine": {"name": "vllm"}}).identity != load(MINIMAL).identity


def test_an_identity_is_a_configuration_with_this_identity() -> None:
    identity = load(MINIMAL).identity
    assert load(identity).identity == identity


BY_PROMPTS = Warmup(prompts_per_step=8)


def test_a_step_of_8_prompts_has_completions_in_proportion_to_the_group_size() -> None:
    assert BY_PROMPTS.completions_per_step(2) == 16
    assert BY_PROMPTS.completions_per_step(4) == 32
    assert Warmup().completions_per_step(2) == Warmup().completions_per_step(4) == 16


def test_a_step_of_8_prompts_has_the_parameters_of_16_completions_with_groups_of_2() -> None:
    """So the paper's reading re-runs no warm-up with G=2."""
    by_prompts = BY_PROMPTS.at(2, 150).params()
    assert by_prompts == Warmup().at(2, 150).params()
    assert list(by_prompts) == list(Warmup().at(2, 150).params())  # also in this order


def test_a_step_of_8_prompts_takes_twice_the_accumulation_steps_with_groups_of_4() -> None:
    twice = {"gradient_accumulation_steps": 8, "prompts_per_step": 8}
    assert BY_PROMPTS.at(4, 150).params() == Warmup().at(4, 150).params() | twice


def test_accumulation_steps_follow_from_prompts_group_size_and_batch() -> None:
    warmup = Warmup(prompts_per_step=2, per_device_batch_size=2, gradient_accumulation_steps=1)
    assert warmup.accumulation_steps(4) == 4


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
    of_policy = warmup.at(g, 150)
    job = Warmup.model_validate(of_policy.params())
    assert job == of_policy
    assert job.completions_per_step(g) == warmup.completions_per_step(g)
    assert job.accumulation_steps(g) == warmup.accumulation_steps(g)


# -------------------------------------------------------------------------------------------------------- neutral keys


class NewerWarmup(Warmup):
    clip: float | None = key(None, "Younger than results that users have.", neutral=None)


class NewerDpo(Dpo):
    nll: float = key(0.0, "Younger than results that users have.", neutral=0.0)


def test_a_key_is_no_parameter_while_it_is_neutral() -> None:
    assert NewerDpo().params() == Dpo().params()
    assert NewerWarmup().at(2, 150).params() == Warmup().at(2, 150).params()


def test_a_key_with_another_value_is_a_parameter() -> None:
    assert NewerDpo(nll=0.5).params() == Dpo().params() | {"nll": 0.5}


def test_a_configuration_for_readers_has_neutral_keys() -> None:
    assert NewerDpo().model_dump()["nll"] == 0.0


def test_a_neutral_key_is_not_part_of_the_identity() -> None:
    config = load(MINIMAL)
    assert config.model_copy(update={"dpo": NewerDpo()}).identity == config.identity


def test_parameters_can_be_chosen_by_name() -> None:
    assert Dpo().params(only={"loss"}) == {"loss": "sigmoid"}
    assert "loss" not in Dpo().params(without={"loss"})


def test_a_batch_size_that_memory_decides_is_a_parameter_with_its_number() -> None:
    assert (Warmup().per_device_batch_size, Dpo().per_device_batch_size) == ("auto", "auto")
    assert Dpo().params() == Dpo(per_device_batch_size=4).params()
    assert Warmup().at(2, 150) == Warmup(per_device_batch_size=4).at(2, 150)


def test_another_batch_size_is_another_parameter() -> None:
    assert Dpo().params() != Dpo(per_device_batch_size=8, gradient_accumulation_steps=2).params()


def test_a_batch_size_that_memory_decides_divides_the_rows_of_the_update() -> None:
    six = Warmup(prompts_per_step=3).at(2, 150)
    assert six == Warmup(per_device_batch_size=2, gradient_accumulation_steps=3).at(2, 150)


def test_a_neutral_value_that_is_not_the_default_is_refused() -> None:
    with pytest.raises(TypeError, match=r"the neutral value 0 of a key must be its default, not 1"):
        key(1, "A key.", neutral=0)
