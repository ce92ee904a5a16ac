"""Controls: policies that were trained on another reward than the truth, and the one that each is a control of: the
policy that differs from it in nothing else."""

from __future__ import annotations

from typing import Any

from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.regimes.asked import AskedPrompts


def controls(config: Config) -> dict[str, str]:
    """By the name of a policy that was trained on another reward, that of the policy it is a control of."""
    found: dict[str, str] = {}
    for name in [*config.ablations, *grid.online_entries(config)]:
        if grid.other_reward(config, name):
            twin = _twin(config, name)
            found |= {own: twin[kind] for kind, own in _policies_of(config, name).items() if kind in twin}
    return found


def learnt_from(config: Config, key: PolicyKey) -> str:
    """The rollouts that a policy of an ablation or an online entry was trained on: its own, or those of its harvest."""
    if key.trained_online:
        return f"results/{key.folder}/rollouts.parquet"
    variant = grid.online_phases(config)[key.regime]
    return f"results/{key.model}/seed{key.seed}/{variant}/harvest/g{key.group_size}/k{key.k}/rollouts.parquet"


def harvests_of_controls(config: Config) -> list[HarvestKey]:
    """The harvests that another reward than the truth has judged and DPO is trained on, of the first seed."""
    behind = grid.online_phases(config)
    return [
        HarvestKey(key.model, key.group_size, key.k, key.seed, behind[key.regime])
        for key in grid.policies(config)
        if key.reward and key.kind == "dpo" and key.seed == config.seeds[0]
    ]


def _policies_of(config: Config, name: str) -> dict[str, str]:
    """By kind, the names of the policies of an ablation or an online entry."""
    if name in config.ablations:
        return {kind: regime for regime, kind in grid.ablation_regimes(config, name).items()}
    return {kind: name if kind == "online" else f"{name}/dpo" for kind in config.regimes[name].policies}


def _twin(config: Config, name: str) -> dict[str, str]:
    """The same of whatever differs in the reward alone: another ablation or entry, or the main grid."""
    kinds: dict[str, Any] = config.ablations if name in config.ablations else grid.online_entries(config)
    own = _but_for_the_reward(kinds[name])
    alike = [
        other for other in kinds if not grid.other_reward(config, other) and _but_for_the_reward(kinds[other]) == own
    ]
    found = _policies_of(config, alike[0]) if alike else {}
    if name in config.ablations and not config.ablations[name].warmup and not config.ablations[name].asks_open_ended:
        found |= {"grpo": "grpo"} if config.ablations[name].dpo else {"grpo": "grpo", "dpo": "dpo"}
    return found


def _but_for_the_reward(entry: Any) -> Any:
    """What else there is to an ablation or an online entry, whatever its K."""
    if hasattr(entry, "regime"):
        return entry.regime, entry.select, entry.trajectory()
    return entry.warmup, entry.dpo, entry.params(only={*AskedPrompts.model_fields, "select"})
