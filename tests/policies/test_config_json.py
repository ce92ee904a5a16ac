"""The Hub's cache is where huggingface_hub has it, whatever the environment says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BOTH = """
from huggingface_hub.constants import HF_HUB_CACHE
from g2d.policies.config_json import hub_cache
print(HF_HUB_CACHE, hub_cache(), sep="\\n")
"""


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"XDG_CACHE_HOME": "/x/cache"},
        {"HF_HOME": "~/models", "XDG_CACHE_HOME": "/x"},
        {"HUGGINGFACE_HUB_CACHE": "$SCRATCH/old", "HF_HOME": "/home", "SCRATCH": "/s"},
        {"HF_HUB_CACHE": "~/$USER/new", "HUGGINGFACE_HUB_CACHE": "/old", "USER": "me"},
    ],
)
def test_the_cache_is_where_huggingface_hub_has_it(variables: dict[str, str]) -> None:
    environment = {"HOME": "/home/me", "PATH": os.environ["PATH"]} | variables
    found = subprocess.run([sys.executable, "-c", BOTH], env=environment, capture_output=True, text=True, check=True)
    theirs, ours = found.stdout.splitlines()
    assert ours == theirs
