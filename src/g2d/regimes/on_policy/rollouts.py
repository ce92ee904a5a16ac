"""Fresh rollouts for online trainings, sampled by a generator that follows the trained policy.

The generator receives the policy's weights before every s-th update (`sync_every`; arXiv 2506.21495, section 3).
Random numbers depend on (seed, problem, number of earlier visits, sample). Each process samples a part and receives all
rollouts.
"""

from __future__ import annotations

import copy
import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from g2d.jobs.files import atomic, copy_folder, read_json, write_json
from g2d.policies.policy import Policy, with_trained
from g2d.problems import Problem
from g2d.regimes.run.job import TrainingJob
from g2d.regimes.run.online import ROLLOUTS, reference_of, vllm_beside_trainer
from g2d.regimes.run.processes import gathered, n_processes, own_part
from g2d.regimes.run.prompts import PromptChoice, order, times_before
from g2d.regimes.run.training_rollouts import COLUMNS, Record
from g2d.rewards.catalogue import TRUTH
from g2d.rewards.reward import AGAIN, group_name
from g2d.rollouts.draw import draw_rollouts, with_rewards
from g2d.rollouts.engine import Decoding, Engine
from g2d.rollouts.labels import labels
from g2d.rollouts.rollout import to_frame
from g2d.rollouts.weights_check import is_due, require_adapter
from g2d.verifier import shared_verifier
from g2d.verifier.pool import default_workers
from g2d.verifier.settings import own_file

TOGETHER = 1024  # most rollouts per call; a run can stop between calls
BUFFER = "buffer.parquet"  # in a checkpoint: rollouts for later updates
STATE = "fresh.json"
GENERATOR = "generator"  # in a checkpoint: the generator's weights, if any
WEIGHTS = "adapter_model.safetensors"
ASIDE = "weights.safetensors"  # the trainer loads every adapter that it finds in a checkpoint


