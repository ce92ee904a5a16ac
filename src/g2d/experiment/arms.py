"""Expand a configuration into one list of arms.

An arm is one way to make policies: online, or on a harvest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from g2d.experiment.sections import Ablation, Config
from g2d.regimes.catalogue import REGIMES
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.offline.dpo import Dpo
from g2d.regimes.regime import Phase
from g2d.regimes.run.prompts import VERIFIABLE, PromptMix
from g2d.regimes.run.training import AUTO
from g2d.rewards.catalogue import TRUTH, words_of
from g2d.settings import Section
from g2d.settings.cached_method import cached_method

Point = tuple[int, int]  # G and K; (0, 0) is M0


@dataclass(eq=False)
class Arm:
    """One way to train policies of a model, one for each of `points` and each seed."""

    name: str  # the folder of its policies (`PolicyKey.regime`)
    regime: str  # a name in `g2d.regimes.catalogue`
    role: str  # one of `g2d.experiment.keys.ROLES`
    settings: Any = None  # a section, with an ablation's values filled in
    points: tuple[Point, ...] = ()  # G and K, K ascending for each G
    evaluated: tuple[Point, ...] = ()
    variant: str = ""  # folder of its harvests: an ablation, `AUTO`, or "" for the main grid
    source: Arm | None = None  # arm whose harvests it trains on
    start: tuple[Arm, Point] | None = None  # policy that an online training starts from, if not M0
    owner: str = ""  # the ablation or entry that configures it
    written: Any = None  # the same as configured
    judge: Any = None  # reward of its online training, None for the truth
    all: Arms = field(default_factory=dict, repr=False)  # all arms of the model, by name

    @property
    def phase(self) -> Phase | None:
        """K counts its own steps (online), or the steps before its harvest (offline). None for M0."""
        return REGIMES[self.regime].phase if self.regime in REGIMES else None

    @property
    def section(self) -> str:
        section = "dpo" if isinstance(self.settings, Dpo) else "warmup"
        if isinstance(self.written, Ablation):
            return f"ablations.{self.owner}.{section}"
        return f"regimes.{self.owner}" if self.owner else section

    @property
    def online(self) -> Arm:
        """The online training behind it, or itself."""
        return self.source.online if self.source else self

    @property
    def reward(self) -> Section | None:
        """Reward of its online training; None for the truth."""
        return self.online.judge

    @property
    def other_reward(self) -> str:
        """The reward in words; "" for the truth."""
        return words_of(self.reward) if self.reward not in (None, TRUTH) else ""

    @property
    def asked(self) -> PromptMix:
        written = self.online.written
        return written if isinstance(written, PromptMix) else VERIFIABLE

    @property
    def stops(self) -> bool:
        return self.variant == AUTO

    @property
    def harvest_points(self) -> tuple[Point, ...]:
        """G and K of its harvests: GRPO's first group size only, and M0 (K=0)."""
        settings = self.settings
        if not isinstance(settings, Warmup) or self.variant == AUTO:
            return self.points
        return tuple((settings.group_sizes[0] if k else 0, k) for k in settings.steps)

    def before(self, group_size: int, k: int) -> int | None:
        """Return the K whose checkpoint a training continues: the next smaller one, None if it starts anew."""
        settings = self.settings
        if isinstance(settings, Warmup) and (settings.schedule == "per_k" or group_size not in settings.group_sizes):
            return None
        return max((step for step in settings.steps if 0 < step < k), default=None)

    def harvests_read(self, point: Point) -> list[tuple[str, Point]]:
        """Return the harvests that a training reads, by variant and point: its own, then those of `match_pairs_to`."""
        main = self.all["grpo"]
        if self.phase == "online":
            return []
        match = getattr(self.settings, "match_pairs_to", None)
        # An ablation with a warm-up is matched to its own harvests, other arms to the main grid's.
        source = self.online if self.online.role == "ablation" else main
        matched = [at for at in source.harvest_points if match is not None and match in (at[1], "min")]
        return [(self.variant, point), *((source.variant, at) for at in matched)]


Arms = Mapping[str, Arm]  # name -> arm


@cached_method
def arms(config: Config, model: str) -> Arms:
    return expanded(config.for_model(model))


@cached_method
def any_arms(config: Config) -> Arms:
    return {name: arm for model in reversed(config.models) for name, arm in arms(config, model).items()}


def asked_for(config: Config, role: str) -> dict[str, Any]:
    return {arm.owner: arm.written for arm in any_arms(config).values() if arm.role == role}


