"""A constant lag: which weights generate, what corrects them, and going on bit for bit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from g2d.jobs.cost import Meter
from g2d.jobs.files import DiskError, read_json, sha256
from g2d.regimes.grpo import generation as grpo_generation
from g2d.regimes.grpo.generation import EngineGeneration
from g2d.regimes.grpo.lag import ADAPTERS, overlap_s
from g2d.regimes.grpo.trainer import Grpo
from g2d.regimes.run.checkpoints import MANIFEST, TrainingStoppedError
from g2d.rollouts.settings import EngineSettings
from tests.regimes.test_off_policy import adapter, gradient, log_probabilities, rollouts, warm_up
from tests.regimes.test_resume import terminated_after

BUFFER = {"buffer": 8, "share": 0.5}
Weights = dict[str, torch.Tensor]


def weights(model: Any) -> Weights:
    """Weights of a model with an adapter, or of the model inside PEFT's wrapper, with the same names."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters() if ".default." in name}


def same(one: Weights, other: Weights) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def drawn_by(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Weights, Weights]]:
    drawn_by: list[tuple[Weights, Weights]] = []
    draw, merge = EngineGeneration.draw, grpo_generation.merged

    def of_trainer(self: EngineGeneration, *arguments: Any) -> Any:
        drawn_by.append((weights(self._trainer.model), {}))
        drawn = draw(self, *arguments)
        assert same(weights(self._trainer.model), drawn_by[-1][0])
        return drawn

    def of_generator(model: Any) -> Any:  # before its adapter is merged
        drawn_by[-1] = (drawn_by[-1][0], weights(model))
        return merge(model)

    monkeypatch.setattr(EngineGeneration, "draw", of_trainer)
    monkeypatch.setattr(grpo_generation, "merged", of_generator)
    return drawn_by


def test_the_policy_of_so_many_updates_ago_generates(
    tmp_path: Path, drawn_by: list[tuple[Weights, Weights]], capsys: pytest.CaptureFixture[str]
) -> None:
    warm_up(tmp_path, {"lag": 2}, 5)
    on_disk = sum(file.stat().st_size for file in (tmp_path / "checkpoint" / ADAPTERS).rglob("*.*"))
    warning = f"lag: every checkpoint has up to 2 earlier policies, {on_disk / 1e9:.2g} GB"
    assert capsys.readouterr().out.count(warning) == 1
    trained = [weights for weights, _ in drawn_by]
    assert not any(same(one, other) for one, other in pairwise(trained))
    assert [[same(other, generator) for other in trained].index(True) for _, generator in drawn_by] == [0, 0, 0, 1, 2]
    assert rollouts(tmp_path).groupby("step").generated_at.unique().map(list).tolist() == [[1], [1], [1], [2], [3]]


