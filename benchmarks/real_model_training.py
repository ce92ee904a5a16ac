"""Steps of GRPO and DPO on a real model: g2d's trainers, in float32 and bfloat16, and TRL's.

    python benchmarks/real_model_training.py --model path/to/SmolLM2-135M-Instruct --out DIR

Measured in CPU seconds of one thread, each case in a separate process, one after another: the steps after the first,
the part of a GRPO step besides drawing completions, and the peak of memory. All cases have the same prompts of
arithmetic with a worked example, and LoRA of rank 16 without dropout.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

GROUP, TOKENS, PAIRS = 8, 20, 16
EXAMPLE = "Solve the problem. For example, for 3 + 4 the answer is 3 + 4 = 7, so write \\boxed{7}. What is "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder in Hugging Face format")
    parser.add_argument("--out", type=Path, required=True, help="folder for results.json")
    parser.add_argument("--completions", type=int, nargs="+", default=[16, 64], help="of a step of GRPO")
    parser.add_argument("--steps", type=int, default=3, help="steps of each case, the first not counted")
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)  # code, kind and size: what a process runs
    arguments = parser.parse_args()
    if arguments.case:
        code, kind, size = arguments.case
        print(json.dumps(CASES[kind, code == "trl"](arguments.model, int(size), arguments.steps, code)))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for kind, size in [*(("grpo", n) for n in arguments.completions), ("dpo", PAIRS)]:
        for code in ("g2d", "g2d, bfloat16", "trl"):
            rows.append({"kind": kind, "size": size, "code": code} | _run(arguments, code, kind, size))
            print(rows[-1], flush=True)
            (arguments.out / "results.json").write_text(json.dumps(rows, indent=1) + "\n")


def _run(arguments: argparse.Namespace, code: str, kind: str, size: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--model", arguments.model, "--out", arguments.out]
    command += ["--steps", arguments.steps, "--case", code, kind, size]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    printed = subprocess.run(map(str, command), env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(printed.splitlines()[-1])


class Clock:
    """CPU seconds of steps, and of drawing completions in them."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.drawing: list[float] = []
        self._began = time.process_time()
        self._drawn = 0.0

    def step(self) -> None:
        now = time.process_time()
        self.steps.append(now - self._began)
        self.drawing.append(self._drawn)
        self._began, self._drawn = now, 0.0

    def watch(self, owner: Any, name: str) -> None:
        """Count a method as drawing."""
        method = getattr(owner, name)

        def timed(*arguments: Any, **keywords: Any) -> Any:
            began = time.process_time()
            result = method(*arguments, **keywords)
            self._drawn += time.process_time() - began
            return result

        setattr(owner, name, timed)

    def watch_steps(self, trainer: Any) -> None:
        """Count the steps of a class of trainers."""
        train, clock = trainer.train, self

        def watched(self: Any, *arguments: Any, **keywords: Any) -> Any:
            from transformers import TrainerCallback

            class Ends(TrainerCallback):
                def on_train_begin(self, *_: Any, **__: Any) -> None:
                    clock._began = time.process_time()

                def on_step_end(self, *_: Any, **__: Any) -> None:
                    clock.step()

            self.add_callback(Ends())
            return train(self, *arguments, **keywords)

        trainer.train = watched

    def result(self) -> dict[str, float]:
        mean = [sum(values[1:]) / len(values[1:]) for values in (self.steps, self.drawing)]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        return {"step_s": mean[0], "training_s": mean[0] - mean[1], "drawing_s": mean[1], "peak_gib": peak}


def _problems(n: int) -> list[Any]:
    from g2d.problems.synthetic import generate

    return generate("arithmetic", "train", n, seed=0)


def _policy(model: Path) -> Any:
    from g2d.policies.record import PolicyRecord

    return PolicyRecord("real/base", "real", "base", base=str(model), settings={"source": "local"})


def _job(model: Path, data: Any, settings: Any, work: str, code: str, **own: Any) -> Any:
    from g2d.policies.model_keys import Lora
    from g2d.regimes.common.regime import TrainingJob

    if code == "g2d, bfloat16":
        own["precision"] = "bfloat16"
    return TrainingJob(_policy(model), data, settings, lora=Lora(dropout=0.0), seed=0, work=Path(work), **own)


def _asked() -> Any:
    from g2d.problems.prompts import Prompt

    return Prompt(template=EXAMPLE + "{problem}")


