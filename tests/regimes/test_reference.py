"""The reference of DPO and similar losses: the starting policy, without dropout, and each row once."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar

import pytest
import torch
from trl import DPOTrainer
from trl.trainer import dpo_trainer

from g2d.jobs.files import read_json, write_json
from g2d.policies import PolicyRecord
from g2d.policies.model_keys import Lora
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.offline.dpo import Dpo, train_dpo
from g2d.regimes.offline.pair_trainer import PairTrainer, Scores
from g2d.regimes.offline.pairs import PairKeys, train_pairs
from g2d.regimes.on_policy.semi_online_dpo import SemiOnlineDpo, train_semi_online_dpo
from g2d.rollouts.pairs import Pair
from tests.models import adapted, completion_logprobs, tiny_policy
from tests.regimes.trainings import SETTINGS, easy, gradient, pairs, steps_of

N = 6
Log = list[dict[str, Any]]


def run(train: Any, data: Any, settings: Any, work: Path, start: PolicyRecord | None = None, **job: Any) -> Log:
    lora = Lora(dropout=0.0)
    log: Log = train(TrainingJob(tiny_policy(), data, settings, work=work, start=start, lora=lora, seed=0, **job)).log
    return log


def one_step(shape: tuple[int, int]) -> dict[str, Any]:
    return {"per_device_batch_size": shape[0], "gradient_accumulation_steps": shape[1], "max_steps": 1}


def dpo(
    work: Path,
    n: int = N,
    shape: tuple[int, int] = (N, 1),
    start: PolicyRecord | None = None,
    data: Any = None,
    **keys: Any,
) -> Log:
    settings = Dpo.model_validate(one_step(shape) | keys | ({"start": "warmup"} if start else {}))
    return run(train_dpo, data or pairs(n), settings, work, start)


def uneven() -> list[Pair]:
    """Pairs whose completions have different numbers of tokens, either of them more."""
    made = pairs(N)
    for pair in made[::2]:
        pair["chosen_ids"] = pair["chosen_ids"] * 2
    for pair in made[1::2]:
        pair["rejected_ids"] = pair["rejected_ids"] * 2
    return made


def semi_online(work: Path, start: PolicyRecord | None = None, **keys: Any) -> Log:
    settings = SemiOnlineDpo.model_validate(SETTINGS | {"steps": [2], "start": "warmup", "start_step": 2} | keys)
    return run(train_semi_online_dpo, easy(10), settings, work, start, k=2)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> PolicyRecord:
    """A policy other than M0, with adapter dropout of one half."""
    folder = tmp_path_factory.mktemp("start") / "adapter"
    policy = adapted(tiny_policy(), folder, std=0.03)
    write_json(folder / "adapter_config.json", read_json(folder / "adapter_config.json") | {"lora_dropout": 0.5})
    return policy


@pytest.mark.parametrize("train", [dpo, partial(dpo, precompute_reference=True)], ids=["dpo", "once"])
def test_the_reference_is_the_start_without_dropout(
    tmp_path: Path, start: PolicyRecord, train: Callable[..., Log]
) -> None:
    """A reward is beta times the log-ratio, so the log reveals the reference."""
    log = train(tmp_path, start=start)
    for side in ("chosen", "rejected"):
        reference = log[0][f"logps/{side}"] - log[0][f"rewards/{side}"] / 0.1
        expected = mean(sum(completion_logprobs(start, pair["prompt_ids"], pair[f"{side}_ids"])) for pair in pairs(N))
        assert reference == pytest.approx(expected, abs=1e-3)
    assert abs(log[0]["rewards/chosen"]) > 1e-3  # the policy that is trained has dropout


def test_online_references_and_generators_have_no_dropout(
    tmp_path: Path, start: PolicyRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[bool] = []
    forward = torch.nn.Dropout.forward

    def watched(self: torch.nn.Dropout, input: torch.Tensor) -> torch.Tensor:
        if self.training:
            dropped.append(torch.is_grad_enabled())
        return forward(self, input)

    monkeypatch.setattr(torch.nn.Dropout, "forward", watched)
    semi_online(tmp_path, start=start, reference="start")
    assert dropped
    assert all(dropped)


@contextmanager
def without_its_reference() -> Any:
    """TRL takes M0 for the reference, whatever the training started from."""
    with pytest.MonkeyPatch.context() as patch:
        enter = dpo_trainer.use_adapter
        patch.setattr(dpo_trainer, "use_adapter", lambda model, adapter_name: enter(model, None))
        yield


@pytest.mark.parametrize(
    "train",
    [dpo, partial(dpo, precompute_reference=True), partial(semi_online, reference="start")],
    ids=["dpo", "once", "semi_online"],
)
def test_a_training_that_does_not_begin_at_its_reference_warns_before_its_first_step(
    tmp_path: Path, start: PolicyRecord, train: Callable[..., Any]
) -> None:
    with without_its_reference(), pytest.raises(RuntimeError, match="the reference is not the policy that training"):
        train(tmp_path / "other", start=start)
    assert not [*tmp_path.glob("other/step-*")]


@pytest.mark.parametrize("nats", [0.05, 0.3])
def test_precomputed_references_may_be_rounded_otherwise_in_bfloat16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nats: float
) -> None:
    """Other rows share a pass then, which rounds otherwise: .01 to .06 nats per token of SmolLM2."""
    precompute = DPOTrainer._precompute_ref_logps

    def rounded(self: Any, dataset: Any, *args: Any) -> Any:
        def shifted(row: dict[str, Any]) -> dict[str, Any]:
            sides = ("chosen", "rejected")
            return {f"ref_{side}_logps": row[f"ref_{side}_logps"] + nats * len(row[f"{side}_ids"]) for side in sides}

        return precompute(self, dataset, *args).map(shifted)

    monkeypatch.setattr(DPOTrainer, "_precompute_ref_logps", rounded)
    settings = Dpo.model_validate(one_step((N, 1)) | {"precompute_reference": True})
    with nullcontext() if nats < 0.1 else pytest.raises(RuntimeError, match=r"0\.3\d* nats per token"):
        run(train_dpo, pairs(N), settings, tmp_path / "rounded", precision="bfloat16")
    with pytest.raises(RuntimeError, match="rounding in float32"):
        run(train_dpo, pairs(N), settings, tmp_path / "exact")


def in_float64(loss: str, beta: float, model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The gradient of a pair loss, row by row, from the logits."""
    model.double()
    mask = inputs["completion_mask"][:, 1:].double()

    def log_probs() -> torch.Tensor:
        logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[:, :-1]
        return logits.log_softmax(-1).gather(-1, inputs["input_ids"][:, 1:, None])[..., 0]

    with torch.no_grad(), model.disable_adapter():
        reference = log_probs()
    ratios = ((log_probs() - reference) * mask).sum(1)
    if loss == "ipo":
        ratios = ratios / mask.sum(1)
    apart = ratios[: len(ratios) // 2] - ratios[len(ratios) // 2 :]
    value = -torch.log(torch.sigmoid(beta * apart)) if loss == "sigmoid" else (apart - 0.5 / beta) ** 2
    flat = gradient(model, value.mean()).double()
    model.float()
    return flat


@pytest.mark.parametrize("loss", ["sigmoid", "ipo"])
def test_the_gradient_is_that_of_the_papers_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str) -> None:
    """Rafailov et al. (equation 7) and TRL's IPO, in float64."""
    apart: list[float] = []
    compute = PairTrainer.compute_loss

    def watched(self: PairTrainer, model: Any, inputs: dict[str, Any], **keywords: Any) -> torch.Tensor:
        expected = in_float64(loss, self.beta, model, inputs)
        value = compute(self, model, inputs, **keywords)
        apart.append(float((gradient(model, value).double() - expected).norm() / expected.norm()))
        return value

    monkeypatch.setattr(PairTrainer, "compute_loss", watched)
    log = dpo(tmp_path, loss=loss, max_steps=3, learning_rate=2e-3, data=uneven())
    assert log[0]["loss"] == pytest.approx(math.log(2) if loss == "sigmoid" else 25.0, rel=1e-5)
    assert log[2]["loss"] < 0.999 * log[0]["loss"]
    assert max(apart) < 1e-4


