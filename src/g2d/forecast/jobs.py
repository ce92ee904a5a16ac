"""Jobs of a grid, derived from its configuration: the same as Snakemake plans in an empty folder.

A test compares the two lists. Jobs have the same names as in their cost files and in the records of attempts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any

from g2d.experiment import grid
from g2d.experiment.arms import any_arms
from g2d.experiment.config import Config
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.experiment.plan import Plan
from g2d.experiment.race import look_name
from g2d.experiment.requirements import fetched_models
from g2d.experiment.stages import RUNNING_ORDER
from g2d.experiment.sweep import development_of, held_out
from g2d.problems.settings import DEVELOPMENT, HELD_OUT, OPEN_ENDED_DEVELOPMENT
from g2d.rewards.scratch_model import ScratchRewardModel
from g2d.tables import catalogue


class Wildcards(SimpleNamespace):
    """Snakemake's wildcards, as far as the plan uses them."""

    def get(self, name: str, default: Any = None) -> Any:
        """A wildcard that the rule may not have."""
        return getattr(self, name, default)


@dataclass(frozen=True, slots=True)
class GridJob:
    """One job. Paths begin with `results/`, as jobs see them."""

    rule: str
    name: str  # in its cost file and the records of its attempts
    outputs: tuple[
        str, ...
    ]  # exist when it is done: the first output of its rule, and its cost file, which is written last
    wildcards: Wildcards
    merged_into: str | None = None  # of a shard, whose outputs are temporary: the file that they are merged into
    merges: bool = False  # shards that other jobs have drawn

    @property
    def stage(self) -> str:
        """The name of the stage in bills and records of attempts."""
        return self.rule.removesuffix("_shard")

    @property
    def holds_device(self) -> bool:
        """Whether it trains or generates with a model; other jobs take seconds."""
        return not self.merges and self.stage in DEVICE_STAGES


DEVICE_STAGES = {*RUNNING_ORDER, "scratch_model", "calibrate_temperature", "draw_probe", "continue_questions"}


def grid_jobs(config: Config, plan: Plan) -> list[GridJob]:
    """Every job behind the target `all`, roughly in the order in which they run; of a race, until its next look."""
    at_last = config.reached is None or config.reached.is_over
    found = [*_problems(config, at_last), *_reward_models(config, at_last), *_models(config, plan, at_last)]
    tried = [key for _, key in grid.candidate_policies(config)]
    made = grid.with_all_behind(plan.config, [*tried, *grid.trainings(config)])
    trained = [key for key in made if not key.selected]
    found += [_training(key) for key in trained if key.trained_online]
    found += _selections(config)
    shown = [*grid.harvests(config), *grid.harvests_of_controls(config)] if at_last else []  # on the page, with pairs
    for folder, (wildcards, pairs) in _harvests(plan, trained, shown).items():
        found += _generation(plan, "harvest", "harvest_rollouts", f"{folder}/rollouts", wildcards)
        for name in sorted(pairs):
            rule = "build_pairs" if name == "pairs.jsonl" else "build_several_pairs"
            found.append(_job(rule, f"{folder}/{name}", wildcards))
    found += [_training(key) for key in trained if not key.trained_online]
    answered = [(key.folder, DEVELOPMENT) for key in tried]
    answered += [(key.folder, name) for key in grid.policies(config) for name in _benchmarks(config, at_last)]
    for folder, benchmark in answered:
        wildcards = Wildcards(policy=folder, benchmark=benchmark)
        found += _generation(plan, "evaluation", "evaluate", f"{folder}/eval/{benchmark}", wildcards)
    for model, swept in product(config.models, config.sweep.regimes if config.sweep else ()):
        found.append(_job("choose_settings", f"{model}/sweep/{swept}.json", Wildcards(model=model, swept=swept)))
    found += _measurements(config, plan) if at_last else []
    return [*found, *_summaries(config)]


def _benchmarks(config: Config, at_last: bool) -> list[str]:
    """Benchmarks to evaluate: all, or the one of the interim analyses."""
    return list(config.benchmarks) if at_last else list(config.benchmarks)[:1]


