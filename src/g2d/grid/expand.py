"""Expand the configuration of a model into its runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from g2d.config.sections import Config
from g2d.grid.run import Point, Role, Run
from g2d.regimes.offline.dpo import Dpo
from g2d.regimes.run.training import AUTO

Runs = Mapping[str, Run]  # by name


def runs_of(config: Config) -> dict[str, Run]:
    """Return the runs of a model by name, in the order of the tables; `config` is that of the model."""
    return {run.name: run for run in _expanded(config)}


def by_section(runs: Runs) -> dict[str, list[Run]]:
    """Return the runs that train policies, by the section that has their keys."""
    sections: dict[str, list[Run]] = {}
    for run in runs.values():
        if run.points:
            sections.setdefault(run.section, []).append(run)
    return sections


def group_sizes(runs: Iterable[Run]) -> list[int]:
    return list(dict.fromkeys(group_size for run in runs for group_size, _ in run.points))


def _expanded(config: Config) -> Iterator[Run]:
    points = _main_points(config)
    main = _main_warmup(config, points)
    yield _dpo("dpo", "dpo", config.dpo, points, main)
    if config.warmup.auto is not None:
        yield from _automatic(config, main)
    yield from _entries(config, main, points)
    yield main
    for name in config.ablations:
        yield from _ablation(config, name, main)


def _main_points(config: Config) -> tuple[Point, ...]:
    warmup = config.warmup
    points: list[Point] = []
    if 0 in warmup.steps:
        points.append((0, 0))
    for group_size in warmup.group_sizes:
        points += [(group_size, k) for k in warmup.steps if k > 0]
    return tuple(points)


def _main_warmup(config: Config, points: tuple[Point, ...]) -> Run:
    """Return the main warm-up, which also trains the group sizes of `baselines` to the largest K."""
    last = max(config.warmup.steps)
    sizes = config.baselines.grpo_group_sizes if last > 0 else []
    evaluated = [(group_size, last) for group_size in sizes]
    if config.baselines.grpo_steps == "all":
        evaluated += [at for at in points if at[0] in sizes and at not in evaluated]
    trained = [at for at in points if at[1] > 0]
    trained += [(group_size, last) for group_size in sizes if (group_size, last) not in trained]
    reward = config.rewards.get(config.warmup.reward or "")
    return Run("grpo", "grpo", "grpo", config.warmup, tuple(trained), tuple(evaluated), reward=reward)


def _dpo(name: str, role: Role, settings: Dpo, points: tuple[Point, ...], source: Run) -> Run:
    return Run(name, "dpo", role, settings, points, points, source.variant, source)


def _automatic(config: Config, main: Run) -> Iterator[Run]:
    """Yield the warm-up that stops automatically, at most at the horizon, and DPO on its harvests."""
    points = tuple((group_size, config.warmup.total_steps) for group_size in config.warmup.group_sizes)
    warmup = replace(main, name=f"{AUTO}/grpo", role="auto", points=points, evaluated=(), variant=AUTO)
    yield warmup
    yield _dpo(f"{AUTO}/dpo", "auto", config.dpo, points, warmup)


def _entries(config: Config, main: Run, points: tuple[Point, ...]) -> Iterator[Run]:
    online = _online_entries(config, main)
    for name, entry in config.regimes.items():
        if name in online:
            yield online[name]
        else:
            steps = config.steps_of(name)
            chosen = tuple(at for at in points if at[1] in steps)
            yield Run(name, entry.regime, "entry", entry, chosen, chosen, source=main, owner=name, written=entry)


def _online_entries(config: Config, main: Run) -> dict[str, Run]:
    """Return the online entries by name; one that starts from another's policy comes after it."""
    runs: dict[str, Run] = {}

    def add(name: str) -> Run:
        entry = config.regimes[name]
        start: tuple[Run, Point] | None = None
        if entry.start == "warmup":
            start = (main, (config.warmup.group_sizes[0], entry.start_step))
        elif entry.start != "base":
            before = runs.get(entry.start) or add(entry.start)
            start = (before, (before.settings.responses, entry.start_step))
        points = tuple((entry.responses, k) for k in entry.steps)
        runs[name] = Run(
            name,
            entry.regime,
            "entry",
            entry,
            points,
            points,
            start=start,
            owner=name,
            written=entry,
            reward=config.rewards.get(entry.reward or config.warmup.reward or ""),
        )
        return runs[name]

    for name, entry in config.regimes.items():
        if entry.phase == "online" and name not in runs:
            add(name)
    return runs


def _ablation(config: Config, name: str, main: Run) -> Iterator[Run]:
    """Yield DPO of an ablation on the main harvests, or its own warm-up and DPO on the harvests of that."""
    ablation, steps = config.ablations[name], config.steps_of(name)
    if not ablation.has_warmup:
        yield _ablated_dpo(config, name, name, main, steps)
        return
    warmup = _ablated_warmup(config, name)
    if not warmup.evaluated:
        yield warmup
    for policy in ablation.policies:
        yield _ablated_dpo(config, name, f"{name}/dpo", warmup, steps) if policy == "dpo" else warmup


def _ablated_warmup(config: Config, name: str) -> Run:
    ablation, warmup = config.ablations[name], config.warmup_of(name)
    points = tuple((warmup.group_sizes[0], k) for k in warmup.steps if k > 0)
    return Run(
        f"{name}/grpo",
        "grpo",
        "ablation",
        warmup,
        points,
        points if "grpo" in ablation.policies else (),
        name,
        owner=name,
        written=ablation,
        reward=config.rewards.get(ablation.reward or config.warmup.reward or ""),
    )


def _ablated_dpo(config: Config, name: str, folder: str, source: Run, steps: list[int]) -> Run:
    points = tuple(at for at in source.harvest_points if at[1] in steps)
    run = _dpo(folder, "ablation", config.ablation_dpo(name), points, source)
    return replace(run, owner=name, written=config.ablations[name])
