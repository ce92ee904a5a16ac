"""The grid: a configuration, expanded once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from graphlib import TopologicalSorter
from itertools import product

from g2d.config.sections import Ablation, Config, ModelSettings
from g2d.grid.runs import M0, Harvest, OfflineRun, OnlineRun, Point, Policy, Role, Run, TrainedRun
from g2d.grid.settings import JobSettings, Settings
from g2d.policies.model_keys import EmbeddedModel
from g2d.regimes.common.regime import OnlineEntry
from g2d.regimes.grpo.keys import AUTO, Warmup
from g2d.regimes.offline.dpo import Dpo
from g2d.rewards.registry import AnyReward

Runs = Mapping[str, TrainedRun]  # by name


class Grid:
    """The runs, policies and harvests of a configuration. Folders are relative to the results folder.

    Attributes:
        settings: the settings of each model.
        runs: the runs of each model, by name.
        job_settings: the settings of each model's jobs.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.settings: dict[str, ModelSettings] = {}
        self.runs: dict[str, dict[str, TrainedRun]] = {}
        self.job_settings: dict[str, JobSettings] = {}
        for model in config.models:
            self.settings[model] = config.for_model(model)
            self.runs[model] = runs_of(config, self.settings[model])
            self.job_settings[model] = JobSettings(config, self.settings[model])

    def is_embedded(self, model: str) -> bool:
        return isinstance(self.config.models[model], EmbeddedModel)

    # ------------------------------------------------------------------------------------------------------------ runs

    @cached_property
    def any_runs(self) -> dict[str, TrainedRun]:
        """Return the runs of all models by name; the first model wins if several have a name."""
        runs: dict[str, TrainedRun] = {}
        for of_model in self.runs.values():
            runs = of_model | runs
        return runs

    def names_of(self, method: str) -> list[str]:
        """Return the last parts of the folders of a method's policies."""
        names = [run.name.rpartition("/")[2] for run in self.any_runs.values() if run.method == method]
        return list(dict.fromkeys(names))

    @property
    def variants(self) -> list[str]:
        """Return the folders of all harvests but the main grid's."""
        variants: dict[str, None] = {}
        for run in self.any_runs.values():
            if isinstance(run, OfflineRun) and run.points and run.variant:
                variants[run.variant] = None
        return list(variants)

    @property
    def reward_words(self) -> str:
        """Return the reward of the main warm-up in words; "" for correctness.

        If it differs by model, name the models that have another one.
        """
        by_model = {model: runs["grpo"].other_reward for model, runs in self.runs.items()}
        if len(set(by_model.values())) == 1:
            return next(iter(by_model.values()))
        return " and ".join(f"{reward} for {model}" for model, reward in by_model.items() if reward)

    # -------------------------------------------------------------------------------------------------------- policies

    @cached_property
    def policies(self) -> list[Policy]:
        """Return all evaluated policies: of each model M0 first, then by run."""
        policies: list[Policy] = []
        for model, runs in self.runs.items():
            policies.append(Policy(model))
            for run in runs.values():
                policies += self._at_points(model, run, run.evaluated)
        return policies

    @cached_property
    def evaluated(self) -> list[Policy]:
        """Return all evaluated policies but M0."""
        return [policy for policy in self.policies if policy.run != M0]

    @cached_property
    def trained(self) -> list[Policy]:
        """Return all trained policies: evaluated ones, then online ones that are only harvested or continued."""
        policies = dict.fromkeys(self.evaluated)
        for roles in (("grpo", "ablation", "entry"), ("auto",)):
            for model, role in product(self.runs, roles):
                for run in self._online_runs(model):
                    if run.role == role:
                        policies |= dict.fromkeys(self._at_points(model, run, run.points))
        return list(policies)

    def _online_runs(self, model: str) -> list[OnlineRun]:
        return [run for run in self.runs[model].values() if isinstance(run, OnlineRun)]

    def _at_points(self, model: str, run: Run, points: Iterable[Point]) -> list[Policy]:
        policies: list[Policy] = []
        for group_size, k in points:
            policies += [Policy(model, run, group_size, k, seed) for seed in self.config.seeds]
        return policies

    @property
    def online_trainings(self) -> list[Policy]:
        return [policy for policy in self.trained if isinstance(policy.run, OnlineRun)]

    @property
    def automatic_warmups(self) -> list[Policy]:
        return [policy for policy in self.online_trainings if policy.run.stops]

    @cached_property
    def chains(self) -> dict[Policy, list[Policy]]:
        """Return the policies of each online training in ascending K, by the last one, since its log has all steps.

        If each K is a separate training (`warmup.schedule: per_k`), only the last one is listed.
        """
        groups: dict[tuple[str, OnlineRun, int, int | None], list[Policy]] = {}
        for policy in self.trained:
            run = policy.run
            if isinstance(run, OnlineRun):
                groups.setdefault((policy.model, run, policy.group_size, policy.seed), []).append(policy)
        chains: dict[Policy, list[Policy]] = {}
        for (_, run, _, _), group in groups.items():
            chain = sorted(group, key=lambda policy: policy.k)
            last = chain[-1]
            chains[last] = chain if run.is_chain else [last]
        return chains

    def at(self, folder: str) -> Policy:
        """Return the policy of a folder, such as demo/seed0/dpo/g2/k50.

        Raises:
            LookupError: the configuration does not ask for it.
        """
        policy = self._found(folder)
        if policy is None:
            raise LookupError(f"this configuration has no policy {folder}")
        return policy

    def _found(self, folder: str) -> Policy | None:
        model, *rest = folder.split("/")
        if rest == ["base"] and model in self.runs:
            return Policy(model)
        if len(rest) < 4:
            return None
        seed, *name, group_size, k = rest
        run = self.runs.get(model, {}).get("/".join(name))
        if run is None:
            return None
        policy = Policy(model, run, _number(group_size, "g"), _number(k, "k"), _number(seed, "seed"))
        if policy.seed in self.config.seeds and self._has_point(policy):
            return policy
        return None

    @staticmethod
    def _has_point(policy: Policy) -> bool:
        if (policy.group_size, policy.k) in policy.run.points:
            return True
        # A finished training may have continued a K that the configuration no longer asks for.
        later = [k for group_size, k in policy.run.points if group_size == policy.group_size and k > policy.k]
        return isinstance(policy.run, OnlineRun) and policy.k > 0 and bool(later)

    def settings_of(self, policy: Policy) -> Settings:
        """Return the settings of a training: params of its rule."""
        return self.job_settings[policy.model].training(policy)

    # -------------------------------------------------------------------------------------------------------- harvests

    @cached_property
    def harvests(self) -> list[Harvest]:
        """Return the harvests of the main grid."""
        harvests: list[Harvest] = []
        for model, runs in self.runs.items():
            for seed in self.config.seeds:
                harvests += [Harvest(model, *point, seed) for point in runs["dpo"].points]
        return harvests

    def harvested(self, harvest: Harvest) -> Policy:
        """Return pi_K: the policy that a harvest samples, M0 at K=0."""
        if harvest.k == 0:
            return Policy(harvest.model)
        return self.at(f"{harvest.model}/seed{harvest.seed}/{harvest.run_name}/g{harvest.group_size}/k{harvest.k}")

    def judged_again(self, harvest: Harvest) -> Harvest | None:
        """Return the harvest whose rollouts another reward judges again; None if it samples its own.

        M0 does not depend on the reward, so an ablation's harvest of M0 has the rollouts of the main grid.
        """
        if harvest.k > 0 or not harvest.variant:
            return None
        run = self.runs[harvest.model][harvest.run_name]
        if isinstance(run, OnlineRun) and run.reward is not None and 0 in self.settings[harvest.model].warmup.steps:
            return Harvest(harvest.model, harvest.group_size, 0, harvest.seed)
        return None

    # -------------------------------------------------------------------------------------------------- other results

    @property
    def sampled_beside(self) -> list[tuple[Policy, str]]:
        """Return policies and benchmarks with samples in addition to greedy answers."""
        return self._sampled(beside_greedy=True)

    @property
    def sampled(self) -> list[tuple[Policy, str]]:
        """Return policies and benchmarks whose answers themselves are several samples per problem."""
        return self._sampled(beside_greedy=False)

    def _sampled(self, beside_greedy: bool) -> list[tuple[Policy, str]]:
        found: list[tuple[Policy, str]] = []
        for policy in self.policies:
            sampled = self.settings[policy.model].evaluation.sampled
            if sampled is not None and sampled.n > 1 and sampled.beside_greedy == beside_greedy:
                found += [(policy, benchmark) for benchmark in self.config.benchmarks]
        return found

    def temperatures(self, model: str) -> dict[str, str]:
        """Return the files of the calibration by temperature, if it has several; the first is the main one."""
        calibration = self.settings[model].calibration
        if not calibration.factorial_temperatures:
            return {}
        files = {f"{calibration.temperature:g}": f"{model}/calibration/rollouts.parquet"}
        for temperature in calibration.factorial_temperatures:
            files[f"{temperature:g}"] = f"{model}/calibration/t{temperature:g}/rollouts.parquet"
        return files


