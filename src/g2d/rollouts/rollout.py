"""`Rollout`: one completion of one prompt with its verdict; its Parquet format, parts and tokens.

Trainings use the sampled tokens, because chat templates change thinking blocks, and decoding loses special tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from g2d.jobs.files import atomic
from g2d.policies.record import PolicyRecord, tokenizer_sha256
from g2d.verifier import Verdict

if TYPE_CHECKING:
    import pandas as pd

    from g2d.problems import Problem

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion. `reward` is for training; `verdict` is the verifier's."""

    problem_id: str
    cluster: str  # `Problem.cluster`
    level: int | None
    reference_answer: str | None  # None for an open-ended problem
    sample: int  # 0 .. G'-1 within the prompt
    prompt_text: str  # exact text given to the policy, with the chat template
    completion_text: str
    token_count: int
    finish_reason: FinishReason
    verdict: Verdict
    reward: float  # NaN unless `reward_status` is `judged`
    extracted_answer: str | None
    engine: str
    temperature: float  # 0 means greedy
    seed: int
    policy_id: str
    reward_status: str | None = None  # `g2d.rewards.reward.Status`; absent with the default reward
    reward_details: str | None = None  # JSON of `Judgement.details`; absent with the default reward
    reward_is_scalar: bool | None = None  # absent if the reward only gives 0 and 1, by its declaration
    # Absent unless used for training.
    prompt_ids: tuple[int, ...] | None = None
    completion_ids: tuple[int, ...] | None = None  # including the token that ended the completion
    tokenizer_sha256: str | None = None  # see `g2d.policies.record.tokenizer_sha256`


COLUMNS = tuple(field.name for field in fields(Rollout))
OF_REWARDS = ("reward_status", "reward_details", "reward_is_scalar")
IDS = ("prompt_ids", "completion_ids")  # lists of int32
OF_TOKENS = (*IDS, "tokenizer_sha256")
LEFT_OUT = (*OF_REWARDS, *OF_TOKENS)  # omitted from files if empty
TEXTLESS = tuple(name for name in COLUMNS if name not in ("prompt_text", "completion_text", *LEFT_OUT))


def to_frame(rollouts: Sequence[Rollout]) -> pd.DataFrame:
    """Convert to a frame, without empty columns of `LEFT_OUT`; `IDS` are arrays of int32."""
    import numpy as np
    import pandas as pd

    columns: dict[str, list[object]] = {}
    for name in COLUMNS:
        columns[name] = [getattr(rollout, name) for rollout in rollouts]
    for name in IDS:
        arrays: list[object] = []
        for ids in columns[name]:
            arrays.append(None if ids is None else np.array(ids, dtype=np.int32))
        columns[name] = arrays
    return without_unused(pd.DataFrame(columns).astype({"level": "Int64"}))


def without_unused(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns=[name for name in LEFT_OUT if name in frame and frame[name].isna().all()])


def write_rollouts(path: str | Path, rollouts: pd.DataFrame | Sequence[Rollout]) -> None:
    frame = to_frame(rollouts) if isinstance(rollouts, Sequence) else rollouts
    kept = without_unused(frame)
    order = [name for name in COLUMNS if name in kept]
    order += [str(name) for name in kept if name not in COLUMNS]
    with atomic(path) as draft:  # fixed column order: merged parts have the same bytes as an undivided file
        kept[order].to_parquet(draft, index=False)


def read_rollouts(path: str | Path, columns: Sequence[str] = COLUMNS) -> pd.DataFrame:
    """Read columns; only `LEFT_OUT` may be missing. A ValueError names a file that cannot be read."""
    import pandas as pd
    import pyarrow.parquet

    try:
        available = pyarrow.parquet.read_schema(path).names
        for column in columns:
            if column not in (*available, *LEFT_OUT):
                raise ValueError(f"rollouts lack the column {column}")
        return pd.read_parquet(path, columns=[column for column in columns if column in available])
    except Exception as error:  # pyarrow raises several unrelated types for a truncated file
        raise ValueError(
            f"{path}: not a readable file of rollouts ({error}); delete it to have it made again"
        ) from None


def read_own_rollouts(file: str | Path, base: PolicyRecord) -> pd.DataFrame:
    """Read a harvest that was drawn with M0's tokenizer; otherwise raise a ValueError."""
    rollouts = read_rollouts(file)
    if "tokenizer_sha256" not in rollouts:
        raise ValueError(f"{file}: has no sampled tokens: delete it to have it drawn again")
    require_own_tokens(rollouts["tokenizer_sha256"], base, "the rollouts")
    return rollouts


def require_own_tokens(digests: Iterable[str], base: PolicyRecord, what: str) -> None:
    """Raise a ValueError if rollouts or pairs with these digests are not of M0's tokenizer."""
    foreign = set(digests) - {tokenizer_sha256(base.base)}
    if foreign:
        raise ValueError(
            f"{base.base}: not the tokenizer that {what} were drawn with (sha256 {foreign.pop()[:12]}...): use those "
            "of this model"
        )


def part_of(problems: Sequence[Problem], number: int, count: int) -> list[Problem]:
    """Return every `count`-th problem from `number` (1 to `count`)."""
    return list(problems[number - 1 :: count])


def merge_parts(files: Sequence[str | Path], problems: Sequence[Problem]) -> pd.DataFrame:
    """Merge the rollouts of all parts, ordered by problem and sample; a ValueError names a wrong file."""
    import pandas as pd

    frames = []
    for number, file in enumerate(files, 1):
        frame = read_rollouts(file)
        frames.append(frame)
        expected = [problem.problem_id for problem in part_of(problems, number, len(files))]
        if list(frame["problem_id"].unique()) != expected:
            raise ValueError(f"{file}: not the rollouts of part {number} of {len(files)}; delete it to draw it again")
    order = {problem.problem_id: place for place, problem in enumerate(problems)}
    rows = pd.concat(frames, ignore_index=True)
    places = rows["problem_id"].map(order)
    return without_unused(rows.iloc[places.argsort(kind="stable")].reset_index(drop=True))
