"""Expand the configuration of a model into its runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from g2d.config.ablation import Ablation
from g2d.config.model_settings import ModelSettings
from g2d.config.sections import Config
from g2d.grid.run import OfflineRun, OnlineRun, Point, Role, Run, TrainedRun
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.offline.dpo import Dpo
from g2d.regimes.regime import OnlineEntry
from g2d.regimes.run.trainers import AUTO
from g2d.rewards.registry import AnyReward

Runs = Mapping[str, TrainedRun]  # by name


def runs_of(config: Config, settings: ModelSettings) -> dict[str, TrainedRun]:
    """Return the runs of a model by name, in the order of the tables; `settings` are that model's."""
    return {run.name: run for run in _expanded(config, settings)}


def by_section(runs: Runs) -> dict[str, list[TrainedRun]]:
    """Return the runs that train policies, by the section that has their keys."""
    sections: dict[str, list[TrainedRun]] = {}
    for run in runs.values():
        if run.points:
            sections.setdefault(run.section, []).append(run)
    return sections


def group_sizes(runs: Iterable[Run]) -> list[int]:
    """Return the group sizes of runs, each once, in their order."""
    sizes: dict[int, None] = {}
    for run in runs:
        for group_size, _ in run.points:
            sizes[group_size] = None
    return list(sizes)


def _expanded(config: Config, settings: ModelSettings) -> Iterator[TrainedRun]:
    points = _main_points(settings.warmup)
    main = _main_warmup(config, settings.warmup, points)
    yield _dpo("dpo", "dpo", settings.dpo, points, main)
    if settings.warmup.auto is not None:
        yield from _automatic(settings, main)
    yield from _entries(config, settings, main, points)
    yield main
    for name in config.ablations:
        yield from _ablation(config, settings, name, main)


def _main_points(warmup: Warmup) -> tuple[Point, ...]:
    points: list[Point] = []
    if 0 in warmup.steps:
        points.append((0, 0))
    for group_size in warmup.group_sizes:
        points += [(group_size, k) for k in warmup.steps if k > 0]
    return tuple(points)


def _main_warmup(config: Config, warmup: Warmup, points: tuple[Point, ...]) -> OnlineRun:
    """Return the main warm-up, which also trains the group sizes of `baselines` to the largest K."""
    last = max(warmup.steps)
    sizes = config.baselines.grpo_group_sizes if last > 0 else []
    evaluated = [(group_size, last) for group_size in sizes]
    if config.baselines.grpo_steps == "all":
        evaluated += [at for at in points if at[0] in sizes and at not in evaluated]
    trained = [at for at in points if at[1] > 0]
    trained += [(group_size, last) for group_size in sizes if (group_size, last) not in trained]
    reward = _reward(config, warmup.reward)
    return OnlineRun("grpo", "grpo", "grpo", tuple(trained), tuple(evaluated), settings=warmup, reward=reward)


def _dpo(name: str, role: Role, settings: Dpo, points: tuple[Point, ...], source: OnlineRun) -> OfflineRun:
    return OfflineRun(name, "dpo", role, points, points, source.variant, settings=settings, source=source)


def _automatic(settings: ModelSettings, main: OnlineRun) -> Iterator[TrainedRun]:
    """Yield the warm-up that stops automatically, at most at the horizon, and DPO on its harvests."""
    points = tuple((group_size, settings.warmup.total_steps) for group_size in settings.warmup.group_sizes)
    warmup = replace(main, name=f"{AUTO}/grpo", role="auto", points=points, evaluated=(), variant=AUTO)
    yield warmup
    yield _dpo(f"{AUTO}/dpo", "auto", settings.dpo, points, warmup)


def _entries(
    config: Config, settings: ModelSettings, main: OnlineRun, points: tuple[Point, ...]
) -> Iterator[TrainedRun]:
    online = _online_entries(config, settings.warmup, main)
    for name, entry in config.regimes.items():
        if name in online:
            yield online[name]
        else:
            steps = settings.steps_of(name, entry)
            chosen = tuple(at for at in points if at[1] in steps)
            yield OfflineRun(
                name,
                entry.regime,
                "entry",
                chosen,
                chosen,
                owner=name,
                written=entry,
                settings=entry,
                source=main,
            )


def _online_entries(config: Config, warmup: Warmup, main: OnlineRun) -> dict[str, OnlineRun]:
    """Return the online entries by name; one that starts from another's policy comes after it."""
    runs: dict[str, OnlineRun] = {}

    def add(name: str) -> OnlineRun:
        entry = config.regimes[name]
        start: tuple[OnlineRun, Point] | None = None
        if entry.start == "warmup":
            start = (main, (warmup.group_sizes[0], entry.start_step))
        elif entry.start != "base":
            before = runs.get(entry.start) or add(entry.start)
            start = (before, (config.regimes[entry.start].responses, entry.start_step))
        points = tuple((entry.responses, k) for k in entry.steps)
        runs[name] = OnlineRun(
            name,
            entry.regime,
            "entry",
            points,
            points,
            owner=name,
            written=entry,
            settings=entry,
            start=start,
            reward=_reward(config, entry.reward, warmup.reward),
        )
        return runs[name]

    for name, entry in config.regimes.items():
        if isinstance(entry, OnlineEntry) and name not in runs:
            add(name)
    return runs


def _ablation(config: Config, settings: ModelSettings, name: str, main: OnlineRun) -> Iterator[TrainedRun]:
    """Yield DPO of an ablation on the main harvests, or its own warm-up and DPO on the harvests of that."""
    ablation = config.ablations[name]
    if not ablation.has_warmup:
        yield _ablated_dpo(settings, name, ablation, name, main)
        return
    warmup = _ablated_warmup(config, settings, name)
    if not warmup.evaluated:
        yield warmup
    for policy in ablation.policies:
        if policy == "dpo":
            yield _ablated_dpo(settings, name, ablation, f"{name}/dpo", warmup)
        else:
            yield warmup


def _ablated_warmup(config: Config, settings: ModelSettings, name: str) -> OnlineRun:
    ablation = config.ablations[name]
    warmup = settings.ablated_warmup(name, ablation)
    points = tuple((warmup.group_sizes[0], k) for k in warmup.steps if k > 0)
    return OnlineRun(
        f"{name}/grpo",
        "grpo",
        "ablation",
        points,
        points if "grpo" in ablation.policies else (),
        name,
        owner=name,
        written=ablation,
        settings=warmup,
        reward=_reward(config, ablation.reward, settings.warmup.reward),
    )


def _ablated_dpo(settings: ModelSettings, name: str, ablation: Ablation, folder: str, source: OnlineRun) -> OfflineRun:
    steps = settings.steps_of(name, ablation)
    points = tuple(at for at in source.harvest_points if at[1] in steps)
    run = _dpo(folder, "ablation", settings.ablated_dpo(name, ablation), points, source)
    return replace(run, owner=name, written=ablation)


def _reward(config: Config, *names: str | None) -> AnyReward | None:
    """Return the entry of `rewards` that the first given name has; None if none is given, for correctness."""
    for name in names:
        if name is not None:
            return config.rewards.get(name)  # the checks report an unknown name
    return None
