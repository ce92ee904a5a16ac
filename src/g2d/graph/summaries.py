"""Jobs after the policies: tables, figures, cards and the page."""

from __future__ import annotations

from collections.abc import Iterator

from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.graph import catalogue
from g2d.graph.job import Files, Job, job_of, problems_of
from g2d.graph.parts import files_of, table_inputs

PROVENANCE, PAGE = "results/provenance.json", "results/report/index.html"


def summaries(config: Config) -> Iterator[Job]:
    models = config.models
    csv = {name: _table(name) for name in catalogue.tables_of(config)}
    figures = {figure.name: f"results/figures/{figure.name}.svg" for figure in catalogue.FIGURES}
    cards = _cards(config)
    yield job_of("make_tables", table_inputs(config), csv)
    given: dict[str, Files] = {name: _table(name) for name in ("main", "harvest", "decomposition")}
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
        "problems": [f"results/{model}/calibration/train.jsonl" for model in models],
        "questions": [problems_of(name) for name in config.benchmarks],
        **_parts(config, pairs="shown_pairs", rollouts="shown_rollouts", answers="shown_answers"),
    }
    yield job_of("build_report", given, {"": PAGE})
    yield job_of("all", {"": [*csv.values(), *figures.values(), *cards, PAGE]}, {})


def _cards(config: Config) -> list[str]:
    trained = [key for key in grid.policies(config) if key.role != "base"]
    cards = [f"results/{key.folder}/{config.lora.folder}/README.md" for key in trained]
    return cards + [f"results/{key.folder}/README.md" for key in grid.harvests(config)]


def _table(name: str) -> str:
    return f"results/tables/{name}.csv"


def _parts(config: Config, **named: str) -> dict[str, Files]:
    return {name: list(files_of(config, part).values()) for name, part in named.items()}
