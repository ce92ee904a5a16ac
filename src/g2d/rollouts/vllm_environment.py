"""What this process is to vLLM: with or without a GPU, and what is settled before it is imported."""

from __future__ import annotations

import os


def prepare_environment() -> None:
    """What vLLM is to find when it is imported; variables that are set already are kept."""
    # A process of its own for the engine would import the job's script a second time.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if not on_gpu():
        import torch._dynamo.config

        # It compiles how log-probabilities are ranked: seconds in every process, and a compiler of C++ must be there.
        torch._dynamo.config.disable = True
        # Bound threads of two jobs would share the same cores and leave the others idle.
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")


def on_gpu() -> bool:
    """Whether there is a GPU to generate on."""
    import torch

    return torch.cuda.is_available()
