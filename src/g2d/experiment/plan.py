"""The plan: from the wildcards of a job to the files and settings it depends on.

Rules name these functions as inputs and params; a job is stale when what they return changes. They know the
configuration and, where a finished job must keep what it was made from, its record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from g2d.experiment import grid
from g2d.experiment.choices import Kind, choice_files, left_open
from g2d.experiment.online_plan import OnlinePlan
from g2d.experiment.wildcards import Wildcards, variant_folder, variant_of
from g2d.regimes.dpo import Dpo
from g2d.regimes.warmup import AUTO


class Plan(OnlinePlan):
    """The whole plan: beside M0, generation and online phases, what is trained on a harvest."""

    # --------------------------------------------------------------------------------------------- the offline phase

    def several_pairs_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """What several pairs per prompt depend on: not on `pairs.seed`, and on its younger keys where they change
        anything."""
        pairs = self.for_model(wildcards.model).pairs.params(without={"seed"})
        return self.settings("prompt")(wildcards) | ({"pairs": pairs} if pairs else {})

    def dpo(self, wildcards: Wildcards) -> Dpo:
        """The dpo section, with an ablation's other values."""
        resolved = self.for_model(wildcards.model)
        ablation = variant_of(wildcards) or wildcards.regime
        as_it_is = ("dpo", AUTO, *grid.online_entries(self.config))
        return resolved.dpo if ablation in as_it_is else resolved.ablation_dpo(ablation)

    def dpo_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that DPO depends on."""
        dpo = self.dpo(wildcards)
        return {"dpo": left_open(self.config, "dpo", wildcards, dpo, dpo.params()), **self.settings("lora")(wildcards)}

    def round_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """What a round of an entry depends on: DPO's settings, with the entry's own values."""
        dpo = self.config.regimes[wildcards.regime].dpo_of(self.for_model(wildcards.model).dpo)
        return {"dpo": left_open(self.config, "dpo", wildcards, dpo, dpo.params()), **self.settings("lora")(wildcards)}

    def harvest_of_round(self, wildcards: Wildcards) -> str:
        """Folder of the harvest that a round is trained on: of M0, or of the policy of the round before."""
        w, before = wildcards, int(wildcards.k) - 1
        return f"results/{w.model}/seed{w.seed}/{f'{w.regime}/' if before else ''}harvest/g{w.g}/k{before}"

    def round_before(self, wildcards: Wildcards) -> list[str]:
        """Record and weights of the policy of the round before; none of the first one's, which is M0."""
        folder = f"{self.trajectory(wildcards)}/k{int(wildcards.k) - 1}"
        return [f"{folder}/policy.json", f"{folder}/adapter/adapter_model.safetensors"] if wildcards.k != "1" else []

    def entry_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """What a policy of an entry of `regimes` depends on: the entry but for its other K, under its regime's name."""
        entry = self.config.regimes[wildcards.regime]
        values = entry.params(without={"steps", "regime", "harvest"})
        own = {entry.regime: left_open(self.config, "regimes", wildcards, entry, values)}
        return {**own, **self.settings("lora", "prompt")(wildcards)}

    def start_files(self, wildcards: Wildcards) -> list[str]:
        """The policy to start from where it is not M0."""
        entry = self.config.regimes.get(wildcards.regime) or self.dpo(wildcards)
        return self._warmed_up_files(wildcards) if entry.start == "warmup" else []

    def pairs_file(self, wildcards: Wildcards) -> str:
        """The pairs to train on: one of every pairable prompt, or several."""
        n = self.dpo(wildcards).pairs_per_prompt
        name = "pairs" if n == 1 else f"pairs-{n}"
        w = wildcards
        return f"results/{w.model}/seed{w.seed}/{variant_folder(w)}harvest/g{w.g}/k{w.k}/{name}.jsonl"

    def pairs_of_entry(self, wildcards: Wildcards) -> list[str]:
        """The pairs of the harvest, one of a prompt, where an entry of `regimes` asks for them."""
        w, asked = wildcards, self.config.regimes[wildcards.regime].needs_pairs
        pairs = f"results/{w.model}/seed{w.seed}/{variant_folder(w)}harvest/g{w.g}/k{w.k}/pairs.jsonl"
        return [pairs] if asked else []

    def matched_pairs(self, wildcards: Wildcards) -> list[str]:
        """The pairs to whose smallest number an N-matched control is cut."""
        match = self.dpo(wildcards).match_pairs_to
        if match is None:
            return []
        others = (AUTO, *grid.online_entries(self.config))  # matched to the grid, whatever their own K
        own = variant_folder(wildcards) if variant_of(wildcards) not in others else ""
        points = grid.harvest_points(self.config, wildcards.model, own.rstrip("/"))
        harvest = f"results/{wildcards.model}/seed{wildcards.seed}/{own}harvest"
        return [f"{harvest}/g{g}/k{k}/pairs.jsonl" for g, k in points if match in (k, "min")]

    # ------------------------------------------------------------------------------------------------------ the sweep

    def choice(self, kind: Kind) -> Callable[[Wildcards], list[str]]:
        """Input: what a sweep has chosen for a training, where something is left to it."""
        return lambda wildcards: choice_files(self.config, kind, wildcards)
