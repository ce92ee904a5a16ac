"""Inputs of tables, read from a results folder when a table needs them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from g2d.analysis.calibration import LEVEL_COLUMNS
from g2d.analysis.dynamics import steps_of
from g2d.analysis.informativeness import read_informativeness, success_counts
from g2d.experiment import grid
from g2d.experiment.arms import any_arms
from g2d.experiment.config import Config
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.experiment.prompt_counts import prompts_behind
from g2d.graph import catalogue
from g2d.graph.parts import files_of
from g2d.jobs.cost import Cost, read_cost
from g2d.policies.policy import read_policy
from g2d.regimes.run.auto_stop import PROBE_COLUMNS
from g2d.regimes.run.training_rollouts import read_ages
from g2d.rollouts.rollout import TEXTLESS, read_rollouts
from g2d.tables.costs import calibration_hours, read_log, spent_on
from g2d.tables.frames import read_table
from g2d.tables.harvest import correlation_points
from g2d.tables.samples import READ
from g2d.tables.win_rates import NEEDED
from g2d.verifier import verify_batch


class _Part(cached_property[dict[Any, Any]]):
    """Files of the part (`g2d.graph.parts`) of the attribute's name; `shown` gives policies the K of tables."""

    def __init__(self, read: Callable[..., Any], *arguments: Any, shown: bool = False) -> None:
        def read_part(inputs: Inputs) -> dict[Any, Any]:
            files = inputs.read(str(self.attrname), read, *arguments)
            return {inputs.as_shown(at): content for at, content in files.items()} if shown else files

        super().__init__(read_part)


class Inputs:
    """Inputs of tables, as attributes with the names in `Table.reads`.

    Args:
        whole: raise an error if a file is missing, instead of leaving it out.
        threads: workers of the verifier.
    """

    # Keys: a policy.
    records = _Part(read_policy)
    costs = _Part(read_cost, shown=True)  # trained policies only: the cost of M0 is not part of the experiment
    replies = _Part(read_rollouts, NEEDED, shown=True)  # replies to the held-out open-ended prompts
    probes = _Part(read_table, PROBE_COLUMNS)
    # Keys: a policy and a benchmark.
    answers = _Part(read_rollouts, TEXTLESS, shown=True)
    sampled = _Part(read_rollouts, READ, shown=True)  # several answers to each problem
    # Keys: a harvest.
    summaries = _Part(read_informativeness)
    harvested = _Part(read_rollouts, TEXTLESS)
    # Other keys.
    levels = _Part(read_table, LEVEL_COLUMNS)  # model: its difficulty levels
    main = cached_property(lambda self: self.build("main"))  # Table 1

    def __init__(self, folder: Path, config: Config, whole: bool = False, threads: int = 1) -> None:
        self.folder, self.config, self.whole, self.threads = folder, config, whole, threads
        self._built: dict[str, pd.DataFrame] = {}
        self.changes = grid.ablation_changes(config)
        self.select_by = config.select_by

    def build(self, name: str) -> pd.DataFrame:
        """Compute a table from the files that exist."""
        if name not in self._built:
            table = catalogue.table(name)
            self._built[name] = table.build(*(getattr(self, argument) for argument in table.reads.split()))
        return self._built[name]

    def path(self, file: str) -> Path:
        return self.folder / Path(file).relative_to("results")

    def read(self, part: str, read: Callable[..., Any], *arguments: Any) -> dict[Any, Any]:
        files = {at: self.path(file) for at, file in files_of(self.config, part).items()}
        return {at: read(file, *arguments) for at, file in files.items() if self.whole or file.exists()}

    def as_shown(self, at: Any) -> Any:
        return (self.as_shown(at[0]), *at[1:]) if isinstance(at, tuple) else self.finished.get(at, at)

    @cached_property
    def finished(self) -> dict[PolicyKey, PolicyKey]:
        return {key: key for key in grid.with_steps_taken(self.records)}

    def equal(self, pairs: Iterable[tuple[str, str]]) -> list[bool]:
        judged = verify_batch([(first, rf"\boxed{{{second}}}") for first, second in pairs], workers=self.threads)
        return [judgement.verdict == "correct" for judgement in judged]

    @cached_property
    def prompts(self) -> dict[str, str]:
        return {key.regime: prompts_behind(self.config, key.regime) for key in grid.policies(self.config)}

    @cached_property
    def device_hours(self) -> dict[PolicyKey, float]:
        trained = {key: self.costs[key].device_hours for key in self.finished if key in self.costs}
        return {key: trained.get(key, 0.0) for key in self.finished.values() if key in trained or key.role == "base"}

    @cached_property
    def calibrated(self) -> dict[PolicyKey, float]:
        return {key: calibration_hours(cost.records) for key, cost in self.costs.items()}

    @cached_property
    def spent(self) -> dict[PolicyKey, dict[str, Any]]:
        nothing = {"tokens_generated": 0, "updates": 0}
        spent: dict[PolicyKey, dict[str, Any]] = {key: nothing for key in self.finished.values() if key.role == "base"}
        for key, cost in self.costs.items():
            n_pairs = self.records[key].settings.get("n_pairs") if key in self.records else None
            spent[key] = {**spent_on(cost.records, self.path), "n_pairs": n_pairs}
        return spent

    @cached_property
    def charged(self) -> dict[PolicyKey, list[Cost]]:
        by_policy: dict[PolicyKey, list[Cost]] = defaultdict(list, {key: [] for key in self.finished.values()})
        parts = ("answer_costs", "sample_costs", "reply_costs")
        for at, cost in chain(self.costs.items(), *(self.read(part, read_cost).items() for part in parts)):
            by_policy[at[0] if isinstance(at, tuple) else at] += cost.records
        return by_policy

    @cached_property
    def counts(self) -> dict[HarvestKey, pd.DataFrame]:
        return {key: success_counts(rollouts) for key, rollouts in self.harvested.items()}

    @cached_property
    def points(self) -> pd.DataFrame:
        return correlation_points(self.summaries, self.tested)

    @cached_property
    def tested(self) -> dict[tuple[PolicyKey, str], pd.DataFrame]:
        """Return the answers to the benchmarks on which policies are compared."""
        benchmarks = set(self.config.tested_benchmarks)
        return {at: answers for at, answers in self.answers.items() if at[1] in benchmarks}

    @cached_property
    def temperatures(self) -> dict[str, dict[float, pd.DataFrame]]:
        by_model: dict[str, dict[float, pd.DataFrame]] = {}
        for (model, temperature), rollouts in self.read("temperatures", read_rollouts, TEXTLESS).items():
            by_model.setdefault(model, {})[float(temperature)] = rollouts
        return by_model

    @cached_property
    def logs(self) -> dict[Any, pd.DataFrame]:
        logs, ages = self.read("logs", read_log), self.read("ages", read_ages)
        return {
            last: steps_of(
                logs[last],
                pd.concat([ages[key] for key in stops if key in ages]),
                any_arms(self.config)[last.regime].settings.beta,
            )
            for last, stops in grid.trajectories(self.config).items()
            if last in logs
        }
