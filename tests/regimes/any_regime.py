"""Short trainings by any regime of the catalogue, on the files of a harvest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from snakemake.iocontainers import InputFiles

from g2d.policies.model_keys import Lora
from g2d.regimes.common.regime import Entry, Regime, TrainingJob
from g2d.rewards.controls import Random
from tests.regimes.harvests import Harvest
from tests.regimes.trainings import NO_DROPOUT, saving, steps_of

STEPS = 3
# Keys of a short training, if the regime has them. Its other keys need defaults.
SHORT: dict[str, Any] = {
    "steps": [STEPS],
    "max_steps": STEPS,
    "learning_rate": 1e-3,
    "per_device_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "max_completion_length": 12,
    "responses": 4,
    "prompts_per_update": 2,
}
ONE_EPOCH = {"max_steps": None, "epochs": 1}

LORAS = {"lora": NO_DROPOUT, "none": Lora.model_validate("none")}


def job_of(regime: Regime, harvest: Harvest, work: Path, lora: Lora = NO_DROPOUT, **keys: Any) -> TrainingJob[Any, Any]:
    """A short training, with the data that the regime reads from the files of the harvest."""
    values = {name: value for name, value in (SHORT | keys).items() if name in regime.settings.model_fields}
    if issubclass(regime.settings, Entry):
        values["regime"] = regime.name
        if regime.phase == "offline":
            values["steps"] = "all"
    settings = regime.settings.model_validate(values)
    job: TrainingJob[Any, Any] = TrainingJob(
        harvest.base,
        None,
        settings,
        seed=0,
        work=work,
        lora=lora,
        k=STEPS,
        group_size=4,
        prompt=harvest.prompt,
        reward=Random(reward="random"),
        checkpointing=saving(work),
    )
    files = {
        "pairs": f"{harvest.folder}/pairs.jsonl",
        "problems": f"{harvest.folder}/problems.jsonl",
        "rollouts": f"{harvest.folder}/rollouts.parquet",
    }
    inputs = InputFiles(fromdict=files)
    return replace(job, data=regime.read(job, inputs))


def log_of(regime: Regime, job: TrainingJob[Any, Any]) -> list[dict[str, Any]]:
    return steps_of(regime.train(job).log)


def weights(work: Path, lora: Lora) -> Path:
    return work / lora.files[0]
