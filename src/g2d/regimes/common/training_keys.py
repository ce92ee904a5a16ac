"""Keys of how a training computes its steps."""

from __future__ import annotations

from typing import Literal

from g2d.settings import Section, key


class TrainingKeys(Section):
    """Memory, cores and precision of a training. The batch of a gradient step does not depend on them."""

    gradient_checkpointing: bool | Literal["auto"] = key(
        "auto", "Recompute activations: less memory, a third more computing. auto: on a GPU, if needed.", neutral="auto"
    )
    threads: int = key(1, "Cores per training on a CPU (docs/environments.md).", ge=1, neutral=1)
    shared_prompts: bool | Literal["auto"] = key(
        "auto", "On a CPU, process a prompt once for all its completions. auto: for pretrained models.", neutral="auto"
    )
    precision: Literal["auto", "float32", "bfloat16"] = key(
        "auto", "Precision of matrix products on a CPU. auto: float32. GPUs use bfloat16.", neutral="auto"
    )
