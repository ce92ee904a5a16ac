"""GRPO's completions from vLLM, with the adapter as all that travels between trainer and engine.

TRL's own vLLM backend merges the adapter into the weights and pushes all of them to vLLM at every step: gigabytes for
a few megabytes that changed, and on vLLM's CPU build it fails. Here the trainer saves its adapter and the running
engine loads it under a new number.

`VllmGeneration` takes the place of TRL 1.16's backend in a trainer that was built without one. TRL's documented hook
for own generation, `rollout_func`, would do for the text but not for the loss: TRL 1.16 applies its importance-sampling
correction only where `use_vllm` is set, and drops the log-probabilities that a `rollout_func` returns otherwise. The
correction is needed: vLLM's kernels give other log-probabilities than the trainer's, and adapters older than the
current step (`sync_every` above 1) are another policy. Tests hold that the correction is applied, and that its ratio is
1 where the two agree. `ratio: none` switches it off.

Of several processes each has an engine of its own and asks it for its part of the batch; the random numbers of a
completion are those of its place in the whole.

With `updates_per_generation` above 1 one call draws the completions of all these steps, as one batch.

TRL's own generation samples in training mode, LoRA dropout included; vLLM samples from the policy without dropout, and
`grpo_trainer` compares it with that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from g2d.problems import Problem
from g2d.problems.prompts import conversation
from g2d.regimes.adapters import save_adapter
from g2d.regimes.generator import vllm_beside_trainer
from g2d.regimes.job import TrainingJob
from g2d.regimes.warmup import Warmup
from g2d.rollouts.engine import Decoding
from g2d.rollouts.sampling import request_seed


class VllmGeneration:
    """What `GRPOTrainer` asks of its vLLM backend: `sync_weights` when the step changed, `generate` for a batch.

    Create it before the trainer, because vLLM seeds the random numbers of the process when it starts, and `close` it
    after the training.

    Args:
        job: whose engine is vLLM.
        problems: every one that training will ask; the longest decides how much the engine reserves.

    Raises:
        ValueError: the longest prompt and its completion do not fit the model.
    """

    def __init__(self, job: TrainingJob, problems: Sequence[Problem]) -> None:
        assert job.engine is not None
        warmup: Warmup = job.settings
        at_once = warmup.completions_per_generation(job.group_size)
        self.sync_every = warmup.sync_every
        self.synchronised_at: list[int] = []  # the steps at which the engine took the adapter over
        self._last_draw = (-1, 0)  # step, and how many draws it had before: more than one where prompts are replaced
        self._decoding = Decoding(1, warmup.temperature, 1.0, warmup.max_completion_length, 0, job.seed)
        self._trainer: Any = None
        self._engine = vllm_beside_trainer(job.base, job.engine, job.lora, at_once)
        self._engine.start_for(
            {self._engine.render(conversation(problem, job.prompt)) for problem in problems},
            warmup.max_completion_length,
        )

    def attach(self, trainer: Any) -> None:
        """Make a trainer that was built with `use_vllm=False` generate here, importance correction included."""
        self._trainer = trainer
        trainer.use_vllm = True
        trainer.vllm_generation = self
        trainer._last_loaded_step = -1

    def sync_weights(self) -> None:
        """Hand the trainer's adapter to the engine if it is time; TRL calls this once a step."""
        step = self._trainer.state.global_step
        if self.synchronised_at and step % self.sync_every:
            return
        with TemporaryDirectory(prefix="g2d-adapter-") as folder:
            model = self._trainer.accelerator.unwrap_model(self._trainer.model)
            save_adapter(model, Path(folder))
            self._engine.use_adapter(Path(folder))
        self.synchronised_at.append(step)

    def generate(
        self, prompts: list[list[int]], images: Any, num_generations: int, profiler: Any = None
    ) -> tuple[list[list[int]], list[list[int]], list[list[list[float]]], None]:
        """Completions of tokenized prompts, which arrive repeated `num_generations` times.

        Returns:
            The prompts, the tokens of the completions (the end-of-turn token included), and for every token a list
            with its log-probability under the distribution it was drawn from. The last place is TRL's for the tokens
            that further log-probabilities belong to; there are none.
        """
        step = self._trainer.state.global_step
        again = self._last_draw[1] + 1 if self._last_draw[0] == step else 0
        self._last_draw = (step, again)
        name = f"grpo/{step}/again{again}" if again else f"grpo/{step}"
        first = self._trainer.accelerator.process_index * len(prompts)  # every process has as many, one after another
        seeds = [request_seed(self._decoding.seed, f"{name}/{first + i}") for i in range(len(prompts))]
        completions, log_probabilities = self._engine.draw(prompts, seeds, self._decoding)
        return prompts, completions, [[[each] for each in own] for own in log_probabilities], None

    def close(self) -> None:
        """Free the engine."""
        self._engine.close()
