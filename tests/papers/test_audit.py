"""The audit: what is known to disagree, what is known to agree, and that rounding decides neither."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from g2d.experiment.config import read
from g2d.tables.frames import read_table
from g2d.tables.paper import published
from papers.audit import AUDIT_COLUMNS, attainable, audit, claims, summary
from papers.bridging_claims import _excess_over_binomial
from papers.claims import Printed, printed
from papers.offpolicy_claims import _nearest_share
from tests.experiment.test_config import CONFIG
from tests.frames import RECOMPUTED_CORRELATIONS

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return audit()


def found(table: pd.DataFrame, quantity: str, model: str = "Qwen2.5-7B-Instruct") -> pd.Series:
    rows = table[table["quantity"].str.startswith(quantity) & (table["model"] == model)]
    assert len(rows) == 1
    return rows.iloc[0]


def test_a_printed_number_is_the_interval_that_rounds_to_it() -> None:
    assert printed("62.4").range == pytest.approx((62.35, 62.45))
    assert printed("0.14").range == pytest.approx((0.135, 0.145))
    assert printed("47").range == (46.5, 47.5)
    assert printed("708", exact=True).range == (708, 708)


def test_the_attainable_range_is_the_extremes_over_all_corners() -> None:
    """Compare r over twelve rounded cells with every corner of their box."""
    claim = next(claim for claim in claims() if claim.quantity.startswith("Pearson's r of mid_band"))
    corners = [claim.formula(np.array(corner)) for corner in itertools.product(*(cell.range for cell in claim.cells))]
    low, high = attainable(claim.formula, claim.cells)
    assert low <= min(corners) + 1e-6
    assert high >= max(corners) - 1e-6
    assert (low, high) == pytest.approx((min(corners), max(corners)), abs=0.005)
    assert attainable(np.sum, [Printed(1, 0.5), Printed(2, 0)]) == pytest.approx((2.5, 3.5))


def test_table_2s_correlations_do_not_follow_from_its_rows(table: pd.DataFrame) -> None:
    stated = {"pairability": "0.021", "entropy": "0.253", "mid_band": "0.366"}
    for metric, r in RECOMPUTED_CORRELATIONS.items():
        row = found(table, f"Pearson's r of {metric}")
        assert row["stated"] == stated[metric]
        assert row["recomputed"] == pytest.approx(r, abs=0.0005)
        assert row["low"] < r < row["high"]
        assert row["result"] == "disagrees"


def test_all_three_outcomes_of_every_level_are_audited(table: pd.DataFrame) -> None:
    rows = table[(table["where"] == "Table 4") & table["quantity"].str.startswith("prompts of level")]
    assert list(rows["recomputed"]) == [421, 447, 632, 1500, 1500]
    assert (rows["result"] == "agrees").all()


QWEN, LLAMA = "Qwen2.5-7B-Instruct", "Llama-3.1-8B-Instruct"
QWEN_SMALL, R1_QWEN = "Qwen2.5-0.5B-Instruct", "DeepSeek-R1-Distill-Qwen-1.5B"


@pytest.mark.parametrize(
    ("model", "quantity", "stated", "recomputed", "result"),
    [
        (QWEN, "GPU-hours of G2D at K=1000", "20.8", 28.8, "disagrees"),  # contains 26.6 hours of GRPO
        (LLAMA, "GPU-hours of G2D at K=1000", "21.8", 29.8, "disagrees"),
        (QWEN, "GPU-hours of GRPO (G=2) over G2D at K=150", "4", 7.0, "disagrees"),
        (QWEN, "GPU-hours of G2D at K=150 over GRPO", "<=0.25", 0.143, "agrees"),
        (QWEN, "smallest gain of G2D over GRPO", ">=4.1", 4.8, "agrees"),
        (QWEN, "G2D at K=150 minus GRPO (G=2)", "10.8", 10.8, "agrees"),
        (QWEN, "GRPO with G=4 on MATH-500", "53.0", 53.2, "disagrees"),
        (QWEN, "pass@1 of levels 3-5", "40.3", 40.0, "disagrees"),
        (QWEN, "pass@1 of levels 2-4", "40.3", 46.8, "disagrees"),
        (QWEN, "levels 3-5: sum of pairable", "396", 396, "agrees"),
        (QWEN, "all_correct prompts of level 3", "48", 47.5, "agrees"),
        (QWEN, "temperature 0.8", "100", 86.6, "disagrees"),
        (QWEN, "temperature 1.3", "100", 100.0, "agrees"),
        (QWEN, "K at which the mean entropy H is largest", "150", 150, "agrees"),
        (QWEN, "rises of H", "0", 1, "disagrees"),
        (LLAMA, "smallest gain of online and semi-online methods over offline DPO on amc23", ">=0.0", 2.6, "agrees"),
        (LLAMA, "online DPO minus GRPO on math500", ">=0.0", 58.7 - 58.1, "agrees"),
        (LLAMA, "online DPO minus GRPO on amc23", ">=0.0", 32.9 - 33.6, "disagrees"),
        (LLAMA, "GRPO with n=12 minus n=8 responses on math500", "<=0.0", 57.6 - 58.1, "agrees"),
        # 50 evaluations of 500, 1980 and 40 problems; the rows s=10, s=100 and s=10.
        (LLAMA, "smallest excess of a standard error on math500", "<=0.0", 1.1 - 0.313, "disagrees"),
        (LLAMA, "smallest excess of a standard error on numina", "<=0.0", 0.4 - 0.155, "disagrees"),
        (LLAMA, "smallest excess of a standard error on amc23", "<=0.0", 4.3 - 1.038, "disagrees"),
        (LLAMA, "gain of online over offline DPO on AlpacaEval LC", "56.6", 57.56, "disagrees"),  # 145.9 / 92.6
        (LLAMA, "gain of online over offline DPO on ArenaHard", "45.6", 44.44, "disagrees"),  # 110.5 / 76.5
        (LLAMA, "online DPO minus GRPO on ArenaHard judged by GPT-4-1106", ">=0.0", 60.1 - 55.0, "agrees"),
        (LLAMA, "online DPO minus GRPO on ArenaHard judged by GPT-4o", ">=0.0", 50.4 - 54.3, "disagrees"),
        (LLAMA, "GPT-4-1106 minus GPT-4o on ArenaHard, mean", ">=0.0", (294.8 - 263.5) / 6, "agrees"),
        (LLAMA, "GPT-4-1106 minus GPT-4o on AlpacaEval LC, smallest", ">=0.0", 27.3 - 32.0, "disagrees"),
        (LLAMA, "best model of both tasks minus best of one task on MATH500", ">=0.0", 57.3 - 58.7, "disagrees"),
        (LLAMA, "best model of both tasks minus best of one task on AMC23", ">=0.0", 31.7 - 32.9, "disagrees"),
        (LLAMA, "best model of both tasks minus best of one task on ArenaHard", ">=0.0", 62.3 - 50.4, "agrees"),
        (LLAMA, "examples held out", "470", 471, "disagrees"),
        (LLAMA, "steps of an epoch", "32", 32, "agrees"),  # 31.25, the last one not full
        (R1_QWEN, "median on AIME24", ">=0.0000", 0.3047 - 0.3021, "agrees"),
        (R1_QWEN, "mean on AIME24", ">=0.0000", 0.3049 - 0.3022, "agrees"),
        (R1_QWEN, "median on MATH500", ">=0.0000", 0.846 - 0.854, "disagrees"),
        (R1_QWEN, "mean on MATH500", ">=0.0000", 0.8474 - 0.8519, "disagrees"),
        (R1_QWEN, "AIME24, max of v=10", "0.3250", 312 / 960, "agrees"),
        (QWEN_SMALL, "prompts of a step", "28", 7 * 4, "agrees"),
        (QWEN_SMALL, "epochs of S = 3 stages", "4", 3, "disagrees"),
        ("any", "largest standard deviation", "<=0.25", 0.5, "disagrees"),
        ("any", "v of on-policy GRPO", "0", 1, "disagrees"),
    ],
)
def test_known_findings(
    table: pd.DataFrame, model: str, quantity: str, stated: str, recomputed: float, result: str
) -> None:
    row = found(table, quantity, model)
    assert (row["stated"], row["result"]) == (stated, result)
    assert row["recomputed"] == pytest.approx(recomputed, abs={R1_QWEN: 1e-5, QWEN: 0.05}.get(model, 0.005))


def test_a_binomial_error_is_no_excess() -> None:
    """If half of 100 answers are right, the standard error of their share is 5 points."""
    assert _excess_over_binomial(100, np.array([5.0, 50.0])) == pytest.approx(0)
    assert _excess_over_binomial(100, np.array([10.0, 6.0, 50.0, 50.0])) == pytest.approx(1)


def test_a_share_that_no_number_of_answers_gives_is_found() -> None:
    low, high = printed("0.2807").range  # between 269 / 960 = .2802 and 270 / 960 = .2813
    assert not low <= _nearest_share(960, np.array([0.2807])) <= high


def test_every_stated_sentence_is_audited(table: pd.DataFrame) -> None:
    for paper, name in (("2605.21266", "g2d"), ("2506.21495", "bridging"), ("2505.22257", "offpolicy")):
        quantities = table.loc[table["paper"] == f"arXiv {paper}", "quantity"]
        for quantity in published(f"{name}_statements")["quantity"]:
            pattern = ".+".join(map(re.escape, quantity.split("{of}")))
            assert quantities.str.fullmatch(pattern).any(), quantity
    assert not table.duplicated(["model", "quantity"]).any()


def test_statements_that_need_a_run_name_existing_entries() -> None:
    for _, row in published("statements_to_run").iterrows():
        config = read(CONFIG / row["configuration"])
        for entry in row["entries"].split("; "):
            assert entry.split()[0] in {*config.regimes, *config.ablations, "warmup"}, entry


def test_the_presets_have_the_printed_settings() -> None:
    """Except the learning rate and Adam's epsilon: these are for an adapter."""
    config = read(CONFIG / "bridging.yaml")
    table = published("bridging_table4")
    rows = {row["method"]: row for row in table[table["task"] == "verifiable"].to_dict("records")}
    for name, method in {"offline": "Offline DPO", "s10": "Semi-Online DPO", "online": "Online DPO"}.items():
        entry, row = config.regimes[name], rows[method]
        assert (entry.beta, entry.max_grad_norm) == (float(row["beta"]), float(row["grad_clip"]))
        assert (entry.reference == "sync") == (row["ref_sync"] == "yes")
        printed_sizes = (int(row["batch_size"]), int(row["max_length"]))
        assert (entry.prompts_per_update, entry.max_completion_length) == printed_sizes
    assert config.warmup.beta == float(rows["GRPO"]["beta"])
    settings = dict(published("bridging_settings")[["setting", "value"]].to_numpy())
    sampled = config.evaluation.sampled
    assert sampled is not None
    assert [str(sampled.n), str(sampled.temperature), str(sampled.top_p)] == [
        settings[f"eval_{name}"] for name in ("samples", "temperature", "top_p")
    ]

    config = read(CONFIG / "off_policy.yaml")
    settings = dict(published("offpolicy_settings")[["setting", "gsm8k"]].to_numpy())
    warmup = config.warmup
    assert [warmup.beta, warmup.temperature] == [float(settings[name]) for name in ("kl_beta", "temperature")]
    assert [warmup.group_sizes[0], warmup.prompts_per_step, warmup.max_completion_length] == [
        int(settings[name]) for name in ("group_size", "prompts_per_step", "context_length")
    ]
    assert warmup.learning_rate == 10 * float(settings["learning_rate"])  # an adapter has ten times the rate


def test_the_committed_table_equals_the_audit(table: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(
        read_table(REPOSITORY / "papers/audit.csv", AUDIT_COLUMNS), table, rtol=1e-5, atol=1e-5
    )


def test_the_summary_lists_every_claim(table: pd.DataFrame) -> None:
    text = summary(table)
    assert all(quantity in text for quantity in table["quantity"])
    disagreeing = (table["result"] == "disagrees").sum()
    assert text.startswith(f"{disagreeing} of {len(table)} published numbers do not follow")
    assert "stated 0.021, recomputed -0.297" in text
