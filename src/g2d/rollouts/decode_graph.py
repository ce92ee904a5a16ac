"""A step of fixed shapes, captured as a CUDA graph: the host launches one thing per token instead of hundreds.

The rows and their graphs stay for the next call. No more is built than a card needs; that the steps can be captured is
tested on a CPU, where operations are recorded and repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

from g2d.rollouts.engine import Decoding
from g2d.rollouts.rows import Rows

Step = Callable[[int], None]  # takes the number of columns


def bucket(columns: int) -> int:
    """Columns rounded up to one of two sizes per doubling: 32, 64, 96, 128, 192, 256, 384, ..."""
    step = max(32, 2 ** ((columns - 1).bit_length() - 2))
    return -(-columns // step) * step


class CudaGraphs:
    """Steps as CUDA graphs, one for each number of columns: the first step is taken and captured, others replay it."""

    def __init__(self) -> None:
        self._captured: dict[int, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()  # one memory for all, as no two replay at once
        self._stream = torch.cuda.Stream()

    def __call__(self, step: Step, columns: int) -> None:
        """Take a step that looks at so many columns."""
        if columns in self._captured:
            self._captured[columns].replay()
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            step(columns)  # loads kernels, which a capture cannot
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads of the process may ask for memory meanwhile.
            with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                step(columns)
        except RuntimeError as error:
            raise RuntimeError(
                f"a step of this model cannot be captured as a CUDA graph: set engine.cuda_graph to false ({error})"
            ) from error
        self._captured[columns] = graph


class FixedRows:
    """Rows whose number and place in memory stay, from call to call while the same is asked for; `graphs` makes what
    takes their steps, and may record them."""

    def __init__(self, graphs: Callable[[], Callable[[Step, int], None]] = CudaGraphs) -> None:
        self._make = graphs
        self._made_for: Any = None
        self._rows: Rows | None = None
        self._take: Callable[[Step, int], None] | None = None

    def rows(self, model: Any, decoding: Decoding, end_ids: Collection[int], n: int, columns: int) -> Rows:
        """At least `n` free rows of at least so many columns: those of the last call where they serve, or new ones."""
        wanted = (model, decoding.max_completion_length, decoding.temperature, decoding.top_p, frozenset(end_ids))
        rows = self._rows
        if rows is None or self._made_for != wanted or len(rows) < n or rows.cache.columns < columns:
            rows = self._rows = self._take = None  # their memory is free before new rows take some
            rows = self._rows = Rows(model, decoding, end_ids, n, bucket(columns))
            self._take, self._made_for = self._make(), wanted
        rows.free.fill_(True)
        return rows

    def step(self, columns: int) -> None:
        """Draw the next token of every row that is not free; all their tokens are in so many columns."""
        assert self._rows is not None and self._take is not None
        self._take(self._rows.step, min(columns, self._rows.cache.columns))
