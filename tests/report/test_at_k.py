"""Accuracies that a run of one K prints."""

from __future__ import annotations

from g2d.report.sentences import accuracies_at
from tests.report.rows import BASE, main


def test_a_k_is_printed_with_m0_by_benchmark() -> None:
    table = main(BASE, ("dpo", 0, 0.5, 2.0), ("g2d", 50, 0.6, 3.0), ("grpo", 50, 0.45, 3.0), ("g2d-auto", 50, 0.7, 4.0))
    assert [line.replace("\u00a0", " ") for line in accuracies_at(50, table)] == [
        "m, b: M0 40.0 % [38.0, 42.0], 3 seeds",
        "m, b: G2D (K=50) 60.0 % [58.0, 62.0], 3 seeds",
        "m, b: GRPO (K=50) 45.0 % [43.0, 47.0], 3 seeds",
    ]
