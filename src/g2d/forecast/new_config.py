"""`g2d config new FILE`: a commented configuration from a few answers, and whether it fits on a card.

g2d config new my.yaml                                        asks, on a terminal
g2d config new my.yaml --model Qwen/Qwen2.5-0.5B-Instruct --problems gsm8k --memory 24
g2d config new my.yaml --model models/mine --problems train.jsonl --benchmark test.jsonl --memory 80

Other settings have the values of `config/small.yaml` or the paper. All keys are in config/README.md.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from string import Template
from typing import Any

import yaml

from g2d.experiment import docs
from g2d.experiment.config import load
from g2d.experiment.requirements import lookup, require_files, require_windows
from g2d.experiment.sections import Config
from g2d.jobs.files import read_rows, write_text
from g2d.plain import first_line, say
from g2d.settings import ConfigError
from g2d.settings.arguments import at_least

TEMPLATES = Path(__file__).parent / "templates"
DATA_SETS: dict[str, dict[str, Any]] = yaml.safe_load((TEMPLATES / "problems.yaml").read_text(encoding="utf-8"))
DEMONSTRATION = "embedded"
MODELS = f"a folder, a repository of the Hub (id, or id@commit), or {DEMONSTRATION} (the demonstration's)"
PROBLEMS = "gsm8k, math, arithmetic (generated), or a JSONL file to train on, whose --benchmark is another file"
COLUMNS = {  # likeliest first
    "prompt": ("problem", "question", "prompt", "query", "instruction"),
    "answer": ("answer", "reference", "target", "solution"),
    "level": ("level", "difficulty"),
}
SIZES: dict[str, dict[str, Any]] = yaml.safe_load((TEMPLATES / "sizes.yaml").read_text(encoding="utf-8"))
MOST_PROMPTS: int = SIZES["card"]["n"]


def register(subparsers: Any) -> None:
    parser = docs.register(subparsers).add_parser(
        "new",
        help="write a configuration",
        description=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", help=MODELS)
    parser.add_argument("--problems", help=PROBLEMS)
    parser.add_argument("--benchmark", help="a JSONL file to evaluate on, or gsm8k, math (MATH-500), arithmetic")
    parser.add_argument(
        "--memory", type=at_least(0), metavar="GiB", help="of the card; 0 without one (else that of this machine)"
    )
    parser.add_argument(
        "--max-completion-length",
        type=int,
        metavar="N",
        help=f"tokens of a completion ({SIZES['card']['budget']}; without a card {SIZES['cpu']['budget']})",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the file and print whether it fits; raises ConfigError for a missing or invalid answer."""
    from g2d.forecast.command import memory_here

    file = arguments.file
    if file.exists() and not arguments.overwrite:
        raise ConfigError(f"{file} exists: name another file, or add --overwrite to replace it")
    model = _answer("--model", arguments.model, "Model", MODELS)
    default = "arithmetic" if model == DEMONSTRATION else None
    problems = arguments.problems or _answer("--problems", default, "Problems", PROBLEMS)
    benchmark = arguments.benchmark
    if problems not in DATA_SETS and benchmark is None:
        benchmark = _answer("--benchmark", None, "Benchmark", "a JSONL file, or gsm8k, math, arithmetic")
    memory = arguments.memory if arguments.memory is not None else memory_here()
    if memory is None and model != DEMONSTRATION and sys.stdin.isatty():
        memory = float(input("Memory of the card in GiB (0: no GPU): ").strip() or 0)
    text = written(model, problems, benchmark, memory or 0, arguments.max_completion_length)
    config = load(yaml.safe_load(text), str(file))
    require_files(config)
    require_windows(config)
    fits = list(_fits(config, memory or 0))
    command = f"snakemake --configfile {file}"
    head = [
        "Written by `g2d config new`. Keys that are missing have their defaults: config/README.md.",
        *fits,
        f"{command} -n prints the plan; with --cores all instead of -n it runs.",
    ]
    comment = [textwrap.fill(line, 118, initial_indent="# ", subsequent_indent="# ") for line in head]
    write_text(file, "\n".join([*comment, "", text]))
    say("\n".join([f"{file}: valid", *fits, "next:", f"  g2d try {file}", f"  {command} -n"]))
    return 0


