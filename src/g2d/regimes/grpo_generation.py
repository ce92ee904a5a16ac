"""GRPO's completions from `g2d.rollouts`, whichever engine is configured; TRL's own generation is not used.

transformers decodes the trainer's own model, in evaluation mode: what samples is the policy in training, so no
importance correction is needed, but with a `lag`. vLLM gets the adapter, as a file; its kernels give other
log-probabilities, and an adapter older than the current step (`sync_every` above 1) is another policy, so completions
are weighed. The random numbers of a completion belong to its step and its place in the batch of all processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from g2d.problems import Problem
from g2d.regimes.adapters import merged, save_trained
from g2d.regimes.job import TrainingJob
from g2d.regimes.lag import Lag
from g2d.regimes.online import vllm_beside_trainer
from g2d.regimes.processes import in_step, is_sharded
from g2d.regimes.training import evaluation_mode
from g2d.regimes.warmup import Warmup
from g2d.rollouts.engine import Decoding
from g2d.rollouts.transformers_engine import TransformersEngine


class EngineGeneration:
    """Draws the completions of a `Grpo`. Create it before the trainer, because vLLM seeds the random numbers of the
    process when it starts, and `close` it after the training.

    Args:
        problems: every one that training will ask.
        end_ids: tokens that end a completion.
    """

    def __init__(self, job: TrainingJob, problems: Sequence[Problem], end_ids: frozenset[int]) -> None:
        warmup: Warmup = job.settings
        at_once = warmup.completions_per_generation(job.group_size)
        self.end_ids = end_ids
        self.sync_every = warmup.sync_every
        self.lag = Lag(warmup.lag, job.k, job.work, job.meter) if warmup.lag else None
        self._corrects_lag = self.lag is not None and warmup.ratio == "sampler"
        self.handed_over_at: list[int] = []  # the steps at which vLLM took the adapter over
        self._last_draw = (-1, 0)  # step, and how many draws it had before: more than one where prompts are replaced
        self._decoding = Decoding(1, warmup.temperature, 1.0, warmup.max_completion_length, at_once, job.seed)
        self._trainer: Any = None
        self._cuda_graph = job.engine is not None and job.engine.cuda_graph
        self._transformers: TransformersEngine | None = None  # keeps its CUDA graphs from step to step
        self._vllm = vllm_beside_trainer(job, problems, at_once)

    def attach(self, trainer: Any) -> None:
        """Draw for this trainer. Where `use_vllm` is set, TRL corrects by the log-probabilities that come with
        completions, whatever drew them; it does not with `rollout_func`, its hook for own generation."""
        self._trainer = trainer
        trainer.use_vllm = self._vllm is not None or self._corrects_lag
        trainer.eos_token_ids = sorted(self.end_ids)  # TRL has them from M0's file

    def draw(self, prompts: list[list[int]]) -> tuple[list[list[int]], list[list[float]] | None]:
        """A completion of every tokenized prompt of this process's part of the batch: its tokens, the end of the turn
        included, and with vLLM or a lag the log-probability of each under the distribution it was drawn from."""
        step = self._trainer.state.global_step
        again = self._last_draw[1] + 1 if self._last_draw[0] == step else 0
        self._last_draw = (step, again)
        name = f"grpo/{step}/again{again}" if again else f"grpo/{step}"
        first = self._trainer.accelerator.process_index * len(prompts)  # every process has as many, one after another
        names = [f"{name}/{first + i}" for i in range(len(prompts))]
        with self.lag.generator(self._model, step) if self.lag else nullcontext():
            if self._vllm is None:
                with self._policy() as engine:
                    completions = engine.draw(prompts, names, self._decoding)
                return completions, self._trainer.log_probs(prompts, completions) if self._corrects_lag else None
            if not self.handed_over_at or (again == 0 and step % self.sync_every == 0):
                self.hand_over(step)
            return self._vllm.draw(prompts, names, self._decoding)

    @property
    def _model(self) -> Any:
        return self._trainer.accelerator.unwrap_model(self._trainer.model)

    def hand_over(self, step: int) -> None:
        """Give vLLM the adapter of the model as it is."""
        with TemporaryDirectory(prefix="g2d-adapter-") as folder:
            save_trained(self._model, Path(folder))
            self._vllm.use_adapter(Path(folder))
        self.handed_over_at.append(step)

    @contextmanager
    def _policy(self) -> Iterator[TransformersEngine]:
        """transformers with the trainer's model. On a CPU its adapter is merged meanwhile; in bfloat16 most of a small
        one would be rounded away."""
        model = self._trainer.model
        merges = not is_sharded() and model.device.type == "cpu" and model.dtype == torch.float32
        if self._transformers is None:
            # The call of PEFT's wrapper takes time; on a GPU accelerate's autocast is around it.
            self._transformers = TransformersEngine(
                model.get_base_model() if merges and hasattr(model, "get_base_model") else model,
                self._trainer.processing_class,
                self.end_ids,
                cuda_graph=self._cuda_graph and not is_sharded(),
                divided=is_sharded(),
            )
        around: Any = in_step(model) if is_sharded() else merged(model) if merges else nullcontext()
        with evaluation_mode(model), around:
            yield self._transformers

    def close(self) -> None:
        """Free vLLM, and what a lag keeps."""
        if self._vllm is not None:
            self._vllm.close()
        if self.lag is not None:
            self.lag.close()
