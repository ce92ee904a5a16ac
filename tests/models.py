"""A model that has hardly learnt anything, for tests that need real weights and no ability; made once per run."""

from __future__ import annotations

import os
from functools import cache

from g2d.config import ScratchModel
from g2d.policies import Policy
from tests.shared import made_once

# No test may depend on what these models happen to answer: with another seed here all have to pass.
SEED = int(os.environ.get("G2D_TEST_SEED", "0"))


@cache
def tiny_policy(heads: int = 4) -> Policy:
    """M0 for a test. vLLM's CPU kernels know no head narrower than 32, which at this width leaves `heads=1`."""
    from g2d.policies.scratch import train_scratch

    settings = ScratchModel(
        source="scratch", steps=150, batch_size=32, hidden_size=32, layers=1, heads=heads, seed=SEED
    )
    folder = made_once(f"tiny-{heads}", lambda folder: train_scratch(settings, folder))
    return Policy("tiny/base", "tiny", "base", base=str(folder))
