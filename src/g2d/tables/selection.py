"""The checkpoint that a benchmark marked `select_by` would have chosen in each run (arXiv 2506.21495, section 3.1)."""

from __future__ import annotations

from g2d.grid.runs import Policy
from g2d.tables.evaluations import Evaluations
from g2d.tables.frames import Rows, columns, table_of

At = tuple[str, str, int, int | None]  # model, run, G, seed

SELECTION_COLUMNS = columns("model policy group_size seed K n_checkpoints selected_accuracy benchmark accuracy")


@table_of(SELECTION_COLUMNS)
def selection_table(evaluations: Evaluations, select_by: str) -> Rows:
    """A row per run with several K and other benchmark: the K that is most accurate on `select_by` (of equal ones the
    smallest), and the accuracy of its policy on both.
    """
    accuracies = {at: float(answers["reward"].mean()) for at, answers in evaluations.items()}
    others = list(dict.fromkeys(benchmark for _, benchmark in accuracies if benchmark != select_by))
    for (model, regime, group_size, seed), keys in _runs(evaluations).items():
        chosen = max(keys, key=lambda key: (accuracies[key, select_by], -key.k))
        for benchmark in others:
            yield {
                "model": model,
                "policy": regime,
                "group_size": group_size,
                "seed": seed,
                "K": chosen.k,
                "n_checkpoints": len(keys),
                "selected_accuracy": accuracies[chosen, select_by],
                "benchmark": benchmark,
                "accuracy": accuracies[chosen, benchmark],
            }


def _runs(evaluations: Evaluations) -> dict[At, list[Policy]]:
    """Return the policies of each run with several K. DPO on the harvest of M0 (K=0) belongs to the runs of every G."""
    evaluated = dict.fromkeys(policy for policy, _ in evaluations)
    policies = [policy for policy in evaluated if policy.role != "base"]
    runs: dict[At, list[Policy]] = {}
    for key in policies:
        if key.k:
            runs.setdefault((key.model, key.run_name, key.group_size, key.seed), []).append(key)
    for key in policies:
        if not key.k:
            for (model, regime, _, seed), keys in runs.items():
                if (model, regime, seed) == (key.model, key.run_name, key.seed):
                    keys.append(key)
    return {run: keys for run, keys in runs.items() if len(keys) > 1}
