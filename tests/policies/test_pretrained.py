"""Pretrained base models: only safetensors are read, nothing is unpickled, and their code does not run."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from g2d.policies.model_keys import LocalModel, Lora
from g2d.policies.pretrained import resolve_base
from g2d.policies.record import PolicyRecord, as_json, load_base, load_model, load_tokenizer, read_policy, write_policy
from g2d.problems import Problem, prompts
from g2d.problems.prompts import Example, Prompt, conversation, conversation_ids, render
from g2d.regimes.common.trainers import load_reference, starting_model, with_own_adapter
from tests.models import adapted, tiny_policy

Change = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    shutil.copytree(tiny_policy().base, tmp_path / "model")
    return tmp_path / "model"


def policy(folder: Path) -> PolicyRecord:
    return resolve_base("mine", LocalModel(source="local", path=str(folder)))


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('unpickled')",)


def test_a_model_with_only_pickled_weights_is_refused(model: Path) -> None:
    import torch

    (model / "model.safetensors").unlink()
    torch.save(Bomb(), model / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"no \*\.safetensors in it; convert the model with save_pretrained"):
        policy(model)
    with pytest.raises(OSError, match="safetensors"):  # nor is it loaded when somebody writes the record by hand
        load_base(PolicyRecord("mine/base", "mine", "base", base=str(model)))


def test_pickled_weights_beside_safetensors_are_never_opened(model: Path) -> None:
    import torch

    torch.save(Bomb(), model / "pytorch_model.bin")
    assert load_base(policy(model)).num_parameters() > 0


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("chat_template", "model: the tokenizer has no chat template; use an instruction-tuned model"),
        ("eos_token", "model: the tokenizer has no eos_token, so no completion would end"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_refused_before_anything_runs(model: Path, lost: str, message: str) -> None:
    settings = json.loads((model / "tokenizer_config.json").read_text())
    settings.pop(lost, None)
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    if lost == "chat_template":
        (model / "chat_template.jinja").unlink(missing_ok=True)
    with pytest.raises(ValueError, match=message):
        policy(model)


def test_a_chat_template_without_end_is_refused(model: Path) -> None:
    (model / "chat_template.jinja").write_text("{{ 'x' * 10**10 }}")
    with pytest.raises(ValueError, match=f"{model}: the chat template takes more than .*: use the one that"):
        policy(model)


def test_the_template_of_qwen3_can_disable_thinking(model: Path) -> None:
    from trl.chat_template_utils import qwen3_chat_template

    (model / "chat_template.jinja").write_text(qwen3_chat_template)
    messages = [{"role": "user", "content": "1 + 1?"}]
    thinks = render(load_tokenizer(policy(model)), messages)
    source = LocalModel(source="local", path=str(model), chat_template_kwargs={"enable_thinking": False})
    base = resolve_base("mine", source)
    assert render(load_tokenizer(base), messages) == f"{thinks}<think>\n\n</think>\n\n"
    write_policy(model / "policy.json", base)
    assert read_policy(model / "policy.json") == base
    assert "chat_template_kwargs" not in as_json(policy(model))


@pytest.mark.parametrize("first", ["\n", "  {% if true %}{% endif %}\n", " "])
def test_values_for_a_template_leave_its_first_line_as_it_is(model: Path, first: str) -> None:
    """transformers removes line breaks after a block and spaces before it."""
    template = load_tokenizer(policy(model)).get_chat_template()
    (model / "chat_template.jinja").write_text(first + "{{ tone | default('') }}{{ length | default('') }}" + template)
    messages = [{"role": "user", "content": "1 + 1?"}]
    given = {"tone": "brief length ", "length": 7}
    source = LocalModel(source="local", path=str(model), chat_template_kwargs=given)
    shown = render(load_tokenizer(policy(model)), messages)
    blank = len(shown) - len(shown.lstrip())
    rendered = render(load_tokenizer(resolve_base("mine", source)), messages)
    assert rendered == f"{shown[:blank]}brief length 7{shown[blank:]}"


def prompt_of(base: PolicyRecord, system: str | None = None, examples: Sequence[Example] = ()) -> str:
    tokenizer = load_tokenizer(base)
    problem = Problem("p", "1 + 1?", "2", None, None, "tests")
    asked = conversation(problem, Prompt(system=system, examples=list(examples)))
    assert conversation_ids(tokenizer, asked)
    return render(tokenizer, asked)


@pytest.mark.parametrize(
    ("template", "date", "printed"),
    [
        ("llama3_2", "28 Nov 2026", "Today Date: 28 Nov 2026\n"),
        ("gptoss", "2026-11-28", "Current date: 2026-11-28\n"),  # without a variable, in a macro
    ],
)
def test_a_template_that_prints_todays_date_needs_a_fixed_one(
    model: Path, monkeypatch: pytest.MonkeyPatch, template: str, date: str, printed: str
) -> None:
    from transformers.utils import chat_template_utils

    class Clock(datetime):
        days = 28

        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime(2026, 11, cls.days, 23, 59)

    for module in (chat_template_utils, prompts):
        monkeypatch.setattr(module, "datetime", Clock)
    (model / "chat_template.jinja").write_text(files("trl").joinpath(f"chat_templates/{template}.jinja").read_text())
    fix = re.escape(f'models.NAME.chat_template_kwargs: {{date_string: "{date}"}}')
    with pytest.raises(ValueError, match=f"{model}: the chat template prints today's date.*{fix}"):
        policy(model)
    with pytest.raises(ValueError, match="prints today's date"):  # a template that changed since
        prompt_of(PolicyRecord("mine/base", "mine", "base", base=str(model)), system="Think.")

    source = LocalModel(source="local", path=str(model), chat_template_kwargs={"date_string": date})
    base = resolve_base("mine", source)
    today = prompt_of(base, system="Think.")
    assert printed in today
    Clock.days = 29
    assert prompt_of(base, system="Think.") == today


def test_a_template_may_have_a_date_that_the_prompts_do_not_print(model: Path) -> None:
    """Mistral's prints it only in its own system message."""
    own = "{% set today = strftime_now('%Y-%m-%d') %}{% if messages[0].role != 'system' %}{{ today }}{% endif %}"
    (model / "chat_template.jinja").write_text(own + load_tokenizer(policy(model)).get_chat_template())
    recorded = PolicyRecord("mine/base", "mine", "base", base=str(model))
    assert "1 + 1?" in prompt_of(recorded, system="Think.")
    with pytest.raises(ValueError, match="prints today's date"):
        prompt_of(recorded)


