"""TRL's GRPOTrainer, imported without vLLM: that takes 8 to 10 CPU seconds, for a backend that is not used here."""

from trl import import_utils

is_vllm_available = import_utils.is_vllm_available
import_utils.is_vllm_available = lambda *_, **__: False
try:
    from trl import GRPOTrainer
finally:
    import_utils.is_vllm_available = is_vllm_available

__all__ = ["GRPOTrainer"]