class OnPolicyRollouts:
    """The rollouts of every update of a job, up to its K, sampled on demand.

    Create this before the trainer: vLLM sets seeds when it starts.
    """

    def __init__(self, job: TrainingJob) -> None:
        self.job, settings = job, job.settings
        self.problems: list[Problem] = job.data
        self.per_update, self.until = settings.prompts_per_update, job.k
        horizon = settings.total_steps * self.per_update
        self.order = order(settings, self.problems, horizon, self.per_update, job.seed)
        self.times_before = [*times_before(self.order)]
        self.sync_every = sync_period(settings.sync_every, len(self.problems) // self.per_update)
        self.decoding = Decoding(
            samples_per_prompt=settings.responses,
            temperature=settings.temperature,
            top_p=1.0,
            max_completion_length=settings.max_completion_length,
            batch_size=settings.batch_size,
            seed=job.seed,
        )
        self.verifier = shared_verifier(default_workers(), file=own_file(job.verifier))
        self.choice = PromptChoice.of(len(self.problems), job.seed, settings)
        self._planned: dict[int, list[int]] = {}  # positions of the prompts of later updates
        # `generated_at` is the first update that the generator has not seen.
        columns = ["step", "generated_at", *COLUMNS[1:], *(["reward_status"] if job.reward != TRUTH else [])]
        self.record = Record(settings.keep_rollouts, columns)
        self.buffer = pd.DataFrame()
        self.tokens_generated = 0
        self.synced_at = 0  # updates before the last sync
        self._first = Path(job.start.trained) if job.start and job.start.trained else None
        self._folder = TemporaryDirectory(prefix="g2d-generator-")
        self._m0: Any = None  # transformers engine
        self.trainer: Any = None
        updates = self.until if self.sync_every is None else self.sync_every
        at_once = updates * self.per_update * self.decoding.samples_per_prompt
        self._engine = vllm_beside_trainer(job, self.problems, at_once)
        if self._engine is not None and self._first is not None:
            self._engine.serve(job.start)

    @property
    def own_folder(self) -> Path:
        return Path(self._folder.name) / GENERATOR

    @property
    def adapter(self) -> Path | None:
        """Folder of the generator's weights; None while M0 generates."""
        return self.own_folder if self.synced_at else self._first

    def engine(self) -> Engine:
        if self._engine is not None:
            return self._engine
        from g2d.rollouts.transformers_engine import TransformersEngine

        if self._m0 is None:
            self._m0 = TransformersEngine.of(self.job.base)
        if self.adapter is None:
            return self._m0
        model = with_trained(copy.deepcopy(self._m0.model), self.adapter)
        if not self.job.lora.trains_all:
            require_adapter(model, replace(self.job.base, adapter=str(self.adapter)))
        return TransformersEngine(model.eval(), self._m0.tokenizer, self._m0.end_ids)

    def _take(self, folder: Path, step: int) -> None:
        self.synced_at = step
        if self._engine is not None:
            self._engine.use_adapter(folder)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._folder.cleanup()

    def rollouts_for(self, step: int, sync_weights: Callable[[Path], None]) -> pd.DataFrame:
        """Return judged rollouts, with tokens, of the update after `step` updates.

        `problem_id` includes the number of the visit. `sync_weights` saves the trained weights to a folder.
        """
        # Before the first update, policy and generator are equal.
        if step and self.sync_every and step % self.sync_every == 0 and self.synced_at != step:
            shutil.rmtree(self.own_folder, ignore_errors=True)
            sync_weights(self.own_folder)
            self._take(self.own_folder, step)
            if self._engine is not None and is_due(step // self.sync_every):
                self._engine.compare(f"the policy after {step} updates", reference_of(self.trainer))
        if self.buffer.empty or step not in set(self.buffer["update"]):
            self.buffer = self._drawn(step, self._last(step))
        rollouts = self.buffer[self.buffer["update"] == step]
        self.buffer = self.buffer[self.buffer["update"] > step]
        names = [*rollouts["problem_id"]]
        texts = self.record.texts(names, [*rollouts["completion_text"]])
        problems = [name.split(AGAIN)[0] for name in names]
        self.record.add(rollouts.assign(step=step + 1, problem_id=problems, completion_text=texts))
        return rollouts

    def metrics(self, step: int) -> dict[str, float]:
        return {} if self.choice is None else self.choice.metrics(step)

    def _last(self, step: int) -> int:
        following = self.until if self.sync_every is None else (step // self.sync_every + 1) * self.sync_every
        at_once = max(1, TOGETHER // (self.per_update * self.decoding.samples_per_prompt))
        if self.choice is not None:
            following = min(following, self._plan(step, at_once))
        return min(following, self.until, step + at_once)

    def _plan(self, step: int, together: int) -> int:
        """Choose the prompts of all updates that are sampled together, and return their end.

        Updates are counted from the last sync, so that the choice does not depend on K.
        """
        assert self.choice is not None
        synced = 0 if self.sync_every is None else step // self.sync_every * self.sync_every
        first = step - (step - synced) % together
        end = first + together if self.sync_every is None else min(first + together, synced + self.sync_every)
        if step not in self._planned:
            self._planned = {update: self.choice.take(self.per_update, update) for update in range(first, end)}
        return end

    def _drawn(self, first: int, last: int) -> pd.DataFrame:
        numbers: Sequence[int] = range(first * self.per_update, last * self.per_update)
        if self.choice is not None:
            numbers = [number for update in range(first, last) for number in self._planned[update]]
        frame = self._answered(numbers)
        frame["update"] = [u for u in range(first, last) for _ in range(len(frame) // (last - first))]
        if self.choice is not None:
            self._observe(self.choice, frame, numbers)
        return frame

    def _observe(self, choice: PromptChoice, frame: pd.DataFrame, numbers: Sequence[int]) -> None:
        size, label = self.decoding.samples_per_prompt, labels(frame, self.job.settings.margin)
        for place, number in enumerate(numbers):
            rows = slice(place * size, (place + 1) * size)
            has_signal = {True, False} <= set(label.iloc[rows].dropna())
            tokens = int(frame["token_count"].iloc[rows].sum())
            choice.observe(number, has_signal=has_signal, tokens=tokens, update=int(frame["update"].iloc[rows.start]))

    def _answered(self, numbers: Sequence[int]) -> pd.DataFrame:
        import torch

        # A repeated problem gets another name, and so other random numbers.
        places = map(self._at, numbers)
        named_problems = [
            replace(problem, problem_id=group_name(problem.problem_id, before)) for problem, before in places
        ]
        cuda = list(range(torch.cuda.device_count()))
        problems, job, verifier = named_problems[own_part(len(named_problems))], self.job, self.verifier
        with torch.random.fork_rng(devices=cuda):
            rollouts = draw_rollouts(
                job.base, problems, job.prompt, self.decoding, verifier=verifier, engine=self.engine(), token_ids=True
            )
            frame = to_frame(rollouts)
            frame = with_rewards(frame, problems, job.reward, seed=job.seed, stream="training")
        frame = pd.concat(gathered([frame]), ignore_index=True) if n_processes() > 1 else frame
        frame["generated_at"] = self.synced_at + 1
        self.tokens_generated += int(frame["token_count"].sum())
        return frame

    def _at(self, number: int) -> tuple[Problem, int]:
        if self.choice is not None:
            return self.problems[self.choice.problem(number)], number // len(self.problems)
        return self.problems[self.order[number]], self.times_before[number]

    def save(self, folder: Path) -> None:
        if self.synced_at:
            copy_folder(self.own_folder, folder / GENERATOR)
            _rename(folder / GENERATOR, WEIGHTS, ASIDE)
        with atomic(folder / BUFFER) as draft:
            self.buffer.to_parquet(draft, index=False)
        state: dict[str, Any] = {"tokens_generated": self.tokens_generated, "handed_over_at": self.synced_at}
        if self.choice is not None:
            state |= {"choice": self.choice.state(), "planned": list(self._planned.items())}
        write_json(folder / STATE, state)
        self.record.save(folder / ROLLOUTS)

    def restore(self, folder: Path, *, same_job: bool) -> None:
        """Resume; unless it is the `same_job`, the earlier K has recorded these rollouts and tokens."""
        state = read_json(folder / STATE)
        self.buffer = pd.read_parquet(folder / BUFFER)
        if self.choice is not None:
            self.choice.restore(state["choice"])
            self._planned = dict(state["planned"])
        if (folder / GENERATOR).is_dir():
            shutil.rmtree(self.own_folder, ignore_errors=True)
            copy_folder(folder / GENERATOR, self.own_folder)
            _rename(self.own_folder, ASIDE, WEIGHTS)
            self._take(self.own_folder, state["handed_over_at"])
            if self._engine is not None:  # the trainer may have later weights, so the engine is compared with files
                self._engine.serve(replace(self.job.base, adapter=str(self.own_folder)))
        if same_job:
            self.tokens_generated = state["tokens_generated"]
            self.record.restore(folder / ROLLOUTS)


def _rename(folder: Path, name: str, other: str) -> None:
    if (folder / name).is_file():
        (folder / name).rename(folder / other)


def sync_period(sync_every: int | str, updates_per_pass: int) -> int | None:
    """Return the updates between two syncs; None for never."""
    if sync_every == "never":
        return None
    return updates_per_pass if sync_every == "pass" else int(sync_every)


def seed_after(seed: int, start: Policy) -> int:
    """Return another seed than the training before, for other rollouts."""
    digest = hashlib.sha256(f"{seed}/{start.policy_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1  # below 2^31, like all seeds
