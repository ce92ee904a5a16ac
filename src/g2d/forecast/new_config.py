"""`g2d config new FILE`: a commented configuration from a few answers, and whether it fits on a card.

g2d config new my.yaml                                        asks, on a terminal
g2d config new my.yaml --model Qwen/Qwen2.5-0.5B-Instruct --problems gsm8k --memory 24
g2d config new my.yaml --model models/mine --problems train.jsonl --benchmark test.jsonl --memory 80

What is not asked for has the values of `config/small.yaml`, or the paper's; every key: config/README.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from g2d.experiment import docs
from g2d.experiment.config import load
from g2d.experiment.requirements import lookup, require_files, require_windows
from g2d.experiment.sections import Config
from g2d.jobs.files import read_rows, write_text
from g2d.plain import first_line, say
from g2d.settings import ConfigError, Section
from g2d.settings.arguments import at_least
from g2d.settings.mistakes import DISCRIMINATORS

WIDTH = 118
DEMONSTRATION = "embedded"
MODELS = f"a folder, a repository of the Hub (id, or id@commit), or {DEMONSTRATION} (the demonstration's)"
PROBLEMS = "gsm8k, math, arithmetic (generated), or a JSONL file to train on, whose --benchmark is another file"
SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."  # Qwen's own for mathematics

GSM8K = {
    "source": "hub",
    "id": "openai/gsm8k",
    "revision": "740312add88f781978c0658806c59bc2815b9866",
    "subset": "main",
    "fields": {"prompt": "question", "answer": "answer"},
    "answer_format": "gsm8k",
}
MATH = {
    "source": "hub",
    "id": "DigitalLearningGmbH/MATH-lighteval",
    "revision": "0530c78699ea5e8eb5530600900e1f328b48acad",
    "subset": "default",
    "split": "train",
    "fields": {"prompt": "problem", "answer": "solution", "level": "level", "subject": "type"},
    "answer_format": "boxed",
}
MATH_500 = {
    "source": "hub",
    "id": "HuggingFaceH4/MATH-500",
    "revision": "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
    "split": "test",
    "fields": {"prompt": "problem", "answer": "answer", "level": "level", "subject": "subject", "id": "unique_id"},
}
GENERATED = {"source": "synthetic", "family": "arithmetic"}
KNOWN: dict[str, dict[str, Any]] = {  # pool and benchmarks
    "gsm8k": {"pool": GSM8K | {"split": "train"}, "benchmarks": {"gsm8k": GSM8K | {"split": "test"}}},
    "math": {"pool": MATH, "benchmarks": {"math500": MATH_500}},
    "arithmetic": {
        "pool": GENERATED | {"split": "train", "n": 3000},
        "benchmarks": {"arithmetic": GENERATED | {"split": "test", "n": 500}},
    },
}
COLUMNS = {  # usual names of the columns of a file, the likeliest first
    "prompt": ("problem", "question", "prompt", "query", "instruction"),
    "answer": ("answer", "reference", "target", "solution"),
    "level": ("level", "difficulty"),
}
N = 1500  # prompts to train on
BUDGET = 512  # tokens of an answer


@dataclass(frozen=True)
class Scale:
    """How much is trained and drawn."""

    seeds: tuple[int, ...]
    n: int  # prompts to train on
    budget: int  # tokens of an answer
    steps: tuple[int, ...]
    prompts_per_step: int
    problems_per_level: int  # of calibration


ON_CARD = Scale((0, 1, 2), N, BUDGET, (0, 50, 100, 200), 16, 200)
ON_CPU = Scale((0,), 200, 64, (0, 25, 50), 8, 40)


def register(subparsers: Any) -> None:
    """Add `g2d config` to the command line, with `new`."""
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
        help=f"tokens of an answer ({BUDGET}; without a card {ON_CPU.budget})",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the file and print whether it fits and what to run next; raises ConfigError if an answer is missing or
    invalid.
    """
    from g2d.forecast.command import memory_here

    file = arguments.file
    if file.exists() and not arguments.overwrite:
        raise ConfigError(f"{file} exists: name another file, or add --overwrite to replace it")
    model = _answer("--model", arguments.model, "Model", MODELS)
    default = "arithmetic" if model == DEMONSTRATION else None
    problems = arguments.problems or _answer("--problems", default, "Problems", PROBLEMS)
    benchmark = arguments.benchmark
    if problems not in KNOWN and benchmark is None:
        benchmark = _answer("--benchmark", None, "Benchmark", "a JSONL file, or gsm8k, math, arithmetic")
    memory = arguments.memory if arguments.memory is not None else memory_here()
    if memory is None and model != DEMONSTRATION and sys.stdin.isatty():
        memory = float(input("Memory of the card in GiB (0: no GPU): ").strip() or 0)
    values = written(model, problems, benchmark, memory or 0, arguments.max_completion_length)
    config = load(values, str(file))
    require_files(config)
    require_windows(config)
    fits = list(_fits(config, memory or 0))
    command = f"snakemake --configfile {file}"
    head = [
        "Written by `g2d config new`. Keys that are missing have their defaults: config/README.md.",
        *fits,
        f"{command} -n says what would run; without -n it runs.",
    ]
    lines = [*(part for text in head for part in _comment(text, "")), "", *commented(config, values)]
    write_text(file, "\n".join(lines) + "\n")
    say("\n".join([f"{file}: valid", *fits, "next:", f"  g2d try {file}", f"  {command} -n"]))
    return 0


