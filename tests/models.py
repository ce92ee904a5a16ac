"""A model that has hardly learnt anything, for tests that need real weights and no ability; made once per run."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from g2d.config import ScratchModel
from g2d.policies import Policy


@cache
def tiny_policy(heads: int = 4) -> Policy:
    """M0 for a test. vLLM's CPU kernels know no head narrower than 32, which at this width leaves `heads=1`."""
    from g2d.policies.scratch import train_scratch

    folder = Path(mkdtemp(prefix="g2d-tiny-"))
    settings = ScratchModel(source="scratch", steps=150, batch_size=32, hidden_size=32, layers=1, heads=heads)
    train_scratch(settings, folder)
    return Policy("tiny/base", "tiny", "base", base=str(folder))