def _number(part: str, prefix: str) -> int:
    digits = part.removeprefix(prefix)
    return int(digits) if digits.isdecimal() else -1


# ------------------------------------------------------------------------------------------------- runs of a model


# A run is one way to make policies. They are expanded in the order of the tables: DPO, G2D after an automatic warm-up,
# entries of `regimes`, the GRPO baseline, ablations. An ablation that changes the warm-up has its own harvests (its
# `variant`); one that changes only DPO reads the harvests of the main grid. Points are (G, K): one policy per point and
# seed.


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
    yield _dpo("dpo", "dpo", settings.dpo, points, main, matched=main)
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
    """Return the main warm-up. It also trains the group sizes of `baselines` to the largest K."""
    last = max(warmup.steps)
    sizes = config.baselines.grpo_group_sizes if last > 0 else []
    evaluated = [(group_size, last) for group_size in sizes]
    if config.baselines.grpo_steps == "all":
        evaluated += [at for at in points if at[0] in sizes and at not in evaluated]
    trained = [at for at in points if at[1] > 0]
    trained += [(group_size, last) for group_size in sizes if (group_size, last) not in trained]
    reward = _reward(config, warmup.reward)
    return OnlineRun(
        name="grpo",
        method="grpo",
        role="grpo",
        points=tuple(trained),
        evaluated=tuple(evaluated),
        settings=warmup,
        reward=reward,
    )


