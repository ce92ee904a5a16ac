"""Memory of keys and values for vLLM's CPU build; on a GPU vLLM takes what is left of its share."""

from __future__ import annotations

from pathlib import Path

from g2d.jobs.files import read_json

BLOCK = 128  # tokens; vLLM's on a CPU
MOST = 2**30  # bytes; vLLM's own choice is most of the machine


def cpu_cache_bytes(base: str | Path, sequences: int, context: int) -> int:
    """Bytes of the keys and values of so many sequences in float32, at most a GiB.

    vLLM fills all of it with zeros at every start, which takes seconds for a GiB.

    Args:
        base: folder of M0.
        sequences: completed at once.
        context: tokens of each.
    """
    config = read_json(Path(base) / "config.json")
    try:
        heads = config["num_attention_heads"]
        width = config.get("head_dim") or config["hidden_size"] // heads
        layers, heads = config["num_hidden_layers"], config.get("num_key_value_heads") or heads
    except KeyError:  # a configuration with other names
        return MOST
    blocks = sequences * -(-context // BLOCK) + 1  # the first one is vLLM's own
    return int(min(MOST, blocks * BLOCK * 2 * layers * heads * width * 4))
