"""The precision that a policy computes in."""

import torch

from g2d.policies.policy import Policy, cpu_has_bfloat16


def test_a_cpu_has_bfloat16_if_one_of_its_instruction_sets_multiplies_it(monkeypatch) -> None:
    for capabilities, expected in [
        ({"avx2": True, "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"avx512_bf16": False, "amx_bf16": True}, True),
        ({"neon": True}, False),
        ({"neon": True, "bf16": True}, True),
    ]:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)  # noqa: B023
        assert cpu_has_bfloat16() is expected, capabilities


def test_models_that_g2d_trained_are_scratch_models() -> None:
    def policy(source: str) -> Policy:
        return Policy("base", "m", "base", "models/m", settings={"source": source})

    assert [policy(name).is_scratch for name in ("embedded", "scratch", "local", "hub")] == [True, True, False, False]
