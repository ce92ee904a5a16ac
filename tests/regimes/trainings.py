"""Short trainings of the tiny model by each regime, and their data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from g2d.jobs.files import read_json, sha256
from g2d.memory.workload import MicroBatches
from g2d.policies import PolicyRecord, load_tokenizer
from g2d.policies.model_keys import Lora
from g2d.policies.record import tokenizer_sha256
from g2d.problems import Problem
from g2d.problems.prompts import Prompt, conversation, conversation_ids, plain_ids
from g2d.problems.synthetic import generate
from g2d.regimes.common.checkpoints import MICROBATCHES, Checkpointing
from g2d.regimes.common.regime import Trained, TrainingJob
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.grpo.trainer import Grpo
from g2d.regimes.offline.dpo import Dpo, train_dpo
from g2d.regimes.on_policy.semi_online_dpo import SemiOnlineDpo, train_semi_online_dpo
from g2d.rollouts.pairs import Pair
from tests.models import tiny_policy

WARMUP = Warmup(steps=[0, 2, 4], horizon=6, learning_rate=1e-3, max_completion_length=12)


def warm_up(work: Path, problems: list[Problem], *, k: int, warmup: Warmup = WARMUP, **kwargs: Any) -> list[Any]:
    return train_grpo(
        TrainingJob(
            kwargs.pop("base", None) or tiny_policy(),
            problems,
            warmup,
            lora=kwargs.pop("lora", Lora()),
            group_size=kwargs.pop("group_size", 2),
            k=k,
            seed=0,
            work=work,
            **kwargs,
        )
    ).log


def steps_of(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of gradient steps, without their times."""
    steps = [row.copy() for row in log if "loss" in row]
    for row in steps:
        row.pop("step_time", None)
    return steps


def metric(log: list[dict[str, Any]], name: str) -> list[Any]:
    """Return a metric of every gradient step."""
    return [row[name] for row in log if "loss" in row]


def easy(n: int) -> list[Problem]:
    """Problems that the tests' model answers correctly half of the time, so that some rollouts earn a reward."""
    return [replace(problem, answer="0") for problem in generate("arithmetic", "train", n, seed=0)]


def impossible(problems: list[Problem]) -> list[Problem]:
    """Replace the answers by one that no model gives."""
    return [replace(problem, answer="x") for problem in problems]


def adapter_digest(work: Path) -> str:
    return sha256(work / "adapter/adapter_model.safetensors")


def pairs(n: int = 24, base: PolicyRecord | None = None) -> list[Pair]:
    """Pairs of short answers, which all end."""
    policy = base or tiny_policy()
    tokenizer = load_tokenizer(policy)
    made = []
    for problem in generate("arithmetic", "train", n, seed=3):
        asked = conversation(problem, Prompt())
        right, wrong = f"Clearly \\boxed{{{problem.answer}}}", "Clearly \\boxed{99}"
        pair = Pair(
            prompt=asked,
            chosen=[{"role": "assistant", "content": right}],
            rejected=[{"role": "assistant", "content": wrong}],
            problem_id=problem.problem_id,
            p_hat=0.5,
            chosen_sample=0,
            rejected_sample=1,
            prompt_ids=conversation_ids(tokenizer, asked),
            chosen_ids=[*plain_ids(tokenizer, right), tokenizer.eos_token_id],
            rejected_ids=[*plain_ids(tokenizer, wrong), tokenizer.eos_token_id],
            tokenizer_sha256=tokenizer_sha256(policy.base),
        )
        made.append(pair)
    return made


EVERY_STEP = Checkpointing(every_minutes=1e-6)


def microbatches(work: Path) -> MicroBatches:
    """Return the passes that the newest checkpoint in a folder has recorded."""
    return MicroBatches(**read_json(sorted(work.glob("step-*"))[-1] / MICROBATCHES))


def saving(work: Path) -> Checkpointing:
    """Save every step in a folder `stopped`, else only the last: comparing both shows that saving changes nothing."""
    return EVERY_STEP if work.name.startswith("stopped") else Checkpointing()


def losses(
    train: Callable[[TrainingJob], Trained],
    data: Any,
    settings: Any,
    work: Path,
    *,
    base: PolicyRecord | None = None,
    lora: Lora | None = None,
    **job: Any,
) -> list[dict[str, Any]]:
    """Train and return the rows of the log that have a loss."""
    job = {"seed": 0, "lora": lora or Lora(), "checkpointing": saving(work)} | job
    return steps_of(train(TrainingJob(base or tiny_policy(), data, settings, work=work, **job)).log)


SETTINGS: dict[str, Any] = {
    "regime": "semi_online_dpo",
    "steps": [3, 6],
    "responses": 4,
    "prompts_per_update": 4,
    "max_completion_length": 12,
    "learning_rate": 5e-3,
    "per_device_batch_size": 4,
}


NO_DROPOUT = Lora(dropout=0.0)


DYNAMIC = {"retire": {"after": 1}}


def semi_online(
    work: Path,
    k: int = 6,
    *,
    problems: list[Problem] | None = None,
    started: PolicyRecord | None = None,
    **changes: Any,
) -> list[dict[str, Any]]:
    names = ("resume_from", "meter", "base", "engine", "reward", "verifier", "lora", "shared_prompts")
    job = {name: changes.pop(name) for name in names if name in changes}
    if started is not None:
        changes = {"start": "warmup", "start_step": started.k} | changes
    settings = SemiOnlineDpo.model_validate(SETTINGS | changes)
    if settings.reference == "sync":
        job.setdefault("lora", NO_DROPOUT)
    return losses(train_semi_online_dpo, problems or easy(10), settings, work, k=k, start=started, **job)


def rows_of(work: Path) -> pd.DataFrame:
    return pd.read_parquet(work / "rollouts.parquet")


DPO = Dpo(epochs=3, per_device_batch_size=4, gradient_accumulation_steps=2, learning_rate=2e-3)


def dpo(work: Path, *, settings: Dpo = DPO, saving: Checkpointing = EVERY_STEP, **kwargs: Any) -> list[dict[str, Any]]:
    job = {"lora": Lora(), "seed": 0, "checkpointing": saving} | kwargs
    return steps_of(train_dpo(TrainingJob(tiny_policy(), pairs(22), settings, work=work, **job)).log)


def gradient(model: Any, loss: torch.Tensor) -> torch.Tensor:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters, retain_graph=True)])


def log_probabilities(trainer: Grpo, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    tokens = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    return trainer._get_per_token_logps_and_entropies(model, tokens, mask, inputs["completion_ids"].size(1))[0]