def written(model: str, problems: str, benchmark: str | None, memory: float, budget: int | None) -> dict[str, Any]:
    """The keys of the configuration and their values, fewer seeds, steps and tokens without a card; a ConfigError names
    a file or repository that cannot be used."""
    demonstration = model == DEMONSTRATION
    if demonstration and (problems != "arithmetic" or benchmark not in (None, "arithmetic")):
        raise ConfigError(f"--problems {problems}: the model {DEMONSTRATION} knows generated ones alone: arithmetic")
    name, source = _model(model)
    n, pool = (None, KNOWN[problems]["pool"]) if problems in KNOWN else _file("--problems", problems)
    if benchmark is None or benchmark in KNOWN:
        benchmarks = KNOWN[benchmark or problems]["benchmarks"]
    else:
        benchmarks = {_name(Path(benchmark).stem): _file("--benchmark", benchmark)[1]}
    scale = ON_CARD if memory or demonstration else ON_CPU
    scale = replace(scale, n=min(scale.n, n or scale.n), budget=budget or scale.budget)
    subject = f"does {name} need" if source["source"] == "hub" else "is enough"  # a folder may have any name
    asked = {"title": f"How much online RL {subject}?", "seeds": [*scale.seeds], "models": {name: source}}
    asked |= {"pool": pool, "benchmarks": benchmarks}
    return asked | (_demonstration() if demonstration else _real(memory, scale))


def _real(memory: float, scale: Scale) -> dict[str, Any]:
    """The other sections for a real model."""
    budget = scale.budget
    return {
        "prompt": {"system": SYSTEM},
        "engine": {"name": "vllm" if memory else "transformers"},
        "lora": {"dropout": 0.0},
        "calibration": {
            "window": [0.0, 1.0],
            "problems_per_level": scale.problems_per_level,
            "max_completion_length": budget,
        },
        "training_set": {"n": scale.n},
        "warmup": {
            "steps": [*scale.steps],
            "group_sizes": [8],
            "prompts_per_step": scale.prompts_per_step,
            "learning_rate": 1.0e-5,
            "max_completion_length": budget,
        },
        "harvest": {"samples_per_prompt": 8, "temperature": 1.0, "max_completion_length": budget},
        "dpo": {"learning_rate": 5.0e-5},
        "baselines": {"grpo_group_sizes": [8]},
        "evaluation": {"max_completion_length": 2 * budget},
    }


def _demonstration() -> dict[str, Any]:
    """The same for the demonstration model, as in `config/config.yaml`."""
    return {
        "demonstration": "A tiny model trained on generated arithmetic. Not evidence about real models.",
        "lora": {"dropout": 0.0},
        "calibration": {"problems_per_level": 60, "max_completion_length": 48, "batch_size": 512},
        "training_set": {"n": 300},
        "warmup": {"steps": [0, 25, 50], "learning_rate": 2.0e-4, "max_completion_length": 26},
        "harvest": {"max_completion_length": 48, "batch_size": 512},
        "dpo": {"learning_rate": 5.0e-4},
        "evaluation": {"max_completion_length": 56},
    }


def _model(model: str) -> tuple[str, dict[str, Any]]:
    """Name and source of a model."""
    if model == DEMONSTRATION:
        return "demo", {"source": "embedded"}
    if Path(model).is_dir():
        return _name(Path(model).resolve().name), {"source": "local", "path": model}
    if model.endswith(".gguf") and Path(model).is_file():
        return _name(Path(model).stem), {"source": "gguf", "path": model}
    if not re.fullmatch(r"[\w.-]+/[\w.-]+(@[0-9a-f]{40})?", model):
        raise ConfigError(f"--model {model}: no folder here, and no id of the Hub (owner/name, or owner/name@commit)")
    identity, _, revision = model.partition("@")
    revision = revision or _newest(identity)
    return _name(identity.split("/")[1]), {"source": "hub", "id": identity, "revision": revision}


