"""Changed keys of a configuration, and the finished jobs that they replace."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from g2d.jobs.cost import read_cost
from g2d.plain import counted, plain

LONGEST = 40  # characters of a value
ABSENT = "default"  # params leave out a key with its neutral value


@dataclass(frozen=True)
class Rerun:
    """A finished job that runs again.

    Args:
        old, new: params that only the finished job, or only the planned one, has; written by `repr`, without names.
        costs: its files with the cost of the job.
    """

    rule: str
    old: Collection[str]
    new: Collection[str]
    costs: Sequence[str]


def report(reruns: Sequence[Rerun]) -> str:
    """Return a line per change and what it replaces; "" if no params changed."""
    by_change: Counter[tuple[str, str]] = Counter()
    n_changed = 0
    for rerun in reruns:
        changes = changed_keys(rerun.old, rerun.new)
        n_changed += bool(changes)
        for change in changes:
            by_change[change, rerun.rule] += 1
    if not by_change:
        return ""
    lines = [f"{change}: {counted(n, 'finished job', 'run')} again ({rule})" for (change, rule), n in by_change.items()]
    also = len(reruns) - n_changed
    if also:
        lines.append(f"{counted(also, 'more finished job', 'run')} again")
    hours = sum(_device_hours(file) for rerun in reruns for file in rerun.costs)
    return "\n".join([*lines, f"What they replace took {hours:.2g} device-hours"])


def changed_keys(old: Collection[str], new: Collection[str]) -> list[str]:
    """Return changes such as `dpo.beta 0.1 -> 0.3`; "version 1 -> 2" is another version of the stage."""
    before, after = _flat(old), _flat(new)
    changes = []
    for name in {**before, **after}:
        if before.get(name, ABSENT) != after.get(name, ABSENT):
            changes.append(f"{name} {before.get(name, ABSENT)} -> {after.get(name, ABSENT)}")
    return changes


def _flat(params: Collection[str]) -> dict[str, str]:
    """Return values by key, with dots. A param that is no mapping is the version, or the engine."""
    values: dict[str, str] = {}
    for text in params:
        try:
            param = ast.literal_eval(text)
        except (ValueError, SyntaxError):  # `nan`, or a type without a literal
            continue
        if isinstance(param, Mapping):
            _add(values, param, "")
        elif isinstance(param, int):
            values["version"] = str(param)
        else:
            values["engine.name"] = _short(param)
    return values


def _add(values: dict[str, str], section: Mapping[str, object], prefix: str) -> None:
    for name, value in section.items():
        if isinstance(value, Mapping) and value:
            _add(values, value, f"{prefix}{name}.")
        else:
            values[f"{prefix}{name}"] = _short(value)


def _short(value: object) -> str:
    text = plain("null" if value is None else str(value))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _device_hours(file: str) -> float:
    try:
        return read_cost(file).own.device_s / 3600
    except (OSError, ValueError):
        return 0.0
