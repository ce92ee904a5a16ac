"""Body of the jobs that write a file of rollouts: sample them, or score existing rollouts."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path

import pandas as pd

from g2d.grid.settings import SamplingMachine
from g2d.jobs.cost import Meter
from g2d.jobs.snakemake_jobs import Snakemake
from g2d.plain import say
from g2d.policies.record import as_json, read_own_policy
from g2d.problems import Problem
from g2d.problems.prompts import Prompt, conversation
from g2d.regimes.common.checkpoints import is_usable, job_digest, seal
from g2d.regimes.common.stopping import work_folder
from g2d.rewards.registry import TRUTH, require_numbers, words_of
from g2d.rollouts.engine import Decoding, Engine
from g2d.rollouts.rollout import Rollout, merge_parts, part_of, read_rollouts, to_frame, write_rollouts
from g2d.rollouts.sample import engine_for, sample_rollouts, with_rewards
from g2d.rollouts.verifier_failures import require_judged
from g2d.settings import Section
from g2d.verifier import Verdict, Verifier
from g2d.verifier.verifier import FAILURES, SLOW
from g2d.verifier.verifier_keys import own_file, verifier_of

PART = 2048  # rollouts per part: enough to keep an engine busy, minutes on a GPU
ROLLOUTS = "rollouts.parquet"


def generate_rollouts(
    snakemake: Snakemake,
    meter: Meter,
    problems: Sequence[Problem],
    decoding: Decoding,
    reward: Section = TRUTH,
    *,
    token_ids: bool = False,
    is_first: bool = False,
) -> None:
    """Write `output.rollouts` for `input.policy`, for harvests with the training's reward and token ids.

    In the first job of a model (`is_first`), the user's verifier must judge some completion.
    """
    judged = snakemake.input.get("judged")
    if judged:
        rollouts = read_rollouts(judged[0])
    else:
        sampler = PolicySampler(snakemake, decoding)
        sampler.expect(problems)
        with sampler.verifier(fatal=FAILURES if is_first else SLOW) as verifier:
            folder = Path(f"{snakemake.output.rollouts}.parts")
            rollouts = sampler.sample(problems, folder, meter, verifier, token_ids=token_ids)
            if is_first:
                require_judged(rollouts, problems, verifier.file)
    rows = with_rewards(rollouts, problems, reward, seed=decoding.seed, stream="harvest")
    if "reward_status" in rows:
        require_numbers(Counter(rows["reward_status"]), words_of(reward))
    write_rollouts(snakemake.output.rollouts, rows)


class PolicySampler:
    """Samples completions of `input.policy`, with one engine for all problems of a job."""

    def __init__(self, snakemake: Snakemake, decoding: Decoding) -> None:
        self.snakemake = snakemake
        machine = SamplingMachine.model_validate(snakemake.params.machine)
        self.decoding = replace(decoding, batch_size=machine.batch_size)
        self.engine_settings = machine.engine
        self.policy = read_own_policy(snakemake.input.policy)
        self.prompt = Prompt.model_validate(snakemake.params.settings["prompt"])

    @cached_property
    def engine(self) -> Engine:
        return engine_for(self.policy, self.engine_settings)

    def verifier(self, fatal: Collection[Verdict] = SLOW) -> Verifier:
        file = own_file(verifier_of(self.snakemake.params.settings))
        return Verifier(self.snakemake.threads, file=file, fatal=fatal)

    def expect(self, problems: Sequence[Problem]) -> None:
        """Make room in the engine for problems that are sampled later."""
        requests = [self.engine.request(problem.problem_id, conversation(problem, self.prompt)) for problem in problems]
        self.engine.expect(requests, self.decoding.max_completion_length)

    def job(self, problems: Sequence[Problem]) -> dict[str, object]:
        """Return everything that the rollouts depend on."""
        decoding = asdict(self.decoding)
        del decoding["batch_size"]  # it changes only speed and memory
        job = {
            "version": self.snakemake.params.version,
            "policy": as_json(self.policy),
            "problems": [asdict(problem) for problem in problems],
            "prompt": self.prompt.params(),
            "decoding": decoding,
            "engine": self.engine_settings.name,
        }
        if "verifier" in self.snakemake.params.settings:
            job["verifier"] = self.snakemake.params.settings["verifier"]
        return job

    def sample(
        self, problems: Sequence[Problem], folder: Path, meter: Meter, verifier: Verifier, *, token_ids: bool = False
    ) -> pd.DataFrame:
        """Sample and judge rollouts; `folder` keeps finished parts if the job is stopped."""
        return draw_in_parts(
            folder,
            problems,
            lambda dealt: sample_rollouts(
                self.policy,
                dealt,
                self.prompt,
                self.decoding,
                engine=self.engine,
                verifier=verifier,
                token_ids=token_ids,
            ),
            samples_per_prompt=self.decoding.samples_per_prompt,
            job=self.job(problems),
            meter=meter,
        )


# -------------------------------------------------------------------------------------------------------------- parts


def draw_in_parts(
    folder: Path,
    problems: Sequence[Problem],
    draw: Callable[[Sequence[Problem]], Sequence[Rollout]],
    *,
    samples_per_prompt: int,
    job: Mapping[str, object],
    meter: Meter,
) -> pd.DataFrame:
    """Sample rollouts for all problems in order, after the parts that an earlier attempt has finished.

    Args:
        folder: keeps the parts until all are finished.
        job: all settings that the rollouts depend on. Parts of another job are deleted.
        meter: counts the tokens of all attempts.
    """
    count = min(len(problems), len(problems) * samples_per_prompt // PART)

    def drawn(dealt: Sequence[Problem]) -> Sequence[Rollout]:
        rollouts = draw(dealt)
        meter.tokens_generated += sum(rollout.token_count for rollout in rollouts)
        return rollouts

    if count < 2:
        return to_frame(drawn(problems))
    digest = job_digest(job)
    with work_folder(folder) as work:
        parts = [work / f"{number}-of-{count}" for number in range(1, count + 1)]
        kept = list(takewhile(lambda part: part.exists() and is_usable(part, digest, meter), parts))
        for left in set(work.glob("[!.]*")) - set(kept):
            shutil.rmtree(left)
        if meter.carried is not None:
            meter.tokens_generated += meter.carried.tokens_generated
        if kept:
            say(f"continuing after part {len(kept)} of {count}")
        for number in range(len(kept) + 1, count + 1):
            draft = work / "draft"
            rollouts = drawn(part_of(problems, number, count))
            draft.mkdir()
            write_rollouts(draft / ROLLOUTS, rollouts)
            seal(draft, number, digest, meter.spent())
            draft.rename(parts[number - 1])
        return merge_parts([part / ROLLOUTS for part in parts], problems)
