r"""The verifier as a reward function of TRL's trainers, called once per generation step in the trainer's process.

sympy runs in worker processes. The reference answer is the data set's column `answer`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, get_args

from g2d.verifier.limits import Limits
from g2d.verifier.pool import default_workers
from g2d.verifier.verdict import NO_REFERENCE, Judgement, Verdict
from g2d.verifier.verifier import verify_batch

Completion = str | Sequence[dict[str, Any]]


class MathVerifyReward:
    """1 for a terminated box with the right answer, else 0.

    An object and not a closure, so that it can be pickled; TRL logs it under its `__name__`.

    Args:
        workers: worker processes; this process's share of the cores if None.
        limits: bounds on one verification.
        eos_token_ids: tokens that end a completion. TRL does not say why a completion ended; with these, one that ends
            in another token counts as `truncated` instead of `no_boxed`. The reward is 0 either way.
        on_judged: called with the judgements and TRL's arguments, under TRL's names.
    """

    __name__ = "math_verify_reward"

    def __init__(
        self,
        workers: int | None = None,
        limits: Limits | None = None,
        eos_token_ids: Collection[int] = (),
        on_judged: Callable[..., None] | None = None,
    ) -> None:
        self.workers = workers
        self.limits = limits
        self.eos_token_ids = frozenset(eos_token_ids)
        self.on_judged = on_judged

    def __call__(
        self,
        completions: Sequence[Completion],
        answer: Sequence[str],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **columns: Any,
    ) -> list[float]:
        """Rewards in the order of the completions.

        Args:
            completions: texts, or conversations that end with the assistant's message.
            answer: reference answers, one per completion.
            completion_ids: tokens of the completions, without padding.
            columns: further arguments of TRL; `log_metric` receives the share of each verdict.
        """
        judgements = self.judge(completions, answer, completion_ids)
        self.log_verdicts(judgements, columns.get("log_metric"))
        if self.on_judged is not None:
            self.on_judged(judgements, completions=completions, completion_ids=completion_ids, **columns)
        return [judgement.reward for judgement in judgements]

    @staticmethod
    def log_verdicts(judgements: Sequence[Judgement], log_metric: Callable[[str, float], None] | None) -> None:
        """Log the share of each verdict among completions with a reference answer."""
        counts = Counter(judgement.verdict for judgement in judgements)
        del counts[NO_REFERENCE]
        if counts and log_metric:
            for verdict in get_args(Verdict):
                if verdict != NO_REFERENCE:
                    log_metric(f"verdicts/{verdict}", counts[verdict] / counts.total())

    def judge(
        self,
        completions: Sequence[Completion],
        answer: Sequence[str | None],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[Judgement]:
        """The judgements behind the rewards; an open-ended problem has the `answer` None."""
        items = [(ref, completion_text(text)) for text, ref in zip(completions, answer, strict=True)]
        reasons = None
        if self.eos_token_ids and completion_ids is not None:
            reasons = ["stop" if ids and ids[-1] in self.eos_token_ids else "length" for ids in completion_ids]
        return verify_batch(
            items, finish_reasons=reasons, workers=self.workers or default_workers(), limits=self.limits
        )


math_verify_reward = MathVerifyReward()


def completion_text(completion: Completion) -> str:
    """Text of a completion in either of TRL's formats; a message without text counts as empty."""
    if isinstance(completion, str):
        return completion
    content = completion[-1].get("content") if completion else None
    return content if isinstance(content, str) else ""
