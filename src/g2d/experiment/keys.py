"""Keys of policies and harvests of the grid, and their folders below the results folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from g2d.regimes.catalogue import REGIMES
from g2d.regimes.run.training import AUTO

# Roles of policies, in the order of the tables: M0, DPO and G2D, both after a warm-up that stopped automatically, an
# entry of `regimes`, the GRPO baseline at the largest K and at smaller K, and an ablation (Table 3).
ROLES = ("base", "dpo", "auto", "entry", "grpo", "curve", "ablation")

# Names of policies in sentences, by label.
POLICY_NAMES = {"base": "M0", "dpo": "DPO", "g2d": "G2D", "g2d-auto": "G2D auto", "grpo": "GRPO"}


def label_of(regime: str, k: int) -> str:
    """Return the paper's name for policies of a folder: DPO is `dpo` on the harvest of M0 and `g2d` on pi_K's."""
    if regime.startswith(f"{AUTO}/"):
        return "g2d-auto"
    return "g2d" if regime == "dpo" and k > 0 else regime


def called(policy: str, k: object, group_size: object = 0) -> str:
    """Name a policy in a sentence: M0, DPO (K=0), G2D (K=50), or G2D (K=50, G=2) with its group size."""
    group = f", G={group_size}" if group_size else ""
    return POLICY_NAMES["base"] if policy == "base" else f"{POLICY_NAMES.get(policy, policy)} (K={k}{group})"


@dataclass(frozen=True, order=True)
class PolicyKey:
    """Key of one policy. `group_size` is 0 without an online phase; `seed` is None for M0 and for all seeds.

    `kind` and `role` describe the training; main policies have their name as both.
    """

    model: str
    # base | grpo | dpo | auto/dpo | NAME of an ablation, or NAME/dpo and NAME/grpo if it has its own warm-up | NAME of
    # an entry of `regimes`, and NAME/dpo for DPO on the harvest of an online entry | NAME/selected for a selected
    # checkpoint
    regime: str
    group_size: int
    # Online steps before the policy: GRPO steps, updates of an online entry, or rounds. An upper bound if the training
    # stops automatically.
    k: int
    seed: int | None
    steps_taken: int | None = field(default=None, compare=False)  # set by `with_steps_taken`
    kind: str = field(default="", compare=False)  # base, or a name in `g2d.regimes.catalogue`
    role: str = field(default="", compare=False)  # one of `ROLES`
    online: str = field(default="grpo", compare=False)  # regime of its K online steps: a name in the catalogue
    reward: str = field(default="", compare=False)  # its reward in words, "" for the correct answer
    stops: bool = field(default=False, compare=False)  # whether its online phase stopped automatically, at most at `k`
    start: PolicyKey | None = field(default=None, compare=False)  # policy that its online phase started from, if not M0
    teacher: PolicyKey | None = field(default=None, compare=False)  # teacher of its online phase
    selected: bool = field(default=False, compare=False)  # whether it is a checkpoint selected among several up to `k`

    def __post_init__(self) -> None:
        for name in ("kind", "role"):
            if not getattr(self, name):
                object.__setattr__(self, name, self.regime)
        if self.role not in ROLES:
            raise ValueError(f"{self.regime}: a policy beside the main ones needs a kind and a role")

    @property
    def over_seeds(self) -> PolicyKey:
        """The same key for all seeds, as in a row of a table."""
        return replace(self, seed=None, steps_taken=None)

    @property
    def is_ablation(self) -> bool:
        """Whether it is listed in Table 3 instead of Table 1."""
        return self.role == "ablation"

    @property
    def trained_online(self) -> bool:
        """Whether it is the policy of an online phase, without a training on a harvest."""
        return self.kind in REGIMES and REGIMES[self.kind].phase == "online"

    @property
    def on_a_curve(self) -> bool:
        """Whether it is one K of an online training from M0 with a fixed number of steps."""
        return self.trained_online and not (self.stops or self.selected or self.start)

    @property
    def in_rounds(self) -> bool:
        """Whether K counts rounds or stages, each with a harvest."""
        return self.kind in REGIMES and REGIMES[self.kind].phase in ("rounds", "stages")

    @property
    def reference(self) -> PolicyKey:
        """The policy of the main grid that an ablation or entry is compared with, at the same K and G (Table 3).

        Rounds and stages are compared with DPO on the harvest of M0.
        """
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
        """Steps of its online phase that were trained, including steps after a selected checkpoint."""
        return self.k if self.selected else self.shown_k

    @property
    def online_steps(self) -> int:
        """All online steps before the policy: its own K, and the steps of the policy that it started from."""
        return self.shown_k + (self.start.online_steps if self.start else 0)

    @property
    def folder(self) -> str:
        """Its folder below the results folder."""
        if self.regime == "base":
            return f"{self.model}/base"
        return f"{self.model}/seed{self.seed}/{self.regime}/g{self.group_size}/k{self.k}"

    @property
    def name(self) -> str:
        """Its folder without the seed, as in the files of interim analyses."""
        return self.folder.replace(f"/seed{self.seed}/", "/", 1)

    @property
    def label(self) -> str:
        """The paper's name for it (Table 1)."""
        return label_of(self.regime, self.k)


@dataclass(frozen=True, order=True)
class HarvestKey:
    """Key of one harvest: the rollouts of pi_K, trained with group size G and one seed."""

    model: str
    group_size: int
    k: int
    seed: int
    variant: str = ""  # the ablation or online entry that it belongs to, "" for the main grid

    @property
    def folder(self) -> str:
        """Its folder below the results folder."""
        variant = f"{self.variant}/" if self.variant else ""
        return f"{self.model}/seed{self.seed}/{variant}harvest/g{self.group_size}/k{self.k}"

    @property
    def probe_folder(self) -> str:
        """The folder of its probe: the same rollouts for the first prompts only."""
        return f"{self.model}/seed{self.seed}/probe/g{self.group_size}/k{self.k}"
