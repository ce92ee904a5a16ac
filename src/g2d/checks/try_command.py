"""`g2d try CONFIG`: M0 answers a few problems as it would in the grid, before anything is trained.

g2d try my.yaml                          20 problems of the pool, sampled as in the harvest
g2d try my.yaml --problems gsm8k --n 50  problems of a benchmark, decoded as in the evaluation

Prompt, engine, decoding and verifier are the configuration's. Nothing is written.
"""

from __future__ import annotations

import argparse
import random
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from jinja2 import TemplateError

from g2d.checks.load import read
from g2d.checks.requirements import (
    budgets,
    require_files,
    require_installed,
    require_repositories,
    require_windows,
)
from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.jobs.environment import pin_kernels
from g2d.jobs.stage import go_offline
from g2d.plain import plain, say
from g2d.policies.model_keys import EmbeddedModel, ModelSource
from g2d.policies.pretrained import make_base, resolve_base
from g2d.policies.record import PolicyRecord
from g2d.problems import Problem
from g2d.problems.sources import load_problems
from g2d.rewards.registry import TRUTH, words_of
from g2d.rollouts.draw import draw_rollouts, engine_for, evaluation_decoding, sampling, with_rewards
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rollout import Rollout, to_frame
from g2d.rollouts.rollout_keys import Calibration
from g2d.settings import ConfigError
from g2d.settings.arguments import at_least
from g2d.verifier import Verifier
from g2d.verifier.pool import default_workers
from g2d.verifier.verifier import UNFINISHED_THINKING
from g2d.verifier.verifier_keys import own_file

AT_ONCE = 8  # problems per batch, after which answers are printed; vLLM has one batch
SHOWN = 1200  # characters of a completion to print without --full
WIDTH = 118
MANY = 0.1  # share of answers that causes a hint
WORDS = {
    "correct": "right",
    "incorrect": "wrong",
    "no_boxed": "no answer found",
    "truncated": "no answer found",
    "unfinished_thinking": "no answer found",
    "parse_error": "answer cannot be read",
    "timeout": "answer cannot be compared in time",
    "limit": "answer too large to compare",
    "error": "the verifier raised an exception",
    "not_bool": "the verifier returned no bool",
    "no_reference": "open-ended",
}


@dataclass(frozen=True)
class Trial:
    grid: Grid
    model: str
    problems: str  # name of the set
    section: str  # section of the configuration with the decoding
    decoding: Decoding
    rollouts: list[Rollout]
    seconds: float  # for generating and judging, without loading
    rewards: list[float] | None = None  # rewards by --reward, unless that is correctness


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "try",
        help="show the model's answers to a few problems, before anything is trained",
        description=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", type=Path, help="a configuration; its paths are relative to the working directory")
    parser.add_argument("--n", type=at_least(1, int), default=20, help="problems (20)")
    parser.add_argument("--problems", default="pool", metavar="NAME", help="a benchmark instead of the pool")
    parser.add_argument("--model", metavar="NAME", help="a model of the configuration (the first)")
    parser.add_argument("--reward", metavar="NAME", help="an entry of `rewards`: also show its rewards (warmup.reward)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the problems and the answers (0)")
    parser.add_argument("--full", action="store_true", help=f"show whole completions, not {SHOWN} characters")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    config = read(arguments.config)
    require_files(config)
    require_windows(Grid(config))
    name = _known("--model", arguments.model or next(iter(config.models)), config.models)
    _known("--problems", arguments.problems, config.problem_sources)
    if arguments.reward is not None:
        _known("--reward", arguments.reward, config.rewards)
    config = config.model_copy(update={"models": {name: config.models[name]}})
    require_installed(config)
    go_offline("pretrained_model")  # M0 may be downloaded
    require_repositories(config)

    def show(trial: Trial, first: int, total: int) -> None:
        for number in range(first, len(trial.rollouts)):
            say("\n".join(_screen(trial, number, total, arguments.full)) + "\n")

    trial = tried(config, name, arguments.problems, arguments.n, arguments.seed, arguments.reward, show)
    say("\n".join(summary(trial)))
    return 0


