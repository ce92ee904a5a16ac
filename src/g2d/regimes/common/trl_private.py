"""Private names of TRL's and transformers' trainers that g2d's trainers override or read.

A new version may change them without notice, so a trainer's module compares them with the installed version when it is
imported.
"""

from __future__ import annotations

import inspect
from importlib.metadata import version

# Overridden methods of each trainer, with their parameters.
OVERRIDDEN: dict[str, dict[str, tuple[str, ...]]] = {
    "Trainer": {
        "_get_num_items_in_batch": ("batch_samples", "device"),
        "_load_from_checkpoint": ("resume_from_checkpoint", "model"),
        "_save": ("output_dir", "state_dict"),
        "_save_checkpoint": ("model", "trial"),
        "_set_signature_columns_if_needed": (),
    },
    "DPOTrainer": {
        "_compute_loss": ("model", "inputs", "return_outputs"),
        "_precompute_ref_logps": ("dataset", "name", "batch_size"),
        "_prepare_dataset": ("dataset", "processing_class", "args", "dataset_name"),
        "compute_ref_log_probs": ("model", "inputs"),
    },
    "GRPOTrainer": {
        "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
        "_generate_and_score_completions": ("inputs",),
        "_generate_single_turn": ("prompt_ids", "images", "multimodal_fields", "num_generations", "has_tool_images"),
        "_get_per_token_logps_and_entropies": ("model", "input_ids", "attention_mask", "logits_to_keep"),  # and more
        "_prepare_inputs": ("generation_batch",),
        "_tokenize_prompts": ("prompts",),
    },
}

# Attributes of each trainer that are read or set.
READ: dict[str, tuple[str, ...]] = {
    "Trainer": ("_signature_columns",),
    "DPOTrainer": ("_metrics", "_total_train_tokens"),
    "SFTTrainer": ("_metrics",),
    "GRPOTrainer": ("_buffered_inputs", "_metrics", "_step"),
}


def require_private_names(trainer: type) -> None:
    """Compare the private names of a trainer of TRL, and of transformers' below it, with the installed version.

    Raises:
        ImportError: a name is missing, or a method has other parameters.
    """
    for base in trainer.__mro__:
        changed = [*_changed_methods(base), *_missing_attributes(base)]
        if changed:
            package = base.__module__.partition(".")[0]
            raise ImportError(
                f"{package} {version(package)}: {base.__name__} has changed: {'; '.join(changed)}: install the version "
                "that pyproject.toml pins"
            )


def _changed_methods(trainer: type) -> list[str]:
    changed = []
    for name, expected in OVERRIDDEN.get(trainer.__name__, {}).items():
        method = getattr(trainer, name, None)
        if method is None:
            changed.append(f"{name} is missing")
            continue
        _self, *parameters = inspect.signature(method).parameters
        if tuple(parameters[: len(expected)]) != expected:
            changed.append(f"{name} has the parameters {', '.join(parameters)}")
    return changed


def _missing_attributes(trainer: type) -> list[str]:
    names = READ.get(trainer.__name__, ())
    if not names:
        return []
    source = inspect.getsource(trainer)
    return [f"{name} is missing" for name in names if f"self.{name}" not in source]
