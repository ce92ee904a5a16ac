"""Generate rollouts and judge them by verifier and reward."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from g2d.plain import say
from g2d.policies.record import PolicyRecord, ends_in_words, tokenizer_sha256
from g2d.problems import Problem
from g2d.problems.problem import references
from g2d.problems.prompts import Prompt, conversation
from g2d.rewards.registry import TRUTH, is_scalar, judge
from g2d.rewards.reward import Context, Status, VerifiedCompletion, plain_id
from g2d.rollouts.engine import Completion, Decoding, Engine, ModelEngine, Request
from g2d.rollouts.rollout import OF_REWARDS, FinishReason, Rollout
from g2d.rollouts.rollout_keys import EngineSettings, Evaluation, Sampling
from g2d.settings import Section
from g2d.verifier import Verification, Verifier

if TYPE_CHECKING:
    import pandas as pd


def sampling(settings: Sampling, seed: int) -> Decoding:
    return Decoding(**{name: getattr(settings, name) for name in Sampling.model_fields}, seed=seed)


def evaluation_decoding(settings: Evaluation) -> Decoding:
    drawn = settings.sampled
    greedy = Decoding(
        samples_per_prompt=1,
        temperature=0.0,
        top_p=1.0,
        max_completion_length=settings.max_completion_length,
        batch_size=settings.batch_size,
        seed=0,
    )
    if drawn is None:
        return greedy
    return replace(greedy, samples_per_prompt=drawn.n, temperature=drawn.temperature, top_p=drawn.top_p)


def engine_for(policy: PolicyRecord, settings: EngineSettings) -> Engine:
    """Start the engine of a policy, and log at which tokens its completions end."""
    engine: ModelEngine
    if settings.name == "vllm":
        from g2d.rollouts.vllm_engine import VllmEngine

        engine = VllmEngine(policy, settings)
    else:
        from g2d.rollouts.transformers_engine import TransformersEngine

        engine = TransformersEngine.of(policy)
    say(ends_in_words(engine.tokenizer, engine.end_ids), file=sys.stderr)
    return engine


def sample_rollouts(
    policy: PolicyRecord,
    problems: Sequence[Problem],
    prompt: Prompt,
    decoding: Decoding,
    *,
    engine: Engine,
    verifier: Verifier,
    token_ids: bool = False,
) -> list[Rollout]:
    """Generate and judge `samples_per_prompt` rollouts per problem, ordered by problem and sample.

    Args:
        prompt: template of the messages.
        token_ids: keep the tokens, for training.
    """
    tokenizer = tokenizer_sha256(policy.base) if token_ids else None
    drawn = list(completed(engine, problems, prompt, decoding))
    problem_of: list[Problem] = []
    texts: list[str] = []
    finish_reasons: list[FinishReason] = []
    in_thinking: list[bool] = []
    for problem, request, _, completion in drawn:
        problem_of.append(problem)
        texts.append(completion.text)
        finish_reasons.append(completion.finish_reason)
        in_thinking.append(request.in_thinking)
    items = list(zip(references(problem_of, verifier), texts, strict=True))
    verifications = verifier.verify(items, finish_reasons, in_thinking=in_thinking)
    rollouts: list[Rollout] = []
    for (problem, request, sample, completion), verification in zip(drawn, verifications, strict=True):
        answer = verification.extracted_answer
        rollout = Rollout(
            problem_id=problem.problem_id,
            cluster=problem.cluster,
            level=problem.level,
            reference_answer=problem.answer,
            sample=sample,
            prompt_text=request.prompt_text,
            completion_text=well_formed(completion.text),
            token_count=completion.token_count,
            finish_reason=completion.finish_reason,
            verdict=verification.verdict,
            reward=verification.reward,
            extracted_answer=None if answer is None else well_formed(answer),
            engine=engine.name,
            temperature=decoding.temperature,
            seed=decoding.seed,
            policy_id=policy.policy_id,
            prompt_ids=request.prompt_ids if tokenizer else None,
            completion_ids=completion.token_ids if tokenizer else None,
            tokenizer_sha256=tokenizer,
        )
        rollouts.append(rollout)
    return rollouts


def with_rewards(
    rollouts: pd.DataFrame, problems: Sequence[Problem], reward: Section, *, seed: int, stream: str
) -> pd.DataFrame:
    """Add rewards to rollouts, with statuses and details unless the reward is the default; raises as `judge`.

    Args:
        rollouts: whole groups, by problem_id.
        seed, stream: as in `Context`.
    """
    import pandas as pd

    if reward == TRUTH:
        # Rollouts that were judged before have these columns.
        plain = rollouts.drop(columns=list(OF_REWARDS), errors="ignore")
        return plain.assign(reward=(rollouts["verdict"] == "correct").astype("float64"))
    of_group = {problem.problem_id: replace(problem, problem_id=plain_id(problem.problem_id)) for problem in problems}
    columns = ["problem_id", "sample", "completion_text", "verdict", "extracted_answer"]
    to_score: list[VerifiedCompletion] = []
    for name, sample, text, verdict, answer in rollouts[columns].itertuples(index=False, name=None):
        verified = Verification(verdict, None if pd.isna(answer) else answer)
        to_score.append(VerifiedCompletion(of_group[name], name, int(sample), text, verified))
    judgements = judge(reward, to_score, Context(seed, stream))
    rewards: list[float] = []
    statuses: list[Status] = []
    details: list[str | None] = []
    scalars: list[bool | None] = []
    for completion, judgement in zip(to_score, judgements, strict=True):
        scalars.append(is_scalar(reward, completion.problem.kind) or None)
        rewards.append(math.nan if judgement.reward is None else judgement.reward)
        statuses.append(judgement.status)
        details.append(json.dumps(dict(judgement.details)) if judgement.details else None)
    return rollouts.assign(
        reward=rewards,
        reward_status=statuses,
        reward_details=pd.Series(details, rollouts.index, dtype="object"),
        reward_is_scalar=pd.Series(scalars, rollouts.index, dtype="object"),
    )


def completed(
    engine: Engine, problems: Sequence[Problem], prompt: Prompt, decoding: Decoding
) -> Iterator[tuple[Problem, Request, int, Completion]]:
    """Yield problem, request, number of the sample and completion, in order."""
    requests = [engine.request(problem.problem_id, conversation(problem, prompt)) for problem in problems]
    for problem, request, completions in zip(problems, requests, engine.generate(requests, decoding), strict=True):
        for sample, completion in enumerate(completions):
            yield problem, request, sample, completion


def well_formed(text: str) -> str:
    """Replace lone surrogates by question marks: UTF-8 cannot encode them."""
    return text.encode("utf-8", "replace").decode()
