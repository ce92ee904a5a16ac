"""Accuracies that a run of one K prints, and the count of tests."""

from __future__ import annotations

from g2d.report.sentences import accuracies_at, exploratory_tests
from tests.report.rows import BASE, comparison, comparisons, main


def test_a_k_is_printed_with_m0_by_benchmark() -> None:
    table = main(BASE, ("dpo", 0, 0.5, 2.0), ("g2d", 50, 0.6, 3.0), ("grpo", 50, 0.45, 3.0), ("g2d-auto", 50, 0.7, 4.0))
    assert "\n".join(accuracies_at(50, table)).replace("\u00a0", " ").splitlines() == [
        "m, b: M0 40.0 % [38.0, 42.0], 3 seeds",
        "m, b: G2D (K=50) 60.0 % [58.0, 62.0], 3 seeds",
        "m, b: GRPO (K=50) 45.0 % [43.0, 47.0], 3 seeds",
    ]


def test_significant_exploratory_tests_are_counted_with_what_chance_would_give() -> None:
    by_chance = [comparison(("grpo", 50), ("base", 0), p) for p in (0.001, 0.05, *[0.06] * 38)]
    counted = exploratory_tests(comparisons(*by_chance, comparison(("g2d", 50), ("dpo", 0), 0.001)))
    assert counted.startswith("Of 40 exploratory tests in this table, 2 have a p of at most 0.05")
    assert counted.endswith("about 2 would.")
    ten = comparisons(*(comparison(("grpo", 50), ("base", 0), p) for p in (0.05, *[0.06] * 9)))
    assert exploratory_tests(ten).endswith("about 0.5 would.")
