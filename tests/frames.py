"""Small frames for the tests of rollouts and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import strategies as st

import g2d
from g2d.analysis.informativeness import Informativeness, informativeness, success_counts
from g2d.grid.runs import Harvest, Policy
from g2d.problems import Problem
from g2d.rollouts.rollout import Rollout, to_frame
from g2d.verifier import Verdict

PUBLISHED = Path(g2d.__file__).parent / "tables/published"
# Correlations of Table 2's metrics with MATH-500 accuracy, from the printed rows; printed: 0.021, 0.253 and 0.366.
RECOMPUTED_CORRELATIONS = {"pairability": -0.297, "entropy": 0.397, "mid_band": 0.489}


def published(name: str) -> pd.DataFrame:
    """A table of the G2D paper, Qwen2.5-7B-Instruct's rows; the first line of the file has its source."""
    table = pd.read_csv(PUBLISHED / f"g2d_{name}.csv", comment="#", dtype={"levels": str})
    return table[table["model"] == "Qwen2.5-7B-Instruct"] if "model" in table else table


def rollout(
    problem_id: str, sample: int, verdict: Verdict = "correct", level: int | None = 1, **other: object
) -> Rollout:
    values = {
        "cluster": problem_id,
        "prompt_text": f"<{problem_id}>",
        "completion_text": f"{problem_id}, attempt {sample}",
        "token_count": 10,
        "finish_reason": "stop",
        "reward": float(verdict == "correct"),
        "extracted_answer": None,
        "reference_answer": "1",
        "engine": "test",
        "temperature": 1.3,
        "seed": 0,
        "policy_id": "M0",
    }
    return Rollout(problem_id=problem_id, level=level, sample=sample, verdict=verdict, **(values | other))


def spelled(frame: pd.DataFrame) -> pd.DataFrame:
    """The rollouts with tokens: the bytes of their texts."""
    prompts = frame["prompt_text"] if "prompt_text" in frame else frame["problem_id"]
    completions = frame["completion_text"]
    return frame.assign(prompt_ids=ids_of(prompts), completion_ids=ids_of(completions), tokenizer_sha256="bytes")


def ids_of(texts: pd.Series) -> pd.Series:
    return pd.Series([np.array([*text.encode()], dtype=np.int32) for text in texts], texts.index)


def harvest_of(*rows: tuple[str, int, str, float, str]) -> pd.DataFrame:
    """Return rollouts from problem, sample, text, reward and finish reason."""
    frame = pd.DataFrame(rows, columns=["problem_id", "sample", "completion_text", "reward", "finish_reason"])
    frame["cluster"] = frame["problem_id"]
    frame["prompt_text"] = "What is " + frame["problem_id"] + "?"
    return spelled(frame.assign(verdict=frame["reward"].map({1: "correct", 0: "incorrect"})))


def text_of(ids: Iterable[int]) -> str:
    """Return the text of the tokens of `spelled`."""
    return bytes(ids).decode()


def group(problem_id: str, correct: int, n: int = 8, level: int | None = 1) -> list[Rollout]:
    """The rollouts of one prompt, the correct ones first."""
    return [rollout(problem_id, i, "correct" if i < correct else "incorrect", level) for i in range(n)]


def groups(successes: Iterable[tuple[int, int]], level: int | None = 1) -> pd.DataFrame:
    """Rollouts of prompts p0, p1, ... with the given (correct, n)."""
    rows = []
    for i, (correct, n) in enumerate(successes):
        rows += group(f"p{i}", correct, n, level)
    return spelled(to_frame(rows))


def summarised(
    harvests: Mapping[Harvest, pd.DataFrame],
) -> tuple[dict[Harvest, Informativeness], dict[Harvest, pd.DataFrame]]:
    """Return the summary and success counts of every harvest, as `harvest_table` needs them."""
    return (
        {key: informativeness(rollouts) for key, rollouts in harvests.items()},
        {key: success_counts(rollouts) for key, rollouts in harvests.items()},
    )


def problems(n: int) -> list[Problem]:
    return [Problem(f"p{i}", f"Question {i}?", "1", 1, None, "test") for i in range(n)]


def answers(rewards: Mapping[str, Iterable[float]]) -> pd.DataFrame:
    """An evaluation: problem_id -> rewards of its samples."""
    rows = []
    for problem, samples in rewards.items():
        for i, reward in enumerate(samples):
            rows.append(rollout(problem, i, "correct" if reward else "incorrect"))
    return to_frame(rows)


def evaluated(by_policy: Mapping[Policy, np.ndarray], **columns: object) -> dict[tuple[Policy, str], pd.DataFrame]:
    """Evaluations on the benchmark b, from (n_seeds, n_problems) answers by policy; M0 has no seed."""
    evaluations = {}
    for key, by_seed in by_policy.items():
        for seed, right in enumerate(by_seed):
            policy = replace(key, seed=None if key.role == "base" else seed)
            rows = {"problem_id": range(len(right)), "cluster": range(len(right)), "reward": right.astype(float)}
            evaluations[policy, "b"] = pd.DataFrame(rows | columns)
    return evaluations


# (correct, n) of up to 12 prompts, groups of different size
SUCCESSES = st.lists(
    st.integers(1, 10).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1, max_size=12
)


def solved(n: int, of: int = 4) -> pd.DataFrame:
    return answers({f"q{i}": [float(i < n)] for i in range(of)})
