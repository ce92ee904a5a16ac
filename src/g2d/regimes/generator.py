"""Who answers for a policy in training: where it starts, then its adapter as it was last handed over.

Only the adapter travels, as a file, to vLLM or to transformers.
"""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from g2d.jobs.files import sha256
from g2d.memory.workload import largest_part
from g2d.policies.policy import Policy, with_adapter
from g2d.policies.settings import Lora, Rounding
from g2d.regimes.processes import n_processes
from g2d.rollouts.engine import Engine
from g2d.rollouts.settings import EngineSettings

GENERATOR = "generator"  # in a checkpoint: the adapter that was handed over, absent before the first time
WEIGHTS = "adapter_model.safetensors"
ASIDE = "weights.safetensors"  # so called in a checkpoint, where the trainer would load every adapter that it finds


def vllm_beside_trainer(base: Policy, settings: EngineSettings, lora: Lora, at_once: int | None) -> Any:
    """vLLM for M0 and the adapters of a training, on the trainer's GPU; of several processes each has one of its own.

    Args:
        at_once: completions that all processes together ever ask for at once.
    """
    from g2d.rollouts.trainer_engine import EngineAside
    from g2d.rollouts.vllm_engine import VllmEngine

    return (EngineAside if n_processes() > 1 else VllmEngine)(
        base,
        settings.model_copy(update={"tensor_parallel_size": 1}),  # with several visible, it would spread over them
        adapter_rank=lora.r,
        memory_utilization=settings.training_gpu_memory_utilization,
        most_sequences=largest_part(at_once, n_processes()),
    )


class Generator:
    """An engine with the adapter that it was given last.

    Args:
        base: M0.
        start: the policy that generates until the first hand-over; M0 if None.
        rounding: of the adapters, with transformers.
    """

    def __init__(self, base: Policy, start: Policy | None = None, rounding: Rounding = "twice") -> None:
        self.base, self.rounding = base, rounding
        self.handed_over_at = 0
        self.adapter_sha256: str | None = None  # None before the first hand-over
        self._first = Path(start.adapter) if start and start.adapter else None
        self._folder = TemporaryDirectory(prefix="g2d-generator-")
        self._engine: Any = None  # vLLM
        self._m0: Any = None  # transformers, where vLLM does not generate

    @property
    def own_folder(self) -> Path:
        """Where the adapter is written that is handed over."""
        return Path(self._folder.name) / GENERATOR

    @property
    def adapter(self) -> Path | None:
        """The adapter that generates; None while that is M0."""
        return self._first if self.adapter_sha256 is None else self.own_folder

    def start_vllm(
        self, settings: EngineSettings, lora: Lora, conversations: Any, max_completion_length: int, at_once: int
    ) -> None:
        """Have vLLM generate for these conversations; call it before the trainer is made, as vLLM seeds the process
        when it starts.

        Args:
            at_once: completions that are ever asked for together.

        Raises:
            ValueError: the longest prompt and its completion do not fit the model.
        """
        engine = vllm_beside_trainer(self.base, settings, lora, at_once)
        engine.start_for({engine.render(conversation) for conversation in conversations}, max_completion_length)
        if self._first is not None:
            engine.use_adapter(self._first)
        self._engine = engine

    def engine(self) -> Engine:
        """What generates: vLLM, or transformers with the adapter in a copy of M0, which is read from disk once."""
        if self._engine is not None:
            running: Engine = self._engine
            return running
        from g2d.rollouts.transformers_engine import TransformersEngine

        if self._m0 is None:
            self._m0 = TransformersEngine.of(self.base)
        if self.adapter is None:
            first: Engine = self._m0
            return first
        model = with_adapter(copy.deepcopy(self._m0.model), self.adapter, self.rounding)
        return TransformersEngine(model.eval(), self._m0.tokenizer, self._m0.end_ids)

    def _take(self, folder: Path, step: int) -> None:
        self.adapter_sha256, self.handed_over_at = sha256(folder / WEIGHTS), step
        if self._engine is not None:
            self._engine.use_adapter(folder)

    def save_generator(self, checkpoint: Path) -> None:
        """Write what was handed over into a checkpoint."""
        if self.adapter_sha256 is not None:
            shutil.copytree(self.own_folder, checkpoint / GENERATOR)
            (checkpoint / GENERATOR / WEIGHTS).rename(checkpoint / GENERATOR / ASIDE)

    def restore_generator(self, checkpoint: Path, handed_over_at: int) -> None:
        """Generate with what a checkpoint says was handed over."""
        if (checkpoint / GENERATOR).is_dir():
            shutil.rmtree(self.own_folder, ignore_errors=True)
            shutil.copytree(checkpoint / GENERATOR, self.own_folder)
            (self.own_folder / ASIDE).rename(self.own_folder / WEIGHTS)
            self._take(self.own_folder, handed_over_at)

    def close(self) -> None:
        """Free the engine and the adapter's copy."""
        if self._engine is not None:
            self._engine.close()
        self._folder.cleanup()
