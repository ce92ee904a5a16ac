"""The jobs of a grid, from its configuration alone: those that Snakemake would plan in an empty folder.

A test compares the list with Snakemake's. A job has the name that its bill and the records of its attempts have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from g2d.experiment import grid
from g2d.experiment.arms import any_arms
from g2d.experiment.config import Config
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.experiment.plan import Plan
from g2d.experiment.race import look_name
from g2d.experiment.requirements import fetched_models
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
    name: str  # in its bill and the records of its attempts
    outputs: tuple[str, ...]  # exist when it is done: the first output of its rule and its bill, which is written last
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
        return not self.merges and (self.stage in DEVICE_STAGES or self.stage.startswith("train_"))


DEVICE_STAGES = frozenset(
    [
        *("scratch_model", "draw_replies", "calibrate", "calibrate_temperature", "draw_probe", "harvest_rollouts"),
        *(
            "evaluate",
            "draw_samples",
            "measure_drift",
            "answer_development",
            "reply_to_development",
            "continue_questions",
        ),
    ]
)


def grid_jobs(config: Config, plan: Plan) -> list[GridJob]:
    """Every job behind the target `all`, roughly in the order in which they run."""
    found = [*_problems(config), *_reward_models(config), *_models(config, plan)]
    trained = list(dict.fromkeys(key for policy in grid.trainings(config) for key in _rounds(policy)))
    found += [_training(key) for key in trained if key.trained_online]
    found += _selections(config)
    for folder, (wildcards, pairs) in _harvests(config, plan).items():
        found += _generation(plan, "harvest", "harvest_rollouts", f"{folder}/rollouts", wildcards)
        for name in sorted(pairs):
            rule = "build_pairs" if name == "pairs.jsonl" else "build_several_pairs"
            found.append(_job(rule, f"{folder}/{name}", wildcards))
    found += [_training(key) for key in trained if not key.trained_online]
    for key in grid.policies(config):
        for benchmark in config.benchmarks:
            wildcards = Wildcards(policy=key.folder, benchmark=benchmark)
            found += _generation(plan, "evaluation", "evaluate", f"{key.folder}/eval/{benchmark}", wildcards)
    for (key, benchmark), place in grid.drawn_beside(config).items():
        wildcards = Wildcards(policy=key.folder, benchmark=benchmark)
        found += _generation(plan, "evaluation", "draw_samples", place, wildcards)
    for (key, benchmark), place in grid.drifts(config).items():
        wildcards = Wildcards(policy=key.folder, benchmark=benchmark)
        found.append(_job("measure_drift", f"{place}.parquet", wildcards, cost=f"{place}.cost.json"))
    return [*found, *_summaries(config)]


def _job(rule: str, output: str, wildcards: Wildcards | None = None, cost: str | None = None, **more: Any) -> GridJob:
    outputs = tuple(f"results/{file}" for file in (output, cost) if file)
    return GridJob(rule, outputs[-1].rpartition(".")[0], outputs, wildcards or Wildcards(), **more)


def _rounds(key: PolicyKey) -> list[PolicyKey]:
    """A policy in rounds with those of the rounds before; any other alone."""
    return [replace(key, k=k) for k in range(1, key.k + 1)] if key.in_rounds else [key]


def _training(key: PolicyKey) -> GridJob:
    stops = key.trained_online and key.stops
    rule = f"train_{key.kind}_auto" if stops else f"train_{key.kind}"
    return _job(rule, f"{key.folder}/policy.json", _at(key), cost=f"{key.folder}/cost.json")


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
        place = f"{folder}/development/{kind}"
        yield _job(rules[kind], f"{place}.parquet", Wildcards(policy=folder), cost=f"{place}.cost.json")
    for key in tried:
        yield _job("choose_checkpoint", f"{key.folder}/policy.json", _at(key), cost=f"{key.folder}/cost.json")


def _at(key: PolicyKey) -> Wildcards:
    variant, slash, regime = key.regime.rpartition("/")
    return Wildcards(variant=variant + slash, regime=regime, **_numbers(key))


def _numbers(key: PolicyKey | HarvestKey) -> dict[str, str]:
    return {"model": key.model, "seed": str(key.seed), "g": str(key.group_size), "k": str(key.k)}


def _problems(config: Config) -> Iterator[GridJob]:
    for name in config.problem_sources:
        yield _job("load_problems", f"problems/{name}.jsonl")
    others = [HELD_OUT] if config.open_ended else []
    others += [DEVELOPMENT] if config.sweep else []
    others += [OPEN_ENDED_DEVELOPMENT] if OPEN_ENDED_DEVELOPMENT in config.problem_sources else []
    for name in [*config.benchmarks, *others]:
        yield _job("check_leakage", f"problems/{name}.leakage.json")
    if held_out(config):
        yield _job("hold_out_development", f"problems/{DEVELOPMENT}.jsonl")
    for name in development_of(config):
        yield _job("check_development", f"problems/{name}.development.json")


def _reward_models(config: Config) -> Iterator[GridJob]:
    named = [arm.reward for arm in any_arms(config).values()]
    named += [config.open_ended.reward, config.open_ended.judged_by] if config.open_ended else []
    asked = [config.rewards[name] for name in named if name]
    for name in dict.fromkeys(own.name for own in asked if isinstance(own, ScratchRewardModel)):
        yield _job("scratch_reward_model", f"reward-models/{name}/model.safetensors")


def _models(config: Config, plan: Plan) -> Iterator[GridJob]:
    for folder in fetched_models(config).keys() - config.models:  # of teachers
        yield _job("pretrained_model", f"{folder}/base/policy.json", Wildcards(model=folder))
    for model in config.models:
        wildcards, folder = Wildcards(model=model), f"{model}/calibration"
        base = f"{model}/base/policy.json"
        if config.models[model].source == "scratch":
            yield _job("scratch_model", base, wildcards, cost=f"{model}/base/cost.json")
        else:
            yield _job("embedded_model" if plan.is_embedded(model) else "pretrained_model", base, wildcards)
        yield from _generation(plan, "calibration", "calibrate", f"{folder}/rollouts", wildcards)
        yield _job("select_training_set", f"{folder}/levels.csv", wildcards)
        for temperature in list(grid.factorial_files(config, model))[1:]:
            at = Wildcards(model=model, temperature=temperature)
            output = f"{folder}/t{temperature}/rollouts"
            yield from _generation(plan, "calibration", "calibrate_temperature", output, at)


def _generation(plan: Plan, kind: str, rule: str, output: str, wildcards: Wildcards) -> Iterator[GridJob]:
    """A job that writes a file of rollouts, after those that draw its shards."""
    model = wildcards.get("model") or wildcards.policy.split("/")[0]
    shards = getattr(plan.for_model(model).engine.shards, kind)
    cost = f"{output}.cost.json" if kind == "evaluation" else f"{output.rpartition('/')[0]}/cost.json"
    for shard in range(1, shards + 1) if shards > 1 else ():
        at = Wildcards(**vars(wildcards), shard=str(shard), shards=str(shards))
        part = f"{output}.shards/{shard}-of-{shards}"
        merged = f"results/{output}.parquet"
        yield _job(f"{rule}_shard", f"{part}.parquet", at, cost=f"{part}.cost.json", merged_into=merged)
    yield _job(rule, f"{output}.parquet", wildcards, cost=cost, merges=shards > 1)


def _harvests(config: Config, plan: Plan) -> dict[str, tuple[Wildcards, set[str]]]:
    """By folder, every harvest and the files of pairs that are made from it."""
    found: dict[str, tuple[Wildcards, set[str]]] = {}

    def harvest(wildcards: Wildcards) -> set[str]:
        w = wildcards
        folder = f"{w.model}/seed{w.seed}/{w.variant}harvest/g{w.g}/k{w.k}"
        return found.setdefault(folder, (wildcards, set()))[1]

    trained = [key for key in grid.trainings(config) if not key.trained_online]
    shown = [*grid.harvests(config), *grid.harvests_of_controls(config)]  # on the page, with their pairs
    for key in [*shown, *(counted for policy in trained for counted in grid.harvests_counted(config, policy))]:
        harvest(Wildcards(**_numbers(key), variant=f"{key.variant}/" if key.variant else "")).add("pairs.jsonl")
    for policy in trained:
        wildcards = _at(policy)
        if policy.in_rounds:
            for k in range(policy.k):
                before = {"k": str(k), "variant": f"{policy.regime}/" if k else ""}
                harvest(Wildcards(**vars(wildcards) | before)).add("pairs.jsonl")
            continue
        pairs = harvest(wildcards)
        if policy.kind == "dpo":
            pairs.add(Path(plan.pairs_file(wildcards)).name)
        elif plan.pairs_of_entry(wildcards):
            pairs.add("pairs.jsonl")
    return found


def _summaries(config: Config) -> Iterator[GridJob]:
    """Tables, figures, cards and reports, each with its first output."""
    tables = catalogue.tables_of(config)
    if config.probe.compare:
        for probe in grid.probes(config):
            wildcards, folder = Wildcards(**_numbers(probe), variant=""), probe.probe_folder
            yield _job("draw_probe", f"{folder}/rollouts.parquet", wildcards, cost=f"{folder}/cost.json")
        yield _job("advise", "advice.md")
        yield _job("check_advice", "tables/advice_check.csv")
    if config.contamination:
        for model in config.models:
            for name in config.continued_benchmarks:
                folder = f"{model}/contamination/{name}"
                at = Wildcards(model=model, benchmark=name)
                yield _job("continue_questions", f"{folder}/rollouts.parquet", at, cost=f"{folder}/cost.json")
    if config.open_ended:
        for key in grid.policies(config):
            wildcards, folder = Wildcards(policy=key.folder), f"{key.folder}/open-ended"
            yield _job("draw_replies", f"{folder}/rollouts.parquet", wildcards, cost=f"{folder}/cost.json")
    if config.looks and not (config.reached and config.reached.is_over):
        taken = len(config.reached.files) if config.reached else 0
        yield _job("take_look", look_name(config.looks, taken + 1).removeprefix("results/"))
    for rule in dict.fromkeys(table.rule for table in tables.values() if table.function):
        yield _job(rule, f"tables/{catalogue.tables_of_rule(config, rule)[0].name}.csv")
    yield _job("render_tables", "tables/main.html")
    yield _job("draw_figures", f"figures/{catalogue.FIGURES[0].name}.svg")
    cards = [f"{key.folder}/{config.lora.folder}" for key in grid.policies(config) if key.role != "base"]
    cards += [key.folder for key in grid.harvests(config)]
    yield _job("write_cards", f"{cards[0]}/README.md")
    yield _job("record_provenance", "provenance.json")
    yield _job("write_methods", "methods.md")
    yield _job("build_report", "report/index.html")
