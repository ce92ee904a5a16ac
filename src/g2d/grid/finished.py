"""The checkpoint that a training continues, or that it continued if it has finished."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from g2d.grid.grid import Grid
from g2d.grid.policy import Policy
from g2d.policies.record import read_policy


def continued_by(grid: Grid, policy: Policy) -> Policy | None:
    """Return the policy whose checkpoint a training continues: the recorded one if it has finished with these settings,
    so that another K makes nothing stale.

    Raises:
        ValueError: the record of a finished policy cannot be read.
    """
    planned = grid.reads(policy).continues
    record = Path("results", policy.folder, "policy.json")
    if not record.exists() or policy.run.stops:
        return planned
    finished = read_policy(record)
    if finished.settings != grid.fingerprints[policy.model].training(policy):
        return planned
    return None if finished.continued_from is None else replace(policy, k=finished.continued_from)
