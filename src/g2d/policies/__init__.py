"""Policies: how each kind is trained (`scratch`, `pretrained`, `grpo`, `dpo`), one module a regime.

To add a regime: a module here that ends in `write_policy`, its policies in `g2d.grid.policies`, one rule.
"""

from g2d.policies.policy import (
    Policy,
    load_base,
    load_model,
    load_tokenizer,
    read_own_policy,
    read_policy,
    write_policy,
)

__all__ = ["Policy", "load_base", "load_model", "load_tokenizer", "read_own_policy", "read_policy", "write_policy"]
