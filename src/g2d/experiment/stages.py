"""Version of each stage, a param of its rule; a regime's version is in its module.

Snakemake does not notice changes of imported modules. Raise the number if a change alters results, and exactly the
affected jobs run again.
"""

from __future__ import annotations

from g2d.regimes.catalogue import REGIMES, of_phase

VERSIONS = {
    "embedded_model": 1,
    "pretrained_model": 1,
    "gguf_model": 1,
    "load_problems": 1,
    "check_leakage": 1,
    "calibrate": 3,
    "select_training_set": 1,
    "train_grpo_auto": 1,
    "harvest_rollouts": 3,
    "build_pairs": 3,
    "evaluate": 4,
    "draw_replies": 1,
    "make_tables": 9,
    "draw_figures": 4,
    "write_cards": 1,
    "record_provenance": 1,
    "build_report": 8,
    **{f"train_{name}": regime.version for name, regime in REGIMES.items()},
}

TO_K = tuple(f"train_{regime.name}" for regime in of_phase("online"))  # may continue a checkpoint
AUTO_STAGE = "train_grpo_auto"  # may stop before its last step
ONLINE_STAGES = (*TO_K, AUTO_STAGE)
OFFLINE_STAGES = tuple(f"train_{regime.name}" for regime in of_phase("offline"))

# Stages that hold a device, in the order in which a policy passes through them.
RUNNING_ORDER = (
    "calibrate",
    *ONLINE_STAGES,
    "harvest_rollouts",
    *OFFLINE_STAGES,
    "evaluate",
    "draw_samples",
    "draw_replies",
)
