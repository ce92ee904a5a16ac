"""Differences between a recorded output of a job and the same output computed again.

Contents are compared, because a Parquet file names the library that wrote it; durations are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from g2d.analysis.comparisons import sign_flip_p
from g2d.jobs.cost import Cost
from g2d.jobs.files import read_json, sha256
from g2d.plain import plain
from g2d.tables.runs import differing

PROMISED = {"job", "stage", "devices", "tokens_generated"}  # costs that do not vary
NOT_COMPARED = {*Cost.__dataclass_fields__} - PROMISED | {"step_time", "g2d", "commit", "dirty"}
STATE = "checkpoint"  # folder of a trainer: its JSON files have durations, and lists in any order
ATTEMPTS = "attempts.csv"  # its rows depend on which jobs ran at the same time
SIGNIFICANT = 0.001  # paired test of the answers
LEAST_COSINE = 0.9  # between the weights that a training changed
MAX_VALUE = 40  # characters


def differences(recorded: Path, again: Path) -> list[str]:
    """Return a phrase per column, key or tensor that differs."""
    is_state = recorded.parent.name == STATE and recorded.suffix == ".json"
    if not (recorded.is_file() and again.is_file()):
        return ["missing" if again.is_file() else "not made again"]
    if recorded.name == ATTEMPTS or is_state or sha256(recorded) == sha256(again):
        return []
    try:
        if recorded.suffix == ".json":
            values_of = differing(read_json(recorded), read_json(again))
            keys = {key: map(_short, values_of[key]) for key in values_of if key.split(".")[-1] not in NOT_COMPARED}
            return [f"{key}: {' recorded, '.join(values)} computed" for key, values in keys.items()]
        before, after = _parts(recorded), _parts(again)
    except (OSError, ValueError) as error:
        return [f"cannot be read ({_short(error)})"]
    if only := sorted(before.keys() ^ after.keys()):
        return [f"{', '.join(only)}: only in one of both"]
    return [f"{name}: {how}" for name in before if (how := _difference(before[name], after[name]))]


def _parts(file: Path) -> dict[str, Sequence[Any]]:
    """Return the columns or tensors of a file; a file of another kind is one part."""
    if file.suffix == ".safetensors":
        return _tensors(file)
    if file.suffix == ".parquet":
        frame = pd.read_parquet(file)
    elif file.suffix == ".csv":
        frame = pd.read_csv(file, dtype=str, na_filter=False)
    elif file.suffix == ".jsonl":
        frame = pd.read_json(file, lines=True, dtype=False, convert_dates=False)
    else:
        return {"bytes": file.read_bytes()}
    return {str(name): list(values) for name, values in frame.items() if name not in NOT_COMPARED}


def _tensors(file: Path) -> dict[str, Any]:
    from safetensors.torch import load_file  # imports torch

    return {name: values.double().numpy().ravel() for name, values in sorted(load_file(file).items())}


def _difference(before: Sequence[Any], after: Sequence[Any]) -> str:
    if len(before) != len(after):
        return f"{len(before)} recorded, {len(after)} computed"
    if isinstance(before, np.ndarray):
        pairs = list(zip(before[before != after], np.asarray(after)[before != after], strict=True))
    else:
        pairs = [(old, new) for old, new in zip(before, after, strict=True) if repr(old) != repr(new)]
    try:
        gap = f", by at most {max(abs(float(old) - float(new)) for old, new in pairs):.3g}" if pairs else ""
    except (TypeError, ValueError):  # not numbers
        gap = ""
    return f"{len(pairs)} of {len(before)} differ{gap}" if pairs else ""


def _short(value: object) -> str:
    text = plain(str(value))
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."


def beyond_bounds(recorded: Path, again: Path) -> str:
    """Return the difference that other batches on a GPU do not explain, "" for none: answers right more or less often,
    or weights changed in another direction."""
    if not (recorded.is_file() and again.is_file()):
        return "missing"
    if recorded.suffix == ".parquet":
        frames = [pd.read_parquet(file, columns=["problem_id", "verdict"]) for file in (recorded, again)]
        right = [frame.verdict.eq("correct").astype(int).groupby(frame.problem_id).sum() for frame in frames]
        before, after = right[0].align(right[1], fill_value=0)
        p = sign_flip_p((after - before).to_numpy().astype(int))
        return f"{before.sum()} right answers recorded, {after.sum()} computed, p = {p:.2g}" if p < SIGNIFICANT else ""
    if recorded.suffix != ".safetensors":
        return ""
    before, after = (np.concatenate(list(_trained(_tensors(file)).values())) for file in (recorded, again))
    if len(before) != len(after):
        return "weights of another shape"
    cosine = before @ after / ((np.linalg.norm(before) * np.linalg.norm(after)) or 1.0)
    return f"cosine of the weights {cosine:.3f}" if cosine < LEAST_COSINE else ""


def _trained(tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the matrices of an adapter that a training starts at 0, or all tensors of a model."""
    return {name: values for name, values in tensors.items() if "lora_B" in name} or tensors
