"""Runs, policies and harvests of a grid, with their folders below the results folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from g2d.config.sections import Ablation
from g2d.regimes.common.prompt_choice import VERIFIABLE, PromptMix
from g2d.regimes.common.regime import OfflineEntry, OnlineEntry
from g2d.regimes.grpo.keys import AUTO, Warmup
from g2d.regimes.offline.dpo import Dpo
from g2d.rewards.registry import TRUTH, words_of
from g2d.settings import Section

Point = tuple[int, int]  # G and K; (0, 0) is M0

Role = Literal["base", "dpo", "auto", "entry", "grpo", "curve", "ablation"]
# dpo, auto: DPO and G2D, auto after a warm-up that stopped automatically; entry: of `regimes`; grpo, curve: the
# baseline at the largest K and at smaller K; ablation: Table 3.
ROLES: tuple[Role, ...] = get_args(Role)  # in the order of the tables


@dataclass(frozen=True)
class Run:
    """One way to make policies of a model: one policy for each of `points` and each seed.

    Runs of one model are equal if their names are.

    Args:
        name: folder of its policies: base, grpo, dpo, auto/dpo, NAME of an ablation (NAME/dpo and NAME/grpo if it has
            its own warm-up), or NAME of an entry of `regimes`.
        method: a name in `g2d.regimes.catalogue`, or base.
        role: place in the tables.
        points: G and K of its policies, K ascending for each G.
        evaluated: the points that are evaluated.
        variant: folder of the harvests that it makes or reads: an ablation, `AUTO`, or "" for the main grid.
        entry_name: the ablation or entry of `regimes` that configures it.
        entry: that ablation or entry.
    """

    name: str
    method: str = field(compare=False)
    role: Role = field(compare=False)
    points: tuple[Point, ...] = field(default=(), compare=False)
    evaluated: tuple[Point, ...] = field(default=(), compare=False)
    variant: str = field(default="", compare=False)
    entry_name: str = field(default="", compare=False)
    entry: Section | None = field(default=None, compare=False)

    @property
    def online(self) -> OnlineRun | None:
        """The online training behind it: itself, or the one whose policies it harvests; None for M0."""
        return None

    def reads(self, policy: Policy) -> Reads:
        """Return the results that the training of one of its policies reads, besides M0 and problems."""
        return Reads()

    @property
    def section(self) -> str:
        """Where its keys are in the configuration."""
        section = "dpo" if self.method == "dpo" else "warmup"
        if isinstance(self.entry, Ablation):
            return f"ablations.{self.entry_name}.{section}"
        return f"regimes.{self.entry_name}" if self.entry_name else section

    @property
    def stops(self) -> bool:
        """Whether the online training stops automatically."""
        return self.variant == AUTO

    @property
    def prompt_mix(self) -> PromptMix:
        """Kinds of prompts of the online training."""
        entry = self.online.entry if self.online else None
        return entry if isinstance(entry, PromptMix) else VERIFIABLE

    @property
    def other_reward(self) -> str:
        """The reward of the online training in words; "" for correctness."""
        reward = self.online.reward if self.online else None
        if reward is None or reward == TRUTH:
            return ""
        return words_of(reward)

    @property
    def kinds_of_prompts(self) -> tuple[str, ...]:
        """Kinds of prompts of its online trainings in their order, such as verifiable and open_ended; () for M0."""
        if self.online is None:
            return ()
        kind = self.prompt_mix.prompts
        if self.online.start is None:
            return (kind,)
        first, _ = self.online.start
        before = first.kinds_of_prompts
        return before if before[-1] == kind else (*before, kind)

    @property
    def changes(self) -> dict[str, Any]:
        """Keys and values that an ablation changes."""
        if not isinstance(self.entry, Ablation):
            return {}
        changes = dict(_flat("warmup", self.entry.warmup))
        if self.entry.reward is not None:
            changes["reward"] = self.entry.reward
        changes |= self.entry.params(only={*PromptMix.model_fields})
        if self.method == "dpo":
            changes |= self.entry.dpo
        return changes


@dataclass(frozen=True)
class OnlineRun(Run):
    """A training on fresh rollouts. It passes through each K, in steps of GRPO or updates of an entry.

    Args:
        settings: keys of the training, with an ablation's values filled in.
        start: run and point of the policy that it starts from; None for M0.
        reward: None for correctness.
    """

    settings: Warmup | OnlineEntry = field(kw_only=True, compare=False)
    start: tuple[OnlineRun, Point] | None = field(default=None, kw_only=True, compare=False)
    reward: Section | None = field(default=None, kw_only=True, compare=False)

    @property
    def online(self) -> OnlineRun:
        return self

    def reads(self, policy: Policy) -> Reads:
        before = self.step_before(policy.group_size, policy.k)
        continues = None if before is None else replace(policy, k=before)
        return Reads(continues=continues, start=policy.online_start)

    @property
    def harvest_points(self) -> tuple[Point, ...]:
        """G and K of its harvests: the first group size of GRPO only, and M0 (K=0)."""
        settings = self.settings
        if not isinstance(settings, Warmup) or self.stops:
            return self.points
        points: list[Point] = []
        for k in settings.steps:
            group_size = settings.group_sizes[0] if k > 0 else 0
            points.append((group_size, k))
        return tuple(points)

    @property
    def is_chain(self) -> bool:
        """Whether a K continues the training of the K before."""
        return not isinstance(self.settings, Warmup) or self.settings.schedule != "per_k"

    def settings_at(self, group_size: int, k: int) -> Warmup | OnlineEntry:
        """Return the keys of one policy's training."""
        if isinstance(self.settings, Warmup):
            return self.settings.at(group_size, k, stops=self.stops)
        return self.settings.at(k)

    def step_before(self, group_size: int, k: int) -> int | None:
        """Return the K whose checkpoint a training continues: the next smaller one, or None if it starts anew."""
        settings = self.settings
        if self.stops or not self.is_chain:
            return None
        if isinstance(settings, Warmup) and group_size not in settings.group_sizes:
            return None
        return max((step for step in settings.steps if 0 < step < k), default=None)


