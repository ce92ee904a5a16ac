"""Common code of TRL trainers: arguments, models, and logs.

Arguments are explicit so that an upgrade does not silently change results. The trained part of a model is an adapter,
or all weights. TRL's reference is a frozen copy of the adapter, "ref", or a second model if all weights are trained,
called `frozen`.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, get_args

from pydantic import field_validator

from g2d.jobs.files import disk_errors, read_json, write_json, write_jsonl
from g2d.jobs.model_folder import ONE_FILE
from g2d.policies.model_keys import ADAPTER_FOLDER, ADAPTER_WEIGHTS, ALL_FOLDER, Lora, lora_config
from g2d.policies.record import (
    PolicyRecord,
    load_base,
    load_into,
    precision,
    require_own_weights,
    require_whole_adapter,
    with_adapter,
)
from g2d.rewards.registry import require_numbers
from g2d.rewards.reward import Status
from g2d.settings import Section, key

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from torch.nn import Module
    from transformers import PreTrainedModel, Trainer

LogRow = dict[str, float]  # metrics that a trainer logs together


class OptimizerKeys(Section):
    """Settings of AdamW besides the learning rate."""

    adam_betas: tuple[float, float] = key((0.9, 0.999), "AdamW's beta1 and beta2.", neutral=(0.9, 0.999))
    adam_epsilon: float = key(1e-8, "Epsilon in AdamW's denominator.", gt=0, neutral=1e-8)
    max_grad_norm: float = key(1.0, "Gradient norm to clip at.", gt=0, neutral=1.0)

    @field_validator("adam_betas")
    @classmethod
    def _decays(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"both must be at least 0 and below 1: {list(betas)}")
        return betas


class LearningRateKeys(Protocol):
    """Keys of the learning rate, common to all regimes."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def lr_schedule(self) -> str: ...


