"""Token budgets as large as the model's window, which leave no room for a prompt: refused when a run is planned.

The length of the prompts is known to the jobs, which have the tokenizer (`g2d.rollouts.engine.require_room`).
"""

from __future__ import annotations

from collections.abc import Iterator

from g2d.experiment.config import Config
from g2d.jobs.files import read_json
from g2d.policies.config_json import config_json
from g2d.policies.settings import CONTEXT_LENGTH, EmbeddedModel, ModelSource, ScratchModel
from g2d.settings import ConfigError


def require_windows(config: Config) -> None:
    """Check that every completion that may be drawn leaves room for a prompt.

    Raises:
        ConfigError: one line per budget that does not.
    """
    found = []
    for model, source in config.models.items():
        limit = window_of(source)
        found += [
            f"{section}.max_completion_length={budget} leaves no room for a prompt in the {limit} tokens that {model} "
            "can hold: lower it"
            for section, budget in budgets(config.for_model(model))
            if limit is not None and budget >= limit
        ]
    if found:
        raise ConfigError("\n".join(found))


def window_of(source: ModelSource) -> int | None:
    """Tokens that a prompt and its completion may have together; None where that is not known on this machine."""
    if isinstance(source, (ScratchModel, EmbeddedModel)):
        return CONTEXT_LENGTH
    if (file := config_json(source)) is None:
        return None
    try:
        limit = read_json(file).get("max_position_embeddings")
    except (OSError, ValueError):  # whoever loads the model says so
        return None
    return limit if isinstance(limit, int) else None


def budgets(config: Config) -> Iterator[tuple[str, int]]:
    """Section and tokens of every kind of completion that a grid draws.

    Args:
        config: as the model sees it.
    """
    always = {name: getattr(config, name) for name in ("calibration", "harvest", "evaluation")}
    sometimes = {name: getattr(config, name) for name in ("contamination", "open_ended")}
    trained = {"warmup": config.warmup} if any(config.warmup.steps) or config.warmup.auto else {}
    trained |= {
        f"ablations.{name}.warmup": config.warmup_of(name)
        for name, ablation in config.ablations.items()
        if ablation.has_warmup and any(config.ablation_steps(name))
    }
    entries = {f"regimes.{name}": entry for name, entry in config.regimes.items()}
    for name, section in (always | sometimes | trained | entries).items():
        budget = getattr(section, "max_completion_length", None)
        if budget is not None:
            yield name, budget
