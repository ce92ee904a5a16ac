"""`g2d try CONFIG`: M0 answers a few problems as it would in the grid, before anything is trained.

g2d try my.yaml                          20 problems of the pool, sampled as in the harvest
g2d try my.yaml --problems gsm8k --n 50  problems of a benchmark, decoded as in the evaluation

Prompt, engine, decoding and verifier are the configuration's. Nothing is written.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from g2d.checks.load import read
from g2d.checks.requirements import require_files, require_installed, require_repositories, require_windows
from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.jobs.environment import pin_kernels
from g2d.jobs.stage import go_offline
from g2d.jobs.temporary import temporary_folder
from g2d.plain import plain, say
from g2d.policies.model_keys import EmbeddedModel, ModelSource
from g2d.policies.pretrained import make_base, resolve_base
from g2d.policies.record import PolicyRecord
from g2d.problems import Problem
from g2d.problems.sources import load_problems
from g2d.rewards.registry import TRUTH
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rollout import Rollout, to_frame
from g2d.rollouts.rollout_keys import Calibration
from g2d.rollouts.sample import engine_for, evaluation_decoding, sample_rollouts, sampling, with_rewards
from g2d.rollouts.verifier_failures import first_failure
from g2d.settings import ConfigError
from g2d.settings.arguments import at_least
from g2d.verifier import Verifier
from g2d.verifier.pool import default_workers
from g2d.verifier.verifier import FAILURES
from g2d.verifier.verifier_keys import own_file

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Trial:
    """Answers of M0 to problems."""

    section: str  # section of the configuration with the decoding
    decoding: Decoding
    rollouts: Sequence[Rollout]
    rewards: Sequence[float]
    reasons: Sequence[str | None] = ()  # why an answer has no reward
    failure: str | None = None  # why the user's verifier failed

    @property
    def failed(self) -> int:
        """Number of answers on which the user's verifier failed."""
        return sum(rollout.verdict in FAILURES for rollout in self.rollouts) if self.failure else 0


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
    parser.add_argument("--reward", metavar="NAME", help="an entry of `rewards` (warmup.reward)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the problems and the answers (0)")
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
    trial = tried(config, name, arguments.problems, arguments.n, arguments.seed, arguments.reward)
    for number in range(len(trial.rollouts)):
        say(f"{answer(trial, number)}\n")
    say(summary(trial))
    return int(trial.failed == len(trial.rollouts))


def tried(config: Config, model: str, problems: str, n: int, seed: int, reward: str | None) -> Trial:
    """Let M0 answer problems: of the pool as in the harvest, of a benchmark as in the evaluation."""
    settings = config.for_model(model)
    if problems in config.benchmarks:
        section = "evaluation"
        decoding = evaluation_decoding(settings.evaluation)
    else:
        section = "harvest"
        decoding = sampling(settings.harvest, seed)
    decoding = replace(decoding, samples_per_prompt=1)
    reward = reward or settings.warmup.reward
    chosen = drawn(load_problems(problems, config.problem_sources[problems]), settings.calibration, problems, n, seed)
    with (
        temporary_folder("try") as folder,
        Verifier(default_workers(), file=own_file(config.verifier), fatal=()) as verifier,
    ):
        policy = base_policy(model, config.models[model], Path(folder) / "model")
        engine = engine_for(policy, settings.engine)
        try:
            rollouts = sample_rollouts(policy, chosen, settings.prompt, decoding, engine=engine, verifier=verifier)
        except (LookupError, RuntimeError):
            weight = not_a_number(policy)
            if weight is None:
                raise
            raise ValueError(f"{model}: weights are infinite or NaN, for example {weight}") from None
    failure = first_failure(to_frame(rollouts), chosen, own_file(config.verifier))
    judge = TRUTH if reward is None else config.rewards[reward]
    judged = with_rewards(to_frame(rollouts), chosen, judge, seed=seed, stream="harvest")
    return Trial(section, decoding, rollouts, list(judged["reward"]), reasons_of(judged), failure)


def reasons_of(judged: pd.DataFrame) -> list[str | None]:
    """Return why answers have no reward: the status, and the exception of a function."""
    reasons: list[str | None] = [None] * len(judged)
    if "reward_status" not in judged:
        return reasons
    rows = judged[["reward_status", "reward_details"]].itertuples(index=False, name=None)
    for number, (status, details) in enumerate(rows):
        if status == "judged":
            continue
        reasons[number] = str(status)
        if details is not None and "error" in json.loads(details):
            reasons[number] = plain(f"{status}: {json.loads(details)['error']}")
    return reasons


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


def answer(trial: Trial, number: int) -> str:
    """Return one problem as text: prompt, answer and verdict."""
    rollout = trial.rollouts[number]
    lines = [
        f"--- {number + 1}/{len(trial.rollouts)} {rollout.problem_id}: {rollout.verdict}, {rollout.token_count} tokens",
        rollout.prompt_text,
        "--- answer",
        rollout.completion_text,
        f"--- found: {rollout.extracted_answer or '-'}, reference: {rollout.reference_answer}",
        f"--- reward: {_reward(trial, number)}",
    ]
    return "\n".join(lines)


def _reward(trial: Trial, number: int) -> str:
    if trial.reasons and trial.reasons[number]:
        return f"none ({trial.reasons[number]})"
    return f"{trial.rewards[number]:g}"


def summary(trial: Trial) -> str:
    n = len(trial.rollouts)
    decoding = trial.decoding
    how = f"temperature {decoding.temperature:g}" if decoding.temperature else "greedy"
    lines = [f"{n} problems as in {trial.section}: {how}, at most {decoding.max_completion_length} tokens"]
    for verdict, count in Counter(rollout.verdict for rollout in trial.rollouts).most_common():
        lines.append(f"  {verdict:20} {count:4} of {n}")
    cut = sum(rollout.finish_reason == "length" for rollout in trial.rollouts)
    lines.append(f"  {'cut off':20} {cut:4} of {n}")
    tokens = [rollout.token_count for rollout in trial.rollouts]
    lines.append(f"  {'tokens':20} {sum(tokens) / n:6.1f} on average, {max(tokens)} at most")
    reasons = [reason for reason in trial.reasons if reason]
    if reasons:
        lines.append(f"the reward gave no number to {len(reasons)} of {n}: {reasons[0]}")
    if trial.failure:
        lines.append(f"the verifier failed on {trial.failed} of {n}: {trial.failure}")
    return "\n".join(lines)


def _known(option: str, name: str, names: Collection[str]) -> str:
    if name not in names:
        raise ConfigError(f"{option} {name}: not in the configuration, which has {', '.join(names) or 'none'}")
    return name
