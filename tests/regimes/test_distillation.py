"""On-policy distillation on a tiny model: loss, gradient, teacher, and resuming with the same bits."""

from __future__ import annotations

import copy
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch

from g2d.experiment.config import Config, load
from g2d.experiment.requirements import fetched_models, require_files, require_vocabularies
from g2d.graph.build import build
from g2d.jobs.files import read_json, write_json
from g2d.memory.model_shape import model_shape
from g2d.memory.need import Forecast
from g2d.memory.passes import Counted
from g2d.policies import Policy, embedded, load_model
from g2d.policies.pretrained import resolve_base
from g2d.policies.settings import Lora
from g2d.regimes.on_policy.distillation import Distillation, train_distillation
from g2d.regimes.run.checkpoints import TrainingStoppedError
from g2d.rollouts.settings import EngineSettings
from g2d.settings import ConfigError
from tests.experiment.test_config import MINIMAL
from tests.models import adapted, random_model, tiny_policy
from tests.regimes.losses import losses
from tests.regimes.test_resume import adapter, assert_resumes, terminated_after
from tests.regimes.test_training import easy

SETTINGS: dict[str, Any] = {
    "regime": "distillation",
    "teacher": "grpo",
    "steps": [3, 6],
    "responses": 2,
    "prompts_per_update": 3,
    "max_completion_length": 12,
    "learning_rate": 5e-3,
    "per_device_batch_size": 4,
    "keep_rollouts": "completions",
}
NO_DROPOUT, ALL_WEIGHTS = Lora(dropout=0.0), Lora.model_validate("none")


