"""The grid: a configuration, expanded once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from itertools import product

from g2d.config.model_settings import ModelSettings
from g2d.config.sections import Config
from g2d.grid.expand import runs_of
from g2d.grid.fingerprint import Fingerprint
from g2d.grid.policy import Harvest, Policy, Reads
from g2d.grid.run import M0, OfflineRun, OnlineRun, Point, Run, TrainedRun
from g2d.policies.model_keys import MADE, EmbeddedModel
from g2d.regimes.offline.dpo import Dpo


class Grid:
    """The runs, policies and harvests of a configuration. Folders are relative to the results folder.

    Attributes:
        settings: the settings of each model.
        runs: the runs of each model, by name.
        fingerprints: the settings that the jobs of each model depend on.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.settings: dict[str, ModelSettings] = {}
        self.runs: dict[str, dict[str, TrainedRun]] = {}
        self.fingerprints: dict[str, Fingerprint] = {}
        for model in config.models:
            self.settings[model] = config.for_model(model)
            self.runs[model] = runs_of(config, self.settings[model])
            self.fingerprints[model] = Fingerprint(config, self.settings[model])

    def is_embedded(self, model: str) -> bool:
        return isinstance(self.config.models[model], EmbeddedModel)

    def is_made(self, model: str) -> bool:
        """Return whether a rule makes the weights of M0."""
        return self.config.models[model].source in MADE

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

    # -------------------------------------------------------------------------------------------------------- policies

    @cached_property
    def policies(self) -> list[Policy]:
        """Return all evaluated policies: of each model M0 first, then by run."""
        policies: list[Policy] = []
        for model, runs in self.runs.items():
            policies.append(Policy(model))
            for run in runs.values():
                policies += self._of_run(model, run, run.evaluated)
        return policies

    @cached_property
    def trained(self) -> list[Policy]:
        """Return all evaluated policies but M0."""
        return [policy for policy in self.policies if policy.run != M0]

    @cached_property
    def trainings(self) -> list[Policy]:
        """Return all trained policies: evaluated ones, then online ones that are only harvested or continued."""
        policies = dict.fromkeys(self.trained)
        for roles in (("grpo", "ablation", "entry"), ("auto",)):
            for model, role in product(self.runs, roles):
                for run in self._online_runs(model):
                    if run.role == role:
                        policies |= dict.fromkeys(self._of_run(model, run, run.points))
        return list(policies)

    def _online_runs(self, model: str) -> list[OnlineRun]:
        return [run for run in self.runs[model].values() if isinstance(run, OnlineRun)]

    def _of_run(self, model: str, run: Run, points: Iterable[Point]) -> list[Policy]:
        policies: list[Policy] = []
        for group_size, k in points:
            policies += [Policy(model, run, group_size, k, seed) for seed in self.config.seeds]
        return policies

    @property
    def online_trainings(self) -> list[Policy]:
        return [policy for policy in self.trainings if isinstance(policy.run, OnlineRun)]

    @property
    def automatic_warmups(self) -> list[Policy]:
        return [policy for policy in self.online_trainings if policy.run.stops]

    @cached_property
    def trajectories(self) -> dict[Policy, list[Policy]]:
        """Return the policies of each online training in ascending K, by the last one, since its log has all steps.

        If each K is a separate training (`warmup.schedule: per_k`), only the last one is listed.
        """
        groups: dict[tuple[str, OnlineRun, int, int | None], list[Policy]] = {}
        for policy in self.trainings:
            run = policy.run
            if isinstance(run, OnlineRun):
                groups.setdefault((policy.model, run, policy.group_size, policy.seed), []).append(policy)
        trajectories: dict[Policy, list[Policy]] = {}
        for (_, run, _, _), group in groups.items():
            chain = sorted(group, key=lambda policy: policy.k)
            last = chain[-1]
            trajectories[last] = chain if run.is_chain else [last]
        return trajectories

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

    def reads(self, policy: Policy) -> Reads:
        """Return what a training reads besides M0, problems and settings."""
        run = policy.run
        if isinstance(run, OnlineRun):
            before = run.step_before(policy.group_size, policy.k)
            continues = None if before is None else replace(policy, k=before)
            return Reads(continues=continues, start=policy.start)
        if not isinstance(run, OfflineRun):
            return Reads()
        start = None
        if run.settings.start == "warmup":
            start = Policy(policy.model, run.source, policy.group_size, policy.k, policy.seed)
        harvest = self.harvest(policy.model, policy.seed, run.variant, (policy.group_size, policy.k))
        return Reads(start=start, harvest=harvest, counted=tuple(self._counted(policy, run)))

    def _counted(self, policy: Policy, run: OfflineRun) -> list[Harvest]:
        """Return the harvests that limit DPO's pairs (`match_pairs_to`): of its own warm-up, if an ablation has one."""
        match = run.settings.match_pairs_to if isinstance(run.settings, Dpo) else None
        if match is None:
            return []
        source = run.source
        if source.role != "ablation":
            source = self.runs[policy.model]["grpo"].online
        points = [point for point in source.harvest_points if match in (point[1], "min")]
        return [self.harvest(policy.model, policy.seed, source.variant, point) for point in points]

    # -------------------------------------------------------------------------------------------------------- harvests

    @cached_property
    def harvests(self) -> list[Harvest]:
        """Return the harvests of the main grid."""
        harvests: list[Harvest] = []
        for model, runs in self.runs.items():
            for seed in self.config.seeds:
                harvests += [self.harvest(model, seed, "", point) for point in runs["dpo"].points]
        return harvests

    def harvest(self, model: str, seed: int | None, variant: str, point: Point) -> Harvest:
        assert seed is not None
        return Harvest(model, *point, seed, variant)

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
