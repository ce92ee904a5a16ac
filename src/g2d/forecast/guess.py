"""Hours of jobs without measurements: a guess from model size and tokens, for an H100 or a CPU core.

A decoding step reads all weights. A training pass does 8 operations per parameter and token: forward and backward (only
of adapters), the forward pass again for checkpointed activations, and the reference (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import mean

from g2d.config.sections import ModelSettings
from g2d.forecast.devices import CARD, Device, core_operations
from g2d.forecast.workloads import PROMPT_TOKENS, sampling_loads
from g2d.grid.grid import Grid
from g2d.grid.runs import OfflineRun, OnlineRun, Policy
from g2d.policies.model_keys import BYTES, parameters
from g2d.problems import synthetic
from g2d.problems.problem_keys import ProblemSource, SyntheticProblems
from g2d.problems.prompts import Messages, Prompt, conversation
from g2d.regimes.on_policy.semi_online_dpo import SemiOnlineDpo

SOURCE = "guess"

# Constants of one H100 (docs/performance.md), rounded. A guess may be wrong by a factor of three: it orders jobs and
# sizes limits until finished jobs of the same stage and model replace it.
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
TEMPLATE_TOKENS = 20
MESSAGE_TOKENS = 8
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


def prompt_tokens(source: ProblemSource, prompt: Prompt) -> tuple[float, float]:
    """Return the tokens of a prompt, and how many of them all prompts begin with."""
    if not isinstance(source, SyntheticProblems):
        return PROMPT_TOKENS, 0.0
    one_per_level = min(source.n, len(source.drawn_levels))
    sample = synthetic.generate(source.family, source.split, one_per_level, 0, source.drawn_levels)
    conversations = [conversation(problem, prompt) for problem in sample]
    text = mean(_tokens(messages[-1:]) for messages in conversations)
    beginning = TEMPLATE_TOKENS + _tokens(conversations[0][:-1])
    return beginning + text, beginning


def _tokens(messages: Messages) -> float:
    return sum(MESSAGE_TOKENS + len(message["content"]) / CHARACTERS_PER_TOKEN for message in messages)


def guess(
    grid: Grid,
    stage: str,
    model: str,
    units: float,
    policy: Policy | None,
    benchmarks: Sequence[str] = (),
    device: Device = CARD,
) -> float:
    """Return the hours of a job on a device; `units` are completions of an online training."""
    config = grid.config
    settings = grid.settings[model]
    engine = settings.engine.name
    size = parameters(config.models[model])
    sources = [config.problem_sources[name] for name in benchmarks] or [config.pool]
    if policy is None:
        works = [_sampling(grid, stage, model, source) for source in sources]
    else:
        works = [_training(settings, policy, units)]
    total = START[engine] if device.is_card else START_ON_CPU
    for work, source in zip(works, sources, strict=True):
        if device.is_card:
            total += seconds(work, size, engine)
        else:
            prompt, beginning = prompt_tokens(source, settings.prompt)
            total += core_seconds(replace(work, prompt=prompt, beginning=beginning), size, core_operations())
    return total / 3600


def _training(of_model: ModelSettings, policy: Policy, completions: float) -> Work:
    run = policy.run
    budget = of_model.harvest.max_completion_length
    shares_prompts = of_model.training.shared_prompts is not False
    if isinstance(run, OfflineRun):
        settings = run.settings
        samples = of_model.harvest.samples_per_prompt
        sequences = of_model.training_set.n * settings.sequences(samples, PAIRABLE) * settings.epochs
        workload = settings.workload(budget)
        return Work(
            length=budget * LENGTH,
            trained=sequences,
            passes=sequences / workload.rows,
            shared=workload.per_row if shares_prompts else 1,
        )
    assert isinstance(run, OnlineRun)
    group_size = policy.group_size
    workload = run.settings.workload(group_size)
    per_update = run.settings.completions_per_step(group_size)
    rows = per_update
    if isinstance(run.settings, SemiOnlineDpo):
        rows = _rows(of_model, per_update, run.settings.batch_size)
    return Work(
        drawn=completions,
        rows=rows,
        length=workload.budget * LENGTH,
        trained=completions,
        passes=completions / min(per_update, workload.rows),
        updates=completions / per_update,
        group=group_size,
        shared=group_size if shares_prompts else 1,
    )


def _sampling(grid: Grid, stage: str, model: str, source: ProblemSource) -> Work:
    settings = grid.settings[model]
    calibrate, harvest, evaluate, *replies = sampling_loads(grid, model)
    if stage == "harvest_rollouts":
        job = harvest
        completions = harvest.completions or 0
        group = settings.harvest.samples_per_prompt
    elif stage.startswith("calibrate"):
        job = calibrate
        group = settings.calibration.samples_per_prompt
        completions = calibrate.completions or LEVELS * settings.calibration.problems_per_level * group
    elif stage == "sample_replies":
        job = replies[0]
        group = job.samples
        completions = PROBLEMS * group
    else:
        job = evaluate
        sampled = settings.evaluation.sampled
        group = 1
        if sampled and (stage == "sample_answers" or not sampled.beside_greedy):
            group = sampled.n
        n_problems = source.n if isinstance(source, SyntheticProblems) else PROBLEMS
        completions = n_problems * group
    rows = _rows(settings, completions, job.batch)
    return Work(drawn=completions, rows=rows, length=job.budget * LENGTH, group=group)


def _rows(settings: ModelSettings, completions: float, batch: int) -> int:
    """Return how many completions are drawn together."""
    at_once = AT_ONCE if settings.engine.name == "vllm" else batch
    return max(1, min(ceil(completions), at_once))
