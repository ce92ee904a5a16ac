"""Policies and harvests of a grid, with their folders below the results folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from g2d.grid.run import M0, Role, Run
from g2d.regimes.run.trainers import AUTO

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
    def start(self) -> Policy | None:
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
        if self.start is None:
            return self.shown_k
        return self.start.online_steps + self.shown_k

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
        counted: harvests whose pairs are only counted (`match_pairs_to`).
    """

    continues: Policy | None = None
    start: Policy | None = None
    harvest: Harvest | None = None
    counted: tuple[Harvest, ...] = ()
