"""Faults that make an engine answer with other weights are found before its first completion; right weights pass."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from g2d.jobs.files import read_json
from g2d.policies import PolicyRecord, load_base, load_model, load_tokenizer
from g2d.policies import record as policies
from g2d.rollouts import transformers_engine, weights_check
from g2d.rollouts.engine import Decoding, Request
from g2d.rollouts.rollout_keys import EngineSettings
from g2d.rollouts.transformers_engine import TransformersEngine
from g2d.rollouts.vllm_engine import VllmEngine
from g2d.rollouts.weights_check import (
    MEMORY,
    Reference,
    WrongWeightsError,
    checked,
    fixed_texts,
    is_due,
    load_reference,
    log_probabilities,
    require_adapter,
    require_same,
    trainer_reference,
)
from tests.models import adapted, tiny_policy
from tests.shared import NEEDS_SMOLLM2, NEEDS_VLLM, made_smollm2

ASKED, GREEDY = [Request("a", "1 + 2 =", (5, 6, 7, 8))], Decoding(1, 0.0, 1.0, 4, 16, 0)
NO_EFFECT = r"the adapter has -?\d% of its effect"  # up to rounding
LORA = EngineSettings(name="vllm", adapters="lora")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[PolicyRecord]:
    return [adapted(tiny_policy(heads=1), tmp_path_factory.mktemp("adapter"), std=0.05, seed=i) for i in range(2)]


def damaged(folder: str | Path, copy: Path, damage: Callable[[dict[str, Any]], object]) -> Path:
    [file] = Path(shutil.copytree(folder, copy)).glob("*.safetensors")
    tensors = load_file(file)
    damage(tensors)
    save_file(tensors, file, metadata={"format": "pt"})
    return copy


def half(tensors: dict[str, Any]) -> None:
    """Set the adapter to 0 in every second matrix B."""
    for name in sorted(name for name in tensors if "lora_B" in name)[::2]:
        tensors[name].zero_()


def double(tensors: dict[str, Any]) -> None:
    for name in tensors:
        if "lora_B" in name:
            tensors[name] *= 2


def one_row(tensors: dict[str, Any]) -> None:
    """Change one row of one matrix of M0."""
    name = next(name for name in sorted(tensors) if "down_proj" in name)
    tensors[name][3] += 1


@pytest.fixture(scope="module")
def vllm(trained: list[PolicyRecord]) -> VllmEngine:
    engine = VllmEngine(tiny_policy(heads=1), LORA, adapter_rank=16)
    engine.start(256)
    return engine


def fails(engine: VllmEngine, served: str | Path | None, policy: PolicyRecord) -> str:
    """Serve an adapter as if it were the policy's, and return the message of the error that has to come."""
    engine._load_adapter(served)
    engine._unchecked = policy
    with pytest.raises(WrongWeightsError) as error:
        engine.generate(ASKED, GREEDY)
    return str(error.value)


def check_all(engine: VllmEngine, trained: list[PolicyRecord], folder: Path) -> None:
    """Right weights pass; M0, another adapter, half an adapter, and an adapter instead of M0 do not."""
    base = engine.policy
    for policy in (base, *trained, base):
        engine.serve(policy)
        engine.generate(ASKED, GREEDY)
    of_policy = str(trained[0].adapter)
    damages = (half, double)
    served = [None, trained[1].adapter]
    served += [damaged(of_policy, folder / damage.__name__, damage) for damage in damages]
    for adapter in served:
        message = fails(engine, adapter, trained[0])
        assert f"({trained[0].adapter}, weights sha256 {trained[0].weights_sha256}): vllm in {engine.dtype}" in message
    assert re.search(NO_EFFECT, fails(engine, None, trained[0]))
    assert fails(engine, trained[0].adapter, base).startswith(f"tiny/base ({base.base}")