def tried(
    config: Config,
    model: str,
    problems: str,
    n: int,
    seed: int = 0,
    reward: str | None = None,
    show: Callable[[Trial, int, int], None] = lambda trial, first, total: None,
) -> Trial:
    """Let M0 answer problems: of the pool as in the harvest, of a benchmark as in the evaluation.

    `show` gets the answers so far, the number of the first new one, and the number of problems.
    """
    grid = Grid(config)
    settings = grid.settings[model]
    section = "evaluation" if problems in config.benchmarks else "harvest"
    if section == "evaluation":
        decoding = evaluation_decoding(settings.evaluation)
    else:
        decoding = sampling(settings.harvest, seed)
    decoding = replace(decoding, samples_per_prompt=1)
    chosen = drawn(load_problems(problems, config.problem_sources[problems]), settings.calibration, problems, n, seed)
    reward = reward or settings.warmup.reward
    judge = TRUTH if reward is None else config.rewards[reward]
    if judge != TRUTH:
        say(f"rewards: {words_of(judge)}", file=sys.stderr)
    trial = Trial(grid, model, problems, section, decoding, [], 0.0, None if judge == TRUTH else [])
    at_once = len(chosen) if settings.engine.name == "vllm" else AT_ONCE
    with (
        TemporaryDirectory(prefix="g2d-try-") as folder,
        Verifier(default_workers(), file=own_file(config.verifier)) as verifier,
    ):
        policy = base_policy(model, config.models[model], Path(folder) / "model")
        engine = engine_for(policy, settings.engine)
        for first in range(0, len(chosen), at_once):
            part = chosen[first : first + at_once]
            begun = time.monotonic()
            try:
                rollouts = draw_rollouts(policy, part, settings.prompt, decoding, engine=engine, verifier=verifier)
            except TemplateError as error:
                raise ValueError(f"{model}: chat template fails: {error}") from None
            except (LookupError, RuntimeError):
                name = not_a_number(policy)
                if name is None:
                    raise
                raise ValueError(f"{model}: weights are infinite or NaN, for example {name}") from None
            spent = trial.seconds + time.monotonic() - begun
            trial = replace(trial, rollouts=[*trial.rollouts, *rollouts], seconds=spent)
            if trial.rewards is not None:
                rows = with_rewards(to_frame(rollouts), part, judge, seed=seed, stream="harvest")
                trial = replace(trial, rewards=[*trial.rewards, *rows["reward"]])
            show(trial, first, len(chosen))
    return trial


