"""Environment variables and settings before vLLM is imported, with or without a GPU."""

from __future__ import annotations

import os


def prepare_environment() -> None:
    """Set what vLLM reads when it is imported; existing variables are kept."""
    # An engine in a process of its own would import the job's script again.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if not on_gpu():
        import torch._dynamo.config

        # vLLM would compile the ranking of log-probabilities: seconds in every process, and it needs a C++ compiler.
        torch._dynamo.config.disable = True
        # Bound threads of two jobs would share the same cores.
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")


def on_gpu() -> bool:
    """Whether there is a GPU to generate on."""
    import torch

    return torch.cuda.is_available()
