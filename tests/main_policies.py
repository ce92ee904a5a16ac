"""Policies of the main grid by the names of their runs, for tables without a configuration."""

from __future__ import annotations

from g2d.grid.runs import M0, Policy, Run

MAIN = {"base": M0, "dpo": Run("dpo", "dpo", "dpo"), "grpo": Run("grpo", "grpo", "grpo")}


def main_policy(model: str, run: str, group_size: int, k: int, seed: int | None) -> Policy:
    return Policy(model, MAIN[run], group_size, k, seed)


BASE = Policy("m")


AUTO_REGIME = "auto/dpo"


def policy(regime: str, k: int, seed: int = 0, group_size: int = 2, model: str = "m") -> Policy:
    """Return the key of a main policy, or of an ablation for other names; `x/grpo` ablates the warm-up."""
    kind = "grpo" if regime.endswith("/grpo") else "dpo"
    arm = MAIN.get(regime, Run(regime, kind, "ablation"))
    if regime == AUTO_REGIME:
        arm = Run(regime, kind, "auto", variant="auto")
    return Policy(model, arm, group_size if k else 0, k, seed)