def distilled(work: Path, teacher: Policy, k: int = 3, lora: Lora = NO_DROPOUT, **changes: Any) -> list[dict[str, Any]]:
    job = {name: changes.pop(name) for name in ("resume_from", "start") if name in changes}
    if "start" in job:
        changes |= {"start": "warmup", "start_step": 2}
    settings = Distillation.model_validate(SETTINGS | changes)
    return losses(train_distillation, easy(10), settings, work, teacher=teacher, lora=lora, k=k, **job)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """M0 with a random adapter that changes much."""
    return adapted(tiny_policy(), tmp_path_factory.mktemp("teacher"), std=0.3)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The model before the first update, its rollouts and its gradients."""
    from g2d.regimes.on_policy.distillation_trainer import DistillationOnGivenRollouts  # TRL imports vLLM for it

    seen, step = SimpleNamespace(), DistillationOnGivenRollouts.training_step

    def watched(self: Any, model: Any, inputs: Any, n: Any = None) -> torch.Tensor:
        seen.model = copy.deepcopy(model)
        groups, updates = [], self.updates
        self.updates = lambda step: groups.append(updates(step)) or groups[-1]
        loss = step(self, model, inputs, n)
        seen.rollouts = [(group.prompt, group.completions[0]) for group in groups[0][0]]
        seen.gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}
        return loss

    monkeypatch.setattr(DistillationOnGivenRollouts, "training_step", watched)
    return seen


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7}, {"beta": 0.0}, {"beta": 0.3}, {"lora": ALL_WEIGHTS}])
def test_loss_and_gradient_equal_float64(
    tmp_path: Path, teacher: Policy, seen: SimpleNamespace, settings: dict[str, Any]
) -> None:
    """Compare with a loss by hand, one unpadded rollout at a time. All weights of the adapter have gradients."""
    if "lora" not in settings:
        settings["start"] = adapted(tiny_policy(), tmp_path / "start", std=0.1, seed=1, dropout=0.0)
    (row,) = distilled(tmp_path / "run", teacher, k=1, prompts_per_update=4, **settings)
    policy, q_model = seen.model.double().eval(), load_model(teacher).double()
    temperature, beta = settings.get("temperature", 1.0), settings.get("beta", 1.0)
    total, n, entropy = torch.zeros((), dtype=torch.float64), 0, 0.0
    for prompt, completion in seen.rollouts:
        ids = torch.tensor([prompt + completion])
        of_completion = slice(len(prompt) - 1, -1)
        log_p = (policy(input_ids=ids).logits[0, of_completion] / temperature).log_softmax(-1)
        with torch.no_grad():
            log_q = (q_model(input_ids=ids).logits[0, of_completion] / temperature).log_softmax(-1)
        p, q = log_p.exp(), log_q.exp()
        if beta == 1:
            per_token = p * (log_p - log_q)
        elif beta == 0:
            per_token = q * (log_q - log_p)
        else:  # GKD, equation 1: P the teacher, Q the policy
            m = beta * q + (1 - beta) * p
            per_token = beta * q * (log_q - m.log()) + (1 - beta) * p * (log_p - m.log())
        total, n = total + per_token.sum(), n + len(completion)
        entropy -= float((p * log_p).sum().detach())
    loss = total / n
    loss.backward()
    assert row["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert loss.item() > 1e-3
    assert row["entropy"] == pytest.approx(entropy / n, rel=1e-4)
    expected = {name: p.grad for name, p in policy.named_parameters() if p.requires_grad}
    assert expected.keys() == seen.gradients.keys()
    norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in expected.values()))
    assert row["grad_norm"] == pytest.approx(norm, rel=1e-4)
    for name, gradient in expected.items():
        assert (seen.gradients[name] - gradient).abs().max() < 1e-5 * norm, name
    read = sum(len(prompt) + len(completion) for prompt, completion in seen.rollouts)
    assert row["num_tokens"] == row["tokens/scored"] == read
    assert pd.read_parquet(tmp_path / "run/rollouts.parquet")["token_count"].sum() == n


def test_stopped_anywhere_and_in_a_chain_it_equals_an_uninterrupted_run(tmp_path: Path, teacher: Policy) -> None:
    straight = assert_resumes(lambda work: distilled(work, teacher, k=6, lora=Lora()), tmp_path, 2, 5)
    assert min(row["grad_norm"] for row in straight) > 1e-3  # six updates on other rollouts: their losses are noise
    distilled(tmp_path / "first", teacher, k=3, lora=Lora())
    resumed = {"resume_from": tmp_path / "first/checkpoint", "lora": Lora()}
    assert distilled(tmp_path / "second", teacher, k=6, **resumed) == straight
    assert adapter(tmp_path / "straight") == adapter(tmp_path / "second")


def test_an_attempt_with_another_teacher_is_not_gone_on_from(
    tmp_path: Path, teacher: Policy, capfd: pytest.CaptureFixture[str]
) -> None:
    with terminated_after(1), pytest.raises(TrainingStoppedError):
        distilled(tmp_path / "stopped", teacher)
    distilled(tmp_path / "stopped", tiny_policy())
    assert "made under other settings, not used" in capfd.readouterr().out


def test_a_policy_as_its_own_teacher_has_zero_loss_also_if_its_head_is_padded(tmp_path: Path) -> None:
    padded = load_model(tiny_policy())
    padded.resize_token_embeddings(padded.config.vocab_size + 8)
    shutil.copytree(tiny_policy().base, tmp_path / "padded")
    padded.save_pretrained(tmp_path / "padded")
    (row,) = distilled(tmp_path / "run", replace(tiny_policy(), base=str(tmp_path / "padded")), k=1)
    assert abs(row["loss"]) < 1e-6
    assert row["grad_norm"] < 1e-6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teacher": {"source": "local", "path": "x"}, "teacher_step": 3}, "teacher_step=3: a model has no K"),
        ({"reward": "coin"}, "reward: distillation does not use a reward: drop the key"),
        ({"beta": 1.1}, "beta"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Distillation.model_validate(SETTINGS | changes)


def other_model(folder: Path, **changes: Any) -> dict[str, str]:
    """Return a copy of the embedded model, with other values in its configuration, as a local model."""
    shutil.copytree(embedded.FOLDER, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    write_json(folder / "config.json", read_json(folder / "config.json") | changes)
    return {"source": "local", "path": str(folder)}


def with_teacher(model: dict[str, str], teacher: dict[str, str]) -> Config:
    student = SETTINGS | {"teacher": teacher, "prompts_per_update": 1}
    return load(MINIMAL | {"models": {"demo": model}, "regimes": {"student": student}})


def test_another_models_tokens_are_compared_before_any_job(tmp_path: Path) -> None:
    model = other_model(tmp_path / "model")
    require_vocabularies(with_teacher(model, other_model(tmp_path / "same")))
    small = with_teacher(model, other_model(tmp_path / "small", vocab_size=8))
    with pytest.raises(
        ConfigError, match=r"regimes.student.teacher: its head has 8 rows, fewer than the \d+ of demo: choose"
    ):
        require_vocabularies(small)
    other = other_model(tmp_path / "other")
    tokenizer = tmp_path / "other/tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("<|im_end|>", "<|another|>"))
    for m0 in (model, {"source": "embedded"}):
        with pytest.raises(ConfigError, match=r"regimes.student.teacher: its vocabulary is not that of demo"):
            require_vocabularies(with_teacher(m0, other))
    with pytest.raises(ValueError, match=r"other: its vocabulary is not that of .*tiny"):
        distilled(tmp_path / "work", replace(tiny_policy(), base=other["path"]))
    with pytest.raises(ConfigError, match=r"regimes.student.teacher.path: nowhere/config.json does not exist"):
        require_files(with_teacher(model, {"source": "local", "path": "nowhere"}))


def test_a_job_depends_on_the_record_of_another_model(tmp_path: Path) -> None:
    config = with_teacher({"source": "embedded"}, other_model(tmp_path / "teacher"))
    makers = build(config).makers
    training = makers["results/demo/seed0/student/g2/k3/policy.json"]
    (record,) = training.inputs["teacher"]
    assert makers[record].rule == "pretrained_model"
    assert training.inputs["costs"] == ["results/demo/calibration/cost.json"]
    source = fetched_models(config)["teachers/student"]
    before = resolve_base("teachers/student", source)
    assert record == f"results/{before.policy_id}/policy.json"
    write_json(tmp_path / "teacher/generation_config.json", {"changed": True})
    assert resolve_base("teachers/student", source) != before


def test_a_teacher_needs_room_for_its_weights(tmp_path: Path) -> None:
    given = SETTINGS, SETTINGS | {"teacher": {"source": "local", "path": "mine-1.5b"}}
    of_grid, other = (Distillation.model_validate(values).on_card(4, 8) for values in given)
    assert (of_grid.teacher, other.teacher) == (0, 1.5e9)  # 0: as large as M0
    config = random_model("grouped").config
    forecast = Forecast(model_shape(config, Lora()), Counted(config, Lora()), EngineSettings(), 2**36, 64)
    for training, weights in ((of_grid, forecast.shape.parameters), (other, 1.5e9)):
        need = forecast.training(training)
        assert [part.bytes for part in need.parts if part.name == "teacher"] == [2 * weights]
