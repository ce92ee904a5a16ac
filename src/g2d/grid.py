"""The grid: which policies a configuration asks for, where each one lives, and what each is made from.

Pure functions of the configuration; the Snakefile turns them into jobs and the tables into rows, so both always
agree on what exists. A new way to train a policy (a *regime*) adds its policies here and one rule that makes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from g2d.config import Config, RecordedModel


@dataclass(frozen=True, order=True)
class PolicyKey:
    """Names one policy. `group_size` is 0 and `seed` None where they do not apply (no GRPO; M0 itself)."""

    model: str
    regime: str  # base | grpo | dpo | the name of an ablation
    group_size: int
    k: int  # warm-up steps behind the policy
    seed: int | None

    @property
    def folder(self) -> str:
        """Where the policy lives below the results folder."""
        if self.regime == "base":
            return f"{self.model}/base"
        return f"{self.model}/seed{self.seed}/{self.regime}/g{self.group_size}/k{self.k}"

    @property
    def label(self) -> str:
        """The paper's name for it (Table 1): DPO on the harvest of M0 is `dpo`, on that of pi_K `g2d`."""
        return "g2d" if self.regime == "dpo" and self.k > 0 else self.regime


@dataclass(frozen=True, order=True)
class HarvestKey:
    """Names one harvest: the rollouts of pi_K, reached with group size G from one seed."""

    model: str
    group_size: int
    k: int
    seed: int

    @property
    def folder(self) -> str:
        """Where the harvest lives below the results folder."""
        return f"{self.model}/seed{self.seed}/harvest/g{self.group_size}/k{self.k}"


def is_recorded(config: Config, model: str) -> bool:
    """Whether a model is a file of recorded completions, which can be analysed but not trained."""
    return isinstance(config.models[model], RecordedModel)


def warmup_points(config: Config, model: str) -> list[tuple[int, int]]:
    """(G, K) of every harvested policy of a model; K=0 is M0 and has no group size, hence G=0."""
    if is_recorded(config, model):
        return [(0, 0)]
    warmup = config.for_model(model).warmup
    return [(0, 0)] * (0 in warmup.steps) + [(g, k) for g in warmup.group_sizes for k in warmup.steps if k > 0]


def grpo_points(config: Config, model: str) -> list[tuple[int, int]]:
    """(G, K) of the GRPO policies reported as baselines: every baseline group size at the largest K."""
    resolved = config.for_model(model)
    last = max(resolved.warmup.steps)
    if is_recorded(config, model) or last == 0:
        return []
    return [(g, last) for g in resolved.baselines.grpo_group_sizes]


def chain_predecessor(config: Config, model: str, group_size: int, k: int) -> int | None:
    """The largest smaller K whose checkpoint a chain continues from; None where it starts from M0."""
    warmup = config.for_model(model).warmup
    if warmup.schedule == "per_k" or group_size not in warmup.group_sizes:
        return None
    return max((step for step in warmup.steps if 0 < step < k), default=None)


def harvests(config: Config) -> list[HarvestKey]:
    """Every harvest of the grid."""
    return [
        HarvestKey(model, g, k, seed)
        for model in config.models
        for seed in config.seeds
        for g, k in warmup_points(config, model)
    ]


def ablation_points(config: Config, model: str, name: str) -> list[tuple[int, int]]:
    """(G, K) at which an ablation is trained: its K at the first harvested group size."""
    group_size = config.for_model(model).warmup.group_sizes[0]
    return [(group_size if k else 0, k) for k in config.ablations[name].steps]


def policies(config: Config) -> list[PolicyKey]:
    """Every policy that is evaluated, M0 first, then the paper's order (DPO and G2D by K, GRPO, ablations)."""
    found = []
    for model in config.models:
        if is_recorded(config, model):
            continue
        found.append(PolicyKey(model, "base", 0, 0, None))
        points = [("dpo", g, k) for g, k in warmup_points(config, model)]
        points += [("grpo", g, k) for g, k in grpo_points(config, model)]
        points += [(name, g, k) for name in config.ablations for g, k in ablation_points(config, model, name)]
        found += [PolicyKey(model, regime, g, k, seed) for regime, g, k in points for seed in config.seeds]
    return found
