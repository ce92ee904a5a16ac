"""Weights for the mismatch between engine and trainer: every key does something, its neutral value what was before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from g2d.policies.policy import load_base
from g2d.regimes.grpo import generation as grpo_generation
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.trainer import Grpo, above_cap, masked_log_ratios, within_second_moment
from tests.regimes.test_off_policy import log_probabilities, warm_up
from tests.regimes.test_replay import RIGHT, RLEP, of_every_other_problem

CAP = 1.5


class AnotherEngine:
    """Completions of three tokens, some of which the trainer takes for likelier and some for less likely."""

    lag = None

    def __init__(self, *_: Any) -> None: ...

    def attach(self, trainer: Any) -> None:
        trainer.use_vllm = True

    def draw(self, prompts: list[list[int]]) -> Any:
        tokens = [[5 + i % 7, 6 + i % 5, 7 + i % 3] for i in range(len(prompts))]
        return tokens, [[-1.0 - 4 * (i % 8)] * 3 for i in range(len(prompts))]

    def close(self) -> None: ...


@pytest.fixture
def _another_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo_generation, "EngineGeneration", AnotherEngine)


def log_ratios_of(trainer: Grpo, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    with torch.no_grad():  # the first step: the adapter is still nothing
        return log_probabilities(trainer, model, inputs) - inputs["sampling_per_token_logps"]


def by_hand(correction: str, log_ratios: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights, and which of them exceeded the cap."""
    weights = (log_ratios if correction.startswith("token") else log_ratios.sum(dim=1, keepdim=True)).exp()
    kept = weights.clamp(max=CAP) if correction.endswith("truncate") else weights.where(weights <= CAP, 0.0)
    return kept, weights > CAP


@pytest.mark.usefixtures("_another_engine")
@pytest.mark.parametrize("correction", ["sequence_mask", "token_truncate"])
def test_weights_and_their_count_follow_the_keys(tmp_path: Path, watch: Any, correction: str) -> None:
    compared: list[tuple[torch.Tensor, torch.Tensor]] = []

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        weights, capped = by_hand(correction, log_ratios_of(trainer, model, inputs))
        torch.testing.assert_close(inputs["importance_sampling_ratio"], weights, rtol=1e-4, atol=1e-5)
        compared.append((weights, capped))

    watch(seen)
    [row] = warm_up(tmp_path, {"correction": correction, "correction_cap": CAP}, 1)
    weights, capped = (torch.cat(parts) for parts in zip(*compared, strict=True))
    assert 0 < capped.float().mean() < 1
    assert row["sampling/capped"] == pytest.approx(capped.float().mean().item())
    assert row["sampling/importance_sampling_ratio/mean"] == pytest.approx(weights.mean().item(), rel=1e-4)


@pytest.mark.usefixtures("_another_engine")
def test_replayed_rollouts_keep_the_log_probabilities_of_the_engine(tmp_path: Path, watch: Any) -> None:
    given: dict[int, set[tuple[float, ...]]] = {}

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        weights, _ = by_hand("token_truncate", log_ratios_of(trainer, model, inputs))
        torch.testing.assert_close(inputs["importance_sampling_ratio"], weights, rtol=1e-4, atol=1e-5)
        sampled = map(tuple, inputs["sampling_per_token_logps"].tolist())
        given.setdefault(trainer.state.global_step, set()).update(sampled)

    watch(seen)
    keys = {"replay": {"buffer": 8, "share": 0.5}, "correction": "token_truncate", "correction_cap": CAP}
    warm_up(tmp_path, keys, 2)
    assert given[0] == given[1] == {(-1.0 - 4 * n,) * 3 for n in range(8)}


@pytest.mark.usefixtures("_another_engine")
def test_replayed_successes_have_the_weight_1(tmp_path: Path, watch: Any) -> None:
    """RLEP assumes no sampling policy for them; drawn completions keep the log-probabilities of the engine."""
    of_successes: list[bool] = []

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        weights, _ = by_hand("token_truncate", log_ratios_of(trainer, model, inputs))
        replayed = torch.tensor([ids in RIGHT for ids in inputs["completion_ids"].tolist()])
        assert inputs["sampling_per_token_logps"].isnan().all(dim=1).tolist() == replayed.tolist()
        weights[replayed] = 1.0
        torch.testing.assert_close(inputs["importance_sampling_ratio"], weights, rtol=1e-4, atol=1e-5)
        of_successes.extend(replayed.tolist())

    watch(seen)
    keys = RLEP | {"correction": "token_truncate", "correction_cap": CAP}
    warm_up(tmp_path / "run", keys, 1, **of_every_other_problem(tmp_path / "harvest"))
    assert 0 < sum(of_successes) < len(of_successes)


