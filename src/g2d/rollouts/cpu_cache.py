"""How much memory vLLM's CPU build is given for keys and values. On a GPU vLLM takes what is left of its share."""

from __future__ import annotations

from pathlib import Path

from g2d.jobs.files import read_json

BLOCK = 128  # tokens; vLLM's on a CPU
MOST = 2**30  # bytes; vLLM's own choice is most of the machine


def cpu_cache_bytes(base: str | Path, sequences: int, context: int) -> int:
    """What so many sequences fill with their keys and values in float32, and at most a GiB.

    vLLM writes zeros into all of it at every start, which for a GiB takes longer than the rest of a small model's.

    Args:
        base: folder of M0.
        sequences: that are completed at once.
        context: tokens of each.
    """
    config = read_json(Path(base) / "config.json")
    try:
        heads = config["num_attention_heads"]
        width = config.get("head_dim") or config["hidden_size"] // heads
        layers, heads = config["num_hidden_layers"], config.get("num_key_value_heads") or heads
    except KeyError:  # a model that says it otherwise
        return MOST
    blocks = sequences * -(-context // BLOCK) + 1  # the first one is vLLM's own
    return int(min(MOST, blocks * BLOCK * 2 * layers * heads * width * 4))
