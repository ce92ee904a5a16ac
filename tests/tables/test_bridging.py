"""The Bridging paper's Table 1 beside a grid's own rows: who stands beside whom, and under which sampling."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from g2d.experiment.config import Config
from g2d.experiment.printed import is_of_bridging
from g2d.tables.accuracy import MAIN_COLUMNS
from g2d.tables.frames import frame, read_table, write_table
from g2d.tables.paper import BRIDGING_COLUMNS, bridging_table

DPO = {"regime": "semi_online_dpo", "steps": [10, 20]}
CONFIG: dict[str, Any] = {
    "models": {"llama": {"source": "local", "path": "models/Llama-3.1-8B-Instruct"}},
    "pool": {"source": "synthetic", "family": "arithmetic", "split": "train", "n": 2000},
    "benchmarks": {
        "MATH-500": {"source": "synthetic", "family": "arithmetic", "split": "test", "n": 5},
        "else": {"source": "synthetic", "family": "word_problems", "split": "test", "n": 5},
    },
    "warmup": {"steps": [0, 10]},
    "evaluation": {"sampled": {"n": 50, "temperature": 0.6, "top_p": 0.9}},
    "regimes": {
        "never": DPO | {"sync_every": "never"},
        "s10": DPO | {"sync_every": 10},
        "again": DPO | {"sync_every": 10},
    },
}


def main(*rows: tuple[str, int, float]) -> pd.DataFrame:
    """Table 1: (policy, K, accuracy) each."""
    return frame(
        (
            {"model": "llama", "policy": policy, "K": k, "group_size": 8 if k else None, "benchmark": "MATH-500"}
            | {
                "n_seeds": 1,
                "n_problems": 500,
                "accuracy": accuracy,
                "ci_low": accuracy - 0.02,
                "ci_high": accuracy + 0.02,
            }
            for policy, k, accuracy in rows
        ),
        MAIN_COLUMNS,
    )


def test_a_printed_row_stands_beside_what_has_its_s_at_the_largest_k(tmp_path) -> None:
    config = Config.model_validate(CONFIG)
    rows = main(("base", 0, 0.45), ("never", 10, 0.5), ("never", 20, 0.52), ("s10", 20, 0.55), ("again", 20, 0.56))
    table = bridging_table(rows, config)
    assert set(table["benchmark"]) == {"MATH-500"}
    found = [(row.method, row.sync_every, row.policy, row.K) for row in table.astype(object).itertuples()]
    assert [tuple(None if pd.isna(value) else value for value in row) for row in found] == [
        ("Seed", None, "base", 0),
        ("Offline DPO", "never", "never", 20),
        ("Semi-online DPO", "100", None, None),
        *[("Semi-online DPO", "10", name, 20) for name in ("s10", "again")],
        ("Online DPO", "1", None, None),
        ("GRPO", "1", None, None),
    ]
    assert table["paper_accuracy"].iloc[0] == pytest.approx(0.474)
    assert table["difference"].iloc[1] == pytest.approx(0.52 - 0.537)
    assert table["same_sampling"].all()
    write_table(tmp_path / "bridging.csv", table)
    pd.testing.assert_frame_equal(read_table(tmp_path / "bridging.csv", BRIDGING_COLUMNS), table)


@pytest.mark.parametrize(
    ("changes", "same"),
    [({"seed": 1}, True), ({"n": 8}, False), ({"top_p": 1.0}, False), ({"beside_greedy": True}, False)],
)
def test_the_same_sampling_is_the_papers_whatever_the_seed(changes: dict[str, Any], same: bool) -> None:
    """Beside greedy answers, accuracy is theirs."""
    evaluation = {"sampled": CONFIG["evaluation"]["sampled"] | changes}
    table = bridging_table(main(("base", 0, 0.45)), Config.model_validate(CONFIG | {"evaluation": evaluation}))
    assert set(table["same_sampling"]) == {same}


def test_another_sampling_is_said() -> None:
    greedy = Config.model_validate(CONFIG | {"evaluation": {}})
    assert not bridging_table(main(("base", 0, 0.45)), greedy)["same_sampling"].any()


def test_a_grid_without_its_model_or_benchmarks_has_no_such_table() -> None:
    assert is_of_bridging(Config.model_validate(CONFIG))
    other = CONFIG | {"models": {"llama": {"source": "local", "path": "models/another"}}}
    assert not is_of_bridging(Config.model_validate(other))
    elsewhere = CONFIG | {"benchmarks": {"else": CONFIG["benchmarks"]["else"]}}
    assert not is_of_bridging(Config.model_validate(elsewhere))
