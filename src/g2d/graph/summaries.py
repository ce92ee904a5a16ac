"""Jobs after the policies: interim analyses, advice, tables, figures, cards and the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.experiment.race import at_look, look_name, whole
from g2d.experiment.sweep import development_of
from g2d.graph import catalogue
from g2d.graph.job import Files, Job, job_of, problems_of
from g2d.graph.parts import files_of, table_inputs
from g2d.problems.settings import DEVELOPMENT

PROVENANCE, PAGE = "results/provenance.json", "results/report/index.html"


def summaries(config: Config) -> Iterator[Job]:
    models, tables = config.models, catalogue.tables_of(config)
    swept = list(config.sweep.regimes if config.sweep else ())
    csv = {name: _table(name) for name in tables}
    figures = {figure.name: f"results/figures/{figure.name}.svg" for figure in catalogue.FIGURES}
    cards = _cards(config)
    if config.looks and config.reached and not config.reached.is_over:
        number = str(len(config.reached.files) + 1)
        given: dict[str, Files] = {"answers": _first_benchmark(config)}
        yield job_of("take_look", given, {"": look_name(config.looks, int(number))}, look=number)
    yield from _advice(config, swept)
    checks = [f"results/problems/{name}.development.json" for name in development_of(config)]
    checked = {"make_tables": checks if grid.checkpoints(whole(config)) else [], "make_sweep_table": checks}
    for rule in dict.fromkeys(table.rule for table in tables.values() if table.function):
        given = _at_last(config, lambda config, rule=rule: table_inputs(config, rule))  # type: ignore[misc]
        made = {table.name: _table(table.name) for table in catalogue.tables_of_rule(config, rule)}
        yield job_of(rule, given | {"checked": checked.get(rule, [])}, made)
    given = {name: _table(name) for name in ("main", "harvest", "decomposition", "budgets")}
    yield job_of("draw_figures", given, figures)
    given = {"table": _table("main")}
    given |= _parts(config, policies="records", informativeness="summaries")
    yield job_of("write_cards", given, {"": cards})
    given = {
        "base": [f"results/{model}/base/policy.json" for model in models],
        **_parts(config, policies="trained"),
        "manifests": [f"results/problems/{name}.manifest.json" for name in config.problem_sources],
        "bill": _table("cost"),
    }
    yield job_of("record_provenance", given, {"": PROVENANCE})
    given = {
        "tables": list(csv.values()),
        "figures": list(figures.values()),
        "provenance": PROVENANCE,
        "advice": "results/advice.md" if config.probe.compare else [],
        "problems": [f"results/{model}/calibration/train.jsonl" for model in models],
        "questions": [problems_of(name) for name in config.benchmarks],
        **_parts(config, pairs="shown_pairs", rollouts="shown_rollouts", answers="shown_answers"),
    }
    yield job_of("build_report", given, {"": PAGE})
    yield job_of("all", {"": [*csv.values(), *figures.values(), *cards, PAGE]}, {})


def _advice(config: Config, swept: list[str]) -> Iterator[Job]:
    folders = [f"results/{key.probe_folder}" for key in grid.probes(whole(config))]
    bills = [f"{folder}/cost.json" for folder in folders]
    given: dict[str, Files] = {
        "levels": list(files_of(config, "levels").values()),
        "benchmarks": [problems_of(name) for name in [*config.benchmarks, *([DEVELOPMENT] if swept else [])]],
        "rollouts": [f"{folder}/rollouts.parquet" for folder in folders],
        "bills": bills,
    }
    made = {"steps": _table("advice"), "hours": _table("advice_hours")}
    yield job_of("advise", given, {"text": "results/advice.md", **made})
    given = {"steps": _table("advice"), "hours": _table("advice_hours"), "probes": bills}
    given |= _at_last(config, lambda config: {"evaluations": _first_benchmark(config, "dpo")})
    given |= _parts(config, informativeness="summaries", bills="harvest_costs costs answer_costs")
    yield job_of("check_advice", given, {"check": _table("advice_check")})


def _cards(config: Config) -> list[str]:
    first = at_look(config, {}) if config.looks else config
    trained = [key for key in grid.policies(first) if key.role != "base"]
    cards = [f"results/{key.folder}/{config.lora.folder}/README.md" for key in trained]
    return cards + [f"results/{key.folder}/README.md" for key in grid.harvests(first)]


def _first_benchmark(config: Config, regime: str = "") -> list[str]:
    first, policies = next(iter(config.benchmarks)), [p for p in grid.policies(config) if regime in ("", p.regime)]
    return [f"results/{key.folder}/eval/{first}.parquet" for key in policies]


def _table(name: str) -> str:
    return f"results/tables/{name}.csv"


def _parts(config: Config, **named: str) -> dict[str, Files]:
    return _at_last(
        config,
        lambda config: {
            name: [file for part in parts.split() for file in files_of(config, part).values()]
            for name, parts in named.items()
        },
    )


def _at_last(config: Config, files: Callable[[Config], dict[str, list[str]]]) -> dict[str, Files]:
    """Return files of the finished grid; before the last interim analysis, the file of the next one."""
    parts, reached = files(config), config.reached
    if config.looks is None or reached is None or reached.is_over:
        return dict(parts)
    return {name: [look_name(config.looks, len(reached.files) + 1)] for name in parts}
