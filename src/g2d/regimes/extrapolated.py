"""Extrapolated K: the policy at a later K, predicted from two checkpoints of the GRPO warm-up (arXiv 2601.04537).

W(K) = W(a) + (K - a) / (b - a) (W(b) - W(a)). Adapters are exact: with a = 0 it is the adapter of b with B scaled.
Otherwise both are concatenated, as by PEFT's `add_weighted_adapter` (`combination_type="cat"`). PEFT would load M0, in
float32; here only the files of the adapters are read.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import create_model, model_validator

from g2d.jobs.files import read_json, write_json
from g2d.policies.policy import Policy, load_base, read_own_policy, require_own_weights
from g2d.regimes.regime import Entry, Phase, Regime
from g2d.regimes.run.job import Trained, TrainingJob
from g2d.settings import Steps, key, repeated

# `from` is a keyword of Python, so the class below cannot declare it.
_KEYS: dict[str, Any] = {
    "from": (list[Steps], key(..., "Two K of the warm-up's chain to extrapolate from; 0 is M0.", paper="0, 1400"))
}
_From: Any = create_model("_From", __base__=Entry, **_KEYS)


class Extrapolated(_From):
    """Policies at larger K, extrapolated linearly from two K of the warm-up."""

    phase: ClassVar[Phase] = "extrapolated"
    regime: Literal["extrapolated"] = key(..., "Extrapolate the weights of the warm-up.")
    to: list[Steps] = key(..., "K to extrapolate to.", paper="2000", min_length=1)
    policies: list[Literal["extrapolated", "dpo"]] = key(
        ["extrapolated"],
        "Evaluate the extrapolated policy, DPO on its harvest, or both.",
        min_length=1,
    )

    @model_validator(mode="after")
    def _beyond(self) -> Extrapolated:
        if len(self.between) != 2 or self.between[0] >= self.between[1]:
            raise ValueError(f"from: {list(self.between)} are not two ascending K: write for example from: [50, 100]")
        if repeated(self.to) or repeated(self.policies):
            raise ValueError(f"to and policies: list every value once: {self.to}, {self.policies}")
        if (first := min(self.to)) <= self.between[1]:
            raise ValueError(f"to: K={first} is not beyond from: {list(self.between)}: list larger K, or drop it")
        return self

    @property
    def between(self) -> tuple[int, ...]:
        """The two K of `from`."""
        return tuple(getattr(self, "from"))

    @property
    def steps(self) -> list[int]:
        return sorted(self.to)


def read_checkpoints(job: TrainingJob, inputs: Any) -> list[Policy]:
    return [read_own_policy(path) for path in inputs.policies]


def extrapolate(job: TrainingJob) -> Trained:
    """Leave the extrapolated `Lora.files` in the work folder."""
    first, last = job.settings.between
    ahead = (job.k - first) / (last - first)
    for policy in job.data:
        require_own_weights(policy)
    shutil.rmtree(folder := job.work / job.lora.folder, ignore_errors=True)
    folder.mkdir()
    if job.lora.trains_all:
        earlier, later = job.data
        _extrapolate_weights(earlier, later, ahead, folder)
    else:
        weighted = zip(job.data, (1 - ahead, ahead), strict=True)
        combine_adapters([(Path(policy.adapter), weight) for policy, weight in weighted if policy.adapter], folder)
    return Trained([])


def combine_adapters(weighted: list[tuple[Path, float]], folder: Path) -> None:
    """Write the adapter whose change is a weighted sum of the changes of adapters of equal rank and scale."""
    import torch
    from safetensors.torch import load_file, save_file

    adapters = [(load_file(adapter / "adapter_model.safetensors"), weight) for adapter, weight in weighted]
    combined = {
        name: torch.cat([tensors[name] for tensors, _ in adapters])
        if "lora_A" in name or "lora_embedding_A" in name
        else torch.cat([tensors[name] * weight for tensors, weight in adapters], dim=1)
        for name in adapters[0][0]
    }
    save_file(combined, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = read_json(weighted[-1][0] / "adapter_config.json")
    settings |= {name: len(adapters) * settings[name] for name in ("r", "lora_alpha")}  # the scale stays
    write_json(folder / "adapter_config.json", settings)


def _extrapolate_weights(earlier: Policy, later: Policy, ahead: float, folder: Path) -> None:
    """Write full weights, in the precision of `later`."""
    from safetensors.torch import load_file, save_file

    def weights_of(policy: Policy) -> dict[str, Any]:
        return load_file(policy.files[0]) if policy.weights else load_base(policy, exact=True).state_dict()

    before = weights_of(earlier)
    extrapolated = {
        name: before[name].float().lerp(weights.float(), ahead).to(weights.dtype)
        for name, weights in weights_of(later).items()
    }
    save_file(extrapolated, folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(later.files[1], folder / "config.json")


EXTRAPOLATED = Regime(
    name="extrapolated",
    version=1,
    phase="extrapolated",
    in_one_process=True,
    consumes="prompts",
    settings=Extrapolated,
    read=read_checkpoints,
    train=extrapolate,
    label="extrapolated GRPO",
    card="{k} steps of GRPO ({regime})",
    message="Extrapolate GRPO of {wildcards.model} to K={wildcards.k} ({wildcards.regime}), "
    "G={wildcards.g}, seed {wildcards.seed}",
)