def by_section(found: Arms) -> dict[str, list[Arm]]:
    sections: dict[str, list[Arm]] = {}
    for arm in found.values():
        if arm.points:
            sections.setdefault(arm.section, []).append(arm)
    return sections


def group_sizes(found: Iterable[Arm]) -> list[int]:
    return list(dict.fromkeys(g for arm in found for g, _ in arm.points))


def online_arm(found: Arms, variant: str) -> Arm:
    """Return the training behind a variant's harvests."""
    return found[f"{variant}/grpo" if variant else "grpo"]


def expanded(config: Config) -> Arms:
    found = {arm.name: arm for arm in _expanded(config)}
    for arm in found.values():
        arm.all = found
    return found


def _expanded(config: Config) -> Iterator[Arm]:
    warmup = config.warmup
    grid = ((0, 0),) * (0 in warmup.steps) + tuple((g, k) for g in warmup.group_sizes for k in warmup.steps if k)
    main = _main_warmup(config, grid)
    yield _dpo("dpo", "dpo", config.dpo, grid, main)
    if warmup.auto is not None:
        points = tuple((g, warmup.total_steps) for g in warmup.group_sizes)
        auto = replace(main, name=f"{AUTO}/grpo", role="auto", points=points, evaluated=(), variant=AUTO)
        yield from (auto, _dpo(f"{AUTO}/dpo", "auto", config.dpo, points, auto))
    online = {name: _own_warmup(config, name) for name, ablation in config.ablations.items() if ablation.has_warmup}
    online_entries = _online_entries(config, main)
    for name, entry in config.regimes.items():
        if name in online_entries:
            yield online_entries[name]
        else:
            points = tuple((g, k) for g, k in grid if k in config.steps_of(name))
            yield Arm(name, entry.regime, "entry", entry, points, points, source=main, owner=name, written=entry)
    yield main
    for name, ablation in config.ablations.items():
        source, steps = online.get(name, main), config.steps_of(name)
        points = tuple((g, k) for g, k in source.harvest_points if k in steps)
        after = _dpo(f"{name}/dpo" if name in online else name, "ablation", config.ablation_dpo(name), points, source)
        after = replace(after, owner=name, written=ablation)
        if name in online:
            yield from _asked_for(online[name], after)
        else:
            yield after


def _dpo(name: str, role: str, settings: Dpo, points: tuple[Point, ...], source: Arm) -> Arm:
    return Arm(name, "dpo", role, settings, points, points, source.variant, source)


def _main_warmup(config: Config, grid: tuple[Point, ...]) -> Arm:
    last, sizes = max(config.warmup.steps), config.baselines.grpo_group_sizes if any(config.warmup.steps) else []
    alone = tuple((g, last) for g in sizes)
    curve = tuple(at for at in grid if at[0] in sizes and at not in alone and config.baselines.grpo_steps == "all")
    points = tuple(dict.fromkeys([*(at for at in grid if at[1]), *alone]))
    judge = config.rewards.get(config.warmup.reward or "")
    return Arm("grpo", "grpo", "grpo", config.warmup, points, alone + curve, judge=judge)


def _own_warmup(config: Config, name: str) -> Arm:
    ablation, warmup = config.ablations[name], config.warmup_of(name)
    points = tuple((warmup.group_sizes[0], k) for k in warmup.steps if k)
    evaluated = points if "grpo" in ablation.policies else ()
    trained = Arm(f"{name}/grpo", "grpo", "ablation", warmup, points, evaluated, name, owner=name, written=ablation)
    return replace(trained, judge=config.rewards.get(ablation.reward or config.warmup.reward or ""))


def _online_entries(config: Config, main: Arm) -> dict[str, Arm]:
    trained_entries: dict[str, Arm] = {}

    def add(name: str) -> Arm:
        entry, start = config.regimes[name], None
        if entry.start == "warmup":
            start = (main, (config.warmup.group_sizes[0], entry.start_step))
        elif entry.start != "base":
            before = trained_entries.get(entry.start) or add(entry.start)
            start = (before, (before.settings.responses, entry.start_step))
        points = tuple((entry.responses, k) for k in entry.steps)
        trained = Arm(name, entry.regime, "entry", entry, points, points, start=start, owner=name, written=entry)
        trained_entries[name] = replace(trained, judge=config.rewards.get(entry.reward or config.warmup.reward or ""))
        return trained_entries[name]

    for name, entry in config.regimes.items():
        if entry.phase == "online" and name not in trained_entries:
            add(name)
    return trained_entries


def _asked_for(trained: Arm, after: Arm) -> Iterator[Arm]:
    if not trained.evaluated:
        yield trained
    for policy in trained.written.policies:
        yield after if policy == "dpo" else trained
