"""TRL's GRPO trainer, extended by off-policy GRPO (arXiv 2505.22257); the equations are below the trainer.

TRL 1.16 multiplies its loss by `tool_mask`, here the mask of eq. 8, and the ratio is 1 if a batch has no
`old_per_token_logps`. Without these keys and dropout, the trainer equals TRL's bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.modeling_outputs import ModelOutput
from trl import import_utils

from g2d.jobs.files import read_json, write_json
from g2d.policies.record import require_names
from g2d.problems.prompts import Messages, conversation_ids
from g2d.regimes.common.by_length import Batch, Order, regrouped
from g2d.regimes.common.checkpoints import Checkpointed
from g2d.regimes.common.online import Sampler
from g2d.regimes.common.prompt_choice import PromptChoice
from g2d.regimes.common.trainers import copy_to_reference, evaluation_mode, reference_weights
from g2d.regimes.common.training_rollouts import TrainingRollouts
from g2d.regimes.common.trl_private import require_private_names
from g2d.regimes.grpo.keys import Warmup
from g2d.rollouts.continuous_batching import forward_parameters

# Import TRL's trainer without vLLM, a backend that is not used here: that import takes 8 to 10 CPU seconds.
is_vllm_available = import_utils.is_vllm_available
import_utils.is_vllm_available = lambda *_, **__: False
try:
    from trl import GRPOTrainer
finally:
    import_utils.is_vllm_available = is_vllm_available
require_private_names(GRPOTrainer)

# Files in a checkpoint:
PROMPTS = "prompts.json"
REFERENCE_FILE = "reference.safetensors"  # not in PEFT's folder `ref`: the trainer would not load our adapter
Row = dict[str, object]  # a prompt of the data set
# Log-probabilities and entropies of tokens, and the auxiliary loss of a mixture of experts.
Scores = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]


class Grpo(Checkpointed, GRPOTrainer):
    """Trainer of a warm-up.

    Args:
        n_problems: problems in the training set.
        order: sorts an update's completions before they are divided into passes.
        choice: chooses prompts; otherwise the data set does.
        row: returns the data set row at a position of `choice`.
    """

    _buffered_inputs: list[Batch] | None  # TRL's: micro-batches of a generation

    def __init__(
        self,
        *,
        warmup: Warmup,
        sampler: Sampler,
        rollouts: TrainingRollouts,
        n_problems: int,
        row: Callable[[int], Row],
        choice: PromptChoice | None = None,
        order: Order | None = None,
        **arguments: object,
    ) -> None:
        self.warmup = warmup
        self.sampler = sampler
        self.rollouts = rollouts
        self.row = row
        self.choice = choice
        self.order = order
        self._rewards = torch.empty(0)  # (completions,)
        self._lengths: list[int] = []  # numbers of tokens of completions
        super().__init__(**arguments)
        self._absolute_positions = has_absolute_positions(self.model)
        sampler.trainer = self
        # TRL corrects by an engine's log-probabilities only with `use_vllm`, not with `rollout_func`.
        self.use_vllm = sampler.uses_vllm
        self.eos_token_ids = sorted(rollouts.eos_token_ids)  # TRL reads them from M0's file
        if warmup.reference == "sync":
            self.add_callback(ReferenceSync(self, n_problems))

    # A generation: prompts, completions, rewards, and the terms of the loss that only depend on them.

    def _generate_and_score_completions(self, inputs: list[Row]) -> Batch:
        """Sample and score completions as TRL does, and add the terms of arXiv 2505.22257 in the order of its
        equations."""
        if self.choice is None:
            batch: Batch = super()._generate_and_score_completions(inputs)
        else:
            batch = self._sample_chosen_prompts(self.choice, len(inputs) // self.num_generations)
        self._set_advantages(batch)  # eq. 2
        self._log_capped_weights(batch)
        self._set_ratio(batch)  # eq. 6 and 7
        self._mask_uniform_groups(batch)  # eq. 8
        if self.warmup.updates_per_generation > 1:
            batch["row"] = torch.arange(len(batch["advantages"]))
        return batch

    def _sample_chosen_prompts(self, choice: PromptChoice, n_prompts: int) -> Batch:
        """Sample and score completions of the prompts of `choice`, and note which groups had a signal."""
        update = self.state.global_step
        numbers = choice.take(n_prompts, update)
        rows: list[Row] = []
        for number in numbers:
            rows += [self.row(number)] * self.num_generations
        batch: Batch = super()._generate_and_score_completions(rows)
        has_signal = mixed_groups(self._rewards, self.num_generations).tolist()
        for place, number in enumerate(numbers):
            first = place * self.num_generations
            tokens = sum(self._lengths[first : first + self.num_generations])
            choice.observe(number, has_signal=has_signal[first], tokens=tokens, update=update)
        for name, value in choice.metrics(update).items():
            self._metrics["train"][name].append(value)
        return batch

    def _tokenize_prompts(self, prompts: Sequence[Messages]) -> tuple[list[list[int]], None, dict[str, object]]:
        """Tokenize as the engines do; TRL would parse special tokens in a problem's text."""
        return [conversation_ids(self.processing_class, prompt) for prompt in prompts], None, {}

    def _generate_single_turn(
        self, prompt_ids: list[list[int]], *_: object, **__: object
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        step = self.state.global_step
        names = [f"grpo/{step}/{place}" for place in range(len(prompt_ids))]
        self.sampler.sync(step)
        completions, log_probs = self.sampler.sample(prompt_ids, names)
        self._lengths = [len(ids) for ids in completions]
        return completions, log_probs

    def _calculate_rewards(self, *arguments: object, **keywords: object) -> torch.Tensor:
        """Return rewards, (completions, 1); NaN if a completion has none."""
        rewards: torch.Tensor = super()._calculate_rewards(*arguments, **keywords)
        self._rewards = rewards[:, 0]
        return rewards

    def _set_advantages(self, batch: Batch) -> None:
        """Divide by the population's deviation instead of TRL's unbiased one, if configured (eq. 2)."""
        if self.warmup.reward_std == "population":
            of_batch = self.warmup.scale_rewards == "batch"
            batch["advantages"] = population_advantages(self._rewards, self.num_generations, of_batch)

    def _log_capped_weights(self, batch: Batch) -> None:
        """Log the share of the engine's importance weights above the cap or below the floor."""
        if "importance_sampling_ratio" not in batch:
            return
        mask = batch["completion_mask"]
        log_ratios = masked_log_ratios(batch["old_per_token_logps"], batch["sampling_per_token_logps"], mask)
        of_tokens = self.warmup.correction.startswith("token")
        bounds = (self.warmup.correction_floor or 0.0, self.warmup.correction_cap)
        counts = out_of_bounds(log_ratios, mask, bounds, of_tokens=of_tokens)
        capped, n_weights = counts.tolist()
        self._metrics["train"]["sampling/capped"].append(capped / max(n_weights, 1))  # all completions may be masked

    def _set_ratio(self, batch: Batch) -> None:
        """Let the ratio of eq. 6 and 7 be 1 if it is dropped, or if the policy samples for one update, as in TRL
        without vLLM."""
        on_policy = self.use_vllm and self.warmup.updates_between_generations == 1
        if self.warmup.ratio == "none" or on_policy:
            batch.pop("old_per_token_logps", None)

    def _mask_uniform_groups(self, batch: Batch) -> None:
        """Exclude groups with equal rewards from all terms of the loss, if configured (eq. 8)."""
        if not self.warmup.mask_uniform_groups:
            return
        mask = mixed_groups(self._rewards, self.num_generations)
        mask = mask[:, None].expand_as(batch["completion_mask"])
        batch["tool_mask"] = mask.to(batch["completion_mask"]).contiguous()
        batch["num_items_in_batch"] = (batch["completion_mask"] * batch["tool_mask"]).sum()  # the denominator of dapo

    # An update: passes, and the log-probabilities of policy and reference.

    def _prepare_inputs(self, generation_batch: list[Row] | Batch) -> Batch:
        """Return the next pass; a new generation is first divided into passes."""
        before = self._buffered_inputs
        inputs: Batch = super()._prepare_inputs(generation_batch)
        passes = self._buffered_inputs
        if passes is None or passes is before:
            return inputs
        if self.order is not None:
            passes = regrouped(passes, self.args.gradient_accumulation_steps, self.order)
            self._buffered_inputs = passes
        if self.warmup.updates_per_generation > 1:
            self._note_steps(passes)
        number: int = self._step % self.args.steps_per_generation
        return passes[number]

    def _note_steps(self, passes: Sequence[Batch]) -> None:
        """Record the step that consumes each completion: TRL shuffles a generation before it divides it."""
        step_of: dict[int, int] = {}
        for number, batch in enumerate(passes):
            step = self.state.global_step + 1 + number // self.args.gradient_accumulation_steps
            for row in batch["row"].tolist():
                step_of[row] = step
        self.rollouts.consumed_at([step_of[row] for row in range(len(step_of))])

    def _get_per_token_logps_and_entropies(
        self, model: PreTrainedModel, *arguments: object, **keywords: object
    ) -> Scores:
        """Score completions; the sampling policy and the reference in evaluation mode.

        TRL leaves dropout on: at the paper's 0.05, the ratio of a completion of 384 tokens was about 18 % off. It also
        counts the padding before a prompt as positions (trl#6800).
        """
        scorer: Callable[..., ModelOutput] = model
        if self._absolute_positions:
            scorer = from_first_token(model)
        with nullcontext() if torch.is_grad_enabled() else evaluation_mode(model):
            scores: Scores = super()._get_per_token_logps_and_entropies(scorer, *arguments, **keywords)
        return scores

    # Checkpoints: the prompts that are left out, and a reference that follows the policy.

    def save_state(self, checkpoint: Path) -> None:
        if self.choice is not None:
            write_json(checkpoint / PROMPTS, self.choice.state())

    def load_state(self, checkpoint: Path) -> None:
        if self.choice is not None:
            self.choice.restore(read_json(checkpoint / PROMPTS))

    def _save(self, output_dir: str | None = None, state_dict: dict[str, torch.Tensor] | None = None) -> None:
        super()._save(output_dir, state_dict)
        if self.warmup.reference == "sync":
            folder = Path(output_dir or self.args.output_dir)
            reference = reference_weights(self.model, self.ref_model)
            save_file({name: weights.detach().cpu() for name, weights in reference.items()}, folder / REFERENCE_FILE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: PreTrainedModel | None = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self.warmup.reference == "sync":
            file = Path(resume_from_checkpoint) / REFERENCE_FILE
            saved = load_file(file)
            reference = reference_weights(self.model, self.ref_model)
            require_names(file, saved.keys(), reference.keys())
            for name, weights in reference.items():
                weights.data.copy_(saved[name])


class ReferenceSync(TrainerCallback):
    """Copies the policy to the reference of the KL term after a step, before it is saved (arXiv 2505.22257, algorithm
    1: pi_ref := pi); a pass is over `n_problems`."""

    def __init__(self, trainer: Grpo, n_problems: int) -> None:
        self.trainer = trainer
        self.n_problems = n_problems

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        trainer = self.trainer
        if trainer.warmup.swaps_reference(state.global_step, trainer.num_generations, self.n_problems):
            copy_to_reference(trainer.model, trainer.ref_model)
            if trainer.warmup.reset_optimizer:
                trainer.optimizer.state.clear()


# Equations of arXiv 2505.22257, and weights above the cap. Tensors have a row per completion, (B,) or (B, T); the
# completions of a group are neighbours.


def population_advantages(rewards: torch.Tensor, group_size: int, of_batch: bool) -> torch.Tensor:
    """Return rewards minus their group's mean, over sqrt(var + 1e-4), (B,); missing ones are NaN and get 0.

    This is eq. 2 without its epsilon. `of_batch` takes the variance of all rewards instead of the group's.
    """
    grouped = rewards.view(-1, group_size)
    centred = grouped - grouped.nanmean(dim=1, keepdim=True)
    if of_batch:
        variance = ((rewards - rewards.nanmean()) ** 2).nanmean()
    else:
        variance = (centred**2).nanmean(1, keepdim=True)
    return (centred / (variance + 1e-4).sqrt()).nan_to_num(nan=0.0).flatten()


def mixed_groups(rewards: torch.Tensor, group_size: int) -> torch.Tensor:
    """Return the mask of completions in groups with different rewards, (B,) (eq. 8).

    Rewards are compared, because advantages have rounding errors. Missing rewards are NaN.
    """
    grouped = rewards.view(-1, group_size)
    lowest = grouped.nan_to_num(nan=torch.inf).amin(dim=1)
    highest = grouped.nan_to_num(nan=-torch.inf).amax(dim=1)
    return (lowest < highest).repeat_interleave(group_size)


def masked_log_ratios(log_probs: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return log-ratios of policy to sampler, as in TRL, (B, T); NaN counts as 0."""
    return ((log_probs - sampled) * mask).nan_to_num(nan=0.0)


def out_of_bounds(
    log_ratios: torch.Tensor, mask: torch.Tensor, bounds: tuple[float, float], *, of_tokens: bool
) -> torch.Tensor:
    """Return the number of importance weights out of the bounds, and the number of weights, (2,)."""
    if of_tokens:
        of_weights = log_ratios[mask.bool()]
    else:
        of_weights = log_ratios.sum(dim=1)
    floor, cap = bounds
    weights = of_weights.exp()
    n_outside = ((weights < floor) | (weights > cap)).sum()
    return torch.stack([n_outside, torch.tensor(len(of_weights), device=of_weights.device)])


# Positions of the tokens of left-padded rows, for models in which they are absolute.


def has_absolute_positions(model: PreTrainedModel) -> bool:
    """Return whether states depend on where a row begins (GPT-2, OPT), not only on distances, as with rotary ones."""
    config = model.config.get_text_config(decoder=True)
    return getattr(config, "rope_parameters", None) is None and "position_ids" in forward_parameters(model)


def from_first_token(model: PreTrainedModel) -> Callable[..., ModelOutput]:
    """Call a model with positions that are counted from the first token of each row, not from its padding."""

    def call(*, attention_mask: torch.Tensor, **inputs: object) -> ModelOutput:
        positions = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
        return model(attention_mask=attention_mask, position_ids=positions, **inputs)

    return call