@NEEDS_VLLM
def test_faults_in_float32(
    vllm: VllmEngine, trained: list[PolicyRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".snakemake").mkdir()
    check_all(vllm, trained, tmp_path)
    assert len(read_json(MEMORY)) == 3, "a reference of each policy"
    damaged_base = replace(vllm.policy, base=str(damaged(vllm.policy.base, tmp_path / "base", one_row)))
    fails(vllm, None, damaged_base)
    monkeypatch.setattr(weights_check, "load_reference", None)
    vllm.serve(trained[0])
    vllm.generate(ASKED, GREEDY)  # with the remembered reference


@NEEDS_VLLM
def test_faults_beside_a_trainer(vllm: VllmEngine, trained: list[PolicyRecord], tmp_path: Path) -> None:
    base, (right, wrong) = vllm.policy, trained
    texts = fixed_texts(vllm.tokenizer)
    model = PeftModel.from_pretrained(load_base(base), str(right.adapter)).eval()
    reference, random = trainer_reference(model, texts, "float32"), torch.get_rng_state()
    vllm.use_adapter(right.adapter)
    vllm.compare("p", reference)
    assert torch.equal(torch.get_rng_state(), random), "the trainer shuffles with these random numbers"
    for folder in (None, wrong.adapter, damaged(str(right.adapter), tmp_path / "half", half)):
        vllm.use_adapter(folder)
        with pytest.raises(WrongWeightsError, match=r"^p: vllm in float32 answers with other weights"):
            vllm.compare("p", reference)
    vllm.use_adapter(right.adapter)
    with pytest.raises(WrongWeightsError, match="p: vllm in float32"):  # the wrong precision
        vllm.compare("p", trainer_reference(model.bfloat16(), texts, "float32"))


def test_syncs_that_are_checked() -> None:
    assert [sync for sync in range(1, 100) if is_due(sync)] == [1, 4, 16, 64]


@NEEDS_VLLM
def test_faults_in_bfloat16(trained: list[PolicyRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # vLLM uses AMX if a CPU has it, and relies on oneDNN to ask the kernel for it. `pin_kernels` limits oneDNN to AVX2.
    torch.cpu._init_amx()
    monkeypatch.setattr("vllm.model_executor.layers.utils.check_cpu_sgl_kernel", lambda *_: False)
    engine = VllmEngine(tiny_policy(heads=1), LORA, adapter_rank=16)
    engine.dtype = "bfloat16"
    engine.start(256)
    engine.dtype = "float32"
    fails(engine, None, engine.policy)  # the wrong precision
    engine.dtype = "bfloat16"
    monkeypatch.setattr(policies, "precision", lambda: torch.bfloat16)
    check_all(engine, trained, tmp_path)
    model = PeftModel.from_pretrained(load_base(engine.policy), str(trained[0].adapter)).eval()
    reference = trainer_reference(model, fixed_texts(engine.tokenizer), "bfloat16")
    engine.use_adapter(trained[0].adapter)
    engine.compare("p", reference)
    engine.use_adapter(None)
    with pytest.raises(WrongWeightsError, match=NO_EFFECT):
        engine.compare("p", reference)
    engine.close()


@pytest.mark.parametrize("fault", ["M0", "another", "half"])
def test_the_transformers_engine_has_the_adapter_of_its_file(
    trained: list[PolicyRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    right = trained[0]
    part = damaged(str(right.adapter), tmp_path / "half", half)
    loaded = {"M0": tiny_policy(heads=1), "another": trained[1]}.get(
        fault, replace(right, adapter=str(part), weights_sha256=None)
    )
    TransformersEngine.of(right)
    monkeypatch.setattr(transformers_engine, "load_model", lambda _: load_model(loaded))
    with pytest.raises(WrongWeightsError, match=rf"of the loaded model is not M0 plus {right.adapter} "):
        TransformersEngine.of(right)


def test_a_reference_on_the_cpu_begins_no_cuda(trained: list[PolicyRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM on several GPUs forks after it. torch's CPU build raises an error if a tensor is put on a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    texts = fixed_texts(load_tokenizer(trained[0]))
    reference = load_reference(trained[0], texts, may_use_gpu=False)
    assert reference is not None
    assert reference.dtype == "bfloat16"
    assert not torch.cuda.is_initialized()


def test_an_adapter_that_is_not_merged_is_compared_too(tmp_path: Path) -> None:
    """M0's file is in float32, and its rounding to bfloat16 is larger than these adapters."""
    base = tiny_policy(heads=1)
    right, wrong = (adapted(base, tmp_path / str(seed), std=1e-5, seed=seed) for seed in range(2))
    model = PeftModel.from_pretrained(load_base(base).bfloat16(), str(right.adapter)).get_base_model()
    require_adapter(model, right)
    with pytest.raises(WrongWeightsError):
        require_adapter(model, wrong)


def test_small_effects_within_rounding_pass() -> None:
    """An adapter below the noise of bfloat16 is not told from M0; one three times as large is."""
    noise = np.random.default_rng(0).normal(0, 0.03, (3, 16, 12))
    effect = np.random.default_rng(1).normal(0, 1, (16, 12))
    engine = SimpleNamespace(name="vllm", dtype="bfloat16")
    for size in (0.0, 0.001, 0.01, 0.1):
        own = [0] * len(effect)
        again = noise[2].tolist()
        reference = Reference(noise[0].tolist(), (noise[0] + size * effect).tolist(), "bfloat16", own, again)
        require_same("p", engine, noise[1].tolist(), reference)
        found = (noise[1] + size * effect).tolist()  # answers of M0
        with nullcontext() if size < 0.1 else pytest.raises(WrongWeightsError):
            require_same("p", engine, found, reference)


ROUNDED = SimpleNamespace(name="vllm", dtype="bfloat16")


@pytest.fixture(scope="module", params=["tiny", pytest.param("smollm2", marks=[pytest.mark.smollm2, NEEDS_SMOLLM2])])
def rounded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolicyRecord]:
    """A policy with an adapter, loaded in bfloat16."""
    base = tiny_policy() if request.param == "tiny" else PolicyRecord("s/base", "s", "base", base=str(made_smollm2()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policies, "precision", lambda: torch.bfloat16)
        yield adapted(base, tmp_path_factory.mktemp("adapter"), std=0.02)


@pytest.fixture(scope="module")
def texts(rounded: PolicyRecord) -> list[list[int]]:
    return fixed_texts(load_tokenizer(rounded))


@pytest.fixture(scope="module")
def references(rounded: PolicyRecord, texts: list[list[int]]) -> dict[bool, Reference]:
    """References with and without the adapter."""
    found = {}
    for has_adapter, policy in ((True, rounded), (False, replace(rounded, adapter=None))):
        reference = load_reference(policy, texts, may_use_gpu=False)
        assert reference is not None
        assert reference.dtype == "bfloat16"
        found[has_adapter] = reference
    return found


@pytest.mark.parametrize("has_adapter", [True, False])
def test_another_attention_is_accepted(
    rounded: PolicyRecord, texts: list[list[int]], references: dict[bool, Reference], has_adapter: bool
) -> None:
    """Two right implementations in bfloat16 differ by rounding."""
    policy = rounded if has_adapter else replace(rounded, adapter=None)
    model = load_model(policy)
    model.set_attn_implementation("eager")
    scores = log_probabilities(model, texts)
    assert scores != references[has_adapter].policy
    require_same("p", ROUNDED, scores, references[has_adapter])


def other_model(model: Any) -> None:
    model.init_weights()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)


def other_revision(model: Any) -> None:
    """Change all weights a little, as a later training does."""
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.add_(0.1 * parameter.float().std() * torch.randn(parameter.shape))


@pytest.mark.parametrize("change", [other_model, other_revision])
def test_other_weights_of_m0_are_refused(
    rounded: PolicyRecord,
    texts: list[list[int]],
    references: dict[bool, Reference],
    change: Callable[[Any], None],
) -> None:
    torch.manual_seed(0)
    model = load_model(replace(rounded, adapter=None))
    with torch.no_grad():
        change(model)
    with pytest.raises(WrongWeightsError):
        require_same("p", ROUNDED, log_probabilities(model, texts), references[False])


@pytest.mark.parametrize("damage", [None, double])
def test_an_adapter_that_is_missing_or_applied_twice_is_refused(
    rounded: PolicyRecord,
    texts: list[list[int]],
    references: dict[bool, Reference],
    tmp_path: Path,
    damage: Callable[[dict[str, Any]], object] | None,
) -> None:
    adapter = None if damage is None else str(damaged(str(rounded.adapter), tmp_path / "damaged", damage))
    model = load_model(replace(rounded, adapter=adapter, weights_sha256=None))
    with pytest.raises(WrongWeightsError):
        require_same("p", ROUNDED, log_probabilities(model, texts), references[True])


def test_the_bound_grows_with_the_rounding_of_the_reference() -> None:
    """The mean over the texts' own tokens counts; other tokens have no bound."""
    expected = np.zeros((16, 12))
    reference = Reference(expected.tolist(), None, "bfloat16", [3] * 16, again=(expected + 0.1).tolist())
    for own, other in ((0.39, 5.0), (-0.39, 0.0)):
        scores = np.full_like(expected, other)
        scores[:, 3] = own
        require_same("p", ROUNDED, scores.tolist(), reference)
        with pytest.raises(WrongWeightsError, match=r"by 0\.39 nats on average \(bound 0\.15\)"):
            require_same("p", ROUNDED, scores.tolist(), reference._replace(again=reference.policy))


def test_a_job_can_go_on_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    with checked("warn"):
        raise WrongWeightsError("0.39 nats")
    assert "0.39 nats" in capsys.readouterr().err
    with pytest.raises(WrongWeightsError, match=r"0\.39 nats"), checked("stop"):
        raise WrongWeightsError("0.39 nats")
