"""What names a policy and a harvest of the grid, and where each lives below the results folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from g2d.regimes.catalogue import REGIMES
from g2d.regimes.run.training import AUTO

# What a policy is in the grid, in the order of the tables: M0, DPO and G2D, the same after a warm-up that stopped by
# itself, an entry of `regimes`, GRPO alone, the same at smaller K; and what stands in Table 3.
ROLES = ("base", "dpo", "auto", "entry", "grpo", "curve", "ablation")

# By label, what a reader calls a policy.
POLICY_NAMES = {"base": "M0", "dpo": "DPO", "g2d": "G2D", "g2d-auto": "G2D auto", "grpo": "GRPO"}


def label_of(regime: str, k: int) -> str:
    """The paper's name for policies of a folder: DPO on the harvest of M0 is `dpo`, on that of pi_K `g2d`."""
    if regime.startswith(f"{AUTO}/"):
        return "g2d-auto"
    return "g2d" if regime == "dpo" and k > 0 else regime


def called(policy: str, k: object, group_size: object = 0) -> str:
    """A policy in a sentence, by its label: M0, DPO (K=0), G2D (K=50), or G2D (K=50, G=2) with its group size."""
    group = f", G={group_size}" if group_size else ""
    return POLICY_NAMES["base"] if policy == "base" else f"{POLICY_NAMES.get(policy, policy)} (K={k}{group})"


@dataclass(frozen=True, order=True)
class PolicyKey:
    """Names one policy. `group_size` is 0 and `seed` None where they do not apply (no GRPO; M0 itself).

    The name does not say how the policy was trained: `kind` and `role` do. They are the name of a main policy.
    """

    model: str
    # base | grpo | dpo | auto/dpo | an ablation: its name, or name/dpo and name/grpo where it has its own warm-up | an
    # entry of `regimes`: its name, and name/dpo for DPO on the harvest of one that is trained on fresh rollouts | of
    # either, where a checkpoint was selected, name/selected
    regime: str
    group_size: int
    # Online steps behind the policy: of GRPO, or the updates of an entry that is trained on fresh rollouts, or rounds;
    # the most there may be, where the warm-up stops by itself.
    k: int
    seed: int | None
    steps_taken: int | None = field(default=None, compare=False)  # set by `with_steps_taken`
    kind: str = field(default="", compare=False)  # base, or a name in `g2d.regimes.catalogue`
    role: str = field(default="", compare=False)  # one of `ROLES`
    online: str = field(default="grpo", compare=False)  # how its K online steps were trained: a name in the catalogue
    reward: str = field(default="", compare=False)  # in words, what it was trained on, where that is not the truth
    stops: bool = field(default=False, compare=False)  # its online phase stopped by itself, at the latest at `k`
    start: PolicyKey | None = field(default=None, compare=False)  # what its online phase started from, if not M0
    teacher: PolicyKey | None = field(default=None, compare=False)  # what its online phase imitated
    selected: bool = field(default=False, compare=False)  # a checkpoint chosen among several, the last of which is `k`

    def __post_init__(self) -> None:
        for name in ("kind", "role"):
            if not getattr(self, name):
                object.__setattr__(self, name, self.regime)
        if self.role not in ROLES:
            raise ValueError(f"{self.regime}: a policy beside the main ones is given its kind and its role")

    @property
    def over_seeds(self) -> PolicyKey:
        """The policy whatever its seed: what a row of a table is about."""
        return replace(self, seed=None, steps_taken=None)

    @property
    def is_ablation(self) -> bool:
        """Whether it stands in Table 3 and not in Table 1."""
        return self.role == "ablation"

    @property
    def trained_online(self) -> bool:
        """Whether it is the policy of an online phase itself, and no training on a harvest."""
        return self.kind in REGIMES and REGIMES[self.kind].phase == "online"

    @property
    def on_a_curve(self) -> bool:
        """Whether it is one K of an online training that starts from M0 and runs to that K."""
        return self.trained_online and not (self.stops or self.selected or self.start)

    @property
    def in_rounds(self) -> bool:
        """Whether its K counts rounds, each with a harvest."""
        return self.kind in REGIMES and REGIMES[self.kind].phase == "rounds"

    @property
    def reference(self) -> PolicyKey:
        """The policy of the main grid that an ablation or an entry differs from, at the same K and G (Table 3); of
        rounds, DPO on the harvest of M0, which is the first."""
        if self.in_rounds:
            return replace(self, regime="dpo", kind="dpo", role="dpo", group_size=0, k=0)
        name = self.kind if self.kind in ("base", "grpo") else "dpo"
        return replace(self, regime=name, kind=name, role=name)

    @property
    def shown_k(self) -> int:
        """K in the tables."""
        return self.k if self.steps_taken is None else self.steps_taken

    @property
    def steps_spent(self) -> int:
        """Steps of its online phase that were trained to have it: those beyond a checkpoint that was selected, too."""
        return self.k if self.selected else self.shown_k

    @property
    def online_steps(self) -> int:
        """All online steps behind the policy: its own K, and those of what it started from."""
        return self.shown_k + (self.start.online_steps if self.start else 0)

    @property
    def folder(self) -> str:
        """Where the policy lives below the results folder."""
        if self.regime == "base":
            return f"{self.model}/base"
        return f"{self.model}/seed{self.seed}/{self.regime}/g{self.group_size}/k{self.k}"

    @property
    def name(self) -> str:
        """Its folder without the seed: what the files of looks call it."""
        return self.folder.replace(f"/seed{self.seed}/", "/", 1)

    @property
    def label(self) -> str:
        """The paper's name for it (Table 1)."""
        return label_of(self.regime, self.k)


@dataclass(frozen=True, order=True)
class HarvestKey:
    """Names one harvest: the rollouts of pi_K, reached with group size G from one seed."""

    model: str
    group_size: int
    k: int
    seed: int
    variant: str = ""  # the ablation or the online entry whose harvest it is, if it is not the main grid's

    @property
    def folder(self) -> str:
        """Where the harvest lives below the results folder."""
        variant = f"{self.variant}/" if self.variant else ""
        return f"{self.model}/seed{self.seed}/{variant}harvest/g{self.group_size}/k{self.k}"

    @property
    def probe_folder(self) -> str:
        """Where the probe of this harvest lives: the same rollouts of the first prompts alone."""
        return f"{self.model}/seed{self.seed}/probe/g{self.group_size}/k{self.k}"
