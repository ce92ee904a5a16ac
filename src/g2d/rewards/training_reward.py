"""A reward as a reward function for TRL's trainers, called once per generation with whole groups.

TRL leaves a completion with reward None out of its group's mean, without an advantage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import fmean
from typing import Any, get_args

from g2d.problems import Problem
from g2d.problems.problem import references
from g2d.rewards.registry import TRUTH, ByKind, is_scalar, judge, kind_of, parts
from g2d.rewards.reward import Context, Judgement, Status, VerifiedCompletion
from g2d.settings import Section
from g2d.verifier import Verification, shared_verifier
from g2d.verifier.pool import default_workers
from g2d.verifier.verifier import NO_REFERENCE, OfMathVerify
from g2d.verifier.verifier_keys import PythonVerifier, own_file

Completion = str | Sequence[Mapping[str, object]]


class TrainingReward:
    """Reward function of a training; the data set needs the columns `problem_id` and `group`.

    Args:
        eos_token_ids: tokens that end a completion; one that ends otherwise and has no box is `truncated`.
        in_thinking: whether prompts end in `<think>`.
        on_judged: called with the verifications, the reward's judgements as `rewards`, and all arguments from TRL.
    """

    def __init__(
        self,
        settings: Section,
        problems: Sequence[Problem],
        *,
        seed: int,
        group_size: int,
        verifier: PythonVerifier | None = None,
        eos_token_ids: Collection[int] = (),
        in_thinking: bool = False,
        on_judged: Callable[..., None] | None = None,
    ) -> None:
        self.settings = settings
        self.seed = seed
        self.group_size = group_size
        self.on_judged = on_judged
        self.verifier = verifier
        self.problems = {problem.problem_id: problem for problem in problems}
        self.eos_token_ids = frozenset(eos_token_ids)
        self.in_thinking = in_thinking
        self.scalar = is_scalar(settings)
        names = [kind_of(part).name for part in parts(settings)]
        self.__name__ = "_and_".join(names) + "_reward"  # TRL logs it under this name

    def __call__(
        self,
        completions: Sequence[Completion],
        problem_id: Sequence[str],
        group: Sequence[str],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return rewards in the order of the completions; a RuntimeError if a group is not complete.

        `completions` are texts, or conversations that end with the assistant's message. TRL's `log_metric` receives the
        share of each verdict and status.
        """
        verified, judgements = self.judged(completions, problem_id, group, completion_ids)
        log_metric = columns.get("log_metric")
        log_verdicts(verified, log_metric)
        if self.settings != TRUTH and judgements and log_metric:
            statuses = Counter(judgement.status for judgement in judgements)
            for status in get_args(Status):
                log_metric(f"rewards/{status}", statuses[status] / len(judgements))
            if self.scalar:  # a reward model may truncate its input
                truncated = sum("truncated" in judgement.details for judgement in judgements)
                log_metric("rewards/truncated", truncated / len(judgements))
            if isinstance(self.settings, ByKind):
                self._log_by_kind(problem_id, judgements, completion_ids, log_metric)
        if self.on_judged is not None:
            self.on_judged(
                verified,
                rewards=judgements,
                completions=completions,
                completion_ids=completion_ids,
                problem_id=problem_id,
                **columns,
            )
        return [judgement.reward for judgement in judgements]

    def judged(
        self,
        completions: Sequence[Completion],
        problem_id: Sequence[str],
        group: Sequence[str],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> tuple[list[Verification], list[Judgement]]:
        verifier = shared_verifier(default_workers(), file=own_file(self.verifier))
        texts = [completion_text(completion) for completion in completions]
        reasons: list[str] | None = None
        if self.eos_token_ids and completion_ids is not None:
            reasons = [self._finish_reason(ids) for ids in completion_ids]
        problems = [self.problems[name] for name in problem_id]
        items = list(zip(references(problems, verifier), texts, strict=True))
        verified = verifier.verify(items, reasons, in_thinking=[self.in_thinking] * len(items))
        seen: Counter[str] = Counter()
        to_score = []
        for problem, visit, text, found in zip(problems, group, texts, verified, strict=True):
            to_score.append(VerifiedCompletion(problem, visit, seen[visit], text, found))
            seen[visit] += 1
        for name, n in seen.items():
            if self.settings != TRUTH and n != self.group_size:
                raise RuntimeError(
                    f"{n} completions of {name} were judged together instead of {self.group_size}: train with as many "
                    "completions a device as make whole groups"
                )
        return verified, judge(self.settings, to_score, Context(self.seed, "training"))

    def _finish_reason(self, tokens: Sequence[int]) -> str:
        has_ended = bool(tokens) and tokens[-1] in self.eos_token_ids
        return "stop" if has_ended else "length"

    def _log_by_kind(
        self,
        problem_id: Sequence[str],
        judgements: Sequence[Judgement],
        completion_ids: Sequence[Sequence[int]] | None,
        log_metric: Callable[[str, float], None],
    ) -> None:
        by_kind: dict[str, list[int]] = {}
        for position, name in enumerate(problem_id):
            by_kind.setdefault(self.problems[name].kind, []).append(position)
        for kind, positions in by_kind.items():
            rewards = []
            for position in positions:
                reward = judgements[position].reward
                if reward is not None:
                    rewards.append(reward)
            log_metric(f"rewards/judged/{kind}", len(rewards) / len(positions))
            log_metric(f"rewards/without/{kind}", 1 - len(rewards) / len(positions))
            if rewards:
                log_metric(f"reward/{kind}", sum(rewards) / len(rewards))
            if completion_ids is not None:
                lengths = [len(completion_ids[position]) for position in positions]
                log_metric(f"completions/mean_length/{kind}", fmean(lengths))


def log_verdicts(verifications: Sequence[Verification], log_metric: Callable[[str, float], None] | None) -> None:
    counts = Counter(verification.verdict for verification in verifications)
    del counts[NO_REFERENCE]
    if counts and log_metric:
        for verdict in dict.fromkeys((*get_args(OfMathVerify), *counts)):
            if verdict != NO_REFERENCE:
                log_metric(f"verdicts/{verdict}", counts[verdict] / counts.total())


def completion_text(completion: Completion) -> str:
    if isinstance(completion, str):
        return completion
    if not completion:
        return ""
    content = completion[-1].get("content")
    if isinstance(content, str):
        return content
    return ""
