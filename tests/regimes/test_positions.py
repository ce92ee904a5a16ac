"""Every pass numbers the tokens of a row from its first one, not from its padding: GPT-2 has learned positions."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import PreTrainedModel

from g2d.policies import PolicyRecord, load_base
from g2d.policies.model_keys import Lora
from g2d.regimes.common.offline import FixedReference
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.grpo.trainer import Grpo, has_absolute_positions
from g2d.regimes.offline.dpo import Dpo, train_dpo
from g2d.regimes.offline.pair_trainer import PairTrainer
from g2d.regimes.on_policy.group_trainer import GroupTrainer
from g2d.regimes.on_policy.semi_online_dpo import SemiOnlineDpo, train_semi_online_dpo
from g2d.rewards.controls import Random
from tests.models import random_model, tiny_policy
from tests.regimes.trainings import SETTINGS, easy, log_probabilities, pairs


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> PolicyRecord:
    """M0 with learned positions, on which its probabilities depend."""
    folder = tmp_path_factory.mktemp("learned") / "base"
    shutil.copytree(tiny_policy().base, folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    shape = {"vocab_size": len(tokenizer), "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
    no_dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = transformers.GPT2Config(**shape, **no_dropout, eos_token_id=tokenizer.eos_token_id)
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config)
    torch.nn.init.normal_(model.transformer.wpe.weight, std=1.0)
    model.save_pretrained(folder)
    return PolicyRecord("learned/base", "learned", "base", base=str(folder))


def unpadded(
    model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, *, temperature: float = 1.0
) -> torch.Tensor:
    """Return log-probabilities of the tokens of a row after its first one, read without padding."""
    tokens = ids[mask.bool()]
    with torch.no_grad():
        logits = model(input_ids=tokens[None, :-1]).logits[0] / temperature
    return logits.log_softmax(-1).gather(-1, tokens[1:, None])[:, 0]


def distances(
    model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, scored: torch.Tensor, found: torch.Tensor, **how: Any
) -> Iterator[float]:
    """Yield, for each row, how far `found`, the log-probabilities of its `scored` tokens, is from an unpadded row."""
    for row in range(len(ids)):
        n = int(scored[row].sum())
        expected = unpadded(model, ids[row], mask[row], **how)[-n:]
        yield float((found[row][scored[row].bool()] - expected).abs().max())


@pytest.mark.parametrize("shared_prompts", [False, True])
def test_grpo(learned: PolicyRecord, tmp_path: Path, watch: Any, shared_prompts: bool) -> None:
    """The policy, the sampling policy of stale rollouts and the reference, while all three are M0."""
    m0 = load_base(learned)
    apart: list[float] = []
    widths: list[int] = []

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        if trainer.state.global_step:
            return
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        scored = inputs["completion_mask"]
        widths.extend(inputs["prompt_mask"].sum(dim=1).tolist())
        with torch.no_grad():
            policy = log_probabilities(trainer, model, inputs)
        for found in (policy, inputs["old_per_token_logps"], inputs["ref_per_token_logps"]):
            apart.extend(distances(m0, ids, mask, scored, found, temperature=0.8))

    watch(seen)
    warmup = Warmup(
        steps=[0, 2], learning_rate=1e-3, max_completion_length=6, beta=0.1, updates_per_generation=2, temperature=0.8
    )
    job: dict[str, Any] = {"lora": Lora(dropout=0.0), "seed": 0, "work": tmp_path, "shared_prompts": shared_prompts}
    train_grpo(TrainingJob(learned, easy(20), warmup, group_size=2, k=2, **job))
    assert len(set(widths)) > 1  # so there is padding
    assert max(apart) < 1e-4


@pytest.mark.parametrize("shared_prompts", [False, True])
@pytest.mark.parametrize("regime", ["dpo", "dpo, reference once", "semi-online DPO"])
def test_preferences(
    learned: PolicyRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, regime: str, shared_prompts: bool
) -> None:
    """The policy's pass, and the reference's, which is compared with the policy's by the trainer."""
    m0 = load_base(learned)
    apart: list[float] = []
    widths: list[int] = []
    of_trainer = FixedReference.policy

    def policy(self: Any, model: Any, inputs: dict[str, Any]) -> Any:
        outputs = of_trainer(self, model, inputs)
        if not self.state.global_step:
            scored = inputs["completion_mask"][:, 1:]
            found = outputs.log_probs.detach()[:, -scored.shape[1] :]
            widths.extend(inputs["attention_mask"].sum(dim=1).tolist())
            apart.extend(distances(m0, inputs["input_ids"], inputs["attention_mask"], scored, found))
        return outputs

    trainer = GroupTrainer if regime.startswith("semi") else PairTrainer
    monkeypatch.setattr(trainer, "policy", policy)
    job: dict[str, Any] = {"lora": Lora(dropout=0.0), "seed": 0, "work": tmp_path, "shared_prompts": shared_prompts}
    if trainer is GroupTrainer:
        job["reward"] = Random(reward="random")
        settings = SemiOnlineDpo.model_validate(SETTINGS | {"steps": [1]})
        train_semi_online_dpo(TrainingJob(learned, easy(10), settings, k=1, **job))
    else:
        dpo = Dpo(max_steps=1, learning_rate=2e-3, precompute_reference="once" in regime)
        train_dpo(TrainingJob(learned, pairs(16, learned), dpo, **job))
    assert len(set(widths)) > 1
    assert max(apart) < 1e-4


@pytest.mark.parametrize(
    ("kind", "absolute"),
    [("learned positions", True), ("causal by column", True), ("grouped", False), ("state space", False)],
)
def test_models_with_absolute_positions(kind: str, absolute: bool) -> None:
    """Rotary positions count distances, and keep the bits that they have without `position_ids`."""
    assert has_absolute_positions(random_model(kind)) == absolute
