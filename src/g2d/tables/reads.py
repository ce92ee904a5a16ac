"""Files that tables and the page read. Planning imports this module: it reads no files itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Generic, TypeVar

from g2d.grid.grid import Grid
from g2d.grid.runs import Harvest, Policy

Key = TypeVar("Key")  # a policy, a harvest, a model, or a tuple of these with a benchmark or temperature


@dataclass(frozen=True)
class Read(Generic[Key]):
    """Files that a job reads: one for each of `keys`, at `pattern` below the results folder.

    Args:
        name: name of the files as an input of a rule.
        pattern: format string of a key, or of the members of a tuple.
    """

    name: str
    keys: Callable[[Grid], Iterable[Key]]
    pattern: str

    def files(self, grid: Grid) -> list[str]:
        return [self.file(key) for key in self.keys(grid)]

    def file(self, key: Key) -> str:
        members = key if isinstance(key, tuple) else (key,)
        return f"results/{self.pattern.format(*members)}"

    def by_key(self, grid: Grid, files: Sequence[str]) -> dict[Key, str]:
        """Return the files that a rule names for this, by key."""
        return dict(zip(self.keys(grid), files, strict=True))


# A table and the page declare their files as `Read`s. The rule `make_tables` gets its inputs from them, and the job
# finds its files by the same keys, so a file that is read is an input, and the other way round.


def _answered(grid: Grid) -> list[tuple[Policy, str]]:
    return list(product(grid.policies, grid.config.benchmarks))


def _replied(grid: Grid) -> list[Policy]:
    return grid.policies if grid.config.open_ended else []


def _sampled(grid: Grid) -> list[tuple[Policy, str, str]]:
    sampled = []
    for folder, pairs in (("samples", grid.sampled_beside), ("eval", grid.sampled)):
        for policy, benchmark in pairs:
            sampled.append((policy, folder, benchmark))
    return sampled


def _temperatures(grid: Grid) -> list[tuple[str, str]]:
    files = []
    for model in grid.config.models:
        for temperature, file in grid.temperatures(model).items():
            files.append((file, temperature))
    return files


def shown_harvests(grid: Grid) -> list[Harvest]:
    """Return the harvests of the pair browser: the main grid's, then harvests that another reward judged."""
    controls: list[Harvest] = []
    for policy in grid.evaluated:
        is_first = policy.seed == grid.config.seeds[0]
        main = grid.runs[policy.model]["grpo"].other_reward
        harvest = policy.reads.harvest
        if policy.method == "dpo" and harvest and is_first and policy.run.other_reward != main:
            controls.append(harvest)
    return grid.harvests + controls


def side_by_side(grid: Grid) -> dict[tuple[str, str], list[Policy]]:
    """Return the policies whose answers the page shows side by side, if a model has two: main grid, first seed."""
    shown: dict[tuple[str, str], list[Policy]] = {}
    for model in grid.config.models:
        policies = [policy for policy in grid.policies if policy.model == model and _is_shown(grid, policy)]
        if len(policies) > 1:
            for benchmark in grid.config.benchmarks:
                shown[model, benchmark] = policies
    return shown


def _is_shown(grid: Grid, policy: Policy) -> bool:
    return policy.role in ("base", "dpo", "auto", "grpo") and policy.seed in (None, grid.config.seeds[0])


def _side_by_side(grid: Grid) -> list[tuple[Policy, str]]:
    shown: list[tuple[Policy, str]] = []
    for (_, benchmark), policies in side_by_side(grid).items():
        shown += product(policies, [benchmark])
    return shown


# Policies.
RECORDS = Read("records", lambda grid: grid.policies, "{.folder}/policy.json")
TRAINED = Read("trained", lambda grid: grid.evaluated, "{.folder}/policy.json")
COSTS = Read("costs", lambda grid: grid.evaluated, "{.folder}/cost.json")
TRAINING_LOGS = Read("logs_of_trainings", lambda grid: grid.trained, "{.folder}/metrics.jsonl")
LOGS = Read("logs", lambda grid: grid.chains, "{.folder}/metrics.jsonl")
TRAINING_ROLLOUTS = Read("ages", lambda grid: chain.from_iterable(grid.chains.values()), "{.folder}/rollouts.parquet")
PROBES = Read("probes", lambda grid: grid.automatic_warmups, "{.folder}/probes.csv")
# Policies and benchmarks.
ANSWERS = Read("answers", _answered, "{.folder}/eval/{}.parquet")
ANSWER_COSTS = Read("answer_costs", _answered, "{.folder}/eval/{}.cost.json")
SAMPLES = Read("sampled", _sampled, "{.folder}/{}/{}.parquet")
SAMPLE_COSTS = Read("sample_costs", lambda grid: grid.sampled_beside, "{.folder}/samples/{}.cost.json")
REPLIES = Read("replies", _replied, "{.folder}/open-ended/rollouts.parquet")
REPLY_COSTS = Read("reply_costs", _replied, "{.folder}/open-ended/cost.json")
# Harvests.
HARVESTED = Read("harvested", lambda grid: grid.harvests, "{.folder}/rollouts.parquet")
PAIRED = Read("paired", lambda grid: grid.harvests, "{.folder}/pairs.jsonl")
# Calibrations.
LEVELS = Read("levels", lambda grid: grid.config.models, "{}/calibration/levels.csv")
TEMPERATURES = Read("temperatures", _temperatures, "{}")
# The page.
SHOWN_PAIRS = Read("pairs", shown_harvests, "{.folder}/pairs.jsonl")
SHOWN_ROLLOUTS = Read("rollouts", shown_harvests, "{.folder}/rollouts.parquet")
SHOWN_ANSWERS = Read("answers", _side_by_side, "{.folder}/eval/{}.parquet")
