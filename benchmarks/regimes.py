"""Time of an update of each online regime, split into generation, judging, hand-over, rows and training.

    python benchmarks/regimes.py results/demo [--engine vllm] [--updates 20] [--rounds 2]

RESULTS/MODEL is a folder of a finished grid, for its M0 and training set. Every regime makes the same number of updates
of 16 prompts with 8 rollouts each, at most 48 tokens at temperature 1. TRL's experimental online DPO supports only two
rollouts per prompt and is compared with our own with two. The regimes run in turns in one process, on one thread.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

from g2d.policies.model_keys import Lora, lora_config
from g2d.policies.record import PolicyRecord, load_base, load_tokenizer, read_policy
from g2d.problems import Problem, read_problems
from g2d.problems.prompts import Prompt, conversation
from g2d.regimes.common.prompt_choice import prompt_order
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.common.trainers import trainer_arguments
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.on_policy.rollouts import OnPolicyRollouts
from g2d.regimes.on_policy.semi_online_dpo import SemiOnlineDpo, train_semi_online_dpo
from g2d.rewards.training_reward import completion_text
from g2d.rollouts.rollout_keys import EngineSettings
from g2d.rollouts.transformers_engine import TransformersEngine
from g2d.rollouts.vllm_engine import VllmEngine
from g2d.verifier.verifier import Verifier, verify_batch

PROMPTS, LENGTH = 16, 48
LORA = Lora(dropout=0.0)
spent: dict[str, float] = defaultdict(float)


@contextmanager
def timed(owner: Any, name: str, phase: str) -> Iterator[None]:
    """Add the seconds of a method to a phase."""
    method = getattr(owner, name)

    def measured(*args: Any, **kwargs: Any) -> Any:
        begun, before = time.perf_counter(), sum(spent.values())
        try:
            return method(*args, **kwargs)
        finally:
            inside = sum(spent.values()) - before  # phases inside this one have counted their own
            spent[phase] += time.perf_counter() - begun - inside

    setattr(owner, name, measured)
    try:
        yield
    finally:
        setattr(owner, name, method)


def trained(
    train: Callable[[TrainingJob], Any],
    base: PolicyRecord,
    problems: list[Problem],
    settings: Any,
    updates: int,
    engine: str,
    **own: Any,
) -> None:
    engine_settings = EngineSettings(name=engine)
    with tempfile.TemporaryDirectory() as work:
        keywords = {"lora": LORA, "k": updates, "seed": 0, "work": Path(work), "engine": engine_settings, **own}
        train(TrainingJob(base, problems, settings, **keywords))


def semi_online(base: PolicyRecord, problems: list[Problem], updates: int, engine: str, **keys: Any) -> None:
    values = {
        "regime": "semi_online_dpo",
        "steps": [updates],
        "prompts_per_update": PROMPTS,
        "max_completion_length": LENGTH,
        "batch_size": 256,
        "per_device_batch_size": 128,
        "learning_rate": 1e-3,
    }
    settings = SemiOnlineDpo.model_validate(values | keys)
    trained(train_semi_online_dpo, base, problems, settings, updates, engine)


def grpo(base: PolicyRecord, problems: list[Problem], updates: int, engine: str, **keys: Any) -> None:
    warmup = Warmup(
        steps=[updates],
        group_sizes=[8],
        prompts_per_step=PROMPTS,
        per_device_batch_size=128,
        learning_rate=1e-3,
        temperature=1.0,
        max_completion_length=LENGTH,
        **keys,
    )
    trained(train_grpo, base, problems, warmup, updates, engine, group_size=8)


def trl_online_dpo(base: PolicyRecord, problems: list[Problem], updates: int, engine: str) -> None:
    """TRL's experimental trainer, generating with transformers whatever the engine."""
    from datasets import Dataset
    from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

    chosen = [problems[i] for i in prompt_order(len(problems), updates * PROMPTS, 0)]
    rows = [{"prompt": conversation(problem, Prompt()), "answer": problem.answer} for problem in chosen]

    def reward(prompts: Any, completions: Any, completion_ids: Any, answer: Any = None, **columns: Any) -> list[float]:
        items = [(own, completion_text(text)) for own, text in zip(answer, completions, strict=True)]
        return [judgement.reward for judgement in verify_batch(items)]

    with tempfile.TemporaryDirectory() as work:
        arguments = OnlineDPOConfig(
            **trainer_arguments(work, 0),
            max_steps=updates,
            learning_rate=1e-3,
            per_device_train_batch_size=PROMPTS,
            gradient_accumulation_steps=1,
            max_new_tokens=LENGTH,
            max_length=256,
            temperature=1.0,
        )
        OnlineDPOTrainer(
            model=load_base(base),
            reward_funcs=[reward],
            args=arguments,
            train_dataset=Dataset.from_list(rows),
            processing_class=load_tokenizer(base),
            peft_config=lora_config(LORA),
        ).train()


CASES: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {
    "online DPO, s=1": (semi_online, {}),
    "semi-online DPO, s=10": (semi_online, {"sync_every": 10}),
    "online GroupDPO, s=1": (semi_online, {"pairs": "all"}),
    "GRPO, v=1": (grpo, {}),
    "GRPO, v=10": (grpo, {"updates_per_generation": 10}),
    "online DPO, s=1, two rollouts": (semi_online, {"responses": 2}),
    "TRL's experimental online DPO": (trl_online_dpo, {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="RESULTS/MODEL of a finished grid")
    parser.add_argument("--engine", default="transformers", choices=["transformers", "vllm"])
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    options = parser.parse_args()
    base = read_policy(options.model / "base/policy.json")
    problems = read_problems(options.model / "calibration/train.jsonl")

    import torch
    from transformers import Trainer

    from g2d.regimes.common.online import CopyEngine, Sampler
    from g2d.regimes.grpo import trainer as grpo_trainer

    torch.set_num_threads(1)
    measured: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(options.rounds):
        for name in options.only:
            train, keys = CASES[name]
            spent.clear()
            with (
                timed(TransformersEngine, "generate", "generation"),
                timed(VllmEngine, "_complete", "generation"),
                timed(Sampler, "sync", "hand-over"),
                timed(CopyEngine, "copy_of_policy", "hand-over"),  # transformers: the adapter put into a copy of M0
                timed(OnPolicyRollouts, "rollouts_for", "rows"),  # the rest of it
                timed(Verifier, "verify", "judging"),
                timed(grpo_trainer.Grpo, "_generate", "generation"),
                timed(Trainer, "train", "training"),  # the rest of it; loading and building are outside
            ):
                train(base, problems, options.updates, options.engine, **keys)
            measured[name].append(dict(spent))
    phases = ("update", "generation", "judging", "hand-over", "rows", "training")
    print(f"{'ms per update, median':32}" + "".join(f"{phase:>12}" for phase in phases))
    for name, rounds in measured.items():
        for one in rounds:
            one["update"] = sum(one.values())
        values = (1000 * median(one.get(phase, 0.0) for one in rounds) / options.updates for phase in phases)
        print(f"{name:32}" + "".join(f"{value:12.1f}" for value in values))


if __name__ == "__main__":
    main()
