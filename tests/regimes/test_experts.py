"""DPO of a mixture of experts: TRL's auxiliary term is off."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
import torch
import transformers

from g2d.policies import PolicyRecord
from g2d.policies.model_keys import Lora
from g2d.regimes.offline.dpo import Dpo, train_dpo
from tests.models import tiny_policy
from tests.regimes.trainings import losses, pairs

LORA = Lora(dropout=0.0, target_modules=["q_proj", "v_proj"])


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> PolicyRecord:
    folder = tmp_path_factory.mktemp("experts") / "base"
    shutil.copytree(tiny_policy().base, folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = transformers.MixtralConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        num_local_experts=4,
        router_aux_loss_coef=0.5,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    transformers.MixtralForCausalLM(config).save_pretrained(folder)
    return PolicyRecord("experts/base", "experts", "base", base=str(folder))


def test_dpo_starts_at_ln_2(experts: PolicyRecord, tmp_path: Path) -> None:
    first = losses(train_dpo, pairs(8), Dpo(), tmp_path, base=experts, lora=LORA)[0]
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-4)