def our_grpo(model: Path, size: int, steps: int, code: str) -> dict[str, float]:
    from g2d.regimes.common.online import Sampler
    from g2d.regimes.grpo.keys import Warmup
    from g2d.regimes.grpo.train import train_grpo
    from g2d.regimes.grpo.trainer import Grpo

    clock = Clock()
    clock.watch(Sampler, "sample")
    clock.watch_steps(Grpo)
    keys: dict[str, Any] = {"prompts_per_step": size // GROUP, "temperature": 1.0, "max_completion_length": TOKENS}
    warmup = Warmup(steps=[0, steps], learning_rate=1e-5, **keys)
    with TemporaryDirectory() as work:
        train_grpo(_job(model, _problems(200), warmup, work, code, k=steps, group_size=GROUP, prompt=_asked()))
    return clock.result()


def trl_grpo(model: Path, size: int, steps: int, code: str) -> dict[str, float]:
    """Steps of TRL's GRPO with `generate`: 4 completions a pass, as ours had."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from g2d.problems.prompts import conversation

    clock = Clock()
    clock.watch(GRPOTrainer, "_generate_single_turn")
    clock.watch_steps(GRPOTrainer)
    rows = [{"prompt": conversation(problem, _asked())} for problem in _problems(200)]
    with TemporaryDirectory() as work:
        arguments = GRPOConfig(
            **_trl_arguments(work, steps, size // 4),
            num_generations=GROUP,
            max_completion_length=TOKENS,
            temperature=1.0,
            loss_type="grpo",
        )
        GRPOTrainer(
            **_trl_parts(model),
            reward_funcs=[lambda completion_ids, **_: [float(sum(ids) % 2) for ids in completion_ids]],
            args=arguments,
            train_dataset=Dataset.from_list(rows),
        ).train()
    return clock.result()


def our_dpo(model: Path, size: int, steps: int, code: str) -> dict[str, float]:
    from g2d.regimes.offline.dpo import Dpo, train_dpo
    from g2d.regimes.offline.pair_trainer import PairTrainer

    clock = Clock()
    clock.watch_steps(PairTrainer)
    settings = Dpo(max_steps=steps, learning_rate=1e-5, gradient_accumulation_steps=size // 4)
    with TemporaryDirectory() as work:
        train_dpo(_job(model, _pairs(model, size * steps), settings, work, code))
    return clock.result()


def trl_dpo(model: Path, size: int, steps: int, code: str) -> dict[str, float]:
    """Steps of TRL's DPO, 4 pairs a pass."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    from g2d.regimes.common.offline import PretokenizedMixin

    class OnTokens(PretokenizedMixin, DPOTrainer):
        """TRL's trainer on the same tokens."""

    clock = Clock()
    clock.watch_steps(OnTokens)
    with TemporaryDirectory() as work:
        OnTokens(
            **_trl_parts(model),
            args=DPOConfig(**_trl_arguments(work, steps, size // 4), max_length=None),
            train_dataset=Dataset.from_list(_pairs(model, size * steps)),
        ).train()
    return clock.result()


def _pairs(model: Path, n: int) -> list[dict[str, Any]]:
    """Pairs of completions of 12 to 20 tokens."""
    from g2d.policies.record import load_tokenizer
    from g2d.problems.prompts import conversation, render

    tokenizer, pairs = load_tokenizer(_policy(model)), []
    for i, problem in enumerate(_problems(n)):
        prompt = tokenizer(render(tokenizer, conversation(problem, _asked())), add_special_tokens=False)["input_ids"]
        chosen, rejected = ([1000 + 17 * i + j for j in range(12 + (i + shift) % 9)] for shift in (0, 4))
        pairs.append({"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected})
    return pairs


def _trl_arguments(work: str, steps: int, passes: int) -> dict[str, Any]:
    return {
        "output_dir": work,
        "max_steps": steps,
        "learning_rate": 1e-5,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": passes,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    }


def _trl_parts(model: Path) -> dict[str, Any]:
    from g2d.policies.model_keys import Lora, lora_config
    from g2d.policies.record import load_base, load_tokenizer

    policy = _policy(model)
    return {
        "model": load_base(policy),
        "processing_class": load_tokenizer(policy),
        "peft_config": lora_config(Lora(dropout=0.0)),
    }


CASES = {("grpo", False): our_grpo, ("grpo", True): trl_grpo, ("dpo", False): our_dpo, ("dpo", True): trl_dpo}

if __name__ == "__main__":
    main()
