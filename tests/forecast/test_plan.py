"""`g2d plan`: memory, tokens and proposed changes."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import LlamaConfig

from g2d.checks.load import load, read
from g2d.cli import main
from g2d.config.file import merged, read_file
from g2d.forecast.plan import _screen, model_forecast, sampling_change, training_change
from g2d.forecast.workloads import sampling_loads, trainings
from g2d.grid.grid import Grid
from g2d.memory.estimate import Forecast
from g2d.memory.passes import Counted, config_file, model_config, model_shape, skeleton
from g2d.policies.model_keys import HubModel, Lora
from g2d.rollouts.free_memory import GIB
from tests.configs import MINIMAL

SMALL = "config/small.yaml"
NAME = "qwen2.5-0.5b-instruct"


def without_online_entries(file: Path, **changes: Any) -> Path:
    """Write small.yaml without its online entries, whose batches take long to count."""
    values = read_file(SMALL)
    values["regimes"] = {name: entry for name, entry in values["regimes"].items() if entry["regime"] == "rft"}
    file.write_text(yaml.safe_dump(merged(values, changes)))
    return file


def job(model: dict[str, Any], name: str) -> dict[str, Any]:
    return next(job for job in model["jobs"] if name in job["job"].split(", "))


TOKENS = {"job": "grpo", "completions": 25_600, "tokens": 8_192_000, "budget": 320}  # 200 steps of 16 x 8 completions


@pytest.fixture(scope="module")
def on_a_large_card(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The plan of small.yaml on a card of 24 GiB, on which every job fits."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        code = main(["plan", str(without_online_entries(tmp_path_factory.mktemp("plan") / "given.yaml")), *ON_24_GIB])
    assert code == 0
    return json.loads(printed.getvalue())["models"][0]


ON_24_GIB = ("--json", "--memory", "24")


def test_every_job_fits_a_card_that_is_large_enough(on_a_large_card: dict[str, Any]) -> None:
    for planned in on_a_large_card["jobs"]:
        assert planned["verdict"] == "fits"


def test_the_memory_of_a_job_is_the_sum_of_its_parts(on_a_large_card: dict[str, Any]) -> None:
    grpo = job(on_a_large_card, "grpo")
    parts = {part["name"]: part["bytes"] for part in grpo["parts"]}
    assert parts["weights"] == 2 * on_a_large_card["parameters"]
    assert parts["adapter, gradient, Adam"] == 16 * on_a_large_card["adapter"]
    assert parts["vLLM"] == int(0.3 * 24 * 2**30)
    assert grpo["total_bytes"] == sum(parts.values())


def test_the_tokens_of_a_job_are_counted(on_a_large_card: dict[str, Any]) -> None:
    assert TOKENS in on_a_large_card["tokens"]


def test_the_screen_has_the_largest_pass_and_the_automatic_choices(on_a_large_card: dict[str, Any]) -> None:
    screen = _screen(on_a_large_card, 24)
    assert "16 x 576 tokens, 24 blocks" in " ".join(screen.split())
    assert "auto: per_device_batch_size: 16, gradient_checkpointing: false" in screen
    assert max(len(line) for line in screen.splitlines()) <= 120


def test_without_a_card_tokens_are_counted_and_no_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", SMALL, "--json", "--memory", "0"]) == 0
    model = json.loads(capsys.readouterr().out)["models"][0]
    assert model["jobs"] == []
    assert TOKENS in model["tokens"]
    assert main(["plan", SMALL, "--memory", "0"]) == 0
    assert "peak_memory_bytes" in capsys.readouterr().out


@pytest.fixture(scope="module")
def on_a_small_card(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The plan of small.yaml with a batch size of DPO, on a card of 2.8 GiB."""
    file = without_online_entries(tmp_path_factory.mktemp("plan") / "given.yaml", dpo={"per_device_batch_size": 4})
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert main(["plan", str(file), "--json", "--memory", "2.8"]) == 1
    return json.loads(printed.getvalue())["models"][0]


def test_a_training_that_does_not_fit_needs_a_larger_card(on_a_small_card: dict[str, Any]) -> None:
    assert "larger card" in job(on_a_small_card, "grpo")["change"]


def test_another_batch_size_is_proposed_if_one_is_configured(on_a_small_card: dict[str, Any]) -> None:
    dpo = job(on_a_small_card, "dpo")
    assert dpo["verdict"] == "tight"
    assert "set dpo.per_device_batch_size to" in dpo["change"]


def test_an_automatic_batch_size_is_smaller_on_a_smaller_card(on_a_small_card: dict[str, Any]) -> None:
    rft = job(on_a_small_card, "rft")
    assert (rft["verdict"], rft["change"]) == ("fits", None)
    assert re.fullmatch("per_device_batch_size: [1248], gradient_checkpointing: true", rft["passes"])


