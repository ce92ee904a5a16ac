"""Claims in the text of "Bridging Offline and Online RL" (arXiv 2506.21495) about its tables."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from g2d.tables.paper import published
from papers.claims import (
    BRIDGING,
    Claim,
    Formula,
    Formulas,
    Printed,
    cell_of,
    cells_of,
    difference,
    printed,
    stated_claims,
)

PROBLEMS = {"math500": "math500_test", "numina": "numina_test", "amc23": "amc23_test"}
JUDGED = {"AlpacaEval LC": "alpacaeval_lc", "ArenaHard": "arenahard"}
JUDGES = {"GPT-4-1106": "gpt-4-1106", "GPT-4o": "gpt-4o"}
ONE_TASK, BOTH_TASKS = ("NM", "WC"), ("WC-Checkpoint", "NM-Checkpoint")


def bridging_statements() -> Iterator[Claim]:
    """Yield numbers and comparisons in the text, each by benchmark or judge."""
    return stated_claims(BRIDGING, "bridging_statements", _formulas)


def _formulas(statement: str) -> Formulas:
    match statement:
        case "online_over_offline" | "online_dpo_over_grpo" | "more_responses" | "error_of_mean":
            return {benchmark: _on_benchmark(statement, benchmark) for benchmark in PROBLEMS}
        case "offline_to_online":
            return {"": _gain("alpacaeval_lc")}
        case "offline_to_online_arena":
            return {"": _gain("arenahard")}
        case "online_dpo_over_grpo_judged":
            cell = partial(cell_of, published("bridging_table2"))
            return {
                f"{benchmark} judged by {name}": (
                    difference,
                    [cell(column, method=method, judge=judge) for method in ("Online DPO", "GRPO")],
                )
                for benchmark, column in JUDGED.items()
                for name, judge in JUDGES.items()
            }
        case "gpt4o_lower_overall" | "gpt4o_lower_everywhere":
            summarise = np.mean if statement == "gpt4o_lower_overall" else np.min
            return {benchmark: (partial(_halves, summarise), _by_judge(column)) for benchmark, column in JUDGED.items()}
        case "combined_best":
            return {
                benchmark: _best_of_both_tasks(column)
                for benchmark, column in {"MATH500": "math500", "AMC23": "amc23", **JUDGED}.items()
            }
        case "heldout":
            return {"": (np.sum, [_setting("heldout_alpacafarm"), _setting("heldout_evol")])}
        case "epoch_steps":
            return {
                "": (lambda v: float(np.ceil(v[0] / v[1])), [_setting("wildchat_prompts"), _setting("wildchat_batch")])
            }
    raise KeyError(f"no formula for the statement {statement}")


def _on_benchmark(statement: str, benchmark: str) -> tuple[Formula, list[Printed]]:
    """Return formula and cells of a statement about mathematics, on one benchmark."""
    table, by_responses = published("bridging_table1"), published("bridging_table5")
    offline, online, grpo = (cells_of(table, benchmark, method=name) for name in ("Offline DPO", "Online DPO", "GRPO"))
    if statement == "online_over_offline":
        cells = offline + online + grpo + cells_of(table, benchmark, method="Semi-online DPO")
        return lambda v: float(np.min(v[1:]) - v[0]), cells
    if statement == "online_dpo_over_grpo":
        return difference, online + grpo
    if statement == "more_responses":
        return difference, [cell_of(by_responses, benchmark, n=n) for n in ("12", "8")]
    evaluations = int(_setting("eval_samples").value) * int(_setting(PROBLEMS[benchmark]).value)
    errors, accuracies = cells_of(table, f"{benchmark}_se"), cells_of(table, benchmark)
    return partial(_excess_over_binomial, evaluations), errors + accuracies


def _excess_over_binomial(evaluations: int, v: np.ndarray) -> float:
    """Return the smallest excess of standard errors (first half) over the largest possible at the accuracies (second
    half), in percent.

    The variance of an answer is p(1 - p) of its problem. At a given mean of p, it is largest if p is the same for all.
    """
    errors, accuracies = v.reshape(2, -1)
    return float(np.min(errors - np.sqrt(accuracies * (100 - accuracies) / evaluations)))


def _gain(column: str) -> tuple[Formula, list[Printed]]:
    """Gain of online over offline DPO in percent, both as the mean of the two judges."""
    table = published("bridging_table2")
    online, offline = (cells_of(table, column, method=name) for name in ("Online DPO", "Offline DPO"))
    return lambda v: 100 * float(v[:2].sum() / v[2:].sum() - 1), online + offline


def _by_judge(column: str) -> list[Printed]:
    """Return a column of Table 2: the rows of GPT-4-1106, then the same rows of GPT-4o."""
    table = published("bridging_table2")
    return [cell for judge in JUDGES.values() for cell in cells_of(table, column, judge=judge)]


def _halves(summarise: Formula, v: np.ndarray) -> float:
    """Summarise the first half of the cells minus the second."""
    first, second = v.reshape(2, -1)
    return float(summarise(first - second))


def _best_of_both_tasks(column: str) -> tuple[Formula, list[Printed]]:
    """Best model of both tasks minus best model of one task.

    The assignment of the three values of both tasks to models is uncertain, but the best does not depend on it.
    """
    table = published("bridging_table3")
    from_seed = partial(cells_of, table, column, seed_model="Llama-3.1-8B-Instruct")
    both = [cell for name in BOTH_TASKS for cell in cells_of(table, column, seed_model=name)]
    both += from_seed(dataset="NM+WC")
    one_task = [cell for task in ONE_TASK for cell in from_seed(dataset=task)]
    return lambda v: float(np.max(v[:3]) - np.max(v[3:])), both + one_task


def _setting(name: str) -> Printed:
    """Return a setting, an exact count."""
    table = published("bridging_settings")
    return printed(table.loc[table["setting"] == name, "value"].item(), exact=True)