@pytest.mark.parametrize("template", ["qwen3", "deepseek_r1_distill"])
def test_thinking_that_a_template_drops_from_an_example_is_refused(model: Path, template: str) -> None:
    (model / "chat_template.jinja").write_text(files("trl").joinpath(f"chat_templates/{template}.jinja").read_text())
    base = policy(model)
    thinks = Example(problem="2 + 2?", answer="<think>Twice 2.</think>4")
    with pytest.raises(ValueError, match=r"drops a part of the assistant message '<think>.*write in prompt\.examples"):
        prompt_of(base, examples=[thinks])
    assert "Twice 2. So 4" in prompt_of(base, examples=[Example(problem="2 + 2?", answer=" Twice 2. So 4\n")])


def test_a_message_that_a_template_drops_is_refused(model: Path) -> None:
    """Whitespace around a message may change, as Llama's and Gemma's templates trim it."""
    every = "{% for m in messages %}{% if CONDITION %}{{ m.role }}: {{ m.content | trim }}\n{% endif %}{% endfor %}"
    template = model / "chat_template.jinja"
    template.write_text(every.replace("CONDITION", "m.role != 'system'"))
    base = policy(model)
    assert prompt_of(base, examples=[Example(problem=" 2 ", answer=" 2\n")]) == "user: 2\nassistant: 2\nuser: 1 + 1?\n"
    with pytest.raises(ValueError, match=r"drops a part of the system message 'Think\.': write in prompt\.system"):
        prompt_of(base, system="Think.")
    template.write_text(every.replace("CONDITION", "m.role == 'system'"))
    with pytest.raises(ValueError, match=f"{model}: the chat template drops a part of the user message"):
        policy(model)


