"""Passes that read each prompt once: log-probabilities and gradients of passes with a prompt in every row."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BloomConfig, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config
from trl.trainer.utils import add_fused_lm_head

from g2d.memory.workload import MicroBatches
from g2d.policies import PolicyRecord
from g2d.regimes.common import microbatches, shared_prompts
from g2d.regimes.common.checkpoints import Checkpoints
from g2d.regimes.common.regime import Trained, TrainingJob
from g2d.regimes.common.shared_prompts import Packed, packed, share_prompts
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.offline.dpo import Dpo
from tests.models import tiny_policy
from tests.regimes.trainings import NO_DROPOUT, WARMUP, adapter_digest, dpo, easy, semi_online, steps_of, warm_up

OUTPUTS = ("log_probs", "entropy")
SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "vocab_size": 97}
HEADS: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
LLAMA = LlamaConfig(**SIZES, **HEADS)


def made(config: Any = LLAMA, dtype: torch.dtype = torch.float64, *, lora: bool = True, **options: Any) -> Any:
    """A random model with TRL's head, and an adapter that does something."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(deepcopy(config), dtype=dtype, **options)
    add_fused_lm_head(model, temperature=0.8, outputs=OUTPUTS)
    if not lora:
        return model
    model = get_peft_model(model, LoraConfig(r=4, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    return model


def batch(prompts: Sequence[int], completions: Sequence[tuple[int, int]], *, left: bool) -> dict[str, torch.Tensor]:
    """Return a batch of prompts of these lengths, and completions: number of the prompt, and length."""
    generator = torch.Generator().manual_seed(1)
    prompt_ids = [torch.randint(3, 97, (n,), generator=generator) for n in prompts]
    widest = max(prompts)
    longest = max(n for _, n in completions)
    ids = torch.zeros(len(completions), widest + longest, dtype=torch.long)
    attention = torch.zeros_like(ids)
    labels = torch.full_like(ids, -100)
    for row, (number, n) in enumerate(completions):
        begin = widest - prompts[number] if left else 0
        middle = begin + prompts[number]
        end = middle + n
        ids[row, begin:middle] = prompt_ids[number]
        ids[row, middle:end] = torch.randint(3, 97, (n,), generator=generator)
        attention[row, begin:end] = 1
        labels[row, middle:end] = ids[row, middle:end]
    return {"input_ids": ids, "attention_mask": attention, "labels": labels}


# Two groups and a single row, in any order; one completion is left out like a truncated one.
COMPLETIONS = [(0, 5), (1, 7), (0, 1), (2, 4), (1, 2), (0, 7), (1, 3)]
PROMPTS = (6, 9, 4)


def scored(model: Any, inputs: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    """Outputs, and the gradient of their sum with a different weight for each token."""
    model.zero_grad()
    outputs = model(**inputs, fused_lm_head=True, use_cache=False)
    weights = torch.arange(outputs.log_probs.numel()).view(outputs.log_probs.shape) % 7 - 3.0
    ((outputs.log_probs + 0.1 * outputs.entropy) * weights).sum().backward()
    gradients = [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
    return {name: outputs[name].detach() for name in (*OUTPUTS, "loss", "label_mask")}, gradients


def assert_same(model: Any, inputs: dict[str, torch.Tensor], **tolerance: float) -> None:
    plain, gradients = scored(deepcopy(model), inputs)
    assert share_prompts(model)
    read: list[int] = []
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    base.get_input_embeddings().register_forward_hook(lambda _, tokens, __: read.append(tokens[0].numel()))
    shared, others = scored(model, inputs)
    assert len(read) == 1 and read[0] < inputs["input_ids"].numel()
    for name, values in plain.items():
        torch.testing.assert_close(shared[name], values, **tolerance, msg=lambda text, name=name: f"{name}: {text}")
    assert len(gradients) == len(others) > 5
    for gradient, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(other, gradient, **tolerance)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("lora", [True, False])
def test_a_shared_prompt_changes_neither_log_probabilities_nor_gradients(
    left: bool, attention: str, lora: bool
) -> None:
    inputs = batch(PROMPTS, COMPLETIONS, left=left)
    inputs["labels"][4] = -100
    # TRL's head and eager attention's softmax are in float32. Padding on the left makes TRL's passes NaN in float64.
    dtype, error = (torch.float64, 1e-6) if attention == "sdpa" and not left else (torch.float32, 1e-4)
    model = made(dtype=dtype, lora=lora, attn_implementation=attention)
    assert_same(model, inputs, rtol=error, atol=error)


@pytest.mark.parametrize(
    "config", [Qwen2Config(**SIZES, **HEADS), GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=97)]
)
def test_other_architectures_in_float32(config: Any) -> None:
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    # GPT-2 has learned positions; padding on the left would shift them in TRL's passes.
    assert_same(made(config, torch.float32), batch(PROMPTS, COMPLETIONS, left=False), rtol=1e-4, atol=1e-4)


def test_long_groups_have_several_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_prompts, "ROW_TOKENS", 14)
    inputs = batch(PROMPTS, COMPLETIONS, left=False)
    pack = packed(**inputs)
    assert pack is not None and pack.ids.shape[0] > len(PROMPTS)
    assert_same(made(), inputs, rtol=1e-6, atol=1e-6)


def test_each_prompt_is_read_once_and_logits_are_of_completions_only() -> None:
    pack = packed(**batch(PROMPTS, COMPLETIONS, left=False))
    assert pack is not None
    n_tokens = 5 + 7 + 1 + 4 + 2 + 7 + 3
    assert len(pack.targets) == n_tokens
    # The last token of a completion is not read.
    assert int((pack.segments >= 0).sum()) == sum(PROMPTS) + n_tokens - len(COMPLETIONS)


def test_nothing_is_packed_without_scored_tokens_or_prompts() -> None:
    inputs = batch(PROMPTS, COMPLETIONS, left=False)
    assert packed(inputs["input_ids"], inputs["attention_mask"], torch.full_like(inputs["labels"], -100)) is None
    whole = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    assert packed(inputs["input_ids"], inputs["attention_mask"], whole) is None


def test_a_pass_without_scored_tokens_has_gradients_of_zero() -> None:
    model, inputs = made(), batch(PROMPTS, COMPLETIONS, left=False)
    inputs["labels"] = torch.full_like(inputs["labels"], -100)
    assert share_prompts(model)
    _, gradients = scored(model, inputs)
    assert gradients and not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize(
    "config",
    [
        MistralConfig(**SIZES, **HEADS, sliding_window=8),
        BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=97),  # positions from a mask of two dimensions
    ],
)
def test_models_without_custom_masks_keep_their_passes(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model = made(config, torch.float32)
    other = made(config, torch.float32)
    inputs = batch(PROMPTS, COMPLETIONS, left=False)
    assert not share_prompts(model, None, other)
    printed = capsys.readouterr().out
    assert config.model_type in printed and len(printed.splitlines()) == 1
    with torch.no_grad():
        plain = made(config, torch.float32)(**inputs, fused_lm_head=True).log_probs
        torch.testing.assert_close(model(**inputs, fused_lm_head=True).log_probs, plain, rtol=0, atol=0)


def test_attention_that_takes_no_mask_keeps_its_passes() -> None:
    model = made()
    model.config._attn_implementation_internal = "flash_attention_2"  # the setter wants its package
    assert not share_prompts(model)


def test_a_model_without_labels_answers_as_before() -> None:
    model, inputs = made(), batch(PROMPTS, COMPLETIONS, left=False)
    logits = model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
    assert share_prompts(model)
    assert torch.equal(model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits, logits)


GROUPS = WARMUP.model_copy(update={"beta": 0.1, "ratio": "sampler"})


def model_of(source: str) -> PolicyRecord:
    return replace(tiny_policy(), settings={"source": source})


def numbers(log: list[dict[str, Any]]) -> list[float]:
    names = ("loss", "grad_norm", "completions/mean_length", "kl", "rewards/margins", "logps/chosen")
    values = []
    for row in steps_of(log):
        values += [row[name] for name in names if name in row]
    return values


def passes_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Rows and prompts of each packed pass from now on."""
    shapes: list[tuple[int, int]] = []
    pack = shared_prompts.packed

    def watched(*arguments: torch.Tensor) -> Packed | None:
        result = pack(*arguments)
        shapes.append((len(arguments[0]), 0 if result is None else len(result.ids)))
        return result

    monkeypatch.setattr(shared_prompts, "packed", watched)
    return shapes


def test_grpo_learns_the_same_and_passes_have_whole_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"k": 2, "warmup": GROUPS, "lora": NO_DROPOUT, "group_size": 8}
    plain = warm_up(tmp_path / "plain", easy(10), **given)
    shapes = passes_of(monkeypatch)
    shared = warm_up(tmp_path / "shared", easy(10), shared_prompts=True, **given)
    assert numbers(shared) == pytest.approx(numbers(plain), rel=1e-3, abs=1e-5)
    assert shapes[1:] and set(shapes[1:]) == {(8, 1)}  # the first is a comparison of passes


def test_a_loss_that_depends_on_its_passes_keeps_their_rows(tmp_path: Path) -> None:
    """bnpo is a mean over the tokens of a pass; hot completions differ in length."""
    warmup = GROUPS.model_copy(update={"loss": "bnpo", "temperature": 1.4})
    given: dict[str, Any] = {"k": 1, "warmup": warmup, "lora": NO_DROPOUT, "group_size": 8}
    plain = warm_up(tmp_path / "plain", easy(10), **given)
    shared = warm_up(tmp_path / "shared", easy(10), shared_prompts=True, **given)
    assert plain[0]["loss"] > 0.01
    assert numbers(shared) == pytest.approx(numbers(plain), rel=1e-3, abs=1e-5)


def test_dpo_and_groups_learn_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Dpo(epochs=1, gradient_accumulation_steps=2, learning_rate=2e-3)
    plain = dpo(tmp_path / "plain", settings=settings, lora=NO_DROPOUT, shared_prompts=False)
    shared = dpo(tmp_path / "shared", settings=settings, lora=NO_DROPOUT, shared_prompts=True)
    assert numbers(shared) == pytest.approx(numbers(plain), rel=1e-3, abs=1e-5)
    shapes = passes_of(monkeypatch)
    extras: dict[str, Any] = {"pairs": "all", "entropy_coefficient": 0.1, "lora": NO_DROPOUT}
    plain = semi_online(tmp_path / "plain groups", k=2, shared_prompts=False, **extras)
    shared = semi_online(tmp_path / "shared groups", k=2, shared_prompts=True, **extras)
    assert numbers(shared) == pytest.approx(numbers(plain), rel=1e-3, abs=1e-5)
    assert any(rows > prompts > 0 for rows, prompts in shapes)


def test_auto_leaves_the_embedded_model_as_it_was(tmp_path: Path) -> None:
    assert chosen(tmp_path / "embedded", "embedded") == MicroBatches(4, False)


def test_auto_shares_prompts_of_pretrained_models_in_float32(tmp_path: Path) -> None:
    assert chosen(tmp_path / "auto") == MicroBatches(8, False, shared_prompts=True, whole_logits=True)
    off: dict[str, Any] = {"shared_prompts": False, "precision": "float32"}
    assert chosen(tmp_path / "off", **off) == MicroBatches(4, False)
    assert chosen(tmp_path / "bfloat16", **off | {"precision": "bfloat16"}) == MicroBatches(4, False, autocast=True)


def chosen(work: Path, source: str = "local", **options: Any) -> MicroBatches:
    job = TrainingJob(
        model_of(source), easy(10), WARMUP, lora=NO_DROPOUT, seed=0, work=work, group_size=8, k=2, **options
    )
    return microbatches.choose_microbatches(job, Checkpoints(work, {}, job.meter), WARMUP.workload(8), (20, 12))


def test_a_pass_of_shared_prompts_has_no_more_tokens_than_before() -> None:
    def rows(group: int, prompt: int, completion: int) -> int:
        return microbatches.rows_of_groups(4, 64, group, (prompt, completion))

    assert [rows(8, 75, 20), rows(2, 75, 20), rows(64, 75, 20), rows(8, 10, 400)] == [8, 4, 8, 4]


def test_a_chain_keeps_its_passes_and_the_record_has_them(tmp_path: Path) -> None:
    straight = trained(tmp_path / "straight", k=4, precision="bfloat16")
    first = trained(tmp_path / "first", k=2, precision="bfloat16")  # as `auto` was on some CPUs
    second = trained(tmp_path / "second", k=4, resume_from=tmp_path / "first/checkpoint")
    assert adapter_digest(tmp_path / "second") == adapter_digest(tmp_path / "straight")
    for result in (straight, first, second):
        assert result.statistics == {"shared_prompts": True, "precision": "bfloat16"}
    plain = trained(tmp_path / "plain", k=2, shared_prompts=False, precision="float32")
    assert plain.statistics == {}
    assert numbers(plain.log) != numbers(first.log)
    assert numbers(plain.log)[0] == pytest.approx(numbers(first.log)[0], abs=0.05)
    # A checkpoint of a version that did not choose is continued as it began.
    assert trained(tmp_path / "old", k=4, resume_from=tmp_path / "plain/checkpoint").statistics == {}


def trained(work: Path, k: int, **options: Any) -> Trained:
    job = TrainingJob(
        model_of("local"), easy(10), WARMUP, lora=NO_DROPOUT, seed=0, work=work, group_size=8, k=k, **options
    )
    return train_grpo(job)


def test_the_record_says_so_if_a_model_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_prompts, "_obstacle", lambda _: "it has another attention")
    result = trained(tmp_path, k=2, precision="float32")
    assert result.statistics == {}
