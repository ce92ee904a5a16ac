"""GPU-hours that nobody has measured yet: a guess from the size of a model and the tokens of a job, for one H100.

A step of decoding reads all weights and launches their kernels. A pass of training does 8 operations for every
parameter and token: forward and backward (no gradients of weights, only of adapters), the forward pass repeated for
checkpointed activations, and the reference. The constants were measured on one H100 80GB with models of 0.5 and 7.6
billion parameters (docs/performance.md); what was measured there comes out within a factor of two. What is not known
before a run is assumed: completions half as long as they may be, half of the prompts pairable, benchmarks of 1,000
problems.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from g2d.experiment.config import Config
from g2d.experiment.wildcards import Wildcards, variant_of
from g2d.policies.settings import HubModel, LocalModel, ModelSource
from g2d.problems.settings import SyntheticProblems
from g2d.regimes.warmup import AUTO
from g2d.rollouts.settings import Evaluation, Sampling

SOURCE = "guess"
CAVEAT = "a guess, from size and tokens, is for one H100 and within a factor of 3"

BANDWIDTH = 3.0e12  # bytes a second: a copy on the card
OPERATIONS = 3.5e14  # a second, of a DPO step of the 7B model
BYTES = 2  # of a parameter
STEP = {"transformers": 0.07, "vllm": 0.003}  # seconds of a decoding step beside the weights, and for every row
ROW = {"transformers": 0.0, "vllm": 2.5e-5}
AT_ONCE = 256  # rows of vLLM
PASS = 0.5  # seconds of a pass of training at least: launches
UPDATE = 1.0  # seconds of an update of online training beside drawing and passes
START = {"transformers": 30.0, "vllm": 60.0}  # seconds of a job before its first token

ASSUMED_PARAMETERS = 7.6e9
PROMPT_TOKENS = 256
LENGTH = 0.5  # of a completion, of what it may have
PAIRABLE = 0.5  # of the prompts
PROBLEMS = 1000  # of a benchmark that is not here yet
LEVELS = 5  # of a pool whose levels are not configured


def parameters(source: ModelSource) -> float:
    """The size of a model: from its files, else from its name (Qwen2.5-0.5B), else 7.6 billion."""
    if isinstance(source, LocalModel):
        size = sum(file.stat().st_size for file in Path(source.path).glob("*.safetensors"))
        if size:
            return size / BYTES
    name = source.id if isinstance(source, HubModel) else getattr(source, "path", "")
    found = re.search(r"(?<![\d.])(\d+(?:\.\d+)?)b(?![a-z])", name.rpartition("/")[2].lower())
    return float(found[1]) * 1e9 if found else ASSUMED_PARAMETERS


@dataclass(frozen=True)
class Work:
    """What a job has a card do.

    Attributes:
        drawn: completions.
        rows: completions that are drawn together.
        length: tokens of a completion.
        trained: sequences that pass through the model in training.
        passes: that they do it in.
        updates: of an online training.
    """

    drawn: float = 0.0
    rows: int = 1
    length: float = 0.0
    trained: float = 0.0
    passes: float = 0.0
    updates: float = 0.0


def seconds(work: Work, size: float, engine: str) -> float:
    """Device seconds of a job without its start.

    Args:
        work: what it does.
        size: parameters of the model.
        engine: transformers or vllm.
    """
    steps = ceil(work.drawn / work.rows) * work.length
    drawing = steps * (STEP[engine] + work.rows * ROW[engine] + size * BYTES / BANDWIDTH)
    tokens = work.trained * (PROMPT_TOKENS + work.length)
    return drawing + max(work.passes * PASS, 8 * size * tokens / OPERATIONS) + work.updates * UPDATE


def guess(config: Config, stage: str, model: str, wildcards: Wildcards, completions: float) -> float:
    """GPU-hours of a job.

    Args:
        config: as its model sees it.
        stage: its rule, without `_shard`.
        model: its M0.
        wildcards: its own.
        completions: of an online training, to generate; of a job that generates for a part of the prompts, the share.
    """
    engine = config.engine.name
    work = _online(config, stage, wildcards, completions) or _offline(config, stage, wildcards)
    work = work or _drawing(config, stage, wildcards, completions)
    return (START[engine] + seconds(work, parameters(config.models[model]), engine)) / 3600


def _online(config: Config, stage: str, wildcards: Wildcards, completions: float) -> Work | None:
    if stage.startswith("train_semi_online_dpo"):
        entry = config.regimes[wildcards.regime]
        per_update = entry.prompts_per_update * entry.responses
        rows = _rows(config, per_update, min(per_update, entry.batch_size))
        length = entry.max_completion_length * LENGTH
        passes = completions / min(per_update, entry.per_device_batch_size)
        return Work(completions, rows, length, completions, passes, completions / per_update)
    if stage in ("train_grpo", "train_grpo_auto"):
        warmup = config.warmup_of(variant_of(wildcards) if stage == "train_grpo" else AUTO)
        per_step = warmup.completions_per_step(int(wildcards.g))
        passes = completions / warmup.per_device_batch_size
        length = warmup.max_completion_length * LENGTH
        return Work(completions, per_step, length, completions, passes, completions / per_step)
    return None


def _offline(config: Config, stage: str, wildcards: Wildcards) -> Work | None:
    if not stage.startswith("train_"):
        return None
    prompts, length = config.training_set.n, config.harvest.max_completion_length * LENGTH
    name = wildcards.regime
    if stage == "train_dpo" or name not in config.regimes:
        dpo = config.ablation_dpo(name) if name in config.ablations else config.dpo
        pairs = prompts * PAIRABLE * dpo.pairs_per_prompt * dpo.epochs
        return Work(length=length, trained=2 * pairs, passes=pairs / dpo.per_device_batch_size)
    entry = config.regimes[name]
    own = entry if hasattr(entry, "per_device_batch_size") else config.dpo  # rounds of DPO train as DPO does
    of_prompt = {"kto": config.harvest.samples_per_prompt, "group_dpo": PAIRABLE * config.harvest.samples_per_prompt}
    rows = prompts * of_prompt.get(entry.regime, PAIRABLE * (1 if entry.regime == "rft" else 2)) * own.epochs
    return Work(length=length, trained=rows, passes=rows / own.per_device_batch_size)


def _drawing(config: Config, stage: str, wildcards: Wildcards, share: float) -> Work:
    how: Sampling | Evaluation
    if stage in ("harvest_rollouts", "draw_probe"):
        how, n = config.harvest, config.training_set.n * config.harvest.samples_per_prompt
    elif stage.startswith("calibrate"):
        how = asked = config.calibration
        levels = LEVELS if asked.levels == "auto" else len(asked.levels)
        n = levels * asked.problems_per_level * asked.samples_per_prompt
    else:
        how, sampled = config.evaluation, config.evaluation.sampled
        source = config.problem_sources.get(getattr(wildcards, "benchmark", ""))
        n = source.n if isinstance(source, SyntheticProblems) else PROBLEMS
        n *= sampled.n if sampled and (stage == "draw_samples" or not sampled.beside_greedy) else 1
    return Work(n * share, _rows(config, n * share, how.batch_size), how.max_completion_length * LENGTH)


def _rows(config: Config, completions: float, batch: int) -> int:
    """Completions that are drawn together."""
    return max(1, min(ceil(completions), AT_ONCE if config.engine.name == "vllm" else batch))
