"""Online trainings as a whole: every K of one is a stop on the same way."""

from __future__ import annotations

from dataclasses import replace

from g2d.experiment.config import Config
from g2d.experiment.keys import PolicyKey
from g2d.experiment.trained import trainings
from g2d.regimes.catalogue import REGIMES


def trajectories(config: Config) -> dict[PolicyKey, list[PolicyKey]]:
    """The stops of every online training, K ascending, by the last of them: its log has all steps up to its K.

    Where every K is a training of its own (`warmup.schedule: per_k`) the last one stands alone.
    """
    found: dict[PolicyKey, list[PolicyKey]] = {}
    for key in trainings(config):
        if REGIMES[key.kind].phase == "online":
            found.setdefault(replace(key, k=0), []).append(key)
    ways = [sorted(keys, key=lambda key: key.k) for keys in found.values()]
    return {keys[-1]: keys if _is_chain(config, keys[-1]) else keys[-1:] for keys in ways}


def _is_chain(config: Config, key: PolicyKey) -> bool:
    variant = key.regime.rpartition("/")[0]
    return key.kind != "grpo" or config.for_model(key.model).warmup_of(variant).schedule == "chain"
