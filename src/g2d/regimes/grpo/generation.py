"""GRPO's completions from `g2d.rollouts` instead of TRL's generation.

vLLM's log-probabilities differ from the trainer's, so its completions are weighted. Random numbers depend on the step
and the position in the batch of all processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from g2d.problems import Problem
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.run.job import TrainingJob
from g2d.regimes.run.online import reference_of, vllm_beside_trainer
from g2d.regimes.run.training import evaluation_mode
from g2d.regimes.run.weights import merged, save_trained
from g2d.rollouts.engine import Decoding
from g2d.rollouts.transformers_engine import TransformersEngine
from g2d.rollouts.weights_check import is_due


class EngineGeneration:
    """Generates the completions of a `Grpo`. Create it before the trainer: vLLM sets seeds when it starts."""

    def __init__(self, job: TrainingJob, problems: Sequence[Problem], end_ids: frozenset[int]) -> None:
        warmup: Warmup = job.settings
        at_once = warmup.completions_per_generation(job.group_size)
        self.end_ids = end_ids
        self.sync_every = warmup.sync_every
        self.synced_at: list[int] = []
        self._decoding = Decoding(1, warmup.temperature, 1.0, warmup.max_completion_length, at_once, job.seed)
        self._trainer: Any = None
        self._transformers: TransformersEngine | None = None
        self._vllm = vllm_beside_trainer(job, problems, at_once)

    def attach(self, trainer: Any) -> None:
        """Generate for this trainer.

        TRL corrects by an engine's log-probabilities only with `use_vllm`, not with `rollout_func`.
        """
        self._trainer = trainer
        trainer.use_vllm = self._vllm is not None
        trainer.eos_token_ids = sorted(self.end_ids)  # TRL reads them from M0's file

    def draw(self, prompts: list[list[int]]) -> tuple[list[list[int]], list[list[float]] | None]:
        """Return tokens of a completion per prompt and, with vLLM, their log-probabilities when sampled."""
        step = self._trainer.state.global_step
        first = self._trainer.accelerator.process_index * len(prompts)  # processes have equal parts, in rank order
        names = [f"grpo/{step}/{first + i}" for i in range(len(prompts))]
        if self._vllm is None:
            return self._draw_by_trainer(step, prompts, names), None
        if not self.synced_at or step % self.sync_every == 0:
            self.sync_weights(step)
        return self._vllm.draw(prompts, names, self._decoding)

    def sync_weights(self, step: int) -> None:
        self.synced_at.append(step)
        with TemporaryDirectory(prefix="g2d-adapter-") as folder:
            save_trained(self._trainer.accelerator.unwrap_model(self._trainer.model), Path(folder))
            self._vllm.use_adapter(Path(folder))
        if is_due(len(self.synced_at)):
            self._vllm.compare(f"the policy after {step} steps", reference_of(self._trainer))

    def _draw_by_trainer(self, step: int, prompts: list[list[int]], names: list[str]) -> list[list[int]]:
        self.synced_at.append(step)
        reference = reference_of(self._trainer) if is_due(len(self.synced_at)) else None
        with self._policy() as engine:
            if reference is not None:
                engine.compare(f"the policy after {step} steps", reference)
            return engine.draw(prompts, names, self._decoding)

    @contextmanager
    def _policy(self) -> Iterator[TransformersEngine]:
        """Yield an engine on the trainer's model, with the adapter merged into float32 weights on a CPU.

        bfloat16 would round most of a small adapter away.
        """
        model = self._trainer.model
        merges = model.device.type == "cpu" and model.dtype == torch.float32
        if self._transformers is None:
            # Calls through PEFT's wrapper take time, but on a GPU it carries accelerate's autocast.
            self._transformers = TransformersEngine(
                model.get_base_model() if merges and hasattr(model, "get_base_model") else model,
                self._trainer.processing_class,
                self.end_ids,
            )
        with evaluation_mode(model), merged(model) if merges else nullcontext():
            yield self._transformers

    def close(self) -> None:
        if self._vllm is not None:
            self._vllm.close()
