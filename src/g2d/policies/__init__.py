from g2d.policies.record import (
    PolicyRecord,
    load_base,
    load_model,
    load_tokenizer,
    read_own_policy,
    read_policy,
    write_policy,
)

__all__ = [
    "PolicyRecord",
    "load_base",
    "load_model",
    "load_tokenizer",
    "read_own_policy",
    "read_policy",
    "write_policy",
]
