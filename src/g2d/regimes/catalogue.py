"""All ways to train a policy. CONTRIBUTING.md explains how to add one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field

from g2d.regimes.common.regime import Entry, Phase, Regime
from g2d.regimes.grpo.train import GRPO
from g2d.regimes.offline.dpo import DPO
from g2d.regimes.offline.rft import RFT
from g2d.regimes.on_policy.semi_online_dpo import SEMI_ONLINE_DPO

ALL = (
    GRPO,
    SEMI_ONLINE_DPO,
    DPO,
    RFT,
)
REGIMES: dict[str, Regime] = {regime.name: regime for regime in ALL}

# GRPO and DPO have separate sections.
ENTRIES = [regime for regime in REGIMES.values() if issubclass(regime.settings, Entry)]


def of_phase(phase: Phase) -> list[Regime]:
    return [regime for regime in REGIMES.values() if regime.phase == phase]


def regime_of(settings: Mapping[str, object]) -> Regime:
    """Return the regime whose keys are in the settings of a training."""
    return next(regime for regime in REGIMES.values() if regime.settings_name in settings)


AnyEntry: Any = Annotated[reduce(or_, [regime.settings for regime in ENTRIES]), Field(discriminator="regime")]
