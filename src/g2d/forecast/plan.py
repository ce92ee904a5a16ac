"""`g2d plan FILE ...`: which jobs fit on a card, what to change, and which differences the grid can find. Nothing runs.

g2d plan my.yaml --memory 24
g2d plan config/small.yaml config/overlays/open_ended.yaml
g2d plan config/paper.yaml --models qwen2.5-7b-instruct --config-json qwen2.5-7b-instruct=config.json
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NotRequired, TypedDict

from g2d.checks.load import read
from g2d.checks.requirements import budgets, number_of
from g2d.config.sections import Config
from g2d.forecast.power import benchmark_sizes, planned_power, planned_words
from g2d.forecast.workloads import PROMPT_TOKENS, disk_use, sampling_loads, trainings
from g2d.grid.grid import Grid
from g2d.memory.estimate import ROOMY, Forecast, MemoryEstimate
from g2d.memory.workload import SamplingLoad, ScoringLoad, Training
from g2d.plain import first_line, say
from g2d.policies.lora_targets import require_targets
from g2d.policies.model_keys import HubModel, LocalModel
from g2d.rollouts.free_memory import GIB
from g2d.rollouts.rollout_keys import EngineSettings
from g2d.settings import ConfigError
from g2d.settings.arguments import at_least

SHARES = tuple(n / 20 for n in range(1, 19))  # shares of the card for vLLM
SMALLER_REWARD = "use a smaller reward model, a smaller batch_size of it, or a larger card"
ASSUMED_CARD = 80.0  # GiB, the paper's A100
NO_CARD = (
    "memory is only estimated for GPUs (--memory GiB). On a CPU the weights are float32, and cost.json has the RAM of "
    "a finished job as peak_memory_bytes"
)
ESTIMATE = (
    "An estimate: activations are counted by running the model's code on shapes, the rest is arithmetic, and parts "
    "called assumed are guesses. No card was used. Comparison with real passes: docs/performance.md, Memory."
)


class TokenForecast(TypedDict):
    """Tokens of one job, at most."""

    job: str
    completions: int
    tokens: int
    budget: int  # tokens of a completion, at most


class PartForecast(TypedDict):
    name: str
    bytes: int
    how: str


class JobForecast(TypedDict):
    job: str
    verdict: str
    total_bytes: int
    card_bytes: int
    parts: list[PartForecast]
    said: list[str]
    change: str | None  # settings that make it fit
    passes: NotRequired[str]  # settings that are chosen automatically


class ModelForecast(TypedDict):
    """Forecast of one model, as `--json` prints it."""

    model: str
    engine: str
    tokens: list[TokenForecast]
    jobs: list[JobForecast]
    nothing: NotRequired[str]  # why there is nothing to plan
    missing: NotRequired[str]  # why the model's size is not known
    disk: NotRequired[dict[str, object]]
    parameters: NotRequired[int]
    adapter: NotRequired[int]
    config_json: NotRequired[str]
    prompt_tokens: NotRequired[int]  # length of the longest prompt


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "plan",
        help="jobs that fit on a card, before anything runs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="file", help="the configuration, then files to merge over it")
    parser.add_argument(
        "--memory", type=at_least(0), metavar="GiB", help="of the card, 0 without one (default: the card here, or 80)"
    )
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these")
    parser.add_argument(
        "--config-json",
        nargs="+",
        default=[],
        metavar="NAME=FILE",
        help="config.json of a model, or of a reward's, that is not here",
    )
    parser.add_argument(
        "--prompt-tokens",
        type=at_least(1, int),
        default=PROMPT_TOKENS,
        metavar="N",
        help=f"of the longest prompt ({PROMPT_TOKENS})",
    )
    parser.add_argument("--json", action="store_true", help="numbers instead of a screen")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    config = read(*arguments.files)
    names = arguments.models or list(config.models)
    for name in names:
        if name not in config.models:
            raise ConfigError(f"--models {name}: no such model: name some of {', '.join(config.models)}")
    given = _files(arguments.config_json, config)
    memory = arguments.memory
    if memory is None:
        memory = memory_here()
    is_assumed = memory is None
    if memory is None:
        memory = ASSUMED_CARD
    prompt_tokens = arguments.prompt_tokens
    models = [model_forecast(config, name, given, int(memory * GIB), prompt_tokens) for name in names]
    sizes = benchmark_sizes(config)
    if arguments.json:
        known_sizes = {name: n for name, n in sizes.items() if n is not None}
        power = list(planned_power(config, known_sizes))
        plan = {"card_gib": memory, "prompt_tokens": prompt_tokens, "models": models, "power": power}
        say(json.dumps(plan, indent=2))
    else:
        parts = [_screen(model, memory, is_assumed=is_assumed) for model in models]
        for part in planned_words(config, sizes):
            is_table = "\n" in part
            parts.append(part if is_table else textwrap.fill(part, 118))
        if memory:
            parts.append(ESTIMATE)
        say("\n\n".join(parts))
    for model in models:
        if "missing" in model or any(job["verdict"] == "does not fit" for job in model["jobs"]):
            return 1
    return 0


def model_forecast(
    config: Config, name: str, given: dict[str, Path], memory: int, prompt_tokens: int = PROMPT_TOKENS
) -> ModelForecast:
    """Return the forecast of one model, on a card of `memory` bytes; without one (0) only tokens."""
    grid = Grid(config)
    settings = grid.settings[name]
    result: ModelForecast = {
        "model": name,
        "engine": settings.engine.name,
        "tokens": _tokens(grid, name),
        "jobs": [],
    }
    source = config.models[name]
    if not memory and isinstance(source, LocalModel | HubModel):
        result["nothing"] = f"models.{name}: {NO_CARD}"
        return result
    if name not in given and source.source == "embedded":
        result["nothing"] = f"models.{name}: the embedded model fits anywhere: nothing to plan"
        return result
    from g2d.memory.passes import NoConfigError, config_file, model_config, reward_config_file  # imports torch

    of_rewards: dict[str, Path] = {}
    loads: list[SamplingLoad | Training] = [*sampling_loads(grid, name), *trainings(grid, name)]
    try:
        if isinstance(source, LocalModel | HubModel) and name not in given:
            file = config_file(name, source)
        else:
            file = given[name]
        for load in loads:
            for scorer in load.scorers:
                of_rewards[scorer.name] = given.get(scorer.name) or reward_config_file(scorer.name, scorer.model)
    except NoConfigError as error:
        result["missing"] = str(error)
        return result
    model_config(file)
    try:
        require_targets(file, settings.lora)
    except ValueError as error:
        raise ConfigError(f"models.{name}: {first_line(error)}") from None
    limit = number_of(file, "max_position_embeddings")
    if limit is not None:
        shortest = min(budget for _, budget in budgets(grid, name))
        prompt_tokens = max(1, min(prompt_tokens, limit - shortest))
    forecast = Forecast.of(file, settings.lora, settings.engine, memory, prompt_tokens, of_rewards)
    result["prompt_tokens"] = prompt_tokens
    jobs = []
    for load in sampling_loads(grid, name):
        estimate = forecast.sampling(load)
        jobs.append(_as_json(estimate, sampling_change(load, estimate, forecast)))
    for training in map(forecast.divided, trainings(grid, name)):
        estimate = forecast.training(training)
        change = training_change(training, estimate, forecast)
        job = _as_json(estimate, change)
        job["passes"] = _passes(training)
        jobs.append(job)
    result["jobs"] = _merged(jobs)
    shape = forecast.shape
    disk = disk_use(grid, name, shape)
    result["disk"] = asdict(disk) | {"total": disk.total, "words": disk.words}
    result["parameters"] = shape.parameters
    result["adapter"] = shape.adapter
    result["config_json"] = str(file)
    return result


def training_change(training: Training, estimate: MemoryEstimate, forecast: Forecast) -> str | None:
    """Return the settings to change without changing results, or that no change helps; None if the job fits."""
    if estimate.verdict == "fits":
        return None
    passes = [units for units in range(training.units, 0, -1) if training.units % units == 0]
    engine = forecast.engine
    shares = [engine.training_gpu_memory_utilization]
    if training.at_once is not None and engine.name == "vllm":
        shares += sorted(SHARES, key=lambda share: abs(share - shares[0]))
    for enough in ("fits", "tight"):
        if estimate.verdict == enough:
            return "it may run out of memory, and every change that makes it smaller changes results"
        for share in shares:
            changed = replace(forecast, engine=engine.model_copy(update={"training_gpu_memory_utilization": share}))
            for units in passes:
                if changed.training(training.with_units(units)).verdict == enough:
                    return _changes(training, units, shares[0], share, enough)
    if training.at_once is not None and engine.name == "vllm":
        own = replace(forecast, engine=EngineSettings())
        if own.training(own.divided(training)).verdict == "fits":
            return f"set engine.name to transformers: {training.name} then fits, and samples more slowly"
    smallest = forecast.training(training.with_units(1))
    if training.scorers and smallest.total - of_scorers(smallest) <= ROOMY * forecast.memory:
        return f"{beside(training.scorers, smallest)}: {SMALLER_REWARD}"
    other = ""
    if forecast.shape.trains_all:
        other = "an adapter (lora), "
    return (
        f"no pass is small enough (per_device_batch_size: 1 needs {smallest.total / GIB:.1f} GiB): use a larger card, "
        f"{other}or a smaller model; a shorter max_completion_length changes results"
    )


def _changes(training: Training, units: int, share_before: float, share: float, verdict: str) -> str:
    changes = []
    if share != share_before:
        changes.append(f"engine.training_gpu_memory_utilization to {share:g}")
    if units < training.units:
        changes.append(
            f"{training.section}.per_device_batch_size to {units}, with {training.units // units} times the "
            "accumulation steps (with prompts_per_step they follow from it), so that a step keeps its size"
        )
    words = f"set {' and '.join(changes)}"
    if verdict == "tight":
        words += "; it is tight then"
    return words


def sampling_change(load: SamplingLoad, estimate: MemoryEstimate, forecast: Forecast) -> str | None:
    if estimate.verdict == "fits":
        return None
    if forecast.engine.name == "vllm":
        if not estimate.needs_more and not load.scorers:
            return None  # vLLM uses its share of the card
        if not estimate.needs_more:
            return _room_for_scorers(load, estimate, forecast)
        own = replace(forecast, engine=EngineSettings())
        change = "raise engine.gpu_memory_utilization or engine.tensor_parallel_size, or use a larger card"
        if own.sampling(load).verdict == "fits":
            return f"set engine.name to transformers, which samples more slowly; or {change}"
        return change
    batch = load.batch // 2
    while batch >= 1:
        if forecast.sampling(replace(load, batch=batch)).verdict == "fits":
            return f"set {load.section}.batch_size to {batch}: the rollouts stay the same"
        batch //= 2
    if load.scorers and estimate.total - of_scorers(estimate) <= ROOMY * forecast.memory:
        return f"{beside(load.scorers, estimate)}: {SMALLER_REWARD}"
    return f"{load.section}.batch_size: 1 would still not fit: use a larger card or a smaller model"


def _room_for_scorers(load: SamplingLoad, estimate: MemoryEstimate, forecast: Forecast) -> str:
    """Return the largest share of vLLM that leaves room for the reward models of a job."""
    for share in reversed(SHARES):
        engine = forecast.engine.model_copy(update={"gpu_memory_utilization": share})
        changed = replace(forecast, engine=engine).sampling(load)
        if not changed.needs_more and changed.verdict == "fits":
            return f"set engine.gpu_memory_utilization to {share:g}: {beside(load.scorers, estimate)}"
    return f"{beside(load.scorers, estimate)}: {SMALLER_REWARD}"


def beside(scorers: Sequence[ScoringLoad], estimate: MemoryEstimate) -> str:
    names = ", ".join(f"rewards.{scorer.name}" for scorer in scorers)
    return f"{names} needs {of_scorers(estimate) / GIB:.1f} GiB beside the policy"


def of_scorers(estimate: MemoryEstimate) -> int:
    return sum(term.bytes for term in estimate.terms if term.of_reward)


def _merged(jobs: list[JobForecast]) -> list[JobForecast]:
    """Return the jobs; jobs that differ only in their names become one."""
    merged: dict[str, JobForecast] = {}
    for job in jobs:
        content = json.dumps({**job, "job": ""})
        first = merged.setdefault(content, job)
        if first is not job:
            first["job"] += f", {job['job']}"
    return list(merged.values())


def _as_json(estimate: MemoryEstimate, change: str | None) -> JobForecast:
    return {
        "job": estimate.job,
        "verdict": estimate.verdict,
        "total_bytes": estimate.total,
        "card_bytes": estimate.card,
        "parts": [{"name": part.name, "bytes": part.bytes, "how": part.how} for part in estimate.terms],
        "said": estimate.notes,
        "change": change,
    }


def _passes(training: Training) -> str:
    chosen = []
    if training.update is not None:
        chosen.append(f"per_device_batch_size: {training.units}")
    if training.choose_checkpointing:
        chosen.append(f"gradient_checkpointing: {str(training.checkpointing).lower()}")
    return ", ".join(chosen)


def _tokens(grid: Grid, model: str) -> list[TokenForecast]:
    jobs: list[SamplingLoad | Training] = [*sampling_loads(grid, model), *trainings(grid, model)]
    rows: list[TokenForecast] = []
    for job in jobs:
        if job.completions is not None:
            tokens = job.completions * job.budget
            rows.append({"job": job.name, "completions": job.completions, "tokens": tokens, "budget": job.budget})
    return rows


def _screen(model: ModelForecast, memory: float, *, is_assumed: bool = False) -> str:
    card = "without a card"
    if memory:
        card = f"on a card of {memory:g} GiB"
    if is_assumed:
        card += " (assumed: there is none here; --memory GiB sets it)"
    if "prompt_tokens" in model:
        card += f", prompts of at most {model['prompt_tokens']} tokens"
    lines = [f"{model['model']} {card}"]
    for job in model["jobs"]:
        lines.append(f"\n  {job['job']}: {job['total_bytes'] / GIB:.1f} GiB, {job['verdict']}")
        parts = [f"{part['bytes'] / GIB:.2f} {part['name']} ({part['how']})" for part in job["parts"]]
        lines += _wrapped(" + ".join(parts))
        for note in job["said"]:
            lines += _wrapped(note)
        if job.get("passes"):
            lines += _wrapped(f"auto: {job['passes']}")
        if job["change"]:
            lines += _wrapped(f"-> {job['change']}")
    reason = model.get("missing") or model.get("nothing")
    if reason:
        lines.append("")
        lines += textwrap.wrap(reason, 118, initial_indent="  ", subsequent_indent="  ")
    lines.append("\n  tokens of one job, at most:")
    for row in model["tokens"]:
        lines.append(f"    {row['job']}: {row['completions']:,} completions x {row['budget']} = {row['tokens']:,}")
    if "disk" in model:
        lines += [f"  {line}" for line in textwrap.wrap(str(model["disk"]["words"]), 116)]
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 118, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False)


def _files(pairs: list[str], config: Config) -> dict[str, Path]:
    given = {}
    for pair in pairs:
        name, _, file = pair.partition("=")
        if name not in {*config.models, *config.rewards} or not Path(file).is_file():
            raise ConfigError(
                f"--config-json {pair}: expected NAME=FILE, with a model or reward and an existing file: correct it"
            )
        given[name] = Path(file)
    return given


def memory_here() -> float | None:
    """Return the GiB of this machine's smallest card."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False)
    sizes = [float(line) for line in answer.stdout.split() if line.replace(".", "").isdigit()]
    if not sizes:
        say("nvidia-smi lists no card: set its size by --memory GiB", file=sys.stderr)
        return None
    return min(sizes) / 1024
