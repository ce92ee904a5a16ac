"""Hours of jobs without measurements: a guess from model size and tokens, for an H100 or a CPU core.

A decoding step reads all weights. A training pass does 8 operations per parameter and token: forward and backward (only
of adapters), the forward pass again for checkpointed activations, and the reference (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from statistics import mean
from typing import Any

from g2d.experiment.config import Config
from g2d.forecast.devices import CARD, Device, core_operations
from g2d.forecast.workloads import PROMPT_TOKENS, drawings
from g2d.grid.policy import Policy
from g2d.policies.settings import BYTES, parameters
from g2d.problems import synthetic
from g2d.problems.prompts import Messages, conversation
from g2d.problems.settings import SyntheticProblems
from g2d.regimes.grpo.keys import Warmup

SOURCE = "guess"

BANDWIDTH = 3.0e12  # bytes per second of a copy on the card
OPERATIONS = 3.5e14  # per second, in a DPO step of the 7B model
STEP = {"transformers": 0.07, "vllm": 0.003}  # seconds of a decoding step without reading the weights
ROW = {"transformers": 0.0, "vllm": 2.5e-5}  # seconds per row of it
AT_ONCE = 256  # rows of vLLM
PASS = 0.5  # seconds of a pass of training at least: launches
UPDATE = 1.0  # seconds of an update beside drawing and passes
START = {"transformers": 30.0, "vllm": 60.0}  # seconds before the first token
EFFICIENCY = 1.0  # relative to a float32 matrix product; bfloat16 is faster
START_ON_CPU = 15.0

LENGTH = 0.5  # share of the token budget
PAIRABLE = 0.5  # share of the prompts
PROBLEMS = 1000  # assumed size of a benchmark
LEVELS = 5  # assumed number of levels

# Tokens of the template with its default system message, and of each message.
TEMPLATE_TOKENS, MESSAGE_TOKENS = 20, 8
CHARACTERS_PER_TOKEN = 2  # problems are mostly numbers and operators


@dataclass(frozen=True)
class Work:
    drawn: float = 0.0
    rows: int = 1  # completions that are drawn together
    length: float = 0.0
    trained: float = 0.0  # sequences
    passes: float = 0.0  # forward and backward, over these sequences
    updates: float = 0.0  # online training
    group: int = 1
    shared: int = 1  # completions that a pass reads with one prompt
    prompt: float = PROMPT_TOKENS
    beginning: float = 0.0  # tokens that all prompts begin with


def seconds(work: Work, size: float, engine: str) -> float:
    """Return the device seconds of a job, for a model of `size` parameters."""
    steps = ceil(work.drawn / work.rows) * work.length
    drawing = steps * (STEP[engine] + work.rows * ROW[engine] + size * BYTES / BANDWIDTH)
    tokens = work.trained * (PROMPT_TOKENS + work.length)
    computing = 8 * size * tokens / OPERATIONS
    return drawing + max(work.passes * PASS, computing) + work.updates * UPDATE


def core_seconds(work: Work, size: float, operations: float) -> float:
    """Return the CPU seconds of a job on a core with so many operations per second."""
    drawn = work.drawn * ((work.prompt - work.beginning) / work.group + work.length)
    trained = work.trained * (work.prompt / work.shared + work.length)
    return (2 * size * drawn + 8 * size * trained) / (operations * EFFICIENCY)


def prompt_tokens(config: Config, source: Any) -> tuple[float, float]:
    if not isinstance(source, SyntheticProblems):
        return PROMPT_TOKENS, 0.0
    one_per_level = min(source.n, len(source.drawn_levels))
    sample = synthetic.generate(source.family, source.split, one_per_level, 0, source.drawn_levels)
    conversations = [conversation(problem, config.prompt) for problem in sample]
    text = mean(_tokens(messages[-1:]) for messages in conversations)
    beginning = TEMPLATE_TOKENS + _tokens(conversations[0][:-1])
    return beginning + text, beginning


def _tokens(messages: Messages) -> float:
    return sum(MESSAGE_TOKENS + len(message["content"]) / CHARACTERS_PER_TOKEN for message in messages)


def guess(
    config: Config,
    stage: str,
    model: str,
    wildcards: Mapping[str, str],
    units: float,
    policy: Policy | None,
    device: Device = CARD,
) -> float:
    """Return the hours of a job on a device; `units` are completions of an online training."""
    engine, size = config.engine.name, parameters(config.models[model])
    work = _drawing(config, stage, wildcards) if policy is None else _training(config, policy, units)
    if not device.is_card:
        source = config.problem_sources.get(wildcards.get("benchmark", "pool"), config.pool)
        prompt, beginning = prompt_tokens(config, source)
        work = replace(work, prompt=prompt, beginning=beginning)
        return (START_ON_CPU + core_seconds(work, size, core_operations())) / 3600
    return (START[engine] + seconds(work, size, engine)) / 3600


def _training(config: Config, policy: Policy, completions: float) -> Work:
    group_size = policy.group_size
    settings, samples, budget = (
        policy.run.settings,
        config.harvest.samples_per_prompt,
        config.harvest.max_completion_length,
    )
    shares = config.training.shared_prompts is not False
    if policy.run.phase == "offline":
        sequences = config.training_set.n * settings.sequences(samples, PAIRABLE) * settings.epochs
        card = settings.on_card(samples, budget)
        shared = card.per_row if shares else 1
        return Work(length=budget * LENGTH, trained=sequences, passes=sequences / card.rows, shared=shared)
    card, per_update = settings.on_card(group_size, budget), settings.completions_per_step(group_size)
    rows = per_update if isinstance(settings, Warmup) else _rows(config, per_update, settings.batch_size)
    passes, updates = completions / min(per_update, card.rows), completions / per_update
    shared = group_size if shares else 1
    return Work(completions, rows, card.budget * LENGTH, completions, passes, updates, group_size, shared)


def _drawing(config: Config, stage: str, wildcards: Mapping[str, str]) -> Work:
    calibrate, harvest, evaluate, *_ = drawings(config)
    if stage == "harvest_rollouts":
        job, n, group = harvest, harvest.completions, config.harvest.samples_per_prompt
    elif stage.startswith("calibrate"):
        job, n, group = calibrate, calibrate.completions, config.calibration.samples_per_prompt
        n = n or LEVELS * config.calibration.problems_per_level * config.calibration.samples_per_prompt
    else:
        job, sampled = evaluate, config.evaluation.sampled
        source = config.problem_sources.get(wildcards.get("benchmark", ""))
        n = source.n if isinstance(source, SyntheticProblems) else PROBLEMS
        group = sampled.n if sampled and (stage == "draw_samples" or not sampled.beside_greedy) else 1
        n *= group
    completions = n or 0
    return Work(completions, _rows(config, completions, job.batch), job.budget * LENGTH, group=group)


def _rows(config: Config, completions: float, batch: int) -> int:
    return max(1, min(ceil(completions), AT_ONCE if config.engine.name == "vllm" else batch))