def _measurements(config: Config, plan: Plan) -> Iterator[GridJob]:
    """Generation jobs that only tables need."""
    for (key, benchmark), place in grid.drawn_beside(config).items():
        wildcards = Wildcards(policy=key.folder, benchmark=benchmark)
        yield from _generation(plan, "evaluation", "draw_samples", place, wildcards)
    for (key, benchmark), place in grid.drifts(config).items():
        at = Wildcards(policy=key.folder, benchmark=benchmark)
        yield _billed("measure_drift", f"{place}.parquet", at, shared=True)
    for model, name in product(config.models, config.continued_benchmarks):
        output = f"{model}/contamination/{name}/rollouts.parquet"
        yield _billed("continue_questions", output, Wildcards(model=model, benchmark=name))
    for key in grid.policies(config) if config.open_ended else ():
        yield _billed("draw_replies", f"{key.folder}/open-ended/rollouts.parquet", Wildcards(policy=key.folder))


def _job(rule: str, output: str, wildcards: Wildcards | None = None, cost: str | None = None, **more: Any) -> GridJob:
    outputs = tuple(f"results/{file}" for file in (output, cost) if file)
    return GridJob(rule, outputs[-1].rpartition(".")[0], outputs, wildcards or Wildcards(), **more)


def _billed(rule: str, output: str, wildcards: Wildcards, *, shared: bool = False, **more: Any) -> GridJob:
    """Return a job with a cost file, named after its output if other jobs share its folder."""
    bill = f"{output.rpartition('.')[0]}.cost.json" if shared else f"{output.rpartition('/')[0]}/cost.json"
    return _job(rule, output, wildcards, bill, **more)


def _training(key: PolicyKey) -> GridJob:
    stops = key.trained_online and key.stops
    return _billed(f"train_{key.kind}" + "_auto" * stops, f"{key.folder}/policy.json", _at(key))


def _selections(config: Config) -> Iterator[GridJob]:
    """Answers of candidates to development prompts, shared by all selections, and the selections."""
    rules = {"verifiable": "answer_development", "open_ended": "reply_to_development"}
    owners, tried = grid.selecting(config), grid.checkpoints(config)
    asked = [
        (key.folder, kind)
        for own, keys in tried.items()
        for key in keys
        for kind in grid.chosen_by(config, owners[own.regime])
    ]
    for folder, kind in dict.fromkeys(asked):
        yield _billed(rules[kind], f"{folder}/development/{kind}.parquet", Wildcards(policy=folder), shared=True)
    for key in tried:
        yield _billed("choose_checkpoint", f"{key.folder}/policy.json", _at(key))


def _at(key: PolicyKey) -> Wildcards:
    variant, slash, regime = key.regime.rpartition("/")
    return Wildcards(variant=variant + slash, regime=regime, **_numbers(key))


def _numbers(key: PolicyKey | HarvestKey) -> dict[str, str]:
    return {"model": key.model, "seed": str(key.seed), "g": str(key.group_size), "k": str(key.k)}


def _problems(config: Config, at_last: bool) -> Iterator[GridJob]:
    for name in config.problem_sources:
        yield _job("load_problems", f"problems/{name}.jsonl")
    others = [HELD_OUT] if config.open_ended and at_last else []
    others += [DEVELOPMENT] if config.sweep else []
    others += [OPEN_ENDED_DEVELOPMENT] if OPEN_ENDED_DEVELOPMENT in config.problem_sources else []
    for name in [*_benchmarks(config, at_last), *others]:
        yield _job("check_leakage", f"problems/{name}.leakage.json")
    if held_out(config):
        yield _job("hold_out_development", f"problems/{DEVELOPMENT}.jsonl")
    for name in development_of(config):
        yield _job("check_development", f"problems/{name}.development.json")


def _reward_models(config: Config, at_last: bool) -> Iterator[GridJob]:
    named = [arm.reward for arm in any_arms(config).values()]
    if config.open_ended:
        asked = [arm for arm in any_arms(config).values() if arm.asked.asks_open_ended]
        named += [config.open_ended.reward] * bool(asked) + [config.open_ended.judged_by] * at_last
    judges = [config.rewards[name] for name in named if name]
    for name in dict.fromkeys(own.name for own in judges if isinstance(own, ScratchRewardModel)):
        yield _job("scratch_reward_model", f"reward-models/{name}/model.safetensors")