@dataclass(frozen=True)
class OfflineRun(Run):
    """A training on the harvest of pi_K. K counts the steps before the harvest.

    Args:
        settings: keys of the training, with an ablation's values filled in.
        harvested_run: the run whose policies are harvested.
        matched: the run whose harvests limit the pairs (`match_pairs_to`), if DPO's keys say so.
    """

    settings: Dpo | OfflineEntry = field(kw_only=True, compare=False)
    harvested_run: OnlineRun = field(kw_only=True, compare=False)
    matched: OnlineRun | None = field(default=None, kw_only=True, compare=False)

    @property
    def online(self) -> OnlineRun:
        return self.harvested_run

    def reads(self, policy: Policy) -> Reads:
        start = replace(policy, run=self.harvested_run) if self.settings.start == "warmup" else None
        harvest = _harvest(policy, self.variant, (policy.group_size, policy.k))
        return Reads(start=start, harvest=harvest, matched_harvests=tuple(self._matched_harvests(policy)))

    def _matched_harvests(self, policy: Policy) -> list[Harvest]:
        match = self.settings.match_pairs_to if isinstance(self.settings, Dpo) else None
        if match is None or self.matched is None:
            return []
        points = [point for point in self.matched.harvest_points if match in (point[1], "min")]
        return [_harvest(policy, self.matched.variant, point) for point in points]

    def settings_at(self, group_size: int, k: int) -> Dpo | OfflineEntry:
        """Return the keys of one policy's training."""
        return self.settings.at(k)


M0 = Run("base", "base", "base")

TrainedRun = OnlineRun | OfflineRun


# Names of policies in sentences, by label.
POLICY_NAMES = {"base": "M0", "dpo": "DPO", "g2d": "G2D", "g2d-auto": "G2D auto", "grpo": "GRPO"}


def label_of(run: str, k: int) -> str:
    """Return the paper's name of a run's policies: DPO on the harvest of M0 is `dpo`, on the harvest of pi_K `g2d`."""
    if run.startswith(f"{AUTO}/"):
        return "g2d-auto"
    if run == "dpo" and k > 0:
        return "g2d"
    return run


