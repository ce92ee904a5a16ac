"""Warn of learning rates far outside the published range."""

from __future__ import annotations

from dataclasses import dataclass

from g2d.experiment.arms import by_section, expanded
from g2d.experiment.sections import Config
from g2d.experiment.sweep import with_candidates

FAR = 100  # times below the lowest or above the highest rate in use


@dataclass(frozen=True)
class Rates:
    lowest: float
    highest: float
    source: str


ONLINE = Rates(1e-6, 1e-5, "arXiv 2506.21495; G2D with an adapter")
PREFERENCES = Rates(5e-7, 5e-5, "TRL's online DPO; G2D with an adapter")
RATES = {
    "grpo": ONLINE,
    "staged_grpo": ONLINE,
    "semi_online_dpo": Rates(5e-7, 1e-5, "TRL's online DPO; config/bridging.yaml with an adapter"),
    "dpo": PREFERENCES,
    "iterative_dpo": PREFERENCES,
    "group_dpo": PREFERENCES,
    "kto": Rates(5e-7, 5e-5, "TRL's example of KTO; DPO of G2D with an adapter"),
    "rft": Rates(1e-6, 2e-5, "TRL's other trainers; its SFT"),
    "distillation": Rates(1e-7, 2e-5, "TRL's GOLD; its SFT"),
}
SMALL = Rates(1e-4, 2e-3, "config/config.yaml and its overlays, for models of this size")


def unusual_rates(config: Config) -> list[str]:
    sentences: dict[tuple[float, Rates], str] = {}  # one for each rate, at its first key
    whole = with_candidates(config)
    for model in config.models:
        small = config.models[model].source in ("embedded", "scratch")
        for section, arms in by_section(expanded(whole.for_model(model))).items():
            rates, rate = SMALL if small else RATES.get(arms[0].regime), arms[0].settings.learning_rate
            if rates is None or rates.lowest / FAR <= rate <= rates.highest * FAR:
                continue
            swept, is_candidate, _ = arms[0].owner.partition("@")
            where = f"sweep.regimes.{swept}" if is_candidate else section
            side = "above" if rate > rates.highest else "below"
            sentences.setdefault(
                (rate, rates),
                f"{where}.learning_rate={rate:g} ({model}) is more than {FAR} times {side} the rates in use, "
                f"{rates.lowest:g} to {rates.highest:g} ({rates.source})",
            )
    return list(sentences.values())
