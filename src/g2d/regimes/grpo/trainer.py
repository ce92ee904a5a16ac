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
from g2d.regimes.grpo.generation import EngineGeneration
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.lag import Lag
from g2d.regimes.grpo.replay import STALENESS, ReplayBuffer, Successes, with_replayed
from g2d.regimes.run.by_length import Order, regrouped
from g2d.regimes.run.online import DRAWN
from g2d.regimes.run.prompts import AskedGroup, PromptChoice
from g2d.regimes.run.training import evaluation_mode
from g2d.regimes.run.training_rollouts import TrainingRollouts
from g2d.regimes.run.weights import copy_to_reference, reference_weights

is_vllm_available = trl_imports.is_vllm_available
trl_imports.is_vllm_available = lambda *_, **__: False
try:
    from trl import GRPOTrainer
    from trl.trainer.utils import pad
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
        generation: EngineGeneration,
        rollouts: TrainingRollouts,
        n_problems: int,
        row: Callable[[int], dict[str, Any]],
        choice: PromptChoice | None = None,
        replay: ReplayBuffer | Successes | None = None,
        order: Order | None = None,
        **arguments: Any,
    ) -> None:
        self.warmup, self.order = warmup, order
        self.generation, self.rollouts = generation, rollouts
        self.choice, self.row, self.replay = choice, row, replay
        self._completions: list[list[int]] = []
        self._drawn: tuple[list[list[int]], list[list[float]] | None] | None = None
        super().__init__(**arguments)
        generation.attach(self)
        if warmup.has_buffer:
            self.use_vllm = True  # makes TRL weight by the policy that sampled
        if warmup.reference == "sync":
            self.add_callback(ReferenceSync(self, n_problems))

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        if self.choice is not None:
            inputs = self._chosen(self.choice, len(inputs) // self.num_generations)
        if self.replay is not None:
            inputs = self.replay.begin(inputs, self._generation, self.train_dataset)
        batch = super()._generate_and_score_completions(inputs)
        if "importance_sampling_ratio" in batch:
            self._weigh(batch)
        batch["advantages"] = self._advantages(batch)
        if self.warmup.mask_uniform_groups:
            mask = mixed_groups(self._rewards, self.num_generations)[self._own(batch)]
            mask = mask[:, None].expand_as(batch["completion_mask"])
            batch["tool_mask"] = mask.to(batch["completion_mask"]).contiguous()
            tokens = (batch["completion_mask"] * batch["tool_mask"]).sum()  # the denominator of dapo, cispo and vespo
            batch["num_items_in_batch"] = self.accelerator.gather(tokens).sum()
        if isinstance(self.replay, ReplayBuffer):
            self._store(self.replay, batch)
        if self.warmup.ratio == "none" or (self.use_vllm and self.warmup.updates_between_generations == 1):
            batch.pop("old_per_token_logps", None)  # the ratio then compares the policy with itself, as without vLLM
        if self.warmup.updates_per_generation > 1:
            batch["row"] = torch.arange(len(batch["advantages"]))
        return batch

    def _advantages(self, batch: dict[str, Any]) -> torch.Tensor:
        """Return this rank's advantages, (B,), weighted by their sign."""
        rows, advantages = self._own(batch), batch["advantages"]
        if self.warmup.deviation == "population":
            of_batch = self.warmup.scale_rewards == "batch"
            advantages = population_advantages(self._rewards, self.num_generations, of_batch)[rows]
        elif self.warmup.advantages == "sign":
            advantages = (2 * self._rewards - 1).nan_to_num(nan=0.0)[rows]  # rewards are 0 or 1
        return weighted_by_sign(advantages, self.warmup.positive_weight, self.warmup.negative_weight)

    def _weigh(self, batch: dict[str, Any]) -> None:
        mask, metrics = batch["completion_mask"], self._metrics["train"]
        log_ratios = masked_log_ratios(batch["old_per_token_logps"], batch["sampling_per_token_logps"], mask)
        if self.warmup.correction == "m2":
            kept = within_second_moment(log_ratios, mask, self.warmup.m2_threshold)
            batch["importance_sampling_ratio"] = (weights := batch["importance_sampling_ratio"] * kept)
            tokens = mask.sum().clamp(min=1)
            metrics["sampling/importance_sampling_ratio/mean"][-1] = float((weights * mask).sum() / tokens)
            metrics["sampling/capped"].append(float((~kept).sum() / tokens))
            return
        counts = above_cap(log_ratios, mask, self.warmup.correction_cap, of_tokens=self.warmup.weighs_tokens)
        capped, n_weights = self.accelerator.gather(counts[None]).sum(dim=0).tolist()
        metrics["sampling/capped"].append(capped / n_weights)

    def _own(self, batch: dict[str, Any]) -> slice:
        n = len(batch["advantages"])
        return slice(self.accelerator.process_index * n, (self.accelerator.process_index + 1) * n)

    def _calculate_rewards(self, *arguments: Any, **keywords: Any) -> torch.Tensor:
        """Return rewards of all processes, (completions, 1); NaN if a completion has none."""
        rewards: torch.Tensor = super()._calculate_rewards(*arguments, **keywords)
        self._rewards = rewards[:, 0]
        if self.replay is not None:
            self.rollouts.leave_out(self.replay.replayed)
        return rewards

    def _get_per_token_logps_and_entropies(self, model: Any, *arguments: Any, **keywords: Any) -> Any:
        """Score the sampling policy and the reference in evaluation mode.

        TRL leaves dropout on: at the paper's 0.05, the ratio of a completion of 384 tokens was about 18 % off.
        """
        with nullcontext() if torch.is_grad_enabled() else evaluation_mode(model):
            return super()._get_per_token_logps_and_entropies(model, *arguments, **keywords)

    def get_off_policy_mask(self, **tensors: Any) -> torch.Tensor:
        """Return TRL's mask of completions, or the veto's of tokens. TRL calls it if it has a threshold."""
        if self.warmup.negative_veto is None:
            return GRPOTrainer.get_off_policy_mask(**tensors)
        log_ratios = tensors["per_token_logps"].detach() - tensors["sampling_per_token_logps"]
        return before_veto(log_ratios, tensors["advantages"], self.warmup.negative_veto).to(log_ratios.dtype)

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
            replayed = self.replay.replayed if self.replay is not None else ()
            self.rollouts.consumed_at([steps[row] for row in range(len(steps)) if row not in replayed])
        return inputs

    def keep(self, checkpoint: Path) -> None:
        if self.choice is not None:
            write_json(checkpoint / PROMPTS, self.choice.state())
        for part in self._kept_parts():
            part.save(checkpoint)

    def go_on(self, checkpoint: Path) -> None:
        if self.choice is not None:
            self.choice.restore(read_json(checkpoint / PROMPTS))
        for part in self._kept_parts():
            part.restore(checkpoint)

    def _kept_parts(self) -> list[ReplayBuffer | Lag]:
        parts = (self.replay, self.generation.lag)
        return [part for part in parts if isinstance(part, (ReplayBuffer, Lag))]

    def _chosen(self, choice: PromptChoice, n_prompts: int) -> list[dict[str, Any]]:
        update = self.state.global_step
        groups = choice.settle(self._asked(choice.take(n_prompts, update)), self._asked, update)
        answers = [answer for group in groups for answer in group.answers]
        ids, log_probs = [ids for ids, _ in answers], [log_probs for _, log_probs in answers]
        self._drawn = (ids, None if log_probs[0] is None else log_probs)
        for name, value in choice.metrics(update).items():
            self._metrics["train"][name].append(value)
        return [self.row(group.number) for group in groups for _ in range(self.num_generations)]

    def _asked(self, numbers: list[int]) -> list[AskedGroup]:
        size = self.num_generations
        rows = [row for row in map(self.row, numbers) for _ in range(size)]
        prompt_ids, _, _ = self._tokenize_prompts([row["prompt"] for row in rows])
        ids, log_probs = self.generation.draw(prompt_ids)
        texts = self.processing_class.batch_decode(ids, skip_special_tokens=True)
        columns = {name: [row[name] for row in rows] for name in ("problem_id", "group")}
        _, judged = self.reward_funcs[0].judged(texts, **columns, completion_ids=ids)
        rewards = [judgement.reward for judgement in judged]
        asked_groups = []
        for place, number in enumerate(numbers):
            positions = slice(place * size, (place + 1) * size)
            answers = list(
                zip(ids[positions], log_probs[positions] if log_probs is not None else [None] * size, strict=True)
            )
            differ = len({reward for reward in rewards[positions] if reward is not None}) > 1
            asked_groups.append(AskedGroup(number, differ, sum(map(len, ids[positions])), answers))
        return asked_groups

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[list[list[int]], None, dict[str, Any]]:
        """Tokenize as the engines do; TRL would parse special tokens in a problem's text."""
        return [conversation_ids(self.processing_class, prompt) for prompt in prompts], None, {}

    def _generate_single_turn(self, prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
        drawn, self._drawn = self._drawn, None
        if self.replay is not None:
            return self._with_replayed(self.replay, prompt_ids)
        return self.generation.draw(prompt_ids) if drawn is None else drawn

    def log_probs(self, prompts: list[list[int]], completions: list[list[int]]) -> list[list[float]]:
        """Log-probabilities under the current policy, at the training temperature."""
        padding, device = self.processing_class.pad_token_id, self.accelerator.device
        rows = [(prompts, "left"), (completions, "right")]
        parts = [([torch.tensor(row) for row in tokens], side) for tokens, side in rows]
        ids = [pad(tokens, padding_value=padding, padding_side=side) for tokens, side in parts]
        masks = [pad([torch.ones_like(row) for row in tokens], 0, side) for tokens, side in parts]
        with torch.no_grad():
            log_probs, _, _ = self._get_per_token_logps_and_entropies(
                self.model,
                torch.cat(ids, dim=1).to(device),
                torch.cat(masks, dim=1).to(device),
                ids[1].shape[1],
                batch_size=self.args.per_device_train_batch_size,
            )
        return [row[: len(tokens)].tolist() for row, tokens in zip(log_probs, completions, strict=True)]

    @property
    def _generation(self) -> int:
        return int(self.state.global_step) // self.warmup.updates_between_generations

    def _with_replayed(self, replay: ReplayBuffer | Successes, prompt_ids: list[list[int]]) -> Any:
        drawn = self.generation.draw([ids for row, ids in enumerate(prompt_ids) if row not in replay.replayed])
        self._completions, log_probs = with_replayed(drawn, replay.replayed)
        self._metrics["train"][DRAWN].append(float(sum(map(len, drawn[0]))))
        if isinstance(replay, Successes):
            return self._completions, log_probs if drawn[1] is not None else None
        updates = sum(replay.ages) * self.warmup.updates_between_generations
        self._metrics["train"][STALENESS].append(updates / (len(prompt_ids) // self.num_generations))
        return self._completions, log_probs

    def _store(self, buffer: ReplayBuffer, batch: dict[str, Any]) -> None:
        """Store the sampled completions. Log-probabilities that the engine did not return are the trainer's."""
        if "old_per_token_logps" in batch:
            sampled = batch["sampling_per_token_logps"]
            batch["sampling_per_token_logps"] = torch.where(sampled.isnan(), batch["old_per_token_logps"], sampled)
        log_probs = zip(batch["sampling_per_token_logps"], self._completions, strict=True)
        buffer.add(self._generation, self._completions, [row[: len(ids)].tolist() for row, ids in log_probs])

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


def weighted_by_sign(advantages: torch.Tensor, positive: float, negative: float) -> torch.Tensor:
    """Scale advantages, (B,), by the weight of their sign (arXiv 2506.01347, lambda L_PSR + L_NSR)."""
    return torch.where(advantages > 0, positive, negative) * advantages


def before_veto(log_ratios: torch.Tensor, advantages: torch.Tensor, trigger: float) -> torch.Tensor:
    """Return the mask of tokens that the negative-advantage veto keeps, (B, T) (arXiv 2605.17570); `advantages` are
    (B, 1), NaN counts as 0."""
    vetoed = (log_ratios.nan_to_num(nan=0.0).exp() > trigger).cumsum(dim=1) > 0
    return ~(vetoed & (advantages < 0))


def masked_log_ratios(log_probs: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return log-ratios of policy to sampler, as in TRL, (B, T); NaN counts as 0."""
    return ((log_probs - sampled) * mask).nan_to_num(nan=0.0)


def above_cap(log_ratios: torch.Tensor, mask: torch.Tensor, cap: float, *, of_tokens: bool) -> torch.Tensor:
    """Return the numbers of weights that exceed the cap, and of weights, (2,)."""
    of_weights = log_ratios[mask.bool()] if of_tokens else log_ratios.sum(dim=1)
    return torch.stack([(of_weights.exp() > cap).sum(), torch.tensor(len(of_weights), device=of_weights.device)])


def within_second_moment(log_ratios: torch.Tensor, mask: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the mask of tokens that M2PO keeps (arXiv 2510.01161), (B, T).

    It drops the largest squared log-ratios of an update until the mean of the others is at most the threshold, and all
    equal to the smallest dropped one, so that their order does not matter.
    """
    squares = log_ratios.double() ** 2
    ascending = squares[mask.bool()].sort().values
    means = ascending.cumsum(0) / torch.arange(1, len(ascending) + 1, device=ascending.device)
    kept = int((means <= threshold).sum())  # means ascend too
    return squares < ascending[kept] if kept < len(ascending) else torch.ones_like(squares, dtype=torch.bool)