def _newest(identity: str) -> str:
    """Return the newest commit of a model on the Hub; fetches its config.json, which the memory forecast reads."""
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
    """Number of rows and source of problems in a file; which column holds what is read off its first row."""
    if not Path(path).is_file():
        raise ConfigError(f"{option} {path}: no such file, and none of {', '.join(KNOWN)}: correct it")
    try:
        rows = [row for _, row in islice(read_rows(path), N)]
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None
    if not rows:
        raise ConfigError(f"{option} {path}: no rows in it: give one JSON object a line")
    fields = {what: found for what, usual in COLUMNS.items() if (found := next((c for c in usual if c in rows[0]), ""))}
    if missing := [what for what in ("prompt", "answer") if what not in fields]:
        raise ConfigError(
            f"{option} {path}: no column for the {missing[0]}, {' or '.join(COLUMNS[missing[0]])}, among "
            f"{', '.join(rows[0])}: rename it, or write fields.{missing[0]} by hand"
        )
    said = str(rows[0][fields["answer"]])
    source: dict[str, Any] = {"source": "local", "path": path, "fields": fields}
    source["answer_format"] = "gsm8k" if "####" in said else "boxed" if "\\boxed" in said else "plain"
    return len(rows), source


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", text).lstrip("._-").lower() or "mine"


def _fits(config: Config, memory: float) -> Iterator[str]:
    """Whether every job fits on the card, in the words of `g2d plan`."""
    from g2d.forecast.command import model_forecast
    from g2d.memory.need import GIB

    if all(source.source == "embedded" for source in config.models.values()):
        return
    if not memory:
        yield "No card: nothing is said about memory, which `g2d plan` counts for cards alone (--memory)."
        return
    for name in config.models:
        found = model_forecast(config, name, {}, int(memory * GIB))
        if reason := found.get("missing") or found.get("nothing"):
            yield f"Memory: {reason}"
            continue
        bad = [job for job in found["jobs"] if job["verdict"] != "fits"]
        largest = max(found["jobs"], key=lambda job: job["total_bytes"])
        if not bad:
            most = f"{largest['job']} needs most, {largest['total_bytes'] / GIB:.1f} GiB"
            yield f"Memory: {name} fits on {memory:g} GiB by the estimate of `g2d plan` ({most})."
        for job in bad:
            change = f"; {job['change']}" if job["change"] else ""
            yield (
                f"Memory: {job['job']} of {name}: {job['verdict']}, {job['total_bytes'] / GIB:.1f} of {memory:g} GiB"
                f"{change} (`g2d plan`)."
            )


# ----------------------------------------------------------------------------------------------------------- comments


def commented(
    section: Section, values: Mapping[str, Any], indent: str = "", said: set[str] | None = None
) -> Iterator[str]:
    """Return values of a section as YAML, with the description of every key above it, unless it was given before."""
    said = set() if said is None else said
    for name, value in values.items():
        read, words = getattr(section, name), _words(type(section).model_fields[name])
        if name not in DISCRIMINATORS and words not in said:
            said.add(words)
            yield from _comment(words, indent)
        if isinstance(read, Section):
            yield f"{indent}{name}:"
            yield from commented(read, value, f"{indent}  ", said)
        elif isinstance(read, dict) and any(isinstance(own, Section) for own in read.values()):
            yield f"{indent}{name}:"
            for entry, own in value.items():
                yield f"{indent}  {entry}:"
                yield from commented(read[entry], own, f"{indent}    ", said)
        else:
            yield f"{indent}{name}: {_scalar(value)}"
        if not indent:
            yield ""


def _words(field: FieldInfo) -> str:
    """Describe a key, with the paper's value."""
    paper = docs.extra(field).get("paper", "not stated")
    return str(field.description) if paper.startswith("not ") else f"{field.description} In the paper: {paper}."


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        plain_text = re.fullmatch(r"[A-Za-z][\w./ -]*", value) and yaml.safe_load(value) == value
        return value if plain_text else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and 0 < value < 1e-3:
        return f"{value:.1e}".replace("e-0", "e-")  # with a point, or YAML reads a text
    return str(yaml.safe_dump(value, default_flow_style=True, width=10**6)).replace("\n...", "").strip()


# ------------------------------------------------------------------------------------------------------------ answers


def _answer(option: str, given: str | None, question: str, choices: str) -> str:
    """Return the given answer, or ask for it on a terminal."""
    if given:
        return given
    if not sys.stdin.isatty():
        raise ConfigError(f"{option} is missing: {choices}")
    while not (said := input(f"{question} ({choices}): ").strip()):
        pass
    return said
