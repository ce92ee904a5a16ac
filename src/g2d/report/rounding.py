"""A caveat for policies whose adapters are so small that bfloat16 rounds some of their effect away."""

from __future__ import annotations

from collections.abc import Mapping

from g2d.experiment.config import Config
from g2d.report.phrases import percent

ENOUGH = 0.9  # of an adapter's effect


def rounding_caveats(effects: Mapping[str, float], model: str, config: Config) -> tuple[str, ...]:
    """A sentence if policies of a model keep less than `ENOUGH` of their adapter's effect where they answer.

    Args:
        effects: `Policy.effect_left` by policy_id.
    """
    own = config.for_model(model)
    if own.engine.name == "vllm":
        kept = own.engine.adapters in ("merge", "merge_bfloat16")
        who, cure = "vLLM adds", "engine.adapters: merge or merge_bfloat16"
    else:
        kept = own.lora.rounding == "once"
        who, cure = "PEFT adds", "lora.rounding: once"
    lost = {name: share for name, share in effects.items() if name.startswith(f"{model}/") and share < ENOUGH}
    if kept or not lost:
        return ()
    least = min(lost, key=lost.__getitem__)
    several = f"{len(lost)} policies have" if len(lost) > 1 else "One policy has"
    return (
        f"{several} adapters of whose effect bfloat16 leaves less than {percent(ENOUGH, 0)}: "
        f"{percent(lost[least], 0)} of {least.removeprefix(f'{model}/')}. {who} an adapter's part to an output that is "
        f"already rounded; {cure} keeps it.",
    )