def test_each_training_has_the_section_of_its_keys() -> None:
    config = read("config/bridging.yaml")
    model = next(iter(config.models))
    sections = {training.name: training.section for training in trainings(Grid(config), model)}
    entries = {name: f"regimes.{name}" for name in config.regimes}
    assert entries.keys() >= {"s100", "s10", "s5", "online", "group-dpo"}
    assert sections == entries | {"grpo": "warmup", "dpo": "dpo"}


def test_a_model_that_is_too_large_for_a_card_needs_another() -> None:
    """6 billion parameters and their training state do not fit on a card of 12.5 GiB."""
    model = LlamaConfig(
        vocab_size=32000, hidden_size=4096, intermediate_size=57344, num_hidden_layers=8, num_attention_heads=32,
        num_key_value_heads=4, tie_word_embeddings=False,
    )  # fmt: skip
    config = load(MINIMAL)
    grpo = next(training for training in trainings(Grid(config), "demo") if training.section == "warmup")
    forecast = Forecast(model_shape(model, Lora()), Counted(model, Lora()), config.engine, int(12.5 * GIB), 256)
    need = forecast.training(grpo)
    assert need.verdict == "does not fit"
    assert "use a larger card, or a smaller model" in str(training_change(grpo, need, forecast))


def test_a_training_that_fits_without_vllm_beside_it_is_told_so() -> None:
    """A 7B model on 24 GiB: vLLM's second copy of the weights does not fit beside the trainer's."""
    model = LlamaConfig(
        vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
        num_key_value_heads=4, tie_word_embeddings=False,
    )  # fmt: skip
    config = load(MINIMAL | {"engine": {"name": "vllm"}})
    grpo = next(training for training in trainings(Grid(config), "demo") if training.section == "warmup")
    forecast = Forecast(model_shape(model, Lora()), Counted(model, Lora()), config.engine, 24 * GIB, 256)
    change = training_change(grpo, forecast.training(grpo), forecast)
    assert str(change).startswith("set engine.name to transformers: grpo G=2 then fits")


JUDGE = {"reward": "model", "id": "Skywork/Skywork-Reward-V2-Qwen3-0.6B", "revision": "8" * 40, "batch_size": 1}
CONTROL = {"steps": [150], "reward": "judge", "policies": ["dpo", "grpo"]}


def judged(tmp_path: Path, engine: str) -> tuple[Any, Forecast]:
    """A small model, and a grid with an ablation that a reward model of 1.1 GiB judges."""
    config = load(MINIMAL | {"rewards": {"judge": JUDGE}, "ablations": {"liked": CONTROL}, "engine": {"name": engine}})
    model = LlamaConfig(
        vocab_size=300, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4
    )
    return Grid(config), Forecast(model_shape(model, Lora()), Counted(model, Lora()), config.engine, 4 * GIB, 256)


def test_a_reward_model_is_counted_in_trainings_and_harvests_that_it_judges(tmp_path: Path) -> None:
    grid, _ = judged(tmp_path, "transformers")
    loads = {load.name: load.scorers for load in trainings(grid, "demo")}
    loads |= {load.name: load.scorers for load in sampling_loads(grid, "demo")}
    scored = {name for name, scorers in loads.items() if scorers}
    assert scored == {"grpo of liked", "harvest of liked"}
    assert {scorer.name for name in scored for scorer in loads[name]} == {"judge"}


def test_a_reward_model_that_does_not_fit_beside_vllm_lowers_its_share(tmp_path: Path) -> None:
    grid, forecast = judged(tmp_path, "vllm")
    harvest = next(load for load in sampling_loads(grid, "demo") if load.scorers)
    need = forecast.sampling(harvest)
    assert need.verdict == "does not fit"
    change = str(sampling_change(harvest, need, forecast))
    share = float(re.match(r"set engine\.gpu_memory_utilization to (\S+): rewards\.judge needs 1\.", change)[1])
    lower = replace(forecast, engine=forecast.engine.model_copy(update={"gpu_memory_utilization": share}))
    assert lower.sampling(harvest).verdict == "fits"


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_a_reward_model_that_fits_with_no_share_is_named(tmp_path: Path, engine: str) -> None:
    grid, forecast = judged(tmp_path, engine)
    small, smaller = [replace(forecast, memory=int(size * GIB)) for size in (2, 1.5)]
    training = next(training for training in trainings(grid, "demo") if training.scorers)
    harvest = next(load for load in sampling_loads(grid, "demo") if load.scorers)
    assert "use a smaller reward model" in str(training_change(training, small.training(training), small))
    assert "use a smaller reward model" in str(sampling_change(harvest, smaller.sampling(harvest), smaller))


