"""Inputs of tables, read from the files that a rule names, or from a results folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import TypeVar

import pandas as pd

from g2d.analysis.calibration import LEVEL_COLUMNS
from g2d.analysis.informativeness import Informativeness, informativeness, success_counts
from g2d.analysis.training_steps import steps_of
from g2d.grid.grid import Grid
from g2d.grid.runs import Harvest, OnlineRun, Policy
from g2d.jobs.cost import Cost, CostFile, read_cost
from g2d.policies.record import PolicyRecord, read_policy
from g2d.regimes.common.training_rollouts import read_ages
from g2d.regimes.grpo.auto_stop import PROBE_COLUMNS
from g2d.rollouts.pairs import read_pairs, truncated_sides
from g2d.rollouts.rollout import OF_REWARDS, TEXTLESS, read_rollouts
from g2d.tables import all_tables
from g2d.tables.frames import read_table
from g2d.tables.harvest import correlation_points
from g2d.tables.reads import (
    ANSWER_COSTS,
    ANSWERS,
    COSTS,
    HARVESTED,
    LEVELS,
    LOGS,
    PAIRED,
    PROBES,
    RECORDS,
    REPLIES,
    REPLY_COSTS,
    SAMPLE_COSTS,
    SAMPLES,
    TEMPERATURES,
    TRAINING_ROLLOUTS,
    Key,
    Read,
)
from g2d.tables.samples import READ
from g2d.tables.trainings import calibration_hours, read_log, spent_on
from g2d.tables.win_rates import NEEDED
from g2d.verifier import verify_batch

Content = TypeVar("Content")


def with_steps_taken(records: Mapping[Policy, PolicyRecord]) -> dict[Policy, Policy]:
    """Return the policies with the K of tables: if it differs by seed, the rounded mean."""
    stopped: dict[Policy, list[int]] = {}
    for policy, record in records.items():
        if policy.run.stops:
            stopped.setdefault(policy.over_seeds, []).append(record.k)
    shown: dict[Policy, Policy] = {}
    for policy in records:
        steps = stopped.get(policy.over_seeds)
        shown[policy] = policy if steps is None else replace(policy, steps_taken=round(mean(steps)))
    return shown


class Inputs:
    """Inputs of tables, as attributes with the names in `Table.arguments`. Files are read when a table needs them.

    Args:
        given: files of each `Read` by its name, as the rule names them; None: all files that exist in the folder.
        threads: workers of the verifier.
    """

    def __init__(
        self,
        grid: Grid,
        folder: Path = Path("results"),
        given: Mapping[str, Sequence[str]] | None = None,
        threads: int = 1,
    ) -> None:
        self.grid = grid
        self.config = grid.config
        self.folder = folder
        self.given = given
        self.threads = threads
        self.select_by = grid.config.select_by
        self._built: dict[str, pd.DataFrame] = {}

    def build(self, name: str) -> pd.DataFrame:
        """Compute a table."""
        if name not in self._built:
            table = all_tables.table(name)
            arguments = [getattr(self, argument) for argument in table.arguments.split()]
            self._built[name] = table.build(*arguments)
        return self._built[name]

    # ----------------------------------------------------------------------------------------------------------- files

    def path(self, file: str) -> Path:
        return self.folder / Path(file).relative_to("results")

    def files(self, read: Read[Key]) -> dict[Key, Path]:
        if self.given is not None:
            named = read.by_key(self.grid, self.given.get(read.name, []))
            return {key: Path(file) for key, file in named.items()}
        existing: dict[Key, Path] = {}
        for key in read.keys(self.grid):
            path = self.path(read.file(key))
            if path.exists():
                existing[key] = path
        return existing

    def read(self, read: Read[Key], function: Callable[..., Content], *arguments: object) -> dict[Key, Content]:
        return {key: function(path, *arguments) for key, path in self.files(read).items()}

    def shown(self, policy: Policy) -> Policy:
        """Return a policy with the K of tables."""
        return self.finished.get(policy, policy)

    # ------------------------------------------------------------------------------------- policies and their answers

    @cached_property
    def records(self) -> dict[Policy, PolicyRecord]:
        return self.read(RECORDS, read_policy)

    @cached_property
    def finished(self) -> dict[Policy, Policy]:
        """Return the finished policies with the K of tables."""
        return with_steps_taken(self.records)

    @cached_property
    def answers(self) -> dict[tuple[Policy, str], pd.DataFrame]:
        answers = self.read(ANSWERS, read_rollouts, TEXTLESS)
        return {(self.shown(policy), benchmark): rows for (policy, benchmark), rows in answers.items()}

    @cached_property
    def tested(self) -> dict[tuple[Policy, str], pd.DataFrame]:
        """Return the answers to the benchmarks on which policies are compared."""
        benchmarks = set(self.config.tested_benchmarks)
        return {at: answers for at, answers in self.answers.items() if at[1] in benchmarks}

    @cached_property
    def sampled(self) -> dict[tuple[Policy, str], pd.DataFrame]:
        """Return several answers to each problem."""
        samples = self.read(SAMPLES, read_rollouts, READ)
        return {(self.shown(policy), benchmark): rows for (policy, _, benchmark), rows in samples.items()}

    @cached_property
    def replies(self) -> dict[Policy, pd.DataFrame]:
        """Return the replies to the held-out open-ended prompts."""
        return {self.shown(policy): rows for policy, rows in self.read(REPLIES, read_rollouts, NEEDED).items()}

    @cached_property
    def main(self) -> pd.DataFrame:
        return self.build("main")

    def equal(self, pairs: Iterable[tuple[str, str]]) -> list[bool]:
        judged = verify_batch([(first, rf"\boxed{{{second}}}") for first, second in pairs], workers=self.threads)
        return [judgement.verdict == "correct" for judgement in judged]

    # ----------------------------------------------------------------------------------------------------------- costs

    @cached_property
    def costs(self) -> dict[Policy, CostFile]:
        """Return the costs of trained policies; the cost of M0 is not part of the experiment."""
        return {self.shown(policy): cost for policy, cost in self.read(COSTS, read_cost).items()}

    @cached_property
    def device_hours(self) -> dict[Policy, float]:
        hours: dict[Policy, float] = {}
        for policy in self.finished.values():
            if policy.role == "base":
                hours[policy] = 0.0
            elif policy in self.costs:
                hours[policy] = self.costs[policy].device_hours
        return hours

    @cached_property
    def calibrated(self) -> dict[Policy, float]:
        return {policy: calibration_hours(cost.records) for policy, cost in self.costs.items()}

    @cached_property
    def spent(self) -> dict[Policy, dict[str, float]]:
        spent: dict[Policy, dict[str, float]] = {}
        for policy in self.finished.values():
            if policy.role == "base":
                spent[policy] = {"tokens_generated": 0, "updates": 0}
        for policy, cost in self.costs.items():
            record = self.records.get(policy)
            spent[policy] = spent_on(cost.records, self.path)
            if record is not None and "n_pairs" in record.statistics:
                spent[policy]["n_pairs"] = record.statistics["n_pairs"]
        return spent

    @cached_property
    def charged(self) -> dict[Policy, list[Cost]]:
        """Return the jobs charged to each policy: first the jobs that made it, then the jobs that sampled it."""
        by_policy: dict[Policy, list[Cost]] = {policy: [] for policy in self.finished.values()}
        for policy, cost in self.costs.items():
            by_policy.setdefault(policy, []).extend(cost.records)
        for read in (ANSWER_COSTS, SAMPLE_COSTS):
            for (policy, _), cost in self.read(read, read_cost).items():
                by_policy.setdefault(policy, []).extend(cost.records)
        for policy, cost in self.read(REPLY_COSTS, read_cost).items():
            by_policy.setdefault(policy, []).extend(cost.records)
        return by_policy

    # -------------------------------------------------------------------------------------------------------- harvests

    @cached_property
    def summaries(self) -> dict[Harvest, Informativeness]:
        pairs = self.read(PAIRED, read_pairs)
        summaries: dict[Harvest, Informativeness] = {}
        for harvest, rollouts in self.harvested.items():
            summary = informativeness(rollouts)
            if harvest in pairs:
                chosen, rejected = truncated_sides(pairs[harvest], rollouts)
                summary = replace(summary, n_chosen_truncated=chosen, n_rejected_truncated=rejected)
            summaries[harvest] = summary
        return summaries

    @cached_property
    def harvested(self) -> dict[Harvest, pd.DataFrame]:
        return self.read(HARVESTED, read_rollouts, (*TEXTLESS, *OF_REWARDS))

    @cached_property
    def counts(self) -> dict[Harvest, pd.DataFrame]:
        return {harvest: success_counts(rollouts) for harvest, rollouts in self.harvested.items()}

    @cached_property
    def points(self) -> pd.DataFrame:
        return correlation_points(self.summaries, self.tested)

    # -------------------------------------------------------------------------------------- calibrations and trainings

    @cached_property
    def levels(self) -> dict[str, pd.DataFrame]:
        return self.read(LEVELS, read_table, LEVEL_COLUMNS)

    @cached_property
    def temperatures(self) -> dict[str, dict[float, pd.DataFrame]]:
        by_model: dict[str, dict[float, pd.DataFrame]] = {}
        for (file, temperature), rollouts in self.read(TEMPERATURES, read_rollouts, TEXTLESS).items():
            model = file.partition("/")[0]
            by_model.setdefault(model, {})[float(temperature)] = rollouts
        return by_model

    @cached_property
    def probes(self) -> dict[Policy, pd.DataFrame]:
        return self.read(PROBES, read_table, PROBE_COLUMNS)

    @cached_property
    def logs(self) -> dict[Policy, pd.DataFrame]:
        """Return the steps of each online training, by its last policy."""
        logs = self.read(LOGS, read_log)
        ages = self.read(TRAINING_ROLLOUTS, read_ages)
        steps: dict[Policy, pd.DataFrame] = {}
        for last, along in self.grid.chains.items():
            run = last.run
            if last in logs and isinstance(run, OnlineRun):
                read_along = pd.concat([ages[policy] for policy in along if policy in ages])
                steps[last] = steps_of(logs[last], read_along, run.settings.beta)
        return steps
