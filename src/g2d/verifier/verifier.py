"""Verdicts on completions; only `correct` is rewarded."""

from __future__ import annotations

import atexit
import logging
import re
import reprlib
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast

from g2d.plain import plain
from g2d.verifier.extraction import is_thinking, last_boxed
from g2d.verifier.pool import Arguments, Limits, Pool, Reply, VerifierError
from g2d.verifier.user_code import JUDGE, judge_of

logger = logging.getLogger(__name__)

Reference = str | Mapping[str, object] | None  # the answer, or the problem for a verifier in Python
Pair = tuple[str, str]  # reference, answer

CACHE_SIZE = 2**16  # entries of a few hundred bytes

# Math-Verify compares these as integers (checked by a property test), so they need no worker.
_SMALL_INTEGER = re.compile(r"-?[0-9]{1,15}")

OfMathVerify = Literal[
    "correct",
    "incorrect",
    "no_boxed",
    "truncated",
    "unfinished_thinking",
    "parse_error",
    "timeout",
    "limit",
    "no_reference",
]
Verdict = OfMathVerify | Literal["error", "not_bool"]  # these two are verdicts of a verifier in Python
NO_REFERENCE: Verdict = "no_reference"
UNFINISHED_THINKING: Verdict = "unfinished_thinking"
FAILURES: frozenset[Verdict] = frozenset({"error", "not_bool", "timeout", "limit"})  # a verifier in Python failed
SLOW: frozenset[Verdict] = frozenset({"timeout"})  # failures that take long
N_FIRST = 20  # completions that a verifier in Python judges before all others


@dataclass(frozen=True, slots=True)
class Verification:
    r"""The verdict on one completion and the answer it is based on.

    Attributes:
        verdict:
            - `no_boxed`: no terminated box
            - `truncated`: the token budget ran out before a terminated box, or with a user's function before a right
              answer
            - `unfinished_thinking`: `<think>` without `</think>`
            - `parse_error`: Math-Verify cannot read the answer
            - `limit`: of size, nesting or memory
            - `no_reference`: there is no right answer
            - `error`, `not_bool`: the user's function raised an exception, or returned no bool
        extracted_answer: content of the last terminated \boxed{}; None if a user's function judged.
    """

    verdict: Verdict
    extracted_answer: str | None

    @property
    def reward(self) -> float:
        return float(self.verdict == "correct")


@dataclass(frozen=True, slots=True)
class _Completion:
    """A completion to judge."""

    reference: Reference
    text: str
    is_cut: bool  # its token budget ran out
    is_unfinished: bool  # thinking that never ended


