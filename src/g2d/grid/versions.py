"""Stages in the order in which a grid runs them, each with its version, a param of its rule.

Snakemake does not notice changes of imported modules. Raise the number if a change alters results, and exactly the
affected jobs run again.
"""

from __future__ import annotations

from dataclasses import dataclass

from g2d.regimes.catalogue import REGIMES, of_phase


@dataclass(frozen=True)
class Stage:
    """A rule with a script.

    Args:
        version: None if the rule has the version of another (`use rule ... as`).
        gpu: whether it samples or trains, on a GPU if there is one.
    """

    name: str
    version: int | None
    gpu: bool = False


TO_K = tuple(f"train_{regime.name}" for regime in of_phase("online"))  # may continue a checkpoint
AUTO_STAGE = "train_grpo_auto"  # may stop before its last step
ONLINE_STAGES = (*TO_K, AUTO_STAGE)
OFFLINE_STAGES = tuple(f"train_{regime.name}" for regime in of_phase("offline"))
EVALUATIONS = ("evaluate", "sample_answers")  # of a policy on all benchmarks

# The version of a training is in the module of its method.
_TRAININGS = {f"train_{name}": Stage(f"train_{name}", regime.version, gpu=True) for name, regime in REGIMES.items()}

STAGES = (
    Stage("embedded_model", 1),
    Stage("pretrained_model", 1),
    Stage("load_problems", 1),
    Stage("check_leakage", 1),
    Stage("calibrate", 1, gpu=True),
    Stage("calibrate_temperature", None, gpu=True),
    Stage("select_training_set", 1),
    *(_TRAININGS[name] for name in TO_K),
    Stage(AUTO_STAGE, 1, gpu=True),
    Stage("harvest_rollouts", 1, gpu=True),
    Stage("build_pairs", 1),
    *(_TRAININGS[name] for name in OFFLINE_STAGES),
    Stage("evaluate", 1, gpu=True),
    Stage("sample_answers", None, gpu=True),
    Stage("sample_replies", 1, gpu=True),
    Stage("make_tables", 1),
    Stage("plot_figures", 1),
    Stage("record_provenance", 1),
    Stage("build_report", 1),
)
VERSIONS = {stage.name: stage.version for stage in STAGES if stage.version is not None}
ORDER = [stage.name for stage in STAGES]
GPU_STAGES = [stage.name for stage in STAGES if stage.gpu]