def trainer_arguments(
    output_dir: str | Path,
    seed: int,
    tracking: Mapping[str, str] | None = None,
    settings: LearningRateKeys | None = None,
    *,
    checkpointing: bool = False,
    autocast: bool = False,
) -> dict[str, object]:
    """Return arguments common to TRL's configurations.

    Args:
        checkpointing: checkpoint activations.
        autocast: use bfloat16 on a CPU, as on a GPU.
    """
    import torch

    gpu = torch.cuda.is_available()
    keys = settings if isinstance(settings, OptimizerKeys) else OptimizerKeys()
    arguments: dict[str, object] = {
        "output_dir": str(output_dir),
        "seed": seed,
        "data_seed": seed,
        "use_cpu": not gpu,
        "bf16": gpu or autocast,
        # Not accelerate's version, which recomputes with different dropout.
        "gradient_checkpointing": checkpointing,
        "optim": "adamw_torch",
        "adam_beta1": keys.adam_betas[0],
        "adam_beta2": keys.adam_betas[1],
        "adam_epsilon": keys.adam_epsilon,
        "weight_decay": 0.0,
        "max_grad_norm": keys.max_grad_norm,
        "warmup_steps": 0,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # otherwise it logs the mean of earlier losses for NaN
        "router_aux_loss_coef": 0.0,  # TRL adds a term for a mixture of experts; the papers have none
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    if settings:
        arguments["learning_rate"] = settings.learning_rate
        arguments["lr_scheduler_type"] = settings.lr_schedule
    return arguments | dict(tracking or {"report_to": "none"})


def starting_model(base: PolicyRecord, start: PolicyRecord | None, lora: Lora) -> PreTrainedModel:
    """Load M0 or `start`, in float32 if all weights are trained: bfloat16 would round most of a step away.

    Raises a ValueError if `start` is of the other kind (adapter or all weights), or its weights differ from its record.
    """
    if start is not None and (start.weights is None) == lora.trains_all:
        raise ValueError(f"{start.policy_id} has no {lora.folder} to start from")
    if lora.trains_all:
        require_own_weights(start or base)
        return load_base(start or base, exact=True)
    model = load_base(base)
    if start is None:
        return model
    require_own_weights(start)
    model = with_adapter(model, str(start.adapter), is_trainable=True)
    model.peft_config["default"].base_model_name_or_path = base.base  # PEFT would look up the model's own name
    return model


def precision_of(trainer: Trainer) -> str:
    """Return the precision of a trainer's matrix products, bfloat16 or float32."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    rounds = "bfloat16" in str(model.dtype) or trainer.accelerator.mixed_precision == "bf16"
    return "bfloat16" if rounds else "float32"


@contextmanager
def evaluation_mode(model: PreTrainedModel) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def restore_token_count(trainer: Trainer, checkpoint: Path) -> None:
    counts = [row["num_tokens"] for row in read_log(checkpoint) if "num_tokens" in row]
    trainer._total_train_tokens = counts[-1] if counts else 0


def with_own_adapter(model: PreTrainedModel, lora: Lora, seed: int) -> PeftModel:
    """Add the adapter that TRL would create, so that TRL also keeps a reference adapter."""
    from peft import get_peft_model
    from transformers import set_seed

    set_seed(seed)
    return get_peft_model(model, lora_config(lora))


def reference_weights(model: PreTrainedModel, frozen: PreTrainedModel | None = None) -> dict[str, torch.Tensor]:
    if frozen is not None:
        return dict(frozen.named_parameters())
    return {name: parameter for name, parameter in model.named_parameters() if ".ref." in name}


def copy_to_reference(model: PreTrainedModel, frozen: PreTrainedModel | None = None) -> None:
    import torch

    with torch.no_grad():
        for name, reference in reference_weights(model, frozen).items():
            reference.copy_(model.get_parameter(name.replace(".ref.", ".default.")))


def sort_target_modules(model: PreTrainedModel) -> None:
    """Let PEFT write the modules of an adapter in order; it has a set, and would write its arbitrary order."""
    for config in getattr(model, "peft_config", {}).values():
        if isinstance(config.target_modules, set):
            config.target_modules = sorted(config.target_modules)


def load_reference(model: PreTrainedModel, folder: Path, frozen: PreTrainedModel | None = None) -> None:
    """Load the weights in a folder into the reference."""
    if frozen is not None:
        load_into(frozen, folder)
        return
    from peft import load_peft_weights, set_peft_model_state_dict

    set_peft_model_state_dict(model, load_peft_weights(str(folder), device="cpu"), adapter_name="ref")
    require_whole_adapter(model, folder, "ref")


@contextmanager
def merged(model: PreTrainedModel) -> Iterator[None]:
    """Merge the adapter into float32 weights and bypass PEFT's layers; restore the original tensors afterwards."""
    from peft.tuners.lora import LoraLayer

    layers: list[tuple[Module, str, LoraLayer]] = []  # (module above it, name there, layer)
    for parent in model.modules():
        for name, child in parent.named_children():
            if isinstance(child, LoraLayer):
                layers.append((parent, name, child))
    before = [layer.get_base_layer().weight.data for *_, layer in layers]
    if not layers:
        yield
        return
    model.merge_adapter(safe_merge=True)  # creates new tensors; unmerging would subtract, with rounding errors
    for parent, name, layer in layers:
        setattr(parent, name, layer.get_base_layer())
    try:
        yield
    finally:
        for (parent, name, layer), weights in zip(layers, before, strict=True):
            setattr(parent, name, layer)
            layer.get_base_layer().weight.data = weights
            layer.merged_adapters.clear()


def save_trained(model: PreTrainedModel, folder: Path) -> None:
    """Save an adapter byte for byte as PEFT would, or all weights under the names of M0's file."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    if not hasattr(model, "peft_config"):
        model.save_pretrained(folder)
        return
    weights = get_peft_model_state_dict(model, adapter_name="default", save_embedding_layers=False)
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    save_file(on_cpu, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    sort_target_modules(model)
    model.peft_config["default"].save_pretrained(folder)


def export_trained(checkpoint: Path, work: Path, base: PolicyRecord) -> None:
    """Copy `Lora.files` of a checkpoint to `work`, full weights in the precision of the trainer's passes.

    The public name of M0 is only written here: PEFT reads the vocabulary of the M0 that an adapter names.
    """
    is_adapter = (checkpoint / "adapter_config.json").is_file()
    folder = work / (ADAPTER_FOLDER if is_adapter else ALL_FOLDER)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if not is_adapter:
        from safetensors.torch import load_file, save_file

        weights: dict[str, torch.Tensor] = {}
        for part in sorted(checkpoint.glob("model*.safetensors")):
            for name, tensor in load_file(part).items():
                weights[name] = tensor.to(precision())
        save_file(weights, folder / ONE_FILE, metadata={"format": "pt"})
        shutil.copyfile(Path(base.base, "config.json"), folder / "config.json")
        return
    with disk_errors(folder):
        shutil.copy2(checkpoint / ADAPTER_WEIGHTS, folder)
    named = {"base_model_name_or_path": base.public_base, "revision": base.revision, "inference_mode": True}
    write_json(folder / "adapter_config.json", read_json(checkpoint / "adapter_config.json") | named)


def read_log(checkpoint: Path) -> list[LogRow]:
    log: list[LogRow] = read_json(checkpoint / "trainer_state.json")["log_history"]
    return log


def require_rewards(log_history: Sequence[LogRow]) -> None:
    """Raise a ValueError if the reward of some kind of prompts has scored no completion, by the logged shares."""
    _require_scores(log_history, "", get_args(Status), "the reward of this training")
    for kind in ("verifiable", "open_ended"):
        where = f"the reward of this training, {kind} prompts"
        _require_scores(log_history, f"/{kind}", ("judged", "without"), where)


def _require_scores(log_history: Sequence[LogRow], ending: str, names: Sequence[str], where: str) -> None:
    rows = [row for row in log_history if f"rewards/judged{ending}" in row]
    shares: dict[str, float] = {}
    if rows:
        for name in names:
            shares[name] = sum(row[f"rewards/{name}{ending}"] for row in rows) / len(rows)
    require_numbers(shares, where)


def write_metrics(path: str | Path, log_history: list[LogRow]) -> None:
    """Write one JSON line per gradient step; NaN and infinity become null."""
    require_rewards(log_history)
    rows: list[dict[str, float | None]] = []
    for row in log_history:
        if "loss" not in row:
            continue
        finite: dict[str, float | None] = dict(row)
        for name, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):  # a callback may log text
                finite[name] = None
        rows.append(finite)
    write_jsonl(path, rows)
