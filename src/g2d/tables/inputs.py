"""What tables are made of, by policy, harvest or model: the frames that `Table.reads` names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
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
from g2d.experiment.sections import Collapse, Contamination, Frontier
from g2d.graph import catalogue
from g2d.graph.parts import files_of
from g2d.jobs.attempts import Attempt, read_attempts
from g2d.jobs.cost import Cost, read_cost
from g2d.jobs.files import read_json
from g2d.policies.policy import read_policy
from g2d.problems import read_problems
from g2d.problems.settings import is_fresh
from g2d.regimes.run.auto_stop import PROBE_COLUMNS
from g2d.regimes.run.training_rollouts import read_ages
from g2d.rollouts.rollout import BUDGET_VERDICTS, TEXTLESS, read_rollouts
from g2d.tables.bills import calibration_of, costs_of, read_log, spent_on
from g2d.tables.choices import CANDIDATE_COLUMNS, SWEEP_COLUMNS, sweep_bills
from g2d.tables.controls import seen_in_training
from g2d.tables.frames import read_table
from g2d.tables.harvest import correlation_points
from g2d.tables.samples import READ
from g2d.tables.win_rates import NEEDED
from g2d.verifier import verify_batch

WITHOUT_TEXTS = (*TEXTLESS, BUDGET_VERDICTS)
Measured = Mapping[PolicyKey, Mapping[str, Any]]


class _Part(cached_property[dict[Any, Any]]):
    """The files of the part of the grid that has the attribute's name, read by what they are of; `shown`: policies have
    the K that tables show."""

    def __init__(self, read: Callable[..., Any], *arguments: Any, shown: bool = False) -> None:
        def found(inputs: Inputs) -> dict[Any, Any]:
            own = inputs.read(str(self.attrname), read, *arguments)
            return {inputs.as_shown(at): one for at, one in own.items()} if shown else own

        super().__init__(found)


class Inputs:
    """Each input is read when it is first asked for, and then kept.

    Args:
        whole: fail where a file is missing; it is otherwise left out.
        threads: how many workers of the verifier there may be.
    """

    records = _Part(read_policy)  # by policy
    answers = _Part(read_rollouts, WITHOUT_TEXTS, shown=True)  # by policy and benchmark
    sampled = _Part(read_rollouts, READ, shown=True)  # by policy and benchmark: several answers to every problem
    drifted = _Part(pd.read_parquet, shown=True)  # by policy and benchmark: divergence from M0 on answers of its own
    costs = _Part(read_cost, shown=True)  # by trained policy; what M0 cost is not part of this experiment
    replies = _Part(read_rollouts, NEEDED, shown=True)  # by policy, to the held-out open-ended prompts
    summaries = _Part(read_informativeness)  # by harvest
    harvested = _Part(read_rollouts, WITHOUT_TEXTS)  # by harvest
    levels = _Part(read_table, LEVEL_COLUMNS)  # by model, how hard every level is
    probes = _Part(read_table, PROBE_COLUMNS)  # by warm-up that stops by itself
    looks = _Part(read_json)  # by file, first to last
    seen = _Part(seen_in_training)  # by control
    candidates = _Part(read_table, SWEEP_COLUMNS)  # by model and swept regime
    selections = _Part(read_table, CANDIDATE_COLUMNS)  # by the policy that was selected
    continued = _Part(read_rollouts, ("problem_id", "completion_text", "verdict"))  # by model and benchmark
    questions = _Part(read_problems)  # by benchmark: those whose beginnings were continued
    main = cached_property(lambda self: self.build("main"))  # Table 1

    def __init__(self, folder: Path, config: Config, whole: bool = False, threads: int = 1) -> None:
        self.folder, self.config, self.whole, self.threads = folder, config, whole, threads
        self._built: dict[str, pd.DataFrame] = {}
        self.controls = grid.controls(config)  # by the name of a control, that of the policy it is one of
        self.changes = grid.ablation_changes(config)  # by ablation, what it changes
        self.price = config.price_per_device_hour
        settings = config.frontier or Frontier()
        self.margin, self.tested_axis = settings.margin, settings.axis
        self.collapse_share = (config.collapse or Collapse()).share  # of what a training began with
        self.fresh = [name for name in config.continued_benchmarks if is_fresh(config.benchmarks[name])]
        self.shown_share = (config.contamination or Contamination()).share  # of a question's words

    def build(self, name: str) -> pd.DataFrame:
        """A table of the catalogue, computed from what is there.

        Raises:
            KeyError: there is no such table, or its rule has a script of its own (the advice).
        """
        if name not in self._built:
            table = catalogue.table(name)
            if not table.function:
                raise KeyError(f"{name}: the rule {table.rule} makes it: `tables` has what it wrote")
            self._built[name] = table.build(*(getattr(self, own) for own in table.reads.split()))
        return self._built[name]

    def path(self, file: str) -> Path:
        """Where a file is that jobs call `results/...`."""
        return self.folder / Path(file).relative_to("results")

    def read(self, part: str, read: Callable[..., Any], *arguments: Any) -> dict[Any, Any]:
        """What a part of the grid has left (`g2d.graph.parts`)."""
        files = {at: self.path(file) for at, file in files_of(self.config, part).items()}
        return {at: read(file, *arguments) for at, file in files.items() if self.whole or file.exists()}

    def as_shown(self, at: Any) -> Any:
        """A policy, or a policy and a benchmark, with the K that tables show."""
        return (self.as_shown(at[0]), *at[1:]) if isinstance(at, tuple) else self.finished.get(at, at)

    @cached_property
    def finished(self) -> dict[PolicyKey, PolicyKey]:
        """The finished policies, with the K that tables show."""
        return {key: key for key in grid.with_steps_taken(self.records)}

    def equal(self, pairs: Iterable[tuple[str, str]]) -> list[bool]:
        """Whether the second answer equals the first, by pair."""
        judged = verify_batch([(first, rf"\boxed{{{second}}}") for first, second in pairs], workers=self.threads)
        return [judgement.verdict == "correct" for judgement in judged]

    @cached_property
    def prompts(self) -> dict[str, str]:
        """By the name of a policy, the kinds of prompts that it was trained on."""
        return {key.regime: prompts_behind(self.config, key.regime) for key in grid.policies(self.config)}

    @cached_property
    def device_hours(self) -> dict[PolicyKey, float]:
        """Of every finished policy."""
        known = {key: self.costs[key].device_hours for key in self.finished if key in self.costs}
        return {key: known.get(key, 0.0) for key in self.finished.values() if key in known or key.role == "base"}

    @cached_property
    def calibrated(self) -> Measured:
        """What of a policy's costs is calibration."""
        return {key: calibration_of(cost.records, self.price) for key, cost in self.costs.items()}

    @cached_property
    def measured(self) -> Measured:
        """Of every trained policy, what its training recorded, and the tokens generated behind it."""
        return {
            key: self.records[key].settings | {"tokens": sum(record.tokens_generated for record in cost.records)}
            for key, cost in self.costs.items()
            if key in self.records
        }

    @cached_property
    def spent(self) -> Measured:
        """Of every trained policy, `spent_on`."""
        return {key: spent_on(key, cost.records, self.config, self.path) for key, cost in self.costs.items()}

    @cached_property
    def paid(self) -> Measured:
        """Of every trained policy, `costs_of`."""
        return {key: costs_of(key, cost.records, self.spent[key], self.config) for key, cost in self.costs.items()}

    @cached_property
    def billed(self) -> dict[PolicyKey, list[Cost]]:
        """The jobs on the bill of every policy, those that evaluated it too, and of every sweep."""
        bills: dict[PolicyKey, list[Cost]] = defaultdict(list, {key: [] for key in self.finished.values()})
        tried: dict[PolicyKey, list[Cost]] = defaultdict(list)
        parts = ("answer_costs", "sample_costs", "drift_costs", "reply_costs")
        for at, cost in chain(self.costs.items(), *(self.read(part, read_cost).items() for part in parts)):
            bills[at[0] if isinstance(at, tuple) else at] += cost.records
        for (key, _), cost in self.read("sweep_costs", read_cost).items():
            tried[key] += cost.records
        return bills | sweep_bills(tried, [record for bill in bills.values() for record in bill])

    @cached_property
    def attempts(self) -> list[Attempt]:
        """All attempts at jobs. No input of a rule: what a failed job cost makes no table stale."""
        return read_attempts(self.folder / "attempts")

    @cached_property
    def counts(self) -> dict[HarvestKey, pd.DataFrame]:
        """Their `success_counts`."""
        return {key: success_counts(rollouts) for key, rollouts in self.harvested.items()}

    @cached_property
    def points(self) -> pd.DataFrame:
        """Every harvest with the accuracy of the policy trained on it."""
        return correlation_points(self.summaries, self.answers)

    @cached_property
    def judged(self) -> dict[Any, pd.DataFrame]:
        """Harvests and answers by the name of their folder or file."""
        drawn = {key.folder: rollouts for key, rollouts in self.harvested.items()}
        return drawn | {f"{key.folder}/eval/{name}": rows for (key, name), rows in self.answers.items()}

    @cached_property
    def temperatures(self) -> dict[str, dict[float, pd.DataFrame]]:
        """By model and temperature, the rollouts of the calibration."""
        found: dict[str, dict[float, pd.DataFrame]] = {}
        for (model, temperature), rollouts in self.read("temperatures", read_rollouts, WITHOUT_TEXTS).items():
            found.setdefault(model, {})[float(temperature)] = rollouts
        return found

    @cached_property
    def logs(self) -> dict[Any, pd.DataFrame]:
        """`steps_of` every online training, by the policy at which it ends."""
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
