"""Names of rules that were changed by using the workflow as a module."""

from __future__ import annotations

import os

NAMES = "G2D_RULE_NAMES"  # what rules are called, such as `g2d_*`; set where the workflow is read


def own_name(rule: str) -> str:
    """The name of a rule in this workflow: `harvest` for `g2d_harvest` after `use rule * from g2d as g2d_*`."""
    before, _, after = os.environ.get(NAMES, "*").partition("*")
    return rule.removeprefix(before).removesuffix(after)
