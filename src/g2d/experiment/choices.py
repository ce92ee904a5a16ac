"""What is left to a sweep in the plan: which trainings wait for a choice, and what their settings are without it."""

from __future__ import annotations

from typing import Any, Literal

from g2d.experiment.config import Config
from g2d.experiment.sweep import section_name, swept_keys
from g2d.experiment.wildcards import Wildcards, variant_of
from g2d.settings import Section

Kind = Literal["warmup", "dpo", "regimes"]  # the section that a training reads; of `regimes`, its entry


def choice_files(config: Config, kind: Kind, wildcards: Wildcards) -> list[str]:
    """What a sweep has chosen for a training, where something is left to it; a later file fills what the one before
    leaves open. Nothing of what a candidate tries is left to a choice."""
    waits, _ = _swept(config, kind, wildcards)
    return [f"results/{wildcards.model}/sweep/{name}.json" for name in waits]


def left_open(
    config: Config, kind: Kind, wildcards: Wildcards, section: Section, values: dict[str, Any]
) -> dict[str, Any]:
    """Settings of a training without what is left to a sweep, and with what an ablation set itself, also where that is
    neutral and so no parameter of other jobs.

    Args:
        section: what the training reads.
        values: of it, as parameters of the job.
    """
    waits, own = _swept(config, kind, wildcards)
    chosen_later = set().union(*waits.values())
    fixed = {key: value for key, value in values.items() if key not in chosen_later}
    return fixed | {key: getattr(section, key) for key in sorted(own)}


def _swept(config: Config, kind: Kind, wildcards: Wildcards) -> tuple[dict[str, set[str]], set[str]]:
    """The keys that are left to a sweep, by what is swept, and the swept ones that an ablation has set itself."""
    if kind == "regimes":
        keys = swept_keys(config, wildcards.regime)
        return ({wildcards.regime: keys} if keys else {}), set()
    names = [variant_of(wildcards), str(getattr(wildcards, "regime", ""))]
    ablation = next((name for name in names if name in config.ablations), "")
    own = set(getattr(config.ablations[ablation], kind)) if ablation else set()
    if names[1] in config.regimes:  # rounds, which are trained with keys of dpo
        own = set(config.regimes[names[1]].dpo)
    waits, known = {}, set(own)
    for name in (ablation, kind):  # an ablation that is swept itself, then what all of them have from the section
        of_kind = name == kind or (name and section_name(config, name) == kind)
        if of_kind and (keys := swept_keys(config, name) - known):
            waits[name] = keys
            known |= keys
    return waits, own & swept_keys(config, kind)
