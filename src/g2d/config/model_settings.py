"""The settings of one model."""

from __future__ import annotations

from dataclasses import dataclass, fields

from g2d.config.ablation import Ablation
from g2d.policies.model_keys import Lora
from g2d.problems.problem_keys import TrainingSet
from g2d.problems.prompts import Prompt
from g2d.regimes.catalogue import AnyEntry
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.offline.dpo import Dpo
from g2d.regimes.run.processes import Processes
from g2d.rollouts.rollout_keys import Calibration, EngineSettings, Evaluation, HarvestSettings, Pairs
from g2d.settings.mistakes import changed


@dataclass(frozen=True)
class ModelSettings:
    """The sections of a configuration that can differ by model, as one model has them."""

    prompt: Prompt
    engine: EngineSettings
    lora: Lora
    calibration: Calibration
    training_set: TrainingSet
    warmup: Warmup
    harvest: HarvestSettings
    pairs: Pairs
    dpo: Dpo
    evaluation: Evaluation
    training: Processes

    def steps_of(self, name: str, further: Ablation | AnyEntry) -> list[int]:
        """Return the K of an ablation or entry. "all" leaves out K=0 if it needs a warm-up."""
        if further.steps != "all":
            return sorted(further.steps)
        if not isinstance(further, Ablation):
            needs_warmup = further.start == "warmup"
        elif further.has_warmup and further.reward is None:  # a reward changes the harvest of M0 too
            needs_warmup = True
        else:
            needs_warmup = self.ablated_dpo(name, further).start == "warmup"
        if needs_warmup:
            return [k for k in self.warmup.steps if k > 0]
        return list(self.warmup.steps)

    def ablated_dpo(self, name: str, ablation: Ablation) -> Dpo:
        return changed(f"ablations.{name}.dpo", self.dpo, ablation.dpo)

    def ablated_warmup(self, name: str, ablation: Ablation) -> Warmup:
        """Return the warmup section of an ablation.

        It keeps the horizon of the main warm-up unless it sets one, so learning rates stay comparable.
        """
        main = self.warmup.model_copy(update={"horizon": self.warmup.total_steps, "auto": None})
        steps = self.steps_of(name, ablation)
        return changed(f"ablations.{name}.warmup", main, ablation.warmup | {"steps": steps})


MODEL_SECTIONS = [field.name for field in fields(ModelSettings)]
