"""Fresh rollouts: what an online training learns from, drawn by a generator that follows the policy in training.

The generator takes the policy's adapter over before every s-th update and answers with it until the next time: s = 1 is
online, "never" leaves it M0 for good ("Bridging Offline and Online RL", arXiv 2506.21495, section 3). Only the adapter
travels, as a file, to vLLM or to transformers, so what answers here is what a harvest of the same adapter would load.

Random numbers belong to (seed, problem, how often the problem was asked before, sample). So runs with different s share
them, the first pass of a run that never hands over is the harvest of M0, and a run that was stopped draws what it would
have drawn. The random state of the process, which dropout reads, is left as it was.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from g2d.jobs.files import atomic, read_json, sha256, write_json
from g2d.policies.policy import Policy, with_adapter
from g2d.policies.settings import Lora
from g2d.problems import Problem
from g2d.problems.prompts import Prompt, conversation
from g2d.regimes.asked import times_before
from g2d.regimes.training_rollouts import Keep
from g2d.rewards.catalogue import TRUTH
from g2d.rewards.reward import AGAIN, group_name
from g2d.rollouts.draw import draw_rollouts
from g2d.rollouts.engine import Decoding, Engine
from g2d.rollouts.rewarding import with_rewards
from g2d.rollouts.rollout import to_frame
from g2d.rollouts.settings import EngineSettings
from g2d.settings import Section
from g2d.verifier import shared_verifier

COLUMNS = (  # of rollouts.parquet
    "step",  # update that consumed the completion, from 1
    "generated_at",  # the first update after those behind the generator: `step` where it is the policy itself
    "problem_id",
    "sample",
    "token_count",
    "finish_reason",
    "verdict",
    "reward",
    "extracted_answer",
    "completion_text",  # null unless asked for
)
GENERATOR = "generator"  # in a checkpoint: the adapter that generates, absent while that is M0
WEIGHTS = "adapter_model.safetensors"
ASIDE = "weights.safetensors"  # so called in a checkpoint, where the trainer would load every adapter that it finds
TOGETHER = 1024  # rollouts of one draw, or those of one update: an engine is busy, and a run can stop in between
BUFFER = "buffer.parquet"  # in a checkpoint: what was drawn for updates to come
STATE = "fresh.json"


class FreshRollouts:
    """The rollouts of every update, drawn when they are needed.

    Args:
        base: M0.
        problems: the training set.
        order: indices of the problems in the order in which they are asked, those of one update after another.
        per_update: prompts of an update.
        decoding: how to sample; its `samples_per_prompt` are asked of every prompt.
        sync_every: updates between two hand-overs; None never hands over.
        until: no rollouts are drawn for updates beyond this one.
        keep: what `rollouts.parquet` keeps.
        workers: processes that verify.
        reward: what a completion is worth.
        start: the policy whose adapter generates until the first hand-over; M0 if None.
    """

    def __init__(
        self,
        base: Policy,
        problems: Sequence[Problem],
        order: Sequence[int],
        *,
        per_update: int,
        decoding: Decoding,
        prompt: Prompt,
        sync_every: int | None,
        until: int,
        keep: Keep = "verdicts",
        workers: int = 1,
        reward: Section = TRUTH,
        start: Policy | None = None,
    ) -> None:
        self.base, self.problems, self.order, self.prompt = base, problems, order, prompt
        self.times_before = [*times_before(order)]
        self.per_update, self.decoding, self.sync_every, self.until = per_update, decoding, sync_every, until
        self.keep, self.verifier, self.reward = keep, shared_verifier(workers), reward
        self.columns = (*COLUMNS, *(["reward_status"] if reward != TRUTH else []))
        self.buffer = pd.DataFrame()
        self.rows: list[pd.DataFrame] = []
        self.tokens_generated = 0
        self.handed_over_at = 0
        self.adapter_sha256: str | None = None  # of the generator; None before the first hand-over
        self._first = Path(start.adapter) if start and start.adapter else None
        self._folder = TemporaryDirectory(prefix="g2d-generator-")
        self._engine: Any = None  # vLLM
        self._m0: Any = None  # transformers, where vLLM does not generate

    @property
    def adapter(self) -> Path | None:
        """The adapter that generates; None while that is M0."""
        return self._first if self.adapter_sha256 is None else Path(self._folder.name) / GENERATOR

    def use_vllm(self, settings: EngineSettings, lora: Lora) -> None:
        """Have vLLM generate; call it before the trainer is made, as vLLM seeds the process when it starts.

        Raises:
            ValueError: the longest prompt and its completion do not fit the model.
        """
        from g2d.rollouts.vllm_engine import VllmEngine

        engine = VllmEngine(
            self.base,
            settings.model_copy(update={"tensor_parallel_size": 1}),  # the trainer has one GPU
            adapter_rank=lora.r,
            memory_utilization=settings.training_gpu_memory_utilization,
        )
        asked = {engine.render(conversation(problem, self.prompt)) for problem in self.problems}
        engine.start_for(asked, self.decoding.max_completion_length)
        if self._first is not None:
            engine.use_adapter(self._first)
        self._engine = engine

    def of(self, step: int, hand_over: Callable[[Path], None]) -> pd.DataFrame:
        """The judged rollouts of the update after `step` updates; `problem_id` says how often it was asked before.

        Args:
            hand_over: writes the adapter in training to a folder; called where the generator takes it over.
        """
        if self._is_due(step):
            folder = Path(self._folder.name) / GENERATOR
            shutil.rmtree(folder, ignore_errors=True)
            hand_over(folder)
            self._take(folder, step)
        if self.buffer.empty or step not in set(self.buffer["update"]):
            self.buffer = self._drawn(step, self._last(step))
        own = self.buffer[self.buffer["update"] == step]
        self.buffer = self.buffer[self.buffer["update"] > step]
        self._record(own, step)
        return own

    def _is_due(self, step: int) -> bool:
        """Whether the generator takes the policy's adapter over before this update; before the first they agree."""
        return step > 0 and self.sync_every is not None and step % self.sync_every == 0 and self.handed_over_at != step

    def _take(self, folder: Path, step: int) -> None:
        self.adapter_sha256, self.handed_over_at = sha256(folder / WEIGHTS), step
        if self._engine is not None:
            self._engine.use_adapter(folder)

    def _last(self, step: int) -> int:
        """The last update, plus one, of a draw: of those that this adapter generates for and that this job reaches."""
        following = self.until if self.sync_every is None else (step // self.sync_every + 1) * self.sync_every
        together = max(1, TOGETHER // (self.per_update * self.decoding.samples_per_prompt))
        return min(following, self.until, step + together)

    def _drawn(self, first: int, last: int) -> pd.DataFrame:
        """Rollouts of the updates from `first` to before `last`."""
        import torch

        numbers = range(first * self.per_update, last * self.per_update)
        # A problem that is asked again has other random numbers, and so another name.
        asked = [self._named(self.problems[self.order[i]], self.times_before[i]) for i in numbers]
        cuda = list(range(torch.cuda.device_count()))
        with torch.random.fork_rng(devices=cuda):
            engine: Engine = self._engine or self._transformers()
            rollouts = draw_rollouts(
                self.base, asked, self.prompt, self.decoding, verifier=self.verifier, engine=engine
            )
        frame = with_rewards(
            to_frame(rollouts), asked, self.reward, seed=self.decoding.seed, stream="training", verifier=self.verifier
        )
        updates = [first + i // self.per_update for i in range(len(asked))]
        frame["update"] = [update for update in updates for _ in range(self.decoding.samples_per_prompt)]
        frame["generated_at"] = self.handed_over_at + 1
        self.tokens_generated += int(frame["token_count"].sum())
        return frame

    def _transformers(self) -> Engine:
        """Transformers with the generator's adapter in a copy of M0, which is read from disk once."""
        from g2d.rollouts.transformers_engine import TransformersEngine

        if self._m0 is None:
            self._m0 = TransformersEngine.of(self.base)
        if self.adapter is None:
            return self._m0
        model = with_adapter(copy.deepcopy(self._m0.model), self.adapter)
        return TransformersEngine(model.eval(), self._m0.tokenizer, self._m0.end_ids)

    @staticmethod
    def _named(problem: Problem, times_before: int) -> Problem:
        return replace(problem, problem_id=group_name(problem.problem_id, times_before))

    def asked(self, own: pd.DataFrame) -> list[Problem]:
        """The problems behind the rollouts of an update, under their names there, in order."""
        by_id = {problem.problem_id: problem for problem in self.problems}
        return [replace(by_id[name.split(AGAIN)[0]], problem_id=name) for name in own["problem_id"].unique()]

    def _record(self, own: pd.DataFrame, step: int) -> None:
        if self.keep == "none":
            return
        with_text = {"completions": set(own["problem_id"]), "sampled": {own["problem_id"].iloc[0]}}.get(
            self.keep, set()
        )
        texts = zip(own["problem_id"], own["completion_text"], strict=True)
        rows = own.assign(
            step=step + 1,
            problem_id=[name.split(AGAIN)[0] for name in own["problem_id"]],
            completion_text=pd.Series([text if name in with_text else None for name, text in texts], own.index),
        )
        self.rows.append(rows[list(self.columns)])

    # -------------------------------------------------------------------------------------------------- checkpoints

    def save(self, folder: Path) -> None:
        """Write into a checkpoint what goes on from it needs."""
        if self.adapter is not None and self.adapter_sha256 is not None:
            shutil.copytree(self.adapter, folder / GENERATOR)
            (folder / GENERATOR / WEIGHTS).rename(folder / GENERATOR / ASIDE)
        with atomic(folder / BUFFER) as draft:
            self.buffer.to_parquet(draft, index=False)
        state = {"tokens_generated": self.tokens_generated, "handed_over_at": self.handed_over_at}
        write_json(folder / STATE, state)

    def save_rollouts(self, path: Path) -> None:
        """Write `COLUMNS` of the updates since the checkpoint of the K before."""
        frame = pd.concat(self.rows) if self.rows else pd.DataFrame(columns=list(self.columns))
        texts = ["problem_id", "finish_reason", "verdict", "extracted_answer", "completion_text"]
        texts += ["reward_status"] if "reward_status" in self.columns else []
        numbers = dict.fromkeys(("step", "generated_at", "sample", "token_count"), "int64") | {"reward": "float64"}
        with atomic(path) as draft:
            frame.astype(dict.fromkeys(texts, "string[pyarrow]") | numbers).to_parquet(draft, index=False)

    def restore(self, folder: Path, rollouts: Path | None) -> None:
        """Go on from a checkpoint.

        Args:
            rollouts: those of this job so far; None where the checkpoint is that of a smaller K, whose bill is paid.
        """
        state = read_json(folder / STATE)
        self.buffer = pd.read_parquet(folder / BUFFER)
        if (folder / GENERATOR).is_dir():
            own = Path(self._folder.name) / GENERATOR
            shutil.rmtree(own, ignore_errors=True)
            shutil.copytree(folder / GENERATOR, own)
            (own / ASIDE).rename(own / WEIGHTS)
            self._take(own, state["handed_over_at"])
        if rollouts is not None:
            self.tokens_generated = state["tokens_generated"]
            self.rows = [pd.read_parquet(rollouts)]

    def close(self) -> None:
        """Free the engine and the adapter's copy."""
        if self._engine is not None:
            self._engine.close()
        self._folder.cleanup()


def sync_period(sync_every: int | str, updates_per_pass: int) -> int | None:
    """Updates between two hand-overs; None for never."""
    if sync_every == "never":
        return None
    return updates_per_pass if sync_every == "pass" else int(sync_every)
