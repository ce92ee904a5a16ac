"""What every regime took and gave: accuracy beside updates, prompts, tokens and device-hours, as the comparison of
regimes needs all of them. At equal updates a policy that is trained on its own rollouts generates more tokens than one
that is trained on M0's, because a better policy writes longer solutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from g2d.experiment.arms import arms
from g2d.experiment.config import Config
from g2d.experiment.keys import PolicyKey
from g2d.experiment.prompt_counts import prompts_asked
from g2d.jobs.cost import Cost
from g2d.jobs.files import parse_json, read_lines
from g2d.tables.accuracy import accuracy_row
from g2d.tables.evaluations import ROW_COLUMNS, Evaluations, by_policy, grid_order
from g2d.tables.frames import floats, frame, integers, mean

SPENT = ("updates", "empty_updates", "prompts", "tokens_generated", "tokens_trained")
REGIME_COLUMNS = {
    **ROW_COLUMNS,
    **integers("n_seeds"),
    **floats("accuracy", "ci_low", "ci_high", *SPENT, "device_hours"),
}


def regime_table(
    evaluations: Evaluations,
    device_hours: Mapping[PolicyKey, float],
    spent: Mapping[PolicyKey, Mapping[str, float]],
) -> pd.DataFrame:
    """Every policy that is no ablation of DPO, with what was spent on it.

    Args:
        evaluations: as for `main_table`.
        device_hours: as for `main_table`.
        spent: of every trained policy, what `spent_on` says.

    Returns:
        `REGIME_COLUMNS`, one row per (model, policy, K, group_size, benchmark): accuracy and interval as in
        `main_table`; means over seeds of the gradient steps behind the policy (online and offline), those among them
        that had no pair to learn from (of regimes that form pairs as they go), the prompts asked, the tokens generated
        (calibration included) and the tokens trained on, as the trainers count them (prompt and completion, each time a
        gradient step sees them); M0 took nothing.

    Raises:
        ValueError: the seeds of a policy answered different problems.
    """
    grouped = by_policy(evaluations, keep=lambda key: not key.is_ablation or key.kind == "grpo")
    rows = []
    for at in grid_order(grouped):
        row = accuracy_row(grouped[at], device_hours, at[1])
        known = [spent[key] for key in grouped[at] if key in spent] or [dict.fromkeys(SPENT, 0.0)]
        rows.append(row | {name: mean([own[name] for own in known]) for name in SPENT})
    return frame(rows, REGIME_COLUMNS)


def spent_on(
    key: PolicyKey, bill: Sequence[Cost], config: Config, path: Callable[[str], Path] = Path
) -> dict[str, float]:
    """What is behind a policy: gradient steps, prompts, tokens generated and tokens trained on.

    Args:
        bill: the records of the jobs it was made by; the metrics of its trainings lie beside their bills.
        path: where a file of the results is that jobs call so.
    """
    # The logs of a chain, one folder of which is a K, go on from one another; a round's begins anew.
    trainings: dict[Path, tuple[str, Path]] = {}
    for record in bill:
        if record.stage.startswith("train_"):
            folder = Path(record.job).parent
            trainings[folder if key.in_rounds else folder.parent] = (record.stage, folder)
    found = [(stage, _rows(path(f"{folder}/metrics.jsonl"))) for stage, folder in trainings.values()]
    logs = [rows for _, rows in found]
    return {
        "updates": sum(rows[-1]["step"] for rows in logs),
        "empty_updates": sum(row.get("pairs") == 0 for rows in logs for row in rows),
        "prompts": prompts_asked(config, key) + sum(row.get("prompts/discarded", 0) for rows in logs for row in rows),
        "tokens_generated": sum(record.tokens_generated for record in bill),
        "tokens_trained": sum(_tokens(rows) * _passes(name, key, config) for name, rows in found),
    }


def _tokens(rows: Sequence[Mapping[str, float]]) -> float:
    """The trainer's running count; where a generation serves several gradient steps, the first one's row has it."""
    return max(row["num_tokens"] for row in rows if "num_tokens" in row)


def _passes(training: str, key: PolicyKey, config: Config) -> int:
    """How often each token that was counted is trained on: GRPO's trainer counts those that it generates."""
    if not training.startswith("train_grpo"):
        return 1
    found = arms(config, key.model)
    own = found[key.regime].online if key.regime in found else found["grpo"]
    warmup = own if own.regime == "grpo" else found["grpo"]  # an entry can start from the main one alone
    return int(warmup.settings.iterations)


def _rows(metrics: Path) -> list[dict[str, float]]:
    return [parse_json(line) for _, line in read_lines(metrics)]
