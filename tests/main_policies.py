"""Policies of the main grid by the names of their runs, for tables without a configuration."""

from __future__ import annotations

from g2d.grid.policy import Policy
from g2d.grid.run import M0, Run

MAIN = {"base": M0, "dpo": Run("dpo", "dpo", "dpo"), "grpo": Run("grpo", "grpo", "grpo")}


def main_policy(model: str, run: str, group_size: int, k: int, seed: int | None) -> Policy:
    return Policy(model, MAIN[run], group_size, k, seed)