def test_precomputed_references_keep_their_rows_in_a_smaller_last_micro_batch(tmp_path: Path) -> None:
    """The result for 4 rows does not depend on whether micro-batches hold 4 or 3 and 1."""
    train = partial(dpo, n=4, loss="ipo", precompute_reference=True)
    in_one_pass = train(tmp_path / "together", shape=(4, 1))[0]
    in_two_passes = train(tmp_path / "apart", shape=(3, 2))[0]
    assert in_two_passes["loss"] == pytest.approx(in_one_pass["loss"], rel=1e-4)
    assert in_two_passes["grad_norm"] == pytest.approx(in_one_pass["grad_norm"], rel=1e-4)


class WithoutReference(PairKeys):
    has_reference: ClassVar[bool] = False


def per_token(keys: PairKeys, chosen: Scores, rejected: Scores) -> torch.Tensor:
    return rejected.log_probs / rejected.n_tokens - chosen.log_probs / chosen.n_tokens


def of_ratios(keys: PairKeys, chosen: Scores, rejected: Scores) -> torch.Tensor:
    return rejected.log_ratios - chosen.log_ratios


@pytest.mark.parametrize("lora", [Lora(dropout=0.0), Lora.model_validate("none")], ids=["lora", "none"])
def test_a_loss_without_a_reference_scores_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: Lora) -> None:
    """It has the loss of M0 by hand, logs no rewards, which are log-ratios, and loads no second model."""
    kept: list[Any] = []
    compute = PairTrainer.compute_loss

    def watched(self: PairTrainer, *args: Any, **kwargs: Any) -> torch.Tensor:
        kept.append(self.ref_model)
        return compute(self, *args, **kwargs)

    monkeypatch.setattr(PairTrainer, "compute_loss", watched)
    settings = WithoutReference.model_validate(one_step((N, 1)))
    job = TrainingJob(tiny_policy(), uneven(), settings, work=tmp_path, lora=lora, seed=0)
    [row] = steps_of(train_pairs(job, per_token).log)
    means: dict[str, float] = {}
    for side in ("chosen", "rejected"):
        scores = [completion_logprobs(tiny_policy(), pair["prompt_ids"], pair[f"{side}_ids"]) for pair in uneven()]
        means[side] = mean(map(mean, scores))
    assert row["loss"] == pytest.approx(means["rejected"] - means["chosen"], rel=1e-3)
    assert "logps/chosen" in row
    assert not [name for name in row if name.startswith("rewards/")]
    assert kept == [None]


def test_a_log_ratio_without_a_reference_is_refused(tmp_path: Path) -> None:
    settings = WithoutReference.model_validate(one_step((N, 1)))
    job = TrainingJob(tiny_policy(), pairs(N), settings, work=tmp_path, lora=Lora(), seed=0)
    with pytest.raises(TypeError, match="this loss has no reference: set `has_reference`"):
        train_pairs(job, of_ratios)
