from __future__ import annotations

import atexit
import logging
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from g2d.plain import plain
from g2d.verifier.extraction import is_thinking, last_boxed
from g2d.verifier.limits import Limits
from g2d.verifier.pool import Pool
from g2d.verifier.user_code import JUDGE, digest
from g2d.verifier.verdict import NO_REFERENCE, UNFINISHED_THINKING, Judgement, Verdict

logger = logging.getLogger(__name__)

Reference = str | Mapping[str, Any] | None  # the answer, or the problem for a verifier in Python
Pair = tuple[str, str]  # reference, answer

CACHE_SIZE = 2**16  # entries of a few hundred bytes

# Math-Verify compares these as integers (checked by a property test), so they need no worker.
_SMALL_INTEGER = re.compile(r"-?[0-9]{1,15}")


class Verifier:
    """Judges completions with a pool of workers; a context manager, thread-safe.

    Verdicts do not depend on order, number of workers or earlier batches.

    Args:
        file: with a function `judge` that decides instead of Math-Verify.
    """

    def __init__(self, workers: int = 1, limits: Limits | None = None, *, file: str | None = None) -> None:
        self.limits = limits or Limits()
        self.file = file
        function = ["math_verify"] if file is None else ["verifier", file, JUDGE, digest(file)]
        self._pool = Pool(workers, self.limits, function)
        self._cache: OrderedDict[Pair, Judgement] = OrderedDict()
        self._has_warned = False

    def verify(
        self,
        items: Sequence[tuple[Reference, str]],
        finish_reasons: Sequence[str | None] | None = None,
        *,
        in_thinking: Sequence[bool] | None = None,
    ) -> list[Judgement]:
        """Judge completions, in order; a VerifierError if no worker can be started.

        Args:
            items: (reference, completion); the reference is None without a right answer.
            finish_reasons: "length" if the token budget ran out, for `truncated`.
            in_thinking: whether the prompt ends in `<think>`, for `unfinished_thinking`.
        """
        reasons = [None] * len(items) if finish_reasons is None else finish_reasons
        if len(reasons) != len(items):
            raise ValueError(f"{len(items)} items but {len(reasons)} finish reasons")
        begun = [False] * len(items) if in_thinking is None else in_thinking
        if len(begun) != len(items):
            raise ValueError(f"{len(items)} items but {len(begun)} marks of thinking")
        thinking = [is_thinking(text, has_begun) for (_, text), has_begun in zip(items, begun, strict=True)]
        if self.file is not None:
            return self._by_file(items, reasons, thinking)
        extracted = [
            self._extract(reference, text, reason, is_unfinished)
            for (reference, text), reason, is_unfinished in zip(items, reasons, thinking, strict=True)
        ]
        with self._pool.lock:
            judged = self._judge(dict.fromkeys(entry for entry in extracted if isinstance(entry, tuple)))
        return [judged[entry] if isinstance(entry, tuple) else entry for entry in extracted]

    def _extract(self, reference: Any, text: str, finish_reason: str | None, thinking: bool) -> Pair | Judgement:
        if reference is None:
            return Judgement(NO_REFERENCE, None)
        if len(text) > self.limits.max_completion_chars:
            return Judgement("limit", None)
        if thinking:
            return Judgement(UNFINISHED_THINKING, None)
        answer = last_boxed(text)
        if answer is None:
            return Judgement("truncated" if finish_reason == "length" else "no_boxed", None)
        if not (self.limits.allow(answer) and self.limits.allow(reference)):
            return Judgement("limit", answer[: self.limits.max_answer_chars])
        return reference.strip(), answer

    def _judge(self, pairs: Iterable[Pair]) -> dict[Pair, Judgement]:
        judged = {pair: self._cache[pair] for pair in pairs if pair in self._cache}
        unknown = [pair for pair in pairs if pair not in judged]
        verdicts = {pair: verdict for pair in unknown if (verdict := _compare_integers(*pair)) is not None}
        hard = [pair for pair in unknown if pair not in verdicts]
        if hard:
            verdicts.update(zip(hard, self._pool.replies(hard), strict=True))
        for pair, verdict in verdicts.items():
            judged[pair] = self._cache[pair] = Judgement(verdict, pair[1])
        while len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)
        return judged

    def _by_file(
        self, items: Sequence[tuple[Reference, str]], reasons: Sequence[str | None], thinking: Sequence[bool]
    ) -> list[Judgement]:
        known = [self._without_judging(*item) for item in items]
        replies = iter(self._pool.replies([item for item, verdict in zip(items, known, strict=True) if not verdict]))
        judgements = []
        for before, reason, is_unfinished in zip(known, reasons, thinking, strict=True):
            verdict = before or self._verdict(next(replies))
            if verdict == "incorrect" and is_unfinished:
                verdict = UNFINISHED_THINKING
            elif verdict == "incorrect" and reason == "length":
                verdict = "truncated"
            judgements.append(Judgement(verdict, None))
        return judgements

    def _without_judging(self, reference: Reference, text: str) -> Verdict | None:
        if reference is None:
            return NO_REFERENCE
        return "limit" if len(text) > self.limits.max_completion_chars else None

    def _verdict(self, reply: Any) -> Any:
        verdict, why = (reply, None) if isinstance(reply, str) else reply
        if why and not self._has_warned:
            logger.warning("%s: %s: a completion has the verdict %s", self.file, plain(why), verdict)
            self._has_warned = True
        return verdict

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Verifier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _compare_integers(reference: str, answer: str) -> Verdict | None:
    if not (_SMALL_INTEGER.fullmatch(reference) and _SMALL_INTEGER.fullmatch(answer)):
        return None
    return "correct" if int(reference) == int(answer) else "incorrect"


def verify_batch(
    items: Sequence[tuple[str | None, str]],
    *,
    finish_reasons: Sequence[str | None] | None = None,
    in_thinking: Sequence[bool] | None = None,
    workers: int = 1,
) -> list[Judgement]:
    """Judge completions with the shared verifier; see `Verifier.verify`.

    >>> [judgement.verdict for judgement in verify_batch([("1/2", r"so \\boxed{0.5}"), ("1/2", "so 0.5")])]
    ['correct', 'no_boxed']
    """
    return shared_verifier(workers).verify(items, finish_reasons, in_thinking=in_thinking)


@cache
def shared_verifier(workers: int = 1, *, file: str | None = None) -> Verifier:
    """Return this process's verifier, closed at exit."""
    verifier = Verifier(workers, file=file)
    atexit.register(verifier.close)
    return verifier