def called(policy: str, k: object, group_size: object = 0) -> str:
    """Name a policy in a sentence: M0, DPO (K=0), G2D (K=50), or G2D (K=50, G=2)."""
    name = POLICY_NAMES.get(policy, policy)
    if policy == "base":
        return name
    group = f", G={group_size}" if group_size else ""
    return f"{name} (K={k}{group})"


def online_run(variant: str) -> str:
    """Return the name of the online run behind the harvests of a variant."""
    return f"{variant}/grpo" if variant else "grpo"


@dataclass(frozen=True)
class Policy:
    """One policy: a run of a model at one G, K and seed. Without a run it is M0.

    Args:
        group_size: G; 0 without an online phase.
        k: GRPO steps, or updates of an online entry; an upper bound if the training stops automatically.
        seed: None for M0, and for a policy over all its seeds.
        steps_taken: K at which the training stopped automatically, if it is known.
    """

    model: str
    run: Run = M0
    group_size: int = 0
    k: int = 0
    seed: int | None = None
    steps_taken: int | None = field(default=None, compare=False)

    @property
    def run_name(self) -> str:
        return self.run.name

    @property
    def method(self) -> str:
        """A name in `g2d.regimes.catalogue`, or base."""
        return self.run.method

    @property
    def role(self) -> Role:
        if self.run.role == "grpo" and any(k > self.k for _, k in self.run.points):
            return "curve"
        return self.run.role

    @property
    def reads(self) -> Reads:
        """Results that its training reads, besides M0 and problems."""
        return self.run.reads(self)

    @property
    def online_start(self) -> Policy | None:
        """The policy that its online phase started from, if not M0."""
        online = self.run.online
        if online is None or online.start is None:
            return None
        run, (group_size, k) = online.start
        return Policy(self.model, run, group_size, k, self.seed)

    @property
    def over_seeds(self) -> Policy:
        return replace(self, seed=None, steps_taken=None)

    @property
    def shown_k(self) -> int:
        return self.k if self.steps_taken is None else self.steps_taken

    @property
    def online_steps(self) -> int:
        """All online steps before the policy, including the steps of policies that it started from."""
        if self.online_start is None:
            return self.shown_k
        return self.online_start.online_steps + self.shown_k

    @property
    def folder(self) -> str:
        if self.run == M0:
            return f"{self.model}/base"
        return f"{self.model}/seed{self.seed}/{self.run.name}/g{self.group_size}/k{self.k}"

    @property
    def name(self) -> str:
        return self.folder.replace(f"/seed{self.seed}/", "/", 1)

    @property
    def label(self) -> str:
        return label_of(self.run.name, self.k)


@dataclass(frozen=True)
class Harvest:
    """The rollouts of one frozen pi_K; `variant` is the ablation that they belong to, `AUTO`, or "" (main grid)."""

    model: str
    group_size: int
    k: int
    seed: int
    variant: str = ""

    @property
    def run_name(self) -> str:
        """Name of the run that trained pi_K."""
        return online_run(self.variant)

    @property
    def folder(self) -> str:
        variant = f"{self.variant}/" if self.variant else ""
        return f"{self.model}/seed{self.seed}/{variant}harvest/g{self.group_size}/k{self.k}"


def _harvest(policy: Policy, variant: str, point: Point) -> Harvest:
    """Return the harvest of a point, of the model and seed of a policy."""
    assert policy.seed is not None
    return Harvest(policy.model, *point, policy.seed, variant)


def harvest_of(wildcards: Mapping[str, str]) -> Harvest:
    """Return the harvest of a rule's wildcards."""
    variant = wildcards["variant"].removesuffix("/")
    return Harvest(wildcards["model"], int(wildcards["g"]), int(wildcards["k"]), int(wildcards["seed"]), variant)


@dataclass(frozen=True)
class Reads:
    """Results that a training reads besides M0, problems and settings.

    Args:
        continues: the policy whose checkpoint it continues.
        start: the policy that it starts from, if not M0.
        harvest: the harvest that it trains on.
        matched_harvests: harvests whose pairs are only counted (`match_pairs_to`).
    """

    continues: Policy | None = None
    start: Policy | None = None
    harvest: Harvest | None = None
    matched_harvests: tuple[Harvest, ...] = ()


def _flat(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        at = f"{path}.{key}"
        if isinstance(value, Mapping):
            yield from _flat(at, value)
        else:
            yield at, value