def written(model: str, problems: str, benchmark: str | None, memory: float, budget: int | None) -> str:
    """Return the configuration as YAML; raises ConfigError if a file or repository cannot be used."""
    demonstration = model == DEMONSTRATION
    if demonstration and (problems != "arithmetic" or benchmark not in (None, "arithmetic")):
        raise ConfigError(f"--problems {problems}: the model {DEMONSTRATION} solves only generated ones: arithmetic")
    name, source = _model(model)
    n, pool = (MOST_PROMPTS, DATA_SETS[problems]["pool"]) if problems in DATA_SETS else _file("--problems", problems)
    if benchmark is None or benchmark in DATA_SETS:
        benchmarks = DATA_SETS[benchmark or problems]["benchmarks"]
    else:
        benchmarks = {_name(Path(benchmark).stem): _file("--benchmark", benchmark)[1]}
    subject = f"does {name} need" if source["source"] == "hub" else "is enough"  # a folder may have any name
    sections = {"title": f"How much online RL {subject}?", "models": {name: source}}
    sections |= {"pool": pool, "benchmarks": benchmarks}
    values: dict[str, Any] = {key: _yaml({key: value}) for key, value in sections.items()}
    values |= SIZES["card" if memory else "cpu"]
    values |= {"n": 300 if demonstration else min(values["n"], n), "budget": budget or values["budget"]}
    values["answer_budget"] = 2 * values["budget"]
    template = TEMPLATES / ("demonstration.yaml" if demonstration else "real.yaml")
    return Template(template.read_text(encoding="utf-8")).substitute(values)


def _yaml(values: dict[str, Any]) -> str:
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=10**6)


def _model(model: str) -> tuple[str, dict[str, Any]]:
    if model == DEMONSTRATION:
        return "demo", {"source": "embedded"}
    if Path(model).is_dir():
        return _name(Path(model).resolve().name), {"source": "local", "path": model}
    if model.endswith(".gguf") and Path(model).is_file():
        return _name(Path(model).stem), {"source": "gguf", "path": model}
    if not re.fullmatch(r"[\w.-]+/[\w.-]+(@[0-9a-f]{40})?", model):
        raise ConfigError(f"--model {model}: no such folder: name one, or an id of the Hub (owner/name[@commit])")
    identity, _, revision = model.partition("@")
    revision = revision or _newest(identity)
    return _name(identity.split("/")[1]), {"source": "hub", "id": identity, "revision": revision}


def _newest(identity: str) -> str:
    from httpx import HTTPError
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        revision = HfApi().model_info(identity, timeout=20).sha
    except (HfHubHTTPError, HTTPError, OfflineModeIsEnabled, OSError) as error:
        why = first_line(error)
        raise ConfigError(
            f"--model {identity}: its newest commit cannot be looked up ({why}): give {identity}@COMMIT"
        ) from None
    assert revision is not None
    if mistake := lookup("model", identity, revision):
        say(f"note: {mistake}", file=sys.stderr)
    else:
        with suppress(HfHubHTTPError, HTTPError, OSError):
            hf_hub_download(identity, "config.json", revision=revision)
    return revision


def _file(option: str, path: str) -> tuple[int, dict[str, Any]]:
    if not Path(path).is_file():
        raise ConfigError(f"{option} {path}: no such file: correct it, or name one of {', '.join(DATA_SETS)}")
    try:
        rows = [row for _, row in islice(read_rows(path), MOST_PROMPTS)]
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None
    if not rows:
        raise ConfigError(f"{option} {path}: empty: write one JSON object per line")
    candidates = {field: [name for name in names if name in rows[0]] for field, names in COLUMNS.items()}
    fields = {field: names[0] for field, names in candidates.items() if names}
    for field in ("prompt", "answer"):
        if field not in fields:
            raise ConfigError(
                f"{option} {path}: no column for the {field}, {' or '.join(COLUMNS[field])}, among "
                f"{', '.join(rows[0])}: rename it, or write fields.{field} by hand"
            )
    answer = str(rows[0][fields["answer"]])
    answer_format = "gsm8k" if "####" in answer else "boxed" if "\\boxed" in answer else "plain"
    return len(rows), {"source": "local", "path": path, "fields": fields, "answer_format": answer_format}


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", text).lstrip("._-").lower() or "mine"


def _fits(config: Config, memory: float) -> Iterator[str]:
    from g2d.forecast.command import model_forecast
    from g2d.memory.need import GIB

    if all(source.source == "embedded" for source in config.models.values()):
        return
    if not memory:
        yield "Memory: not estimated without a card (`g2d plan` and --memory are for cards)."
        return
    for name in config.models:
        forecast = model_forecast(config, name, {}, int(memory * GIB))
        if reason := forecast.get("missing") or forecast.get("nothing"):
            yield f"Memory: {reason}"
            continue
        too_large = [job for job in forecast["jobs"] if job["verdict"] != "fits"]
        if not too_large:
            largest = max(forecast["jobs"], key=lambda job: job["total_bytes"])
            most = f"{largest['job']} needs most, {largest['total_bytes'] / GIB:.1f} GiB"
            yield f"Memory: {name} fits on {memory:g} GiB by the estimate of `g2d plan` ({most})."
        for job in too_large:
            change = f"; {job['change']}" if job["change"] else ""
            yield (
                f"Memory: {job['job']} of {name}: {job['verdict']}, {job['total_bytes'] / GIB:.1f} of {memory:g} GiB"
                f"{change} (`g2d plan`)."
            )


def _answer(option: str, given: str | None, question: str, choices: str) -> str:
    if given:
        return given
    if not sys.stdin.isatty():
        raise ConfigError(f"{option} is missing: {choices}")
    while not (answer := input(f"{question} ({choices}): ").strip()):
        pass
    return answer