def test_a_reward_model_without_config_json_is_missing(tmp_path: Path) -> None:
    rewards = {"judge": JUDGE | {"id": "somebody/reward"}}
    config = load(MINIMAL | {"rewards": rewards, "ablations": {"liked": CONTROL}})
    plan = model_forecast(config, "demo", {"demo": tmp_path / "config.json"}, GIB)
    assert str(plan["missing"]).startswith("rewards.judge: config.json of somebody/reward is not in the Hub's cache")


# Counts that the publishers state.
PARAMETERS = {"Qwen2.5-0.5B": 494_032_768, "Qwen2.5-7B": 7_615_616_512, "Llama-3.1-8B": 8_030_261_248}


@pytest.mark.parametrize("file", ["paper", "small", "bridging", "off_policy"])
def test_models_of_shipped_configurations_need_no_downloads(file: str) -> None:
    config = read(f"config/{file}.yaml")
    for name, source in config.models.items():
        assert isinstance(source, HubModel)
        one = skeleton(model_config(config_file(name, source)), None, dtype=torch.bfloat16)
        assert one.num_parameters() == PARAMETERS[source.id.rpartition("/")[2].removesuffix("-Instruct")]


def test_without_config_json_it_prints_how_to_fetch_only_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path("config/paper.yaml").read_text().replace("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B")
    (tmp_path / "other.yaml").write_text(other)
    assert main(["plan", str(tmp_path / "other.yaml"), "--models", "qwen2.5-7b-instruct"]) == 1
    output = capsys.readouterr().out
    assert "hf download Qwen/Qwen2.5-7B config.json --revision a09a35458c702b33eeacc393d103063234e8bc28" in output
    assert "12,000 completions x 512 = 6,144,000" in output


@pytest.mark.parametrize(
    ("given", "named"),
    [(["--models", "nobody"], "--models nobody"), (["--config-json", "nobody=x"], "--config-json nobody=x")],
)
def test_an_unknown_model_is_named(given: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", SMALL, *given]) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize("text", ["no json", "[1]", "{}"])
def test_a_config_json_without_a_model_is_named_without_advice_to_delete_it(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    assert main(["plan", SMALL, "--config-json", f"{NAME}={tmp_path / 'config.json'}"]) == 2
    output = capsys.readouterr().err
    assert f"{tmp_path / 'config.json'}: no " in output
    assert "delete" not in output


def with_a_window(folder: Path, tokens: int, **changes: Any) -> Path:
    """Write a configuration of a model without weights that reads so many tokens."""
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "vocab_size": 128}
    LlamaConfig(num_hidden_layers=1, max_position_embeddings=tokens, **shape).save_pretrained(folder / "model")
    sections = {key: {"max_completion_length": 96} for key in ("calibration", "harvest", "evaluation", "warmup")}
    models = {"models": {"mine": {"source": "local", "path": str(folder / "model")}}}
    (folder / "mine.yaml").write_text(yaml.safe_dump(MINIMAL | models | sections | changes))
    return folder / "mine.yaml"


def test_prompts_are_not_longer_than_the_model_can_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(with_a_window(tmp_path, 128)), "--memory", "24"]) == 0
    assert "on a card of 24 GiB, prompts of at most 32 tokens" in capsys.readouterr().out


def test_an_assumed_card_is_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # without nvidia-smi
    assert main(["plan", str(with_a_window(tmp_path, 1024))]) == 0
    assert "on a card of 80 GiB (assumed: there is none here; --memory GiB sets it), " in capsys.readouterr().out


def test_wrong_target_modules_are_named_as_by_config_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lora = {"lora": {"target_modules": ["v_porj"]}}
    assert main(["plan", str(with_a_window(tmp_path, 1024, **lora)), "--memory", "24"]) == 2
    message = "models.mine: lora.target_modules: no module is named v_porj; the model has down_proj"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--prompt-tokens", "0"], ["--memory", "-1"], ["--memory", "inf"]])
def test_a_number_out_of_range_is_refused(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", SMALL, *more])
    assert more[0] in capsys.readouterr().err


def test_a_training_is_counted_with_its_own_group_size_and_an_untrained_one_is_not() -> None:
    """`wide` has no DPO."""
    wide = {"steps": [1], "warmup": {"group_sizes": [4], "max_completion_length": 64}, "policies": ["grpo"]}
    config = load(MINIMAL | {"ablations": {"wide": wide}})
    grid = Grid(config)
    by_section = {training.section: training for training in trainings(grid, "demo")}
    warmup = grid.runs["demo"]["wide/grpo"].settings
    assert by_section["ablations.wide.warmup"].completions == warmup.completions_per_step(4)
    assert "ablations.wide.dpo" not in by_section