def test_a_variable_that_the_template_lacks_is_refused_by_name(model: Path) -> None:
    template = load_tokenizer(policy(model)).get_chat_template()
    (model / "chat_template.jinja").write_text("{{ tone }}" + template)
    given = {"tone": "no enable_thinkin", "enable_thinkin": False}
    source = LocalModel(source="local", path=str(model), chat_template_kwargs=given)
    with pytest.raises(ValueError, match=r"has no variable enable_thinkin: drop it from models\.mine\.chat_template"):
        resolve_base("mine", source)
    source = LocalModel(source="local", path=str(model), chat_template_kwargs={"date_string": "28 Nov 2026"})
    with pytest.raises(ValueError, match="has no variable date_string"):
        resolve_base("mine", source)


@pytest.mark.parametrize(
    ("is_own", "fix"),
    [
        (True, "put a complete copy of the model there"),  # nobody could make it again
        (False, "delete the folder to have it made again"),
    ],
)
def test_truncated_weights_name_the_folder_and_a_way_back_that_exists(model: Path, is_own: bool, fix: str) -> None:
    if not is_own:
        placed = model.parent / "results/mine/base/model"
        placed.parent.mkdir(parents=True)
        placed.with_name("policy.json").touch()
        model = model.rename(placed)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match=f"{model}: its weights cannot be read .*; {fix}") as error:
        load_base(PolicyRecord("mine/base", "mine", "base", base=str(model)))
    assert ("delete" in str(error.value)) != is_own


def without_a_layer(weights: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor for name, tensor in weights.items() if "layers.0.mlp" not in name}


def with_a_prefix(weights: dict[str, Any]) -> dict[str, Any]:
    return {f"module.{name}": tensor for name, tensor in weights.items()}


def with_another_shape(weights: dict[str, Any]) -> dict[str, Any]:
    name = "model.layers.0.mlp.down_proj.weight"
    return weights | {name: weights[name][:2].clone()}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (without_a_layer, r"model\.layers\.0\.mlp\.down_proj\.weight and 2 other tensors"),
        (with_a_prefix, "lm_head.weight and .* other tensors"),
        (with_another_shape, r"model\.layers\.0\.mlp\.down_proj\.weight, which"),
    ],
)
def test_weights_that_would_be_drawn_at_random_are_named(model: Path, change: Change, named: str) -> None:
    file = model / "model.safetensors"
    save_file(change(load_file(file)), file, {"format": "pt"})
    message = f"{model}: no weights of the right shape for {named}"
    with pytest.raises(ValueError, match=message):
        policy(model)
    with pytest.raises(ValueError, match=message):  # a record that was written before the weights changed
        load_base(PolicyRecord("mine/base", "mine", "base", base=str(model)))


def test_weights_that_the_model_does_not_have_are_named(model: Path) -> None:
    file = model / "model.safetensors"
    weights = load_file(file)
    save_file(
        weights | {"model.layers.0.self_attn.q_proj.bias": weights["model.norm.weight"].clone()}, file, {"format": "pt"}
    )
    with pytest.raises(ValueError, match=r"unexpected weights model\.layers\.0\.self_attn\.q_proj\.bias, which"):
        policy(model)


