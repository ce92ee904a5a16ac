"""A step of fixed shapes, captured as a CUDA graph: one launch per token instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

from g2d.rollouts.engine import Decoding
from g2d.rollouts.rows import Rows

Step = Callable[[int], None]  # function of the number of columns


def bucket(columns: int) -> int:
    """Round up to one of two sizes per doubling: 32, 64, 96, 128, 192, 256, 384, ..."""
    step = max(32, 2 ** ((columns - 1).bit_length() - 2))
    return -(-columns // step) * step


class CudaGraphs:
    def __init__(self) -> None:
        self._captured: dict[int, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()  # shared: no two graphs replay at the same time
        self._stream = torch.cuda.Stream()

    def __call__(self, step: Step, columns: int) -> None:
        if columns in self._captured:
            self._captured[columns].replay()
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            step(columns)  # also loads kernels, which is impossible during capture
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads may allocate memory during the capture.
            with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                step(columns)
        except RuntimeError as error:
            raise RuntimeError(
                f"a step of this model cannot be captured as a CUDA graph: set engine.cuda_graph to false ({error})"
            ) from error
        self._captured[columns] = graph


class FixedRows:
    """Rows that keep their number and memory between calls with the same settings."""

    def __init__(self, graphs: Callable[[], Callable[[Step, int], None]] = CudaGraphs) -> None:
        self._make = graphs
        self._made_for: Any = None
        self._rows: Rows | None = None
        self._take: Callable[[Step, int], None] | None = None

    def rows(self, model: Any, decoding: Decoding, end_ids: Collection[int], n: int, columns: int) -> Rows:
        """Return at least `n` free rows of at least `columns` columns, the last call's if possible."""
        wanted = (model, decoding.max_completion_length, decoding.temperature, decoding.top_p, frozenset(end_ids))
        rows = self._rows
        if rows is None or self._made_for != wanted or len(rows) < n or rows.cache.columns < columns:
            rows = self._rows = self._take = None  # free their memory before allocating new rows
            rows = self._rows = Rows(model, decoding, end_ids, n, bucket(columns))
            self._take, self._made_for = self._make(), wanted
        rows.free.fill_(True)
        return rows

    def step(self, columns: int) -> None:
        assert self._rows is not None and self._take is not None
        self._take(self._rows.step, min(columns, self._rows.cache.columns))