def not_a_number(policy: PolicyRecord) -> str | None:
    """Return the name of an infinite or NaN weight, None if there is none."""
    from safetensors import safe_open

    for file in sorted(Path(policy.model_folder).glob("*.safetensors")):
        with safe_open(file, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118 -- no dictionary
                if not weights.get_tensor(name).isfinite().all():
                    return str(name)
    return None


def drawn(pool: Sequence[Problem], calibration: Calibration, name: str, n: int, seed: int) -> list[Problem]:
    levels = calibration.levels
    if name == "pool" and levels != "auto":
        pool = [problem for problem in pool if problem.level in levels] or pool
    return random.Random(seed).sample(list(pool), min(n, len(pool)))


def base_policy(name: str, source: ModelSource, folder: Path) -> PolicyRecord:
    if not isinstance(source, EmbeddedModel):
        return resolve_base(name, source)
    pin_kernels()
    return make_base(name, source, folder)


# ------------------------------------------------------------------------------------------------------------- screen


def _screen(trial: Trial, number: int, total: int, full: bool) -> Iterator[str]:
    rollout = trial.rollouts[number]
    cut = ", cut off" if rollout.finish_reason == "length" else ""
    level = "" if rollout.level is None else f" (level {rollout.level})"
    yield (
        f"{number + 1}/{total} {rollout.problem_id}{level}: {WORDS[rollout.verdict]}{cut}, "
        f"{rollout.token_count} of {trial.decoding.max_completion_length} tokens"
    )
    yield from _block("prompt", rollout.prompt_text)
    text = rollout.completion_text
    if not full and len(text) > SHOWN:
        left_out = len(text) - SHOWN
        text = f"{text[: SHOWN // 2]}\n[... {left_out:,} characters left out: --full ...]\n{text[-SHOWN // 2 :]}"
    yield from _block("answer", text)
    extracted = "none" if rollout.extracted_answer is None else rollout.extracted_answer
    yield from _block("found", f"{extracted}   (reference: {rollout.reference_answer})")
    if trial.rewards is not None:
        yield from _block("reward", f"{trial.rewards[number]:g}")


def _block(name: str, text: str) -> Iterator[str]:
    label = name  # of the first line
    for line in plain(text, lines=True).splitlines() or [""]:
        for part in textwrap.wrap(line, WIDTH - 10, drop_whitespace=False) or [""]:
            yield f"  {label:6} | {part}".rstrip()
            label = ""


def summary(trial: Trial) -> Iterator[str]:
    n = len(trial.rollouts)
    decoding = trial.decoding
    how = f"temperature {decoding.temperature:g}" if decoding.temperature else "greedy"
    yield (
        f"{trial.model}: {n} problems of {trial.problems}, {how}, at most {decoding.max_completion_length} tokens "
        f"({trial.section})"
    )
    counts = Counter(WORDS[rollout.verdict] for rollout in trial.rollouts)
    for words in dict.fromkeys(WORDS.values()):
        if counts[words] or words in ("right", "wrong", "no answer found"):
            yield f"  {words:16} {counts[words]:4} of {n}"
    tokens = [rollout.token_count for rollout in trial.rollouts]
    yield f"  {'cut off':16} {sum(map(_is_cut, trial.rollouts)):4} of {n}"
    yield f"  {'tokens':16} {sum(tokens) / n:6.1f} a completion, {max(tokens)} at most"
    yield f"  {'seconds':16} {trial.seconds:6.1f}, without loading the model"
    for hint in hints(trial):
        yield from textwrap.wrap(f"-> {hint}", WIDTH, subsequent_indent="   ")


def hints(trial: Trial) -> Iterator[str]:
    n = len(trial.rollouts)
    limit = trial.decoding.max_completion_length
    cut = [rollout for rollout in trial.rollouts if _is_cut(rollout)]
    thinking = sum(rollout.verdict == UNFINISHED_THINKING for rollout in cut)
    words = f"are cut off at {trial.section}.max_completion_length={limit}"
    if thinking:
        words += f", {thinking} of them before </think>: raise it"
        words += ", or switch thinking off in chat_template_kwargs, if the template can"
    else:
        words += ": raise it"
    problems_found = [(len(cut), words)]
    smaller: dict[int, list[str]] = {}
    if trial.section == "harvest":
        for section, budget in budgets(trial.grid, trial.model):
            if budget < limit:
                smaller.setdefault(budget, []).append(section)
    for budget, sections in smaller.items():
        longer = sum(rollout.token_count > budget for rollout in trial.rollouts)
        problems_found.append((longer, f"are longer than max_completion_length={budget} of {', '.join(sections)}"))
    silent = sum(rollout.verdict == "no_boxed" and not _is_cut(rollout) for rollout in trial.rollouts)
    fix = "so no answer is found: request it in prompt.system or prompt.template"
    problems_found.append((silent, f"ended without a \\boxed{{...}}, {fix}"))
    for count, problem in problems_found:
        if count and count >= MANY * n:
            yield f"{count} of {n} {problem}"
    right = sum(rollout.verdict == "correct" for rollout in trial.rollouts)
    verifiable = sum(rollout.verdict != "no_reference" for rollout in trial.rollouts)
    if verifiable and right == verifiable:
        yield "every answer is right, so there is nothing to learn: choose harder problems"
    if verifiable and not right and len(cut) + silent < n / 2:
        yield "no answer is right: compare answers and references (wrong fields, answer_format or level?)"


def _is_cut(rollout: Rollout) -> bool:
    return rollout.finish_reason == "length"


def _known(option: str, name: str, names: Collection[str]) -> str:
    if name not in names:
        raise ConfigError(f"{option} {name}: not in the configuration, which has {', '.join(names) or 'none'}")
    return name
