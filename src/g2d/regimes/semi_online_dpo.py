"""Semi-online DPO: DPO on pairs of fresh rollouts, whose generator takes the policy over every s updates.

s = 1 is online DPO and "never" the offline order of things: M0 answers everything, before it is trained on ("Bridging
Offline and Online RL for LLMs", arXiv 2506.21495, section 3). A trajectory like GRPO's: K counts updates, a chain
passes through every K, and a run that was stopped anywhere ends with the bits of an uninterrupted one.

The reference is M0, or follows the generator (that paper's section 4.4). With a reference that follows at s = 1, policy
and reference agree before every update: the loss stays at ln 2 and the margins at 0, which says nothing about progress,
and beta only scales the gradient, whose direction is then GRPO's with another weight of each prompt (tests hold that).

TRL's experimental online DPO is not used: two completions a prompt, a pair also where both are right or both wrong, no
s, no resuming. An update without a pair is a step with a zero gradient, and regimes.csv counts them.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g2d.jobs.cost import Meter
from g2d.policies.policy import Policy, as_json, context_limit, load_tokenizer
from g2d.policies.settings import Lora
from g2d.problems import Problem
from g2d.problems.prompts import Prompt, conversation, render
from g2d.regimes.adapters import copy_to_reference, load_reference, save_adapter, with_own_adapter
from g2d.regimes.asked import order
from g2d.regimes.checkpoints import Checkpointing, Checkpoints, require_intact, train
from g2d.regimes.groups import groups, summary
from g2d.regimes.grpo import ROLLOUTS, hand_over
from g2d.regimes.regime import Regime, auto_words
from g2d.regimes.retirement import PromptChoice, choice_words
from g2d.regimes.semi_online_keys import SemiOnlineDpo
from g2d.regimes.training import lora_config, restore_token_count, starting_model, trainer_arguments
from g2d.rewards.catalogue import TRUTH, reward_params
from g2d.rollouts.engine import Decoding, require_room
from g2d.rollouts.settings import EngineSettings
from g2d.rollouts.tokens import with_token_ids
from g2d.settings import Section
from g2d.verifier.pool import default_workers

if TYPE_CHECKING:
    import pandas as pd

    from g2d.regimes.fresh import FreshRollouts


def train_semi_online_dpo(
    base: Policy,
    problems: Sequence[Problem],
    *,
    settings: SemiOnlineDpo,
    lora: Lora,
    prompt: Prompt,
    k: int,
    seed: int,
    work: Path,
    reward: Section = TRUTH,
    start: Policy | None = None,
    resume_from: Path | None = None,
    engine: EngineSettings | None = None,
    checkpointing: Checkpointing | None = None,
    tracking: Mapping[str, Any] | None = None,
    meter: Meter | None = None,
    version: int = 0,
) -> list[dict[str, Any]]:
    """Train M0, or the policy of `start`, for K updates; leave `work/adapter`, `work/checkpoint` and
    `work/rollouts.parquet`.

    Arguments, what is returned and what is raised are those of `train_grpo`, beside

    Args:
        start: the policy that is trained on, with an optimizer, a schedule and random numbers of its own; needed from
            every checkpoint on, as it may be the reference or the generator. None for a fresh adapter on M0.
    """
    continued = require_intact(resume_from) if resume_from else None
    run_seed, seed = seed, seed if start is None else seed_after(seed, start)
    from g2d.regimes.fresh import FreshRollouts, sync_period

    meter = meter or Meter(str(work), "train_semi_online_dpo")
    job = {
        "version": version,
        "base": as_json(base),
        "problems": [asdict(problem) for problem in problems],
        "semi_online_dpo": settings.trajectory() | {"keep_rollouts": settings.keep_rollouts},
        "lora": lora.params(),
        "prompt": prompt.params(),
        "k": k,
        "seed": run_seed,
        "engine": engine.identity if engine else None,
        "start": continued,
        **({} if start is None else {"started_from": as_json(start)}),
        **({} if reward == TRUTH else {"reward": reward_params(reward)}),
    }
    checkpoints = Checkpoints(work, job, meter)
    tokenizer = load_tokenizer(base)
    require_room(
        tokenizer([render(tokenizer, conversation(problem, prompt)) for problem in problems], add_special_tokens=False)[
            "input_ids"
        ],
        [f"problem {problem.problem_id}" for problem in problems],
        settings.max_completion_length,
        model=base.base,
        limit=context_limit(base),
    )
    horizon, per_update = settings.total_steps, settings.prompts_per_update
    fresh = FreshRollouts(
        base,
        problems,
        order(settings, problems, horizon * per_update, per_update, seed),
        per_update=per_update,
        decoding=Decoding(
            samples_per_prompt=settings.responses,
            temperature=settings.temperature,
            top_p=1.0,
            max_completion_length=settings.max_completion_length,
            batch_size=settings.batch_size,
            seed=seed,
        ),
        prompt=prompt,
        sync_every=sync_period(settings.sync_every, len(problems) // per_update),
        until=k,
        keep=settings.keep_rollouts,
        workers=default_workers(),
        reward=reward,
        start=start,
        choice=PromptChoice.of(len(problems), seed, settings),
        margin=settings.margin,
    )
    if engine is not None and engine.name == "vllm":
        fresh.use_vllm(engine, lora)
    try:
        trainer = _trainer(base, fresh, settings, lora, seed, checkpoints.draft, tracking, start)
        before = meter.tokens_generated

        def save(folder: Path) -> None:
            shutil.rmtree(folder / "ref", ignore_errors=True)  # beside it, the trainer would not load our own
            fresh.save(folder)
            fresh.save_rollouts(folder / ROLLOUTS)
            meter.tokens_generated = before + fresh.tokens_generated

        def restore(folder: Path, rollouts: Path | None) -> None:
            fresh.restore(folder, rollouts)
            meter.tokens_generated = before + fresh.tokens_generated
            restore_token_count(trainer)(folder)
            if settings.reference == "sync" and fresh.adapter is not None:
                load_reference(trainer.model, fresh.adapter)

        if resume_from is not None:
            restore(resume_from, None)
        reached = train(
            trainer,
            checkpoints,
            checkpointing or Checkpointing(),
            until=k,
            start=resume_from,
            save=save,
            restore=lambda folder: restore(folder, folder / ROLLOUTS),
        )
    finally:
        fresh.close()
    return hand_over(reached, work, base)


def _trainer(
    base: Policy,
    fresh: FreshRollouts,
    settings: SemiOnlineDpo,
    lora: Lora,
    seed: int,
    draft: Path,
    tracking: Mapping[str, Any] | None,
    start: Policy | None,
) -> Any:
    from datasets import Dataset
    from trl import DPOConfig

    from g2d.regimes.group_trainer import GroupTrainer

    def updates(step: int) -> Any:
        own: pd.DataFrame = with_token_ids(fresh.of(step, hand_over_to), base)  # a checkpoint of 0.1.0 may lack them
        asked = fresh.asked(own)
        whole, margin = settings.grpo_weight > 0, settings.margin
        found = groups(own, asked, which=settings.pairs, seed=seed, whole=whole, margin=margin)
        record = summary(own, found) | (fresh.choice.metrics(step) if fresh.choice else {})
        return found, len(asked), record

    def hand_over_to(folder: Path) -> None:
        model = trainer.accelerator.unwrap_model(trainer.model)
        save_adapter(model, folder)
        if moving:
            copy_to_reference(model)

    moving = settings.reference == "sync"
    model = starting_model(base, start)
    if start is None and moving:
        model = with_own_adapter(model, lora, seed)
    trainer = GroupTrainer(
        model=model,
        args=DPOConfig(
            **trainer_arguments(draft, seed, tracking, settings),
            max_steps=settings.total_steps,
            learning_rate=settings.learning_rate,
            lr_scheduler_type=settings.lr_schedule,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=1,
            beta=settings.beta,
            max_length=None,
            disable_dropout=False,
        ),
        train_dataset=Dataset.from_list([{"update": i} for i in range(settings.total_steps)]),
        processing_class=load_tokenizer(base),
        updates=updates,
        loss=settings,
        rollouts_per_pass=settings.per_device_batch_size,
        peft_config=lora_config(lora) if start is None and not moving else None,
    )
    if start is not None and settings.reference == "base":
        trainer.model.delete_adapter("ref")  # the copy of `start`; without it, TRL switches the adapter off for M0
        trainer.begins_at_reference = False
    return trainer


def seed_after(seed: int, start: Policy) -> int:
    """The seed of a training that goes on from another one: what it draws is not what that one has drawn.

    Entries with the same start share it, so they differ in what they are compared for.
    """
    digest = hashlib.sha256(f"{seed}/{start.policy_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1  # below 2^31, as seeds are


def _methods(settings: SemiOnlineDpo) -> str:
    first = "M0" if settings.start == "base" else "the policy it started from"
    when = {"never": f"{first}, which never took the policy over", "pass": "the policy as of the last pass"}.get(
        str(settings.sync_every), f"the policy as of the last {settings.sync_every} updates"
    )
    if settings.sync_every == 1:
        when = "the policy itself"
    chosen = f" Of its prompts, {words}." if (words := choice_words(settings)) else ""
    stopped = "" if settings.auto is None else f" {auto_words(settings.auto)}"
    pairs = "one pair" if settings.pairs == "one" else "all pairs, weighted equally,"
    reference = {"base": "M0", "start": "the policy it started from", "sync": "the generator"}[settings.reference]
    return (
        f"DPO on {pairs} of {settings.responses} rollouts of each of {settings.prompts_per_update} prompts per update, "
        f"drawn by {when} at temperature {settings.temperature:g}, with {reference} as the reference (beta "
        f"{settings.beta:g}, peak learning rate {settings.learning_rate:g}, {settings.lr_schedule} schedule over "
        f"{settings.total_steps} updates).{chosen}{stopped}"
    )


SEMI_ONLINE_DPO = Regime(
    name="semi_online_dpo",
    version=3,
    phase="online",
    settings=SemiOnlineDpo,
    label="semi-online DPO",
    card="{k} updates of DPO on its own fresh rollouts ({regime})",
    unit="updates of DPO on fresh rollouts",
    methods=_methods,
)
