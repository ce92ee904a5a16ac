"""What the online steps behind a policy asked: those of its own online phase, and of all that this one started from."""

from __future__ import annotations

from collections.abc import Iterator

from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.experiment.keys import PolicyKey
from g2d.regimes.catalogue import REGIMES


def prompts_asked(config: Config, key: PolicyKey) -> int:
    """Prompts that were asked to make a policy: by the online steps behind it, and by the harvest where it has one."""
    harvested = key.kind != "base" and REGIMES[key.kind].phase == "offline"
    return prompts_asked_online(config, key) + (config.for_model(key.model).training_set.n if harvested else 0)


def prompts_asked_online(config: Config, key: PolicyKey) -> int:
    """Prompts that the online steps behind a policy asked, each time that they asked them."""
    if key.in_rounds:  # each round asks the whole training set, in its harvest
        return key.shown_k * config.for_model(key.model).training_set.n
    return sum(asked for _, asked, _ in online_phases(config, key))


def online_phases(config: Config, key: PolicyKey) -> Iterator[tuple[str, int, int]]:
    """Of every online phase behind a policy, its own first: the regime, the prompts asked, the completions of each."""
    name, steps = grid.online_phases(config).get(key.regime, ""), key.steps_spent
    if name in (online := grid.online_entries(config)):
        yield online[name].regime, int(online[name].prompts_asked(steps)), key.group_size
    elif steps:
        warmup = config.for_model(key.model).warmup_of(name)
        per_step = warmup.completions_per_step(key.group_size) // key.group_size
        yield "grpo", steps * per_step // warmup.iterations, key.group_size
    if key.start is not None:
        yield from online_phases(config, key.start)
