r"""Scores of a reward model: one completion after another against batches, side by side in one run.

    python benchmarks/rewards.py [--model FOLDER] [--n 400] [--batch-size 16 64] [--repeats 3]

The default model is a tiny Llama with random weights and a tokenizer of bytes (2 layers, width 64). Completions are
generated, 1 to 100 characters, none twice, so that no score is in the cache. The loop is as on a model card: the chat
template, one forward pass, the logit. Loading is not counted. The last column has the largest difference of a score
between loop and batches; "again" is a second round with all scores in the cache.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from pathlib import Path

from g2d.rewards.model import Scorer

WORDS = ("Certainly", "please", "thank", "you", "the", "answer", "is", "that", "rivers", "run", "to", "sea", "gladly")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="folder of a reward model")
    parser.add_argument("--n", type=int, default=400, help="completions")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--repeats", type=int, default=3, help="rounds, of which the best counts")
    arguments = parser.parse_args()
    conversations = completions(arguments.n)
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or random_model(Path(folder))
        compare(model, conversations, arguments.batch_size, arguments.repeats)


def completions(n: int) -> list[tuple[str, str]]:
    """Questions with completions of many lengths."""
    rng = random.Random(0)
    texts = (" ".join(rng.choices(WORDS, k=100))[: rng.randint(1, 100)] for _ in range(n))
    return [(f"Question {i}: where do rivers run?", text) for i, text in enumerate(texts)]


def random_model(folder: Path) -> Path:
    """A model of the size of the demonstration's."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.rewards.models import reward_model

    shape = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2}
    return reward_model(folder, **shape)


def compare(model: Path, conversations: list[tuple[str, str]], sizes: list[int], repeats: int) -> None:
    """Print the table; the rounds take turns, so that whatever else the machine does meets all of them."""
    seconds: dict[str, list[float]] = {}
    looped: list[float] = []
    differences: dict[str, float] = {}
    for _ in range(repeats):
        single = Scorer(model, batch_size=1)
        start = time.perf_counter()
        looped = [loop(single, *pair) for pair in conversations]
        seconds.setdefault("loop", []).append(time.perf_counter() - start)
        for size in sizes:
            scorer, name = Scorer(model, batch_size=size), f"batches of {size}"
            start = time.perf_counter()
            batched = [score.value for score in scorer(conversations)]
            seconds.setdefault(name, []).append(time.perf_counter() - start)
            differences[name] = max(abs(a - b) for a, b in zip(looped, batched, strict=True))
            start = time.perf_counter()
            scorer(conversations)
            seconds.setdefault(f"{name}, again", []).append(time.perf_counter() - start)
    print(f"{len(conversations)} completions, {single.device}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    best = min(seconds["loop"])
    for name, rounds in seconds.items():
        difference = f"   largest difference {differences[name]:.1e}" if name in differences else ""
        print(f"{name:22} {min(rounds):8.3f} s {best / min(rounds):8.1f}x{difference}")


def loop(scorer: Scorer, prompt: str, completion: str) -> float:
    """One score as a model card computes it, with the same weights in memory."""
    import torch

    turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]
    tokens = scorer.tokenizer.apply_chat_template(turns, return_tensors="pt", return_dict=True).to(scorer.device)
    with torch.no_grad():
        return float(scorer.model(**tokens).logits[0, 0])


if __name__ == "__main__":
    main()