def _dpo(
    name: str, role: Role, settings: Dpo, points: tuple[Point, ...], harvested_run: OnlineRun, *, matched: OnlineRun
) -> OfflineRun:
    return OfflineRun(
        name=name,
        method="dpo",
        role=role,
        points=points,
        evaluated=points,
        variant=harvested_run.variant,
        settings=settings,
        harvested_run=harvested_run,
        matched=matched,
    )


def _automatic(settings: ModelSettings, main: OnlineRun) -> Iterator[TrainedRun]:
    """Yield the warm-up that stops automatically, at most at the horizon, and DPO on its harvests."""
    points = tuple((group_size, settings.warmup.total_steps) for group_size in settings.warmup.group_sizes)
    warmup = replace(main, name=f"{AUTO}/grpo", role="auto", points=points, evaluated=(), variant=AUTO)
    yield warmup
    yield _dpo(f"{AUTO}/dpo", "auto", settings.dpo, points, warmup, matched=main)


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
                name=name,
                method=entry.regime,
                role="entry",
                points=chosen,
                evaluated=chosen,
                entry_name=name,
                entry=entry,
                settings=entry,
                harvested_run=main,
            )


def _online_entries(config: Config, warmup: Warmup, main: OnlineRun) -> dict[str, OnlineRun]:
    """Return the online entries by name; one that starts from another's policy comes after it."""
    entries = {name: entry for name, entry in config.regimes.items() if isinstance(entry, OnlineEntry)}
    starts = {name: {entry.start} & entries.keys() for name, entry in entries.items()}
    runs: dict[str, OnlineRun] = {}
    for name in TopologicalSorter(starts).static_order():
        entry = entries[name]
        points = tuple((entry.responses, k) for k in entry.steps)
        runs[name] = OnlineRun(
            name=name,
            method=entry.regime,
            role="entry",
            points=points,
            evaluated=points,
            entry_name=name,
            entry=entry,
            settings=entry,
            start=_start_of(entry, {"warmup": main} | runs),
            reward=_reward(config, entry.reward, warmup.reward),
        )
    return runs


def _start_of(entry: OnlineEntry, runs: Mapping[str, OnlineRun]) -> tuple[OnlineRun, Point] | None:
    """Return the run and the point that an online entry starts from; None for M0."""
    if entry.start_step is None:
        return None
    run = runs[entry.start]
    settings = run.settings
    group_size = settings.group_sizes[0] if isinstance(settings, Warmup) else settings.responses
    return run, (group_size, entry.start_step)


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
        name=f"{name}/grpo",
        method="grpo",
        role="ablation",
        points=points,
        evaluated=points if "grpo" in ablation.policies else (),
        variant=name,
        entry_name=name,
        entry=ablation,
        settings=warmup,
        reward=_reward(config, ablation.reward, settings.warmup.reward),
    )


def _ablated_dpo(
    settings: ModelSettings, name: str, ablation: Ablation, folder: str, harvested_run: OnlineRun
) -> OfflineRun:
    steps = settings.steps_of(name, ablation)
    points = tuple(at for at in harvested_run.harvest_points if at[1] in steps)
    dpo = settings.ablated_dpo(name, ablation)
    run = _dpo(folder, "ablation", dpo, points, harvested_run, matched=harvested_run)
    return replace(run, entry_name=name, entry=ablation)


def _reward(config: Config, *names: str | None) -> AnyReward | None:
    """Return the entry of `rewards` that the first given name has; None if none is given, for correctness."""
    for name in names:
        if name is not None:
            return config.rewards.get(name)  # the checks report an unknown name
    return None
