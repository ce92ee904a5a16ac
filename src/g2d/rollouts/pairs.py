"""Positive and negative rollouts, and preference pairs from a harvest (paper, section 2.1, stage 2).

A binary reward is the label. If the reward is scalar, a prompt's best rollouts are positive and its worst are negative
(arXiv 2506.21495, section 4.2). Others, and rollouts without a reward, are neither.

A pair has TRL's conversational preference format.

    y+ ~ U({y_i : r_i = 1}),   y- ~ U({y_i : r_i = 0})

Random numbers are hashes of seed and problem_id, so a prompt's pair does not depend on other prompts or library
versions.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from g2d.jobs.files import parse_json, read_lines
from g2d.problems import Problem
from g2d.problems.prompts import Messages, Prompt, conversation
from g2d.verifier.verifier import NO_REFERENCE

if TYPE_CHECKING:
    import pandas as pd


def is_binary(rollouts: pd.DataFrame) -> bool:
    """Return whether their reward only gives 0 and 1. A reward that is declared as scalar does not."""
    if "reward_is_scalar" in rollouts and rollouts["reward_is_scalar"].eq(True).any():
        return False
    return bool(rollouts["reward"].dropna().isin((0, 1)).all())


def is_open_ended(rollouts: pd.DataFrame) -> pd.Series:
    return rollouts["verdict"] == NO_REFERENCE


def labels(rollouts: pd.DataFrame, min_reward_margin: float | None = None) -> pd.Series:
    """Return True for positive, False for negative and NA for other rollouts, with their (unique) index.

    `min_reward_margin` is the smallest difference between a prompt's best and worst scalar reward; None: above 0.
    """
    open_ended = is_open_ended(rollouts)
    if open_ended.any() and not open_ended.all():  # a mixed batch: label each kind by its reward
        verifiable = labels(rollouts[~open_ended], min_reward_margin)
        return labels(rollouts[open_ended], min_reward_margin).reindex(rollouts.index).where(open_ended, verifiable)
    reward = rollouts["reward"]
    if is_binary(rollouts):
        return (reward == 1).astype("boolean").mask(reward.isna())
    by_prompt = reward.groupby(rollouts["problem_id"])
    best = by_prompt.transform("max")
    worst = by_prompt.transform("min")
    apart = (best > worst) & (best - worst >= (min_reward_margin or 0))
    return (reward == best).astype("boolean").where(apart & ((reward == best) | (reward == worst)))


def lengths(rollouts: pd.DataFrame) -> tuple[float | None, float | None]:
    """Return the mean length in tokens of positive and of negative rollouts; None without any.

    A mixed batch uses only its open-ended prompts.
    """
    open_ended = is_open_ended(rollouts)
    if open_ended.any():
        rollouts = rollouts[open_ended]
    tokens = rollouts["token_count"]
    label = labels(rollouts)
    return _mean(tokens[label.eq(True).fillna(False)]), _mean(tokens[label.eq(False).fillna(False)])


def _mean(tokens: pd.Series) -> float | None:
    return float(tokens.mean()) if len(tokens) else None


class Pair(TypedDict):
    prompt: Messages
    chosen: Messages
    rejected: Messages
    problem_id: str
    p_hat: float  # share of rollouts that may be chosen, 0 < p_hat < 1
    chosen_sample: int
    rejected_sample: int
    prompt_ids: list[int]  # sampled tokens
    chosen_ids: list[int]
    rejected_ids: list[int]
    tokenizer_sha256: str  # as in `Rollout`


PAIR_KEYS = Pair.__required_keys__


def build_pairs(
    rollouts: pd.DataFrame,
    problems: Sequence[Problem],
    prompt: Prompt,
    seed: int,
    min_reward_margin: float | None = None,
) -> list[Pair]:
    """Sample the pairs of every pairable prompt; a ValueError if a rollout's problem is missing.

    Args:
        rollouts: in any order, with tokens.
        problems: in the order of the pairs.
        min_reward_margin: as in the section `pairs`.
    """
    require_known_problems(rollouts, problems)
    drawn: dict[str, dict[int, Any]] = defaultdict(dict)  # by problem_id and sample
    counts = rollouts.dropna(subset="reward").groupby("problem_id").size()
    labelled = rollouts.assign(label=labels(rollouts, min_reward_margin)).dropna(subset="label").sort_values("sample")
    for row in labelled.to_dict("records"):
        drawn[str(row["problem_id"])][int(row["sample"])] = row
    pairs: list[Pair] = []
    for problem in problems:
        name = problem.problem_id
        by_sample = drawn[name]
        right: list[int] = []
        wrong: list[int] = []
        for sample, row in by_sample.items():
            if row["label"]:
                right.append(sample)
            else:
                wrong.append(sample)
        if not right or not wrong:
            continue
        chosen_sample, rejected_sample = one_pair(name, right, wrong, seed)
        chosen = by_sample[chosen_sample]
        rejected = by_sample[rejected_sample]
        pairs.append(
            Pair(
                prompt=conversation(problem, prompt),
                chosen=[{"role": "assistant", "content": chosen["completion_text"]}],
                rejected=[{"role": "assistant", "content": rejected["completion_text"]}],
                problem_id=name,
                p_hat=len(right) / int(counts[name]),
                chosen_sample=chosen_sample,
                rejected_sample=rejected_sample,
                prompt_ids=chosen["prompt_ids"].tolist(),
                chosen_ids=chosen["completion_ids"].tolist(),
                rejected_ids=rejected["completion_ids"].tolist(),
                tokenizer_sha256=chosen["tokenizer_sha256"],
            )
        )
    return pairs


def why_no_pairs(rollouts: pd.DataFrame) -> str:
    """Return why rollouts have no pairs, with keys that may change it."""
    n_prompts = rollouts["problem_id"].nunique()
    if "reward_status" in rollouts and rollouts["reward_status"].notna().any():
        statuses = ", ".join(f"{n} {status}" for status, n in rollouts["reward_status"].value_counts().items())
        return (
            f"no prompt has rollouts that its reward tells apart ({n_prompts} prompts; {statuses}; mean reward "
            f"{rollouts['reward'].mean():.3g}): DPO leaves its start unchanged. Another reward, a smaller margin or a "
            "higher harvest.temperature may give pairs"
        )
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in rollouts["verdict"].value_counts().items())
    return (
        f"no prompt has both a correct and a wrong rollout ({n_prompts} prompts; verdicts: {verdicts or 'none'}): DPO "
        "leaves its start unchanged. Other calibration.levels, a higher harvest.temperature or a larger "
        "harvest.max_completion_length may give pairs"
    )


def require_known_problems(rollouts: pd.DataFrame, problems: Sequence[Problem]) -> None:
    """Raise a ValueError if a rollout belongs to another problem."""
    unknown = sorted(set(rollouts["problem_id"]) - {problem.problem_id for problem in problems})
    if unknown:
        raise ValueError(f"rollouts of {unknown[0]!r}, which is not among the {len(problems)} problems given")


def one_pair(name: str, right: Sequence[int], wrong: Sequence[int], seed: int) -> tuple[int, int]:
    chosen = right[uniform(seed, name, "chosen") % len(right)]
    return chosen, wrong[uniform(seed, name, "rejected") % len(wrong)]


def all_pairs(name: str, right: Sequence[int], wrong: Sequence[int], seed: int) -> list[tuple[int, int]]:
    """Return every combination: `one_pair` first, then the others in random order."""
    first = one_pair(name, right, wrong, seed)
    others = [pair for pair in itertools.product(right, wrong) if pair != first]
    return [first, *sorted(others, key=lambda pair: uniform(seed, name, f"{pair[0]}/{pair[1]}"))]


def truncated_sides(pairs: Sequence[Pair], rollouts: pd.DataFrame) -> tuple[int, int]:
    cut = rollouts[rollouts["finish_reason"] == "length"]
    truncated = set(zip(cut["problem_id"], cut["sample"], strict=True))
    return (
        sum((pair["problem_id"], pair["chosen_sample"]) in truncated for pair in pairs),
        sum((pair["problem_id"], pair["rejected_sample"]) in truncated for pair in pairs),
    )


def subsample(pairs: Sequence[Pair], n: int, seed: int) -> list[Pair]:
    """Return a uniform subset of n pairs in their order: the N-matched control of Table 3.

    Subsets with the same seed are nested.
    """
    ranked = sorted(range(len(pairs)), key=lambda i: uniform(seed, pairs[i]["problem_id"], "subsample"))
    return [pairs[i] for i in sorted(ranked[:n])]


def read_pairs(path: str | Path) -> list[Pair]:
    """Read pairs from JSONL; a ValueError names file and line."""
    pairs: list[Pair] = []
    for number, line in read_lines(path):
        try:
            pair = parse_json(line)
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number}: not JSON: {error}; delete the file to have it made again"
            ) from None
        if not isinstance(pair, dict) or set(pair) != PAIR_KEYS:
            raise ValueError(
                f"{path}, line {number}: a pair has exactly {', '.join(sorted(PAIR_KEYS))}; delete the file to have it "
                "made again"
            )
        pairs.append(pair)  # type: ignore[arg-type]
    return pairs


def uniform(seed: int, problem_id: str, purpose: str) -> int:
    """Return a uniform 256-bit integer; modulo n, its bias is below n / 2^256."""
    return int.from_bytes(hashlib.sha256(f"{seed}\0{purpose}\0{problem_id}".encode()).digest())
