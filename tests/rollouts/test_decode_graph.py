"""Steps of fixed shapes: what a CUDA graph would repeat draws the same tokens.

There is no card here, so `Recording` plays the graph: it records the operations of a step with the very tensors that
they read and wrote, and repeats them. Nothing that Python does in a step happens again, as in a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from g2d.policies.adapter_rounding import round_once
from g2d.rollouts.decode_graph import FixedRows, Step, bucket
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rows import Rows, is_supported
from tests.models import random_model
from tests.rollouts.test_shared_reading import ENDS, GREEDY, KINDS, drawn, prompts_behind

WAITS = ("item", "_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "is_nonzero", "equal")
SAMPLED = Decoding(2, 1.3, 1.0, 20, 5, 0)
NUCLEUS = Decoding(2, 1.3, 0.9, 20, 5, 0)


class Recorder(TorchDispatchMode):
    """Records the operations of a block, and refuses those that wait for the device or whose shapes depend on data."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Callable, Any, Any, list[Any]]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket.__name__ in WAITS:
            raise AssertionError(f"{function} waits for the device")
        result = function(*args, **(kwargs or {}))
        self.done.append((function, args, kwargs or {}, tree_flatten(result)[0]))
        return result

    def repeat(self) -> None:
        """Do the same into the same tensors, including the operations of autocast."""
        with torch.autocast("cpu", enabled=False):
            for function, args, kwargs, results in self.done:
                for old, new in zip(results, tree_flatten(function(*args, **kwargs))[0], strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


def as_they_come(step: Step, columns: int) -> None:
    step(columns)


class Recording:
    """Steps that are recorded when they are first taken, and repeated from then on."""

    def __init__(self) -> None:
        self.recorded: dict[int, Recorder] = {}
        self.taken: list[int] = []

    def __call__(self, step: Step, columns: int) -> None:
        self.taken.append(columns)
        if columns in self.recorded:
            self.recorded[columns].repeat()
            return
        self.recorded[columns] = Recorder()
        with self.recorded[columns]:
            step(columns)


@pytest.mark.parametrize("decoding", [GREEDY, SAMPLED, NUCLEUS], ids=["greedy", "sampled", "nucleus"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_step_draws_the_same_tokens(kind: str, decoding: Decoding) -> None:
    """Prompts of unequal lengths, more of them than rows, two sizes of a step, and a second call."""
    model, recording = random_model(kind), Recording()
    fixed = FixedRows(iter([recording]).__next__)  # the second call makes none
    prompts = prompts_behind([], 31, 3, 24, 11, 1, 17)
    expected = drawn(model, prompts, decoding)
    assert min(map(len, expected.values())) < max(map(len, expected.values()))
    assert drawn(model, prompts, decoding, fixed) == expected
    assert set(recording.recorded) == {32, 64}
    shorter = prompts[2:]
    recorded = list(recording.recorded.values())
    assert drawn(model, shorter, decoding, fixed) == drawn(model, shorter, decoding)
    assert list(recording.recorded.values()) == recorded  # nothing is captured twice


@pytest.mark.parametrize(("half", "once"), [(False, False), (True, False), (True, True)])
def test_a_step_with_an_adapter_can_be_recorded(half: bool, once: bool) -> None:
    """And a change of the adapter's numbers, in place as an optimizer makes it, is followed: no old copy of them, as
    autocast keeps outside of inference mode, is read again."""
    base = random_model("grouped").to(torch.bfloat16 if half else torch.float32)
    config = LoraConfig(r=4, target_modules="all-linear")
    if once:
        round_once(config)
    model = get_peft_model(base, config).eval()
    assert is_supported(model)
    fixed, made = FixedRows(Recording), []
    prompts = prompts_behind([], 5, 9)
    for std in (0.0, 0.5):
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=std)
        with torch.autocast("cpu", torch.bfloat16, half):
            made.append(drawn(model, prompts, SAMPLED, fixed))
            # In bfloat16 another number of columns is another rounding.
            assert made[-1] == drawn(model, prompts, SAMPLED, FixedRows(lambda: as_they_come) if half else None)
    assert made[0] != made[1]


def test_rows_are_made_anew_where_the_old_ones_do_not_serve() -> None:
    model, made = random_model("grouped"), list[Recording]()

    def graphs() -> Recording:
        made.append(Recording())
        return made[-1]

    fixed = FixedRows(graphs)
    prompts = prompts_behind([], 5, 9)
    for decoding, wanted, n in (
        (SAMPLED, prompts, 1),
        (replace(SAMPLED, seed=1), prompts, 1),
        (replace(SAMPLED, temperature=0.7), prompts, 2),
        (replace(SAMPLED, temperature=0.7, batch_size=3), prompts, 2),  # of four rows one stays free
        (replace(SAMPLED, temperature=0.7), prompts_behind([], 5, 9, 13), 3),  # five rows
        (replace(SAMPLED, temperature=0.7), prompts_behind([], 50), 4),
    ):
        assert drawn(model, wanted, decoding, fixed) == drawn(model, wanted, decoding)
        assert len(made) == n


class OffHost(TorchDispatchMode):
    """Refuses operations with a tensor on the host: a copy from there cannot be captured."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        tensors = [each for each in tree_flatten((args, kwargs, result))[0] if isinstance(each, torch.Tensor)]
        assert {each.device.type for each in tensors} <= {"meta"}, f"{function} has a tensor on the host"
        return result


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_has_all_it_needs_on_the_device(kind: str) -> None:
    """Take a step on torch's meta device, which has shapes and no numbers."""
    model = random_model(kind).to("meta")
    with torch.inference_mode():
        rows = Rows(model, NUCLEUS, ENDS, 4, 64)
        prompt = model(input_ids=torch.zeros(1, 1, dtype=torch.long, device="meta"), use_cache=True).past_key_values
        rows.cache.write(rows.every, prompt, torch.zeros_like(rows.every), torch.zeros_like(rows.every[:1]), 4)
        with OffHost():
            rows.step(32)


def test_buckets_are_two_per_doubling() -> None:
    sizes = [bucket(n) for n in range(1, 1025)]
    assert sorted(set(sizes)) == [32, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
    assert all(n <= size <= max(32, 1.5 * n) or n < 64 for n, size in enumerate(sizes, 1))
