"""Keys of policies and harvests, and their folders below the results folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from g2d.experiment.arms import Arm, Point
from g2d.regimes.run.training import AUTO

# In the order of the tables. dpo, auto: DPO and G2D, auto after a warm-up that stopped automatically; entry: of
# `regimes`; grpo, curve: the baseline at the largest K and at smaller K; ablation: Table 3.
ROLES = ("base", "dpo", "auto", "entry", "grpo", "curve", "ablation")

MAIN = {name: Arm(name, name, name) for name in ("base", "dpo", "grpo")}

# Names of policies in sentences, by label.
POLICY_NAMES = {"base": "M0", "dpo": "DPO", "g2d": "G2D", "g2d-auto": "G2D auto", "grpo": "GRPO"}


def label_of(regime: str, k: int) -> str:
    """Return the paper's name for policies of a folder: DPO is `dpo` on the harvest of M0 and `g2d` on pi_K's."""
    if regime.startswith(f"{AUTO}/"):
        return "g2d-auto"
    return "g2d" if regime == "dpo" and k > 0 else regime


def called(policy: str, k: object, group_size: object = 0) -> str:
    """Name a policy in a sentence: M0, DPO (K=0), G2D (K=50), or G2D (K=50, G=2)."""
    group = f", G={group_size}" if group_size else ""
    return POLICY_NAMES["base"] if policy == "base" else f"{POLICY_NAMES.get(policy, policy)} (K={k}{group})"


@dataclass(frozen=True, order=True)
class PolicyKey:
    """Key of one policy. `group_size` is 0 without an online phase; `seed` is None for M0 and for all seeds."""

    model: str
    # base | grpo | dpo | auto/dpo | NAME of an ablation, or NAME/dpo and NAME/grpo if it has its own warm-up | NAME of
    # an entry of `regimes`
    regime: str
    group_size: int
    # GRPO steps, or updates of an online entry; an upper bound if the training stops automatically.
    k: int
    seed: int | None
    steps_taken: int | None = field(default=None, compare=False)  # set by `with_steps_taken`
    arm: Arm = field(default=None, compare=False, repr=False)  # type: ignore[assignment]  # None: one of `MAIN`

    def __post_init__(self) -> None:
        object.__setattr__(self, "arm", self.arm or MAIN[self.regime])

    @classmethod
    def of(cls, model: str, arm: Arm, point: Point, seed: int | None) -> PolicyKey:
        return cls(model, arm.name, *point, seed, arm=arm)

    @property
    def kind(self) -> str:
        """A name in `g2d.regimes.catalogue`, or base."""
        return self.arm.regime

    @property
    def role(self) -> str:
        on_curve = self.arm.role == "grpo" and any(k > self.k for _, k in self.arm.points)
        return "curve" if on_curve else self.arm.role

    @property
    def start(self) -> PolicyKey | None:
        """Policy that its online phase started from, if not M0."""
        return PolicyKey.of(self.model, *self.arm.online.start, self.seed) if self.arm.online.start else None

    @property
    def over_seeds(self) -> PolicyKey:
        return replace(self, seed=None, steps_taken=None)

    @property
    def reference(self) -> PolicyKey:
        """Policy of the main grid to compare with, at the same K and G (Table 3)."""
        name = self.kind if self.kind in ("base", "grpo") else "dpo"
        return replace(self, regime=name, arm=MAIN[name])

    @property
    def shown_k(self) -> int:
        return self.k if self.steps_taken is None else self.steps_taken

    @property
    def online_steps(self) -> int:
        """All online steps before the policy, including those of policies that it started from."""
        return self.shown_k + (self.start.online_steps if self.start else 0)

    @property
    def folder(self) -> str:
        if self.regime == "base":
            return f"{self.model}/base"
        return f"{self.model}/seed{self.seed}/{self.regime}/g{self.group_size}/k{self.k}"

    @property
    def name(self) -> str:
        return self.folder.replace(f"/seed{self.seed}/", "/", 1)

    @property
    def label(self) -> str:
        return label_of(self.regime, self.k)


@dataclass(frozen=True, order=True)
class HarvestKey:
    """Key of one harvest: the rollouts of one pi_K."""

    model: str
    group_size: int
    k: int
    seed: int
    variant: str = ""  # the ablation that it belongs to, `AUTO`, or "" for the main grid

    @property
    def folder(self) -> str:
        variant = f"{self.variant}/" if self.variant else ""
        return f"{self.model}/seed{self.seed}/{variant}harvest/g{self.group_size}/k{self.k}"