def test_the_cap_by_hand() -> None:
    sampled, mask = torch.tensor([[-1.0, -1.0, -9.0], [1.0, torch.nan, -0.5]]), torch.tensor([[1, 1, 0], [1, 1, 1]])
    log_ratios = masked_log_ratios(torch.zeros(2, 3), sampled, mask)
    assert log_ratios.tolist() == [[1.0, 1.0, 0.0], [-1.0, 0.0, 0.5]]  # 0: padding, and no log-probability was given
    assert above_cap(log_ratios, mask, 2.0, of_tokens=False).tolist() == [1, 2]
    assert above_cap(log_ratios, mask, 1.5, of_tokens=True).tolist() == [3, 5]


@pytest.mark.parametrize(
    ("threshold", "kept"),
    [
        (3.7, [[True, True, True], [True, True, True]]),  # squares 1, 4, 0.25 and 4, 9: their mean is 3.65
        (2.4, [[True, True, True], [True, False, True]]),  # 2.3125 without the 9
        (2.0, [[True, False, True], [False, False, True]]),  # 1.75 with only one of the two 4, which are equal
        (0.2, [[False, False, False], [False, False, True]]),  # the smallest is 0.25
    ],
)
def test_second_moment_by_hand(threshold: float, kept: list[list[bool]]) -> None:
    log_ratios = torch.tensor([[1.0, -2.0, 0.5], [2.0, 3.0, 0.0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    assert within_second_moment(log_ratios, mask, threshold).tolist() == kept
    assert within_second_moment(log_ratios, torch.zeros_like(mask), threshold).all()  # no tokens at all


@pytest.mark.usefixtures("_another_engine")
def test_m2_masks_tokens_of_the_whole_update_and_caps_none(tmp_path: Path, watch: Any) -> None:
    ratios: list[tuple[torch.Tensor, torch.Tensor]] = []

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        ratios.append((inputs["importance_sampling_ratio"], log_ratios_of(trainer, model, inputs)))

    watch(seen)
    [row] = warm_up(tmp_path, {"correction": "m2", "m2_threshold": 5.0}, 1)
    weights, log_ratios = (torch.cat(parts).flatten() for parts in zip(*ratios, strict=True))
    order = (log_ratios**2).argsort()
    kept = order[: int(((log_ratios[order] ** 2).cumsum(0) / torch.arange(1, len(order) + 1) <= 5.0).sum())]
    expected = torch.zeros_like(weights).index_copy(0, kept, log_ratios[kept].exp())
    assert 0 < len(kept) < len(order)
    torch.testing.assert_close(weights, expected, rtol=1e-4, atol=1e-5)
    assert row["sampling/capped"] == pytest.approx(1 - len(kept) / len(order))
    assert row["sampling/importance_sampling_ratio/mean"] == pytest.approx(expected.mean().item(), rel=1e-4)


def test_neutral_values_equal_the_earlier_constants() -> None:
    fixed = {"vllm_importance_sampling_mode": "sequence_mask", "vllm_importance_sampling_clip_max": 3.0}
    assert Warmup().mismatch_arguments == fixed | {"cast_lm_head_to_fp32": False}
    assert Warmup(correction="sequence_mask", correction_cap=3, float32_logits=False).params() == Warmup().params()
    warmup = Warmup(correction="token_truncate", float32_logits=True)
    assert warmup.params().keys() - Warmup().params().keys() == {"correction", "float32_logits"}


@pytest.mark.parametrize(("float32", "expected"), [(False, torch.bfloat16), (True, torch.float32)])
def test_the_key_computes_logits_in_float32(
    tmp_path: Path,
    watch: Any,
    monkeypatch: pytest.MonkeyPatch,
    float32: bool,
    expected: torch.dtype,
) -> None:
    monkeypatch.setattr("g2d.regimes.run.training.load_base", lambda policy: load_base(policy).to(torch.bfloat16))
    dtypes: set[torch.dtype] = set()

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        with torch.no_grad():
            dtypes.add(model.get_output_embeddings()(model.get_input_embeddings()(inputs["prompt_ids"])).dtype)

    watch(seen)
    warm_up(tmp_path, {"float32_logits": float32}, 1)
    assert dtypes == {expected}
