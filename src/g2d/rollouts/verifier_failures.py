"""Failures of the user's verifier, and their reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from g2d.plain import plain
from g2d.problems import Problem
from g2d.verifier.pool import Limits, Pool
from g2d.verifier.user_code import JUDGE, judge_of
from g2d.verifier.verifier import FAILURES

if TYPE_CHECKING:
    import pandas as pd


def require_judged(rollouts: pd.DataFrame, problems: Iterable[Problem], file: str | None) -> None:
    """Raise a RuntimeError with the reason if the verifier in a file failed on all completions."""
    if file is None or not rollouts["verdict"].isin(FAILURES).all():
        return
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in Counter(rollouts["verdict"]).items())
    why = first_failure(rollouts, problems, file)
    raise RuntimeError(f"{file}: {JUDGE} failed on all {len(rollouts)} completions ({verdicts}); {why}: mend it")


def first_failure(rollouts: pd.DataFrame, problems: Iterable[Problem], file: str | None) -> str | None:
    """Return why the verifier in a file failed on the first of its failures, by judging it again; None without any."""
    failed = rollouts[rollouts["verdict"].isin(FAILURES)]
    if file is None or failed.empty:
        return None
    first = failed.iloc[0]
    (problem,) = (problem for problem in problems if problem.problem_id == first["problem_id"])
    pool = Pool(1, Limits(), judge_of(file))
    try:
        (reply,) = pool.replies([(problem.as_judged, first["completion_text"])])
    finally:
        pool.close()
    return plain(f"{first['verdict']}: {reply.why}" if reply.why else str(first["verdict"]))