def test_a_training_without_disk_space_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine policies: three beside the checkpoints, two in each of them and in a third while it is written. Remains
    of a killed attempt are removed.
    """
    (tmp_path / ADAPTERS / "7").mkdir(parents=True)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 100_000}))
    message = f"{tmp_path}: warmup.lag=2 needs .* GB for earlier policies, and 0.0001 GB are free"
    with pytest.raises(DiskError, match=message):
        warm_up(tmp_path, {"lag": 2}, 4)
    assert not (tmp_path / ADAPTERS).exists()


class Vllm:
    """Record the weights sent to vLLM; it always returns the same tokens."""

    def __init__(self) -> None:
        self.handed_over: list[str] = []

    def use_adapter(self, folder: Path) -> None:
        self.handed_over.append(sha256(folder / "adapter_model.safetensors"))

    def compare(self, name: str, reference: Any) -> None: ...

    def draw(self, prompts: list[list[int]], *_: Any) -> Any:
        return [[5 + i % 7, 6 + i % 5] for i in range(len(prompts))], [[-1.0] * 2] * len(prompts)

    def render(self, messages: Any) -> str:
        return str(messages)

    def start_for(self, *_: Any) -> None: ...

    def close(self) -> None: ...


def test_vllm_has_the_adapter_of_so_many_updates_ago(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vllm = Vllm()
    monkeypatch.setattr(grpo_generation, "vllm_beside_trainer", lambda *_: vllm)
    keys = {"lag": 1, "entropy_coefficient": 0.1}  # something to learn, whatever the rewards
    warm_up(tmp_path, keys, 4, engine=EngineSettings(name="vllm"))
    assert vllm.handed_over[0] == vllm.handed_over[1]
    assert len(set(vllm.handed_over)) == 3
    kept = tmp_path / "checkpoint" / ADAPTERS / "3/adapter_model.safetensors"
    assert sha256(kept) not in vllm.handed_over


def test_a_lag_equals_online_bit_for_bit_if_the_policy_does_not_move(tmp_path: Path) -> None:
    still = {"learning_rate": 1e-30}
    online, late = warm_up(tmp_path / "online", still, 3), warm_up(tmp_path / "late", still | {"lag": 2}, 3)
    names = ("loss", "grad_norm", "entropy", "reward", "num_tokens")
    assert [[row[name] for name in names] for row in late] == [[row[name] for name in names] for row in online]
    assert {row["sampling/importance_sampling_ratio/max"] for row in late} == {1.0}
    assert rollouts(tmp_path / "late").drop(columns="generated_at").equals(rollouts(tmp_path / "online"))


CORRECTIONS: list[dict[str, Any]] = [
    {"ratio": "none"},
    {"correction": "token_truncate", "correction_cap": 1.05},
    {"correction": "token_mask", "correction_cap": 1.05},
    {"correction": "sequence_truncate", "correction_cap": 1.1},
    {"correction": "sequence_mask", "correction_cap": 1.1},
    {"correction": "m2", "m2_threshold": 1e-3},
]


def weights_by_hand(keys: dict[str, Any], log_ratios: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if keys.get("ratio") == "none":
        return torch.ones_like(log_ratios)
    if keys["correction"] == "m2":
        left = list(zip((log_ratios[mask] ** 2).tolist(), log_ratios[mask].tolist(), strict=True))
        while sum(square for square, _ in left) > keys["m2_threshold"] * len(left):
            left.remove(max(left))
        kept = torch.isin(log_ratios, torch.tensor([ratio for _, ratio in left], dtype=torch.float64))
        return log_ratios.exp() * kept
    ratios = (log_ratios if keys["correction"].startswith("token") else log_ratios.sum(1, keepdim=True)).exp()
    cap = keys["correction_cap"]
    return ratios.clamp(max=cap) if keys["correction"].endswith("truncate") else ratios.where(ratios <= cap, 0.0)


@pytest.mark.parametrize("keys", CORRECTIONS, ids=str)
def test_value_and_gradient_equal_the_weighted_loss(
    tmp_path: Path,
    watch: Any,
    drawn_by: list[tuple[Weights, Weights]],
    keys: dict[str, Any],
) -> None:
    """The gradient is of the mean of -w A log pi over tokens, then completions; the loss is its value at log pi = 1."""
    cosines, capped = [], []

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        if trainer.state.global_step < 2:  # up to there, what generates is M0, and B is nothing
            return
        now, generator = drawn_by[-1]
        measured, mask = gradient(model, loss).double(), inputs["completion_mask"].bool()
        log_probs = log_probabilities(trainer, model, inputs)
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            for name in now:
                parameters[name].data.copy_(generator[name])  # unseen by the graph of the loss
            sampled = log_probabilities(trainer, model, inputs)
            for name in now:
                parameters[name].data.copy_(now[name])
        log_ratios = (log_probs.detach() - sampled).double() * mask
        by_hand = weights_by_hand(keys, log_ratios, mask)
        advantages = inputs["advantages"].double()[:, None]

        def mean(gain: torch.Tensor) -> torch.Tensor:
            return -((gain * mask).sum(1) / mask.sum(1)).mean()

        assert loss.item() == pytest.approx(mean(by_hand * advantages).item(), abs=1e-6)
        expected = gradient(model, mean(by_hand * advantages * log_probs.double())).double()
        if expected.norm() > 0:
            cosines.append((measured @ expected / measured.norm() / expected.norm()).item())
            assert measured.norm().item() == pytest.approx(expected.norm().item(), rel=1e-4)
        capped.append((by_hand != log_ratios.exp()).any().item())

    watch(seen)
    # A step is one pass, so that m2 is seen to be over all tokens of an update.
    one_pass = {"lag": 2, "per_device_batch_size": 16, "gradient_accumulation_steps": 1}
    warm_up(tmp_path, one_pass | keys, 5)
    assert len(cosines) >= 2
    assert min(cosines) > 1 - 1e-6
    assert any(capped)


@pytest.mark.parametrize(
    ("keys", "stop"),
    [({"lag": 3, "retire": {"after": 1}}, 2), ({"lag": 2, "correction": "m2", "replay": BUFFER}, 4)],
    ids=str,
)
def test_a_stopped_run_and_a_chain_equal_an_uninterrupted_run(tmp_path: Path, keys: dict[str, Any], stop: int) -> None:
    meters = [Meter("job", "train_grpo") for _ in range(3)]
    straight = warm_up(tmp_path / "straight", keys, 6, meter=meters[0])
    with terminated_after(stop), pytest.raises(TrainingStoppedError):
        warm_up(tmp_path / "stopped", keys, 6, meter=meters[1])
    assert warm_up(tmp_path / "stopped", keys, 6, meter=meters[2]) == straight
    assert adapter(tmp_path / "stopped") == adapter(tmp_path / "straight")
    pd.testing.assert_frame_equal(rollouts(tmp_path / "stopped"), rollouts(tmp_path / "straight"))
    bill = meters[2].spent()
    assert bill.tokens_generated == meters[0].spent().tokens_generated
    assert bill.overlap_s == pytest.approx(meters[1].overlap_s + meters[2].overlap_s)
    warm_up(tmp_path / "first", keys, 4)
    kept = {file for file in read_json(tmp_path / "first/checkpoint" / MANIFEST)["files"] if file.startswith(ADAPTERS)}
    assert {int(file.split("/")[1]) for file in kept} == {*range(4 - keys["lag"], 4)}  # as many as it needs
    warm_up(tmp_path / "second", keys, 6, resume_from=tmp_path / "first/checkpoint")
    assert adapter(tmp_path / "second") == adapter(tmp_path / "straight")


def test_overlap_by_hand() -> None:
    # Generations of 2 and updates of 3: the first generation is waited for, the others are hidden behind updates.
    assert overlap_s([2, 2, 2], [3, 3, 3], 1) == 15 - (2 + 9)
    # Generations are longer: what one has to wait for is the weights after update step - lag, or nothing.
    assert overlap_s([5, 5, 5], [3, 3, 3], 1) == 24 - (15 + 3)
    assert overlap_s([5, 1, 5], [4, 4, 4], 1) == 23 - (5 + 4 + 5 + 4)  # the third generation begins at 9
    assert overlap_s([5, 1, 5], [4, 4, 4], 2) == 23 - (5 + 4 + 4 + 4)
    assert overlap_s([2, 2, 2], [3, 3, 3], 0) == 0
