"""The catalogue: every way to train a policy. CONTRIBUTING.md says how to add one."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field

from g2d.regimes.distillation import DISTILLATION
from g2d.regimes.dpo import DPO
from g2d.regimes.group_dpo import GROUP_DPO
from g2d.regimes.grpo import GRPO
from g2d.regimes.iterative_dpo import ITERATIVE_DPO
from g2d.regimes.kto import KTO
from g2d.regimes.regime import Entry, Phase, Regime
from g2d.regimes.rft import RFT
from g2d.regimes.semi_online_dpo import SEMI_ONLINE_DPO

REGIMES: dict[str, Regime] = {
    regime.name: regime for regime in (GRPO, SEMI_ONLINE_DPO, DPO, RFT, KTO, GROUP_DPO, DISTILLATION, ITERATIVE_DPO)
}

# Those that `regimes` may have entries of; GRPO and DPO have sections of their own.
ENTRIES = [regime for regime in REGIMES.values() if issubclass(regime.settings, Entry)]


def of_phase(phase: Phase) -> list[Regime]:
    """The regimes of a phase."""
    return [regime for regime in REGIMES.values() if regime.phase == phase]


# The type of an entry: the settings of one of them, told apart by the key `regime`.
AnyEntry: Any = Annotated[reduce(or_, [regime.settings for regime in ENTRIES]), Field(discriminator="regime")]