@pytest.fixture
def with_mtp(tmp_path: Path) -> Path:
    """A mixture of experts whose published file also predicts several tokens, which its class declares as unused."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    keys = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "moe_intermediate_size": 16}
    keys |= {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "pad_token_id": 0}
    keys |= {"moe_num_experts": 4, "moe_k": 2, "moe_layer_start_index": 1, "moe_layer_end_index": 1}
    folder = tmp_path / "ernie"
    AutoModelForCausalLM.from_config(AutoConfig.for_model("ernie4_5_moe", **keys)).save_pretrained(folder)
    file = folder / "model.safetensors"
    save_file(load_file(file) | {"model.mtp_block.0.weight": torch.zeros(3)}, file, {"format": "pt"})
    return folder


def test_weights_that_the_models_class_declares_as_unused_are_left_out_with_a_line(
    with_mtp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_base(PolicyRecord("mine/base", "mine", "base", base=str(with_mtp)))
    assert f"{with_mtp}: Ernie4_5_MoeForCausalLM does not use model.mtp_block.0.weight\n" in capsys.readouterr().err


def test_a_mistake_in_other_weights_does_not_name_those(with_mtp: Path) -> None:
    file = with_mtp / "model.safetensors"
    weights = load_file(file)
    del weights["model.layers.0.self_attn.q_proj.weight"]
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(
        ValueError, match=r"no weights of the right shape for model\.layers\.0\.\S+, which \w+ would"
    ) as refused:
        load_base(PolicyRecord("mine/base", "mine", "base", base=str(with_mtp)))
    assert "mtp" not in str(refused.value)


def test_an_adapter_without_some_of_its_weights_is_refused_by_every_loader(tmp_path: Path) -> None:
    trained = adapted(tiny_policy(), tmp_path, std=0.1, seed=0)
    file = tmp_path / "adapter_model.safetensors"
    weights = load_file(file)
    lost = min(weights)
    del weights[lost]
    save_file(weights, file, {"format": "pt"})
    without_digest = replace(trained, weights_sha256=None)
    whole = with_own_adapter(load_base(tiny_policy()), Lora(), seed=0)
    whole.add_adapter("ref", whole.peft_config["default"])
    for load in (
        lambda: load_model(without_digest),
        lambda: starting_model(tiny_policy(), without_digest, Lora()),
        lambda: load_reference(whole, tmp_path),
    ):
        with pytest.raises(ValueError, match=f"{file}: no weights for {lost}"):
            load()


def test_a_missing_tokenizer_names_the_folder(model: Path) -> None:
    for file in model.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ValueError, match=f"{model}: its tokenizer cannot be read") as error:
        policy(model)
    assert "put a complete copy of the model there" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_model_without_a_pad_token_pads_with_the_end_of_a_turn(model: Path) -> None:
    settings = json.loads((model / "tokenizer_config.json").read_text())
    assert settings.pop("pad_token")
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = load_tokenizer(policy(model))
    assert tokenizer.pad_token == tokenizer.eos_token


@pytest.mark.parametrize(
    ("file", "known_type", "auto_map"),
    [
        ("config.json", True, {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}),
        ("config.json", False, {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}),
        ("tokenizer_config.json", True, {"AutoTokenizer": ["code.Tokenizer", None]}),
    ],
)
def test_code_that_comes_with_a_model_is_not_run(
    model: Path, file: str, known_type: bool, auto_map: dict[str, object]
) -> None:
    values = json.loads((model / file).read_text()) | {"auto_map": auto_map}
    values |= {} if known_type else {"model_type": "unheard-of", "architectures": ["Model"]}
    (model / file).write_text(json.dumps(values))
    (model / "code.py").write_text(f"open({str(model / 'run')!r}, 'w')\n")
    if known_type:
        load_base(policy(model))
        load_tokenizer(policy(model))
    else:
        with pytest.raises(ValueError, match="trust_remote_code"):
            load_base(policy(model))
    assert not (model / "run").exists()


def test_a_model_that_caps_attention_scores_computes_them_as_published(model: Path) -> None:
    """transformers' default attention ignores Gemma 2's cap; here it is so low that every score is equal."""
    import torch
    import transformers

    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.Gemma2Config(
        vocab_size=300, num_key_value_heads=4, head_dim=8, attn_logit_softcapping=1e-6, **shape
    )
    torch.manual_seed(0)
    made = transformers.Gemma2ForCausalLM(config)
    for weight in made.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.3)
    made.save_pretrained(model)
    attention = load_base(policy(model)).model.layers[0].self_attn
    states = torch.randn(1, 5, 32)
    mask = torch.full((5, 5), -torch.inf).triu(1)[None, None]
    rotary = (torch.ones(1, 5, 8), torch.zeros(1, 5, 8))
    with torch.no_grad():
        found, _ = attention(hidden_states=states, position_embeddings=rotary, attention_mask=mask)
        means = attention.v_proj(states).cumsum(dim=1) / torch.arange(1, 6).view(1, 5, 1)
        expected = attention.o_proj(means)
    assert torch.allclose(found, expected, atol=1e-4)
