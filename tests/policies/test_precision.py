"""The precision that a policy computes in."""

import pytest
import torch

from g2d.policies.policy import Policy, cpu_has_bfloat16


@pytest.mark.parametrize(
    ("instructions", "kernels", "expected"),
    [
        (["avx2", "avx512_f"], "AVX512", False),
        (["avx2", "avx512_bf16"], "AVX512", True),
        (["avx2", "amx_bf16"], "AVX512", True),
        (["avx2", "avx512_bf16"], "AVX2", False),  # the setting for jobs of the embedded model
        (["neon"], "DEFAULT", False),
        (["neon", "bf16"], "DEFAULT", True),
    ],
)
def test_a_cpu_has_bfloat16_if_its_kernels_multiply_it(
    monkeypatch: pytest.MonkeyPatch, instructions: list[str], kernels: str, expected: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(instructions, True))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: kernels)
    assert cpu_has_bfloat16() is expected


def test_models_that_g2d_trained_are_scratch_models() -> None:
    def policy(source: str) -> Policy:
        return Policy("base", "m", "base", "models/m", settings={"source": source})

    assert [policy(name).is_scratch for name in ("embedded", "scratch", "local", "hub")] == [True, True, False, False]