def _models(config: Config, plan: Plan, at_last: bool) -> Iterator[GridJob]:
    for folder in fetched_models(config).keys() - config.models:  # of teachers
        yield _job("pretrained_model", f"{folder}/base/policy.json", Wildcards(model=folder))
    for model in config.models:
        wildcards, folder = Wildcards(model=model), f"{model}/calibration"
        base = f"{model}/base/policy.json"
        source = config.models[model].source
        if source == "scratch":
            yield _billed("scratch_model", base, wildcards)
        else:
            rule = {"embedded": "embedded_model", "gguf": "gguf_model"}.get(source, "pretrained_model")
            yield _job(rule, base, wildcards)
        yield from _generation(plan, "calibration", "calibrate", f"{folder}/rollouts", wildcards)
        yield _job("select_training_set", f"{folder}/levels.csv", wildcards)
        for temperature in list(grid.factorial_files(config, model))[1:] if at_last else ():
            at = Wildcards(model=model, temperature=temperature)
            output = f"{folder}/t{temperature}/rollouts"
            yield from _generation(plan, "calibration", "calibrate_temperature", output, at)


def _generation(plan: Plan, kind: str, rule: str, output: str, wildcards: Wildcards) -> Iterator[GridJob]:
    """Return a job that writes a file of rollouts, after the jobs that generate its shards."""
    model = wildcards.get("model") or wildcards.policy.split("/")[0]
    shards = getattr(plan.for_model(model).engine.shards, kind)
    for shard in range(1, shards + 1) if shards > 1 else ():
        at = Wildcards(**vars(wildcards), shard=str(shard), shards=str(shards))
        part, merged = f"{output}.shards/{shard}-of-{shards}.parquet", f"results/{output}.parquet"
        yield _billed(f"{rule}_shard", part, at, shared=True, merged_into=merged)
    yield _billed(rule, f"{output}.parquet", wildcards, shared=kind == "evaluation", merges=shards > 1)


OF_HARVEST = re.compile(
    r"results/((?P<model>[^/]+)/seed(?P<seed>\d+)/(?P<variant>(?:[^/]+/)?)harvest/g(?P<g>\d+)/k(?P<k>\d+))/([^/]+)"
)


def _harvests(
    plan: Plan, trained: Iterable[PolicyKey], shown: Iterable[HarvestKey]
) -> dict[str, tuple[Wildcards, set[str]]]:
    """Return every harvest by folder, and the files of pairs made from it."""
    found: dict[str, tuple[Wildcards, set[str]]] = {}
    new = [f"results/{key.folder}/pairs.jsonl" for key in shown]
    new += [file for key in trained for file in _harvested(plan, key)]
    for file in new:  # `new` grows in the loop
        if match := OF_HARVEST.fullmatch(file):
            folder, *_, name = match.groups()
            if folder not in found:
                found[folder] = Wildcards(**match.groupdict()), set()
                new += plan.judged(found[folder][0])
            found[folder][1].update({name} - {"rollouts.parquet"})
    return found


def _harvested(plan: Plan, key: PolicyKey) -> list[str]:
    """Return the inputs of a training, including harvests."""
    wildcards = _at(key)
    if key.in_rounds:
        return [f"{plan.harvest_of_round(wildcards)}/pairs.jsonl"]
    if key.trained_online:
        return plan.replayed_harvest(wildcards)
    files = plan.harvested(wildcards).values()
    return [file for own in files for file in ([own] if isinstance(own, str) else own)]


def _summaries(config: Config) -> Iterator[GridJob]:
    """Tables, figures, cards and reports, each with its first output."""
    tables = catalogue.tables_of(config)
    if config.probe.compare:
        for probe in grid.probes(config):
            wildcards = Wildcards(**_numbers(probe), variant="")
            yield _billed("draw_probe", f"{probe.probe_folder}/rollouts.parquet", wildcards)
        yield _job("advise", "advice.md")
        yield _job("check_advice", "tables/advice_check.csv")
    if config.looks and not (config.reached and config.reached.is_over):
        taken = len(config.reached.files) if config.reached else 0
        yield _job("take_look", look_name(config.looks, taken + 1).removeprefix("results/"))
    for rule in dict.fromkeys(table.rule for table in tables.values() if table.function):
        yield _job(rule, f"tables/{catalogue.tables_of_rule(config, rule)[0].name}.csv")
    yield _job("draw_figures", f"figures/{catalogue.FIGURES[0].name}.svg")
    cards = [f"{key.folder}/{config.lora.folder}" for key in grid.policies(config) if key.role != "base"]
    cards += [key.folder for key in grid.harvests(config)]
    yield _job("write_cards", f"{cards[0]}/README.md")
    yield _job("record_provenance", "provenance.json")
    yield _job("write_methods", "methods.md")
    yield _job("build_report", "report/index.html")