class Verifier:
    """Judges completions with a pool of workers; a context manager, thread-safe.

    Verdicts do not depend on order, number of workers or earlier batches.

    Args:
        file: with a function `judge` that decides instead of Math-Verify.
        fatal: verdicts that end the job if the first completions, `N_FIRST` of them, have no others. A finished
            calibration has shown that a verifier judges something, so later jobs only stop for slow failures.
    """

    def __init__(
        self,
        workers: int = 1,
        limits: Limits | None = None,
        *,
        file: str | None = None,
        fatal: Collection[Verdict] = SLOW,
    ) -> None:
        self.limits = limits or Limits()
        self.file = file
        if file is None:
            function = ["math_verify"]
        else:
            function = judge_of(file)
        self._fatal = fatal
        self._first: list[Reply] = []  # replies to the first completions
        self._pool = Pool(workers, self.limits, function, self._log_first)
        self._cache: OrderedDict[Pair, Verification] = OrderedDict()
        self._has_warned = False

    def verify(
        self,
        items: Sequence[tuple[Reference, str]],
        finish_reasons: Sequence[str | None] | None = None,
        *,
        in_thinking: Sequence[bool] | None = None,
    ) -> list[Verification]:
        """Judge completions, in order; a VerifierError if no worker can be started.

        Args:
            items: (reference, completion); the reference is None without a right answer.
            finish_reasons: "length" if the token budget ran out, for `truncated`.
            in_thinking: whether the prompt ends in `<think>`, for `unfinished_thinking`.
        """
        n = len(items)
        reasons = [None] * n if finish_reasons is None else finish_reasons
        begun = [False] * n if in_thinking is None else in_thinking
        if len(reasons) != n:
            raise ValueError(f"{n} items but {len(reasons)} finish reasons")
        if len(begun) != n:
            raise ValueError(f"{n} items but {len(begun)} values of in_thinking")
        completions = [
            _Completion(reference, text, reason == "length", is_thinking(text, has_begun))
            for (reference, text), reason, has_begun in zip(items, reasons, begun, strict=True)
        ]
        if self.file is None:
            return self._by_math_verify(completions)
        return self._by_file(completions)

    def _by_math_verify(self, completions: Sequence[_Completion]) -> list[Verification]:
        extracted = [self._extract(completion) for completion in completions]
        pairs = dict.fromkeys(entry for entry in extracted if isinstance(entry, tuple))
        with self._pool.lock:
            judged = self._judge(pairs)
        verifications: list[Verification] = []
        for entry in extracted:
            verifications.append(judged[entry] if isinstance(entry, tuple) else entry)
        return verifications

    def _extract(self, completion: _Completion) -> Pair | Verification:
        """Return reference and answer, or the verification if they need not be compared."""
        known = self._without_judging(completion)
        if known is not None:
            return Verification(known, None)
        if completion.is_unfinished:
            return Verification(UNFINISHED_THINKING, None)
        answer = last_boxed(completion.text)
        if answer is None:
            return Verification("truncated" if completion.is_cut else "no_boxed", None)
        reference = str(completion.reference)
        if not (self.limits.allow(answer) and self.limits.allow(reference)):
            return Verification("limit", answer[: self.limits.max_answer_chars])
        return reference.strip(), answer

    def _judge(self, pairs: Iterable[Pair]) -> dict[Pair, Verification]:
        judged: dict[Pair, Verification] = {}
        hard: list[Pair] = []
        for pair in pairs:
            verdict = _compare_integers(*pair)
            if pair in self._cache:
                judged[pair] = self._cache[pair]
            elif verdict is not None:
                judged[pair] = Verification(verdict, pair[1])
            else:
                hard.append(pair)
        if hard:
            for pair, reply in zip(hard, self._pool.replies(hard), strict=True):
                judged[pair] = Verification(cast("Verdict", reply.status), pair[1])
        self._cache.update(judged)
        while len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)
        return judged

    def _by_file(self, completions: Sequence[_Completion]) -> list[Verification]:
        known = [self._without_judging(completion) for completion in completions]
        asked = [
            (completion.reference, completion.text)
            for completion, verdict in zip(completions, known, strict=True)
            if verdict is None
        ]
        with self._pool.lock:
            n = N_FIRST - len(self._first)
            first = self._judge_first(asked[:n])
            replies = iter([*first, *self._pool.replies(asked[n:])])
        verifications = []
        for completion, before in zip(completions, known, strict=True):
            verdict = cast("Verdict", next(replies).status) if before is None else before
            if verdict == "incorrect" and completion.is_unfinished:
                verdict = UNFINISHED_THINKING
            elif verdict == "incorrect" and completion.is_cut:
                verdict = "truncated"
            verifications.append(Verification(verdict, None))
        return verifications

    def _judge_first(self, asked: Sequence[tuple[Reference, str]]) -> list[Reply]:
        """Return the replies; a VerifierError if the verifier has failed on all of the first completions."""
        replies = self._pool.replies(asked)
        self._first += replies
        statuses = Counter(reply.status for reply in self._first)
        if asked and len(self._first) == N_FIRST and statuses.keys() <= set(self._fatal):
            verdicts = ", ".join(f"{n} {status}" for status, n in statuses.items())
            reason = next((f"; {reply.status}: {plain(reply.why)}" for reply in self._first if reply.why), "")
            raise VerifierError(
                f"{self.file}: {JUDGE} failed on all of the first {N_FIRST} completions ({verdicts}){reason}: mend it"
            )
        return replies

    def _without_judging(self, completion: _Completion) -> Verdict | None:
        if completion.reference is None:
            return NO_REFERENCE
        return "limit" if len(completion.text) > self.limits.max_completion_chars else None

    def _log_first(self, call: Arguments, reply: Reply) -> None:
        """Log the first failure of the user's function at once: the next may take minutes."""
        if self.file and reply.why and not self._has_warned:
            self._has_warned = True
            answer = plain(reprlib.repr(call[1]))
            logger.warning(
                "%s: %s: a completion has the verdict %s: %s", self.file, plain(reply.why), reply.status, answer
            )

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
) -> list[Verification]:
    """Judge completions with the shared verifier; see `Verifier.verify`.

    >>> [verification.verdict for verification in verify_batch([("1/2", r"so \\boxed{0.5}"), ("1/2", "so 0.5")])]
    ['correct', 'no_boxed']
    """
    return shared_verifier(workers).verify(items, finish_reasons, in_thinking=in_thinking)


@cache
def shared_verifier(workers: int = 1, *, file: str | None = None) -> Verifier:
    """Return this process's verifier, closed at exit."""
    verifier = Verifier(workers, file=file)
    atexit.register(verifier.close)
    return verifier
