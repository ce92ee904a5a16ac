"""Configurations without files, and the folder of those of the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests import open_ended

CONFIG = Path(__file__).parents[1] / "config"


MINIMAL: dict[str, Any] = {
    "models": {"demo": {"source": "embedded"}},
    "pool": {"source": "synthetic", "family": "arithmetic", "split": "train", "n": 2000},
    "benchmarks": {"held-out": {"source": "synthetic", "family": "arithmetic", "split": "test", "n": 10}},
}


SYNTHETIC = {"source": "synthetic", "family": "arithmetic", "n": 10}


SMALL: dict[str, Any] = {
    "models": {"tiny": {"source": "embedded"}},
    "pool": {**SYNTHETIC, "split": "train", "n": 2000},
    "benchmarks": {"easy": {**SYNTHETIC, "split": "test"}},
    "warmup": {"steps": [0, 10]},
}


OPEN_ENDED = {"reward": "polite", "pool": open_ended.POOL, "held_out": open_ended.HELD_OUT}
