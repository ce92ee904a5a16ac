"""How long jobs take, learnt from those that have finished; before the first of a rule, from what is usual.

What a run says of the time that it will still take (`snakemake --logger g2d`, `g2d status`) is made from this.
"""

from __future__ import annotations

from collections import defaultdict

# Seconds in the demonstration, on two cores of an AMD EPYC: they are the estimate until a job of the same rule has
# finished, and then only their proportions count.
USUAL: dict[str, float] = {
    "scratch_model": 110,
    "calibrate": 20,
    "train_grpo": 17,
    "train_dpo": 11,
    "train_rft": 12,
    "train_kto": 12,
    "train_group_dpo": 11,
    "train_semi_online_dpo": 17,
    "train_semi_online_dpo_auto": 17,
    "harvest_rollouts": 3,
    "make_tables": 6,
    "build_report": 12,
}
USUAL_OF_OTHERS = 2.0


class Pace:
    """Seconds by rule, and by model where jobs are given with one.

    `work` is how much a job has to do beside an average one of its rule.
    """

    def __init__(self) -> None:
        self._of_rule: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])  # sum of seconds per work, jobs
        self._of_model: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0])
        self._took = self._usual = 0.0  # all finished jobs: seconds, and what would have been usual

    def add(self, rule: str, seconds: float, work: float = 1.0, model: str = "") -> None:
        """A job has finished."""
        for found in (self._of_rule[rule], self._of_model[rule, model]):
            found[0] += seconds / work
            found[1] += 1
        self._took += seconds
        self._usual += work * USUAL.get(rule, USUAL_OF_OTHERS)

    def seconds(self, rule: str, work: float = 1.0, model: str = "") -> float:
        """What a job will take, from its start to its end."""
        for found in (self._of_model.get((rule, model)), self._of_rule.get(rule)):
            if found:
                return work * found[0] / found[1]
        as_fast = self._took / self._usual if self._usual else 1.0
        return work * as_fast * USUAL.get(rule, USUAL_OF_OTHERS)
