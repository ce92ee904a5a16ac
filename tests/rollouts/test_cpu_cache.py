"""Memory for keys and values on a CPU, against a calculation by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from g2d.rollouts.vllm_engine import MOST_CPU_CACHE, cpu_cache_bytes

QWEN = {"num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "hidden_size": 896}


@pytest.mark.parametrize(
    ("config", "sequences", "context", "expected"),
    [
        # 4 sequences of 3 blocks and vLLM's own; keys and values; 24 layers; 2 heads of 64; 4 bytes
        (QWEN, 4, 257, (4 * 3 + 1) * 128 * 2 * 24 * 2 * 64 * 4),
        (QWEN | {"head_dim": 128}, 4, 256, (4 * 2 + 1) * 128 * 2 * 24 * 2 * 128 * 4),
        ({**QWEN, "num_key_value_heads": None}, 1, 1, 2 * 128 * 2 * 24 * 14 * 64 * 4),
        (QWEN, 256, 4096, MOST_CPU_CACHE),
        ({"text_config": QWEN}, 4, 256, MOST_CPU_CACHE),  # what cannot be counted has what there may be
    ],
)
def test_what_so_many_sequences_fill(
    tmp_path: Path, config: dict[str, Any], sequences: int, context: int, expected: int
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert cpu_cache_bytes(tmp_path, sequences, context) == expected
