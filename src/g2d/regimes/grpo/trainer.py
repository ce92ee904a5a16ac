"""TRL's GRPO trainer, extended by off-policy GRPO (arXiv 2505.22257).

TRL 1.16 multiplies its loss by `tool_mask`, here the mask of eq. 8, and the ratio is 1 if a batch has no
`old_per_token_logps`. Without these keys and dropout, the trainer equals TRL's bit for bit.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback
from trl import import_utils as trl_imports

from g2d.jobs.files import read_json, write_json
from g2d.problems.prompts import conversation_ids
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.run.by_length import Order, regrouped
from g2d.regimes.run.prompts import PromptChoice
from g2d.regimes.run.sampler import Sampler
from g2d.regimes.run.training import evaluation_mode
from g2d.regimes.run.training_rollouts import TrainingRollouts
from g2d.regimes.run.weights import copy_to_reference, reference_weights
from g2d.rollouts.rows import parameters

is_vllm_available = trl_imports.is_vllm_available
trl_imports.is_vllm_available = lambda *_, **__: False
try:
    from trl import GRPOTrainer
finally:
    trl_imports.is_vllm_available = is_vllm_available

# Files in a checkpoint:
PROMPTS = "prompts.json"
REFERENCE = "reference.safetensors"  # not PEFT's folder `ref`, next to which the trainer would not load our adapter


class Grpo(GRPOTrainer):
    """Trainer of a warm-up.

    Args:
        n_problems: problems in the training set.
        order: sorts an update's completions before they are divided into passes.
        choice: chooses prompts; otherwise the data set does.
        row: returns the data set row at a position of `choice`.
    """

    _buffered_inputs: Any  # TRL's: micro-batches of a generation

    def __init__(
        self,
        *,
        warmup: Warmup,
        sampler: Sampler,
        rollouts: TrainingRollouts,
        n_problems: int,
        row: Callable[[int], dict[str, Any]],
        choice: PromptChoice | None = None,
        order: Order | None = None,
        **arguments: Any,
    ) -> None:
        self.warmup, self.order = warmup, order
        self.sampler, self.rollouts = sampler, rollouts
        self.choice, self.row = choice, row
        self._rewards = torch.empty(0)  # of all processes, (completions,)
        self._lengths: list[int] = []  # tokens of this process's completions
        super().__init__(**arguments)
        self._absolute_positions = has_absolute_positions(self.model)
        sampler.trainer = self
        # TRL corrects by an engine's log-probabilities only with `use_vllm`, not with `rollout_func`.
        self.use_vllm = sampler.vllm is not None
        self.eos_token_ids = sorted(rollouts.eos_token_ids)  # TRL reads them from M0's file
        if warmup.reference == "sync":
            self.add_callback(ReferenceSync(self, n_problems))

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """Add the terms of arXiv 2505.22257 to a batch of TRL, in the order of its equations."""
        if self.choice is not None:
            batch = self._of_chosen_prompts(self.choice, len(inputs) // self.num_generations)
        else:
            batch = super()._generate_and_score_completions(inputs)
        if "importance_sampling_ratio" in batch:
            self._count_capped_weights(batch)
        if self.warmup.deviation == "population":
            batch["advantages"] = self._population_advantages(batch)
        if self._drops_ratio:
            batch.pop("old_per_token_logps", None)
        if self.warmup.mask_uniform_groups:
            self._mask_uniform_groups(batch)
        if self.warmup.updates_per_generation > 1:
            batch["row"] = torch.arange(len(batch["advantages"]))
        return batch

    def _of_chosen_prompts(self, choice: PromptChoice, n_prompts: int) -> Any:
        update = self.state.global_step
        numbers = choice.take(n_prompts, update)
        rows = [row for row in map(self.row, numbers) for _ in range(self.num_generations)]
        batch = super()._generate_and_score_completions(rows)
        has_signal = mixed_groups(self._rewards, self.num_generations).tolist()
        for place, number in enumerate(numbers):
            first = place * self.num_generations
            tokens = sum(self._lengths[first : first + self.num_generations])
            choice.observe(number, has_signal=has_signal[first], tokens=tokens, update=update)
        for name, value in choice.metrics(update).items():
            self._metrics["train"][name].append(value)
        return batch

    def _population_advantages(self, batch: dict[str, Any]) -> torch.Tensor:
        """Return this rank's advantages, (B,) (eq. 2)."""
        of_batch = self.warmup.scale_rewards == "batch"
        return population_advantages(self._rewards, self.num_generations, of_batch)[self._own(batch)]

    @property
    def _drops_ratio(self) -> bool:
        """Whether the ratio compares the policy with itself, as in TRL without vLLM."""
        return self.warmup.ratio == "none" or (self.use_vllm and self.warmup.updates_between_generations == 1)

    def _mask_uniform_groups(self, batch: dict[str, Any]) -> None:
        """Exclude groups with equal rewards from all terms of the loss (eq. 8)."""
        mask = mixed_groups(self._rewards, self.num_generations)[self._own(batch)]
        mask = mask[:, None].expand_as(batch["completion_mask"])
        batch["tool_mask"] = mask.to(batch["completion_mask"]).contiguous()
        tokens = (batch["completion_mask"] * batch["tool_mask"]).sum()  # the denominator of dapo
        batch["num_items_in_batch"] = self.accelerator.gather(tokens).sum()

    def _count_capped_weights(self, batch: dict[str, Any]) -> None:
        """Log the share of importance weights above the cap."""
        mask = batch["completion_mask"]
        log_ratios = masked_log_ratios(batch["old_per_token_logps"], batch["sampling_per_token_logps"], mask)
        counts = above_cap(log_ratios, mask, self.warmup.correction_cap, of_tokens=self.warmup.weighs_tokens)
        capped, n_weights = self.accelerator.gather(counts[None]).sum(dim=0).tolist()
        self._metrics["train"]["sampling/capped"].append(capped / n_weights)

    def _own(self, batch: dict[str, Any]) -> slice:
        n = len(batch["advantages"])
        return slice(self.accelerator.process_index * n, (self.accelerator.process_index + 1) * n)

    def _calculate_rewards(self, *arguments: Any, **keywords: Any) -> torch.Tensor:
        """Return rewards of all processes, (completions, 1); NaN if a completion has none."""
        rewards: torch.Tensor = super()._calculate_rewards(*arguments, **keywords)
        self._rewards = rewards[:, 0]
        return rewards

    def _get_per_token_logps_and_entropies(self, model: Any, *arguments: Any, **keywords: Any) -> Any:
        """Score completions; the sampling policy and the reference in evaluation mode.

        TRL leaves dropout on: at the paper's 0.05, the ratio of a completion of 384 tokens was about 18 % off. It also
        counts the padding before a prompt as positions (trl#6800).
        """
        scorer = from_first_token(model) if self._absolute_positions else model
        with nullcontext() if torch.is_grad_enabled() else evaluation_mode(model):
            return super()._get_per_token_logps_and_entropies(scorer, *arguments, **keywords)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self.order is not None and self._buffered_inputs is not before:
            self._buffered_inputs = regrouped(self._buffered_inputs, self.args.gradient_accumulation_steps, self.order)
            inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
        if "row" in inputs and self._buffered_inputs is not before:
            dealt = [batch["row"].tolist() for batch in self._buffered_inputs]
            steps = {
                row: self.state.global_step + 1 + number // self.args.gradient_accumulation_steps
                for number, rows in enumerate(dealt)
                for row in rows
            }
            self.rollouts.consumed_at([steps[row] for row in range(len(steps))])
        return inputs

    def keep(self, checkpoint: Path) -> None:
        if self.choice is not None:
            write_json(checkpoint / PROMPTS, self.choice.state())

    def go_on(self, checkpoint: Path) -> None:
        if self.choice is not None:
            self.choice.restore(read_json(checkpoint / PROMPTS))

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[list[list[int]], None, dict[str, Any]]:
        """Tokenize as the engines do; TRL would parse special tokens in a problem's text."""
        return [conversation_ids(self.processing_class, prompt) for prompt in prompts], None, {}

    def _generate_single_turn(self, prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
        step = self.state.global_step
        first = self.accelerator.process_index * len(prompt_ids)  # processes have equal parts, in rank order
        names = [f"grpo/{step}/{first + place}" for place in range(len(prompt_ids))]
        self.sampler.sync(step)
        completions, log_probs = self.sampler.draw(prompt_ids, names)
        self._lengths = [len(ids) for ids in completions]
        return completions, log_probs

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        if self.warmup.reference == "sync":
            folder = Path(output_dir or self.args.output_dir)
            shutil.rmtree(folder / "ref", ignore_errors=True)  # written by PEFT
            reference = reference_weights(self.model, self.ref_model)
            save_file({name: weights.detach().cpu() for name, weights in reference.items()}, folder / REFERENCE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self.warmup.reference == "sync":
            saved = load_file(Path(resume_from_checkpoint) / REFERENCE)
            for name, reference in reference_weights(self.model, self.ref_model).items():
                reference.data.copy_(saved[name])


class ReferenceSync(TrainerCallback):
    """Copies the policy to the reference after a step, before it is saved."""

    def __init__(self, trainer: Grpo, n_problems: int) -> None:
        self.trainer, self.n_problems = trainer, n_problems

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer = self.trainer
        if trainer.warmup.swaps_reference(state.global_step, trainer.num_generations, self.n_problems):
            copy_to_reference(trainer.model, trainer.ref_model)
            if trainer.warmup.reset_optimizer:
                trainer.optimizer.state.clear()


def has_absolute_positions(model: Any) -> bool:
    """Return whether states depend on where a row begins (GPT-2, OPT), not only on distances, as with rotary ones."""
    config = model.config.get_text_config(decoder=True)
    return getattr(config, "rope_parameters", None) is None and "position_ids" in parameters(model)


def from_first_token(model: Any) -> Callable[..., Any]:
    """Call a model with positions that are counted from the first token of each row, not from its padding."""

    def call(*, attention_mask: torch.Tensor, **inputs: Any) -> Any:
        positions = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
        return model(attention_mask=attention_mask, position_ids=positions, **inputs)

    return call


def mixed_groups(rewards: torch.Tensor, group_size: int) -> torch.Tensor:
    """Return the mask of completions in groups with different rewards, (B,) (eq. 8).

    Rewards are compared, because advantages have rounding errors. Missing rewards are NaN.
    """
    grouped = rewards.view(-1, group_size)
    lowest, highest = (grouped.nan_to_num(nan=bound) for bound in (torch.inf, -torch.inf))
    return (lowest.amin(dim=1) < highest.amax(dim=1)).repeat_interleave(group_size)


def population_advantages(rewards: torch.Tensor, group_size: int, of_batch: bool) -> torch.Tensor:
    """Return rewards minus their group's mean, over sqrt(var + 1e-4), (B,); missing ones are NaN and get 0.

    This is eq. 2 of arXiv 2505.22257 without its epsilon.
    """
    grouped = rewards.view(-1, group_size)
    centred = grouped - grouped.nanmean(dim=1, keepdim=True)
    variance = ((rewards - rewards.nanmean()) ** 2).nanmean() if of_batch else (centred**2).nanmean(1, keepdim=True)
    return (centred / (variance + 1e-4).sqrt()).nan_to_num(nan=0.0).flatten()


def masked_log_ratios(log_probs: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return log-ratios of policy to sampler, as in TRL, (B, T); NaN counts as 0."""
    return ((log_probs - sampled) * mask).nan_to_num(nan=0.0)


def above_cap(log_ratios: torch.Tensor, mask: torch.Tensor, cap: float, *, of_tokens: bool) -> torch.Tensor:
    """Return the numbers of weights that exceed the cap, and of weights, (2,)."""
    of_weights = log_ratios[mask.bool()] if of_tokens else log_ratios.sum(dim=1)
    return torch.stack([(of_weights.exp() > cap).sum(), torch.tensor(len(of_weights), device=of_weights.device)])
