"""The plan of M0 and of what answers: files, and settings of the jobs that generate with a frozen policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from g2d.experiment.config import Config
from g2d.experiment.sweep import with_candidates
from g2d.experiment.wildcards import Wildcards, model_of
from g2d.policies.settings import EmbeddedModel, ScratchModel


class BasePlan:
    """What the jobs of a grid are made from.

    Args:
        config: the whole configuration; `self.config` has the candidates of its sweep, too.
        refused: called with the error where a record on the way cannot be read, before that is raised. Snakemake
            drops an error of an input function whose output is there, and with it all jobs that depend on it.
    """

    def __init__(self, config: Config, refused: Callable[[Exception], None] = lambda error: None) -> None:
        self.config = with_candidates(config)
        self.refused = refused
        self.for_model = self.config.for_model

    def is_embedded(self, model: str) -> bool:
        """Whether this M0 is the embedded model, shipped or trained here, which is too small to hold a GPU."""
        return isinstance(self.config.models[model], EmbeddedModel | ScratchModel)

    def base_files(self, wildcards: Wildcards) -> list[str]:
        """The record of M0, and its weights where a rule makes them."""
        folder = f"results/{model_of(wildcards)}/base"
        weights = [f"{folder}/model/model.safetensors"] if self.is_embedded(model_of(wildcards)) else []
        return [f"{folder}/policy.json", *weights]

    def policy_files(self, wildcards: Wildcards) -> list[str]:
        """The record of the policy in a folder, its weights, and those of the M0 below it."""
        folder = f"results/{wildcards.policy}"
        own = [f"{folder}/policy.json", f"{folder}/adapter/adapter_model.safetensors"]
        return [*(own if not wildcards.policy.endswith("base") else []), *self.base_files(wildcards)]

    def settings(self, *sections: str) -> Callable[[Wildcards], dict[str, Any]]:
        """Params: the resolved sections of the configuration that a stage depends on, and nothing else."""

        def resolve(wildcards: Wildcards) -> dict[str, Any]:
            resolved = self.for_model(model_of(wildcards))
            return {section: getattr(resolved, section).params() for section in sections}

        return resolve

    def calibration_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that calibration rollouts depend on, at the temperature of the job."""
        resolved = self.for_model(wildcards.model)
        own = resolved.calibration.params(without={"levels", "window", "factorial_temperatures"})
        if hasattr(wildcards, "temperature"):
            own["temperature"] = float(wildcards.temperature)
        return {"calibration": own, "prompt": resolved.prompt.params()}

    def evaluation_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that the answers behind an accuracy depend on."""
        evaluation = self.for_model(model_of(wildcards)).evaluation.answers
        return {"evaluation": evaluation.params(), **self.settings("prompt")(wildcards)}

    def sample_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that samples beside greedy answers depend on."""
        evaluation = self.for_model(model_of(wildcards)).evaluation.samples
        drawn = {} if evaluation is None else {"evaluation": evaluation.params()}
        return {**drawn, **self.settings("prompt")(wildcards)}

    def engine(self, wildcards: Wildcards) -> str:
        """Param: what generates; how many GPUs and how much memory it takes re-runs nothing, so the script reads it."""
        return self.for_model(model_of(wildcards)).engine.identity

    def _read(self, read: Callable[[Path], Any], path: Path) -> Any:
        try:
            return read(path)
        except (OSError, ValueError) as error:
            self.refused(error)
            raise
