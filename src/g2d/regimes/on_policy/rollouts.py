"""Fresh rollouts for online trainings, sampled by a generator that follows the trained policy.

The generator receives the policy's weights before every s-th update (`sync_every`; arXiv 2506.21495, section 3).
Random numbers depend on (seed, problem, number of earlier visits, sample). Each process samples a part and receives all
rollouts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from g2d.jobs.files import atomic, read_json, write_json
from g2d.policies.record import PolicyRecord
from g2d.problems import Problem
from g2d.regimes.common.online import ROLLOUTS, Sampler
from g2d.regimes.common.prompt_choice import PromptChoice, prompt_indices, times_before
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.common.training_rollouts import COLUMNS, Record
from g2d.rewards.registry import TRUTH
from g2d.rewards.reward import group_name, plain_id
from g2d.rollouts.engine import Decoding
from g2d.rollouts.pairs import labels
from g2d.rollouts.rollout import to_frame
from g2d.rollouts.sample import sample_rollouts, with_rewards
from g2d.verifier import shared_verifier
from g2d.verifier.pool import default_workers
from g2d.verifier.verifier_keys import own_file

TOGETHER = 1024  # most rollouts per call; a run can stop between calls
BUFFER = "buffer.parquet"  # in a checkpoint: rollouts for later updates
STATE = "fresh.json"


# The trainer asks for the rollouts of its step. If the buffer has none, rollouts of several updates are sampled
# together, up to the next synchronisation (all of them come from the same weights), but at most `TOGETHER`, so that a
# stop need not wait long. Retirement of prompts depends on results, so prompts are planned only as far as these are
# there. A checkpoint has the buffer and the plan: a resumed training uses the same rollouts.


class OnPolicyRollouts:
    """The rollouts of every update of a job, up to its K, sampled on demand.

    Create this before the trainer: vLLM sets seeds when it starts.
    """

    def __init__(self, job: TrainingJob[Any, list[Problem]]) -> None:
        settings = job.settings
        self.job = job
        self.problems = job.data
        self.prompts_per_step: int = settings.prompts_each_step(job.group_size)
        self.completions_per_prompt: int = settings.completions_per_prompt(job.group_size)
        self.every: int | None = sync_period(settings.sync_every, len(self.problems) // self.prompts_per_step)
        n_prompts = settings.prompts_asked(settings.total_steps, job.group_size)
        self.order = prompt_indices(settings, self.problems, n_prompts, self.prompts_per_step, job.seed)
        self.times_before = [*times_before(self.order)]
        self.choice = PromptChoice.of(len(self.problems), job.seed, settings)
        self._planned: dict[int, list[int]] = {}  # positions of the prompts of later updates
        decoding = Decoding(
            samples_per_prompt=self.completions_per_prompt,
            temperature=1.0,  # at which DPO computes log-probabilities
            top_p=1.0,
            max_completion_length=settings.max_completion_length,
            batch_size=settings.batch_size,
            seed=job.seed,
        )
        updates = job.k if self.every is None else self.every
        at_once = updates * self.prompts_per_step * self.completions_per_prompt
        self.sampler = Sampler(job, self.problems, decoding, every=self.every, at_once=at_once)
        self.verifier = shared_verifier(default_workers(), file=own_file(job.verifier))
        # `generated_at` is the first update that the generator has not seen.
        columns = ["step", "generated_at", *COLUMNS[1:]]
        if job.reward != TRUTH:
            columns.append("reward_status")
        self.record = Record(columns)
        self.buffer = pd.DataFrame()
        self.tokens_generated = 0

    def rollouts_for(self, step: int) -> pd.DataFrame:
        """Return judged rollouts, with tokens, of the update after `step` updates.

        `problem_id` includes the number of the visit.
        """
        if self.buffer.empty or step not in set(self.buffer["update"]):
            self.buffer = self._drawn(step, self._last(step))
        rollouts = self.buffer[self.buffer["update"] == step]
        self.buffer = self.buffer[self.buffer["update"] > step]
        names = list(rollouts["problem_id"])
        texts = self.record.texts(names, list(rollouts["completion_text"]))
        problems = [plain_id(name) for name in names]
        recorded = rollouts.assign(step=step + 1, problem_id=problems)
        recorded["completion_text"] = texts
        self.record.add(recorded)
        return rollouts

    def metrics(self, step: int) -> dict[str, float]:
        if self.choice is None:
            return {}
        return self.choice.metrics(step)

    def _last(self, step: int) -> int:
        """Return the end of the updates that are sampled together, from `step` on."""
        together = max(1, TOGETHER // (self.prompts_per_step * self.completions_per_prompt))
        end = min(self.job.k, step + together)
        if self.every is not None:
            end = min(end, self._sync_before(step) + self.every)
        if self.choice is not None:
            end = min(end, self._plan(self.choice, step, together))
        return end

    def _sync_before(self, step: int) -> int:
        if self.every is None:
            return 0
        return step // self.every * self.every

    def _plan(self, choice: PromptChoice, step: int, together: int) -> int:
        """Choose the prompts of all updates that are sampled together, and return their end.

        Updates are counted from the last sync, so that the choice does not depend on K.
        """
        synced = self._sync_before(step)
        first = step - (step - synced) % together
        end = first + together
        if self.every is not None:
            end = min(end, synced + self.every)
        if step not in self._planned:
            self._planned = {update: choice.take(self.prompts_per_step, update) for update in range(first, end)}
        return end

    def _drawn(self, first: int, last: int) -> pd.DataFrame:
        """Sample the rollouts of the updates from `first` to before `last`."""
        numbers: list[int] = []  # positions of their prompts
        updates: list[int] = []  # one for each completion
        for update in range(first, last):
            if self.choice is None:
                start = update * self.prompts_per_step
                numbers += range(start, start + self.prompts_per_step)
            else:
                numbers += self._planned[update]
            updates += [update] * self.prompts_per_step * self.completions_per_prompt
        frame = self._answered(numbers)
        frame["update"] = updates
        if self.choice is not None:
            self._observe(self.choice, frame, numbers)
        return frame

    def _observe(self, choice: PromptChoice, frame: pd.DataFrame, numbers: Sequence[int]) -> None:
        size = self.completions_per_prompt
        label = labels(frame, self.job.settings.min_reward_margin)
        for place, number in enumerate(numbers):
            rows = slice(place * size, (place + 1) * size)
            choice.observe(
                number,
                has_signal={True, False} <= set(label.iloc[rows].dropna()),
                tokens=int(frame["token_count"].iloc[rows].sum()),
                update=int(frame["update"].iloc[rows.start]),
            )

    def _answered(self, numbers: Sequence[int]) -> pd.DataFrame:
        import torch

        job = self.job
        problems = [self._at(number) for number in numbers]
        cuda = list(range(torch.cuda.device_count()))
        with torch.random.fork_rng(devices=cuda), self.sampler.engine() as engine:
            rollouts = sample_rollouts(
                job.base,
                problems,
                job.prompt,
                self.sampler.decoding,
                verifier=self.verifier,
                engine=engine,
                token_ids=True,
            )
            frame = with_rewards(to_frame(rollouts), problems, job.reward, seed=job.seed, stream="training")
        frame["generated_at"] = self.sampler.last_sync + 1
        self.tokens_generated += int(frame["token_count"].sum())
        return frame

    def _at(self, number: int) -> Problem:
        """Return the problem at a position; when repeated it has another name, and so other random numbers."""
        if self.choice is None:
            problem = self.problems[self.order[number]]
            before = self.times_before[number]
        else:
            problem = self.problems[self.choice.problem(number)]
            before = number // len(self.problems)
        return replace(problem, problem_id=group_name(problem.problem_id, before))

    def save(self, folder: Path) -> None:
        self.sampler.save(folder)
        with atomic(folder / BUFFER) as draft:
            self.buffer.to_parquet(draft, index=False)
        state: dict[str, object] = {
            "tokens_generated": self.tokens_generated,
            "handed_over_at": self.sampler.last_sync,
        }
        if self.choice is not None:
            state["choice"] = self.choice.state()
            state["planned"] = list(self._planned.items())
        write_json(folder / STATE, state)
        self.record.save(folder / ROLLOUTS)

    def restore(self, folder: Path, *, same_job: bool) -> None:
        """Resume; unless it is the `same_job`, the earlier K has recorded these rollouts and tokens."""
        state = read_json(folder / STATE)
        self.buffer = pd.read_parquet(folder / BUFFER)
        if self.choice is not None:
            self.choice.restore(state["choice"])
            self._planned = dict(state["planned"])
        self.sampler.restore(folder, state["handed_over_at"])
        if same_job:
            self.tokens_generated = state["tokens_generated"]
            self.record.restore(folder / ROLLOUTS)

    def close(self) -> None:
        self.sampler.close()


def sync_period(sync_every: int | str, updates_per_pass: int) -> int | None:
    """Return the updates between two syncs; None for never."""
    if sync_every == "never":
        return None
    return updates_per_pass if sync_every == "pass" else int(sync_every)


def seed_after(seed: int, start: PolicyRecord) -> int:
    """Return another seed than the training before, for other rollouts."""
    digest = hashlib.sha256(f"{seed}/{start.policy_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1  # below 2^31, like all seeds
