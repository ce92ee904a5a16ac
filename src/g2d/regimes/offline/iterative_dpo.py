"""Iterative DPO (Pang et al. 2024, arXiv 2404.19733). The previous round's policy is the start and the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import field_validator

from g2d.regimes.offline.dpo import Dpo, read_dpo, train_dpo
from g2d.regimes.regime import Entry, Phase, Regime, Series
from g2d.settings import MistakeInKeyError, key, repeated
from g2d.settings.mistakes import changed

OF_A_ROUND = ("start", "match_pairs_to", "pairs_per_prompt")  # fixed by the rounds


class IterativeDpo(Entry):
    """Rounds of harvest and DPO, each from the policy of the round before."""

    phase: ClassVar[Phase] = "rounds"
    regime: Literal["iterative_dpo"] = key(..., "Harvest and train on pairs in rounds.")
    rounds: list[int] = key(..., "Numbers of rounds to evaluate, as K.", min_length=1)
    dpo: dict[str, Any] = key({}, "Keys of the dpo section to change.")

    @field_validator("rounds")
    @classmethod
    def _ascending(cls, rounds: list[int]) -> list[int]:
        if repeated(rounds) or min(rounds) < 1:
            raise ValueError(f"list every round once, the first is 1: {rounds}")
        return sorted(rounds)

    @field_validator("dpo")
    @classmethod
    def _left_to_it(cls, dpo: dict[str, Any]) -> dict[str, Any]:
        for name in OF_A_ROUND:
            if name in dpo:
                raise MistakeInKeyError(name, "a round starts at the one before and takes one pair a prompt: drop it")
        return dpo

    @property
    def steps(self) -> list[int]:
        return self.rounds

    def dpo_of(self, common: Dpo, where: str = "dpo") -> Dpo:
        settings = changed(where, common, self.dpo)
        return settings.model_copy(update={name: Dpo.model_fields[name].default for name in OF_A_ROUND})

    def series(self, name: str, common: Dpo) -> Iterator[Series]:
        yield name, self.dpo_of(common), tuple((0, k) for k in self.rounds), self.dpo


ITERATIVE_DPO = Regime(
    name="iterative_dpo",
    version=3,
    phase="rounds",
    consumes="pairs",
    settings=IterativeDpo,
    section="dpo",
    read=read_dpo,
    train=train_dpo,
    label="DPO in rounds",
    card="{k} rounds of harvest and DPO ({regime}), each from the policy of the round before",
    message="Train {wildcards.model} to round {wildcards.k} of DPO ({wildcards.regime}), seed {wildcards.seed}",
    unit="rounds of harvest and DPO",
)
