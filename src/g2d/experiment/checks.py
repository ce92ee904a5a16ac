"""What a configuration asks for and cannot have: rules between keys, each with the key and the fix.

`_mistakes` yields the lines; `check_` and `require_` raise a ValueError with the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from g2d.experiment.arms import by_section, entry_steps, expanded, harvested_steps, teacher_of
from g2d.experiment.processes import process_mistakes
from g2d.experiment.sections import Ablation, Config
from g2d.experiment.selection import selection_mistakes
from g2d.experiment.sweep import (
    COUNTS,
    SECTIONS,
    candidates,
    held_out,
    section_name,
    swept_section,
    with_candidates,
    with_choices,
)
from g2d.policies.settings import LORA_RANKS, RecordedModel
from g2d.problems import generated
from g2d.problems.settings import (
    DEVELOPMENT,
    OPEN_ENDED_SETS,
    SyntheticProblems,
    is_open_ended,
    place_of,
)
from g2d.regimes.prompt_choice import PromptMix
from g2d.regimes.regime import SELECTED, OnlineEntry
from g2d.regimes.warmup import AUTO, Warmup, check_group_sizes
from g2d.rewards.catalogue import is_scalar, reward_of
from g2d.settings import Section, repeated

# What lies beside the models' folders, and beside the policies in them:
RESERVED_FOLDERS = {
    *("problems", "tables", "figures", "logs", "benchmarks", "attempts", "digests", "looks", "report"),
    *("reward-models", "teachers"),
}
RESERVED_FILES = {"config.yaml", "methods.md", "advice.md", "provenance.json", "report.html", "report.zip"}
RESERVED_REGIMES = {"base", "grpo", "dpo", "harvest", "probe", "calibration", AUTO}


def mistakes(config: Config) -> list[str]:
    """All that is wrong with a configuration whose sections are valid by themselves: a line each, with key and fix."""
    found = [f"seeds repeat: {config.seeds}"] if repeated(config.seeds) else []
    found += [
        *name_mistakes(config),
        *look_mistakes(config),
        *open_ended_mistakes(config),
        *impossible_draws(config),
        *unknown_benchmarks(config),
    ]
    for model in config.models:
        try:
            if config.for_model(model).lora.trains_all != config.lora.trains_all:
                raise ValueError(
                    f"models.{model}.settings.lora: none is for all models or for none: write lora: none outside of "
                    "models, or drop it"
                )
            check_model(config.for_model(model), model)
        except ValueError as error:
            found += str(error).splitlines()
    found += [] if found else [*selection_mistakes(config), *sweep_mistakes(config)]
    return list(dict.fromkeys(found))  # several models can make the same mistake


def name_mistakes(config: Config) -> Iterator[str]:
    """Names that are taken or repeat, also on file systems that tell no upper from lower case."""
    selects = any(getattr(own, "select", False) for own in config.further.values())
    taken: list[tuple[str, Collection[str], str]] = [
        ("models", RESERVED_FOLDERS, "a folder of the results"),
        ("models", RESERVED_FILES, "a file of the results"),
        ("benchmarks", ["pool"], "the training pool"),
        ("benchmarks", [DEVELOPMENT, "pool.training"] if config.sweep else [], "the problems of the sweep"),
        ("benchmarks", OPEN_ENDED_SETS if config.open_ended else [], "the prompts of open_ended"),
        ("ablations", RESERVED_REGIMES, "a stage"),
        ("regimes", RESERVED_REGIMES, "a stage"),
        ("regimes", [name.lower() for name in config.ablations], "an ablation"),
        ("regimes", [SELECTED] if selects else [], "the checkpoints that `select` chooses"),
    ]
    for section, names, by in taken:
        for name in getattr(config, section):
            if name.lower() in names:
                yield f"{section}.{name}: the name is taken by {by}: choose another"
    for section in ("models", "benchmarks", "ablations", "regimes", "rewards"):
        seen: dict[str, str] = {}
        for name in getattr(config, section):
            if (first := seen.setdefault(name.lower(), name)) != name:
                yield f"{section}.{name}: differs from {first} in upper and lower case only: choose another"


def check_model(config: Config, model: str) -> None:
    """Refuse what sections demand of each other, after a model's own settings are in."""
    warmup = config.warmup
    check_group_sizes(warmup, config.baselines.grpo_group_sizes, "baselines.grpo_group_sizes")
    check_warmup(config, "warmup", warmup, model)
    if config.engine.name == "vllm" and config.lora.r > LORA_RANKS[-1]:
        raise ValueError(
            f"lora.r={config.lora.r} exceeds {LORA_RANKS[-1]}, the largest rank that vLLM applies: lower it or "
            "change the engine"
        )
    if warmup.auto is not None and warmup.auto.prompts > config.training_set.n:
        raise ValueError(
            f"warmup.auto.prompts={warmup.auto.prompts} exceeds training_set.n={config.training_set.n} of {model}: "
            "lower it or draw a larger training set"
        )
    require_steps("dpo.match_pairs_to", config.dpo.match_pairs_to, "warmup.steps", warmup.steps, model)
    for name, ablation in config.ablations.items():
        check_ablation(config, name, ablation, model)
    for name in config.regimes:
        check_entry(config, name, model)
    for name, entry in config.regimes.items():
        if isinstance(getattr(entry, "teacher", None), str):
            _check_teacher(config, name, model)
    for mistake in (*process_mistakes(config), *all_weights_mistakes(config)):
        raise ValueError(f"{mistake} ({model})")


def require_steps(where: str, wanted: Any, whose: str, there: Sequence[int], model: str) -> None:
    """Refuse a K that is not there.

    Args:
        wanted: one K or a list; words and null name none.
        whose: the key that has those that are there.
    """
    for step in [wanted] if isinstance(wanted, int) else wanted if isinstance(wanted, list) else ():
        if step not in there:
            raise ValueError(f"{where}: K={step} is not in {whose} {there} of {model}: add it there or choose another")


def look_mistakes(config: Config) -> Iterator[str]:
    """What looks cannot have."""
    looks = config.looks
    if looks is None:
        return
    if config.seeds != list(range(1, looks.looks[-1] + 1)):
        yield f"seeds: with looks they are 1 to {looks.looks[-1]}: write seeds: {{looks: {looks.looks}}}"
    if all(isinstance(model, RecordedModel) for model in config.models.values()):
        yield "seeds.looks: recorded completions are not trained on, so there is nothing to look at: list the seeds"
    most = len(looks.looks) * (2 if looks.waiting else 1)
    if looks.until is not None and looks.until > most:
        yield f"seeds.until={looks.until}: there are at most {most} looks: lower it, or drop the key"
    if looks.waiting and config.probe.compare:
        yield "seeds.waiting: probe.compare trains every K of the first seed before the looks: drop one of the two"
    for k in looks.waiting:
        if k not in config.warmup.steps or k in (0, max(config.warmup.steps)):
            yield f"seeds.waiting: K={k} is not between the ends of warmup.steps {config.warmup.steps}: remove it"


def all_weights_mistakes(config: Config) -> Iterator[str]:
    """What does not go with `lora: none`, as the model sees it: key and fix."""
    found = by_section(expanded(config)) if config.lora.trains_all else {}
    online = [where for where, arms in found.items() if arms[0].phase == "online" and any(arm.points for arm in arms)]
    if config.engine.name == "vllm" and online:
        yield (
            f"lora: none: vLLM beside a trainer ({online[0]}) takes adapters over and no whole weights: set "
            "engine.name to transformers, or configure an adapter"
        )
    if config.training.processes > 1 and found:
        yield "lora: none trains in one process: set training.processes to 1, or configure an adapter"
    for where, arms in found.items():
        if getattr(arms[0].settings, "float32_logits", False):
            yield f"{where}.float32_logits: lora: none trains the head in float32 already: drop the key"


# -------------------------------------------------------------------------------------------------------- problems


def impossible_draws(config: Config) -> Iterator[str]:
    """What is asked of generated problems and does not exist; of others, the first stage that reads them says so."""
    for name, source in config.problem_sources.items():
        if isinstance(source, SyntheticProblems):
            try:
                generated.require_capacity(source)
            except ValueError as error:
                yield f"{place_of(name)}.n: {error}"
    if not isinstance(config.pool, SyntheticProblems) or is_open_ended(config.pool):
        return
    there = generated.levels_of(config.pool)
    pinned = [("calibration", config.calibration.levels)]
    for model, entry in config.models.items():
        own = entry.settings.get("calibration")
        if isinstance(own, Mapping):
            pinned.append((f"models.{model}.settings.calibration", own.get("levels", "auto")))
    for where, levels in pinned:
        for level in levels if isinstance(levels, list) else []:
            if level not in there:
                yield f"{where}.levels: the pool has no level {level}: choose from {there[0]} to {there[-1]}"


def unknown_benchmarks(config: Config) -> Iterator[str]:
    """Benchmarks whose questions M0 is to continue, and which are none."""
    for name in config.continued_benchmarks:
        if name not in config.benchmarks:
            there = ", ".join(config.benchmarks)
            yield f"contamination.benchmarks: {name} is no benchmark ({there}): add it there or drop it"


# ------------------------------------------------------------------------------------------ ablations and entries


def check_warmup(config: Config, where: str, warmup: Warmup, model: str) -> None:
    """Refuse a warm-up that the engine or the adapter does not allow."""
    if warmup.sync_every > 1 and config.engine.name != "vllm":
        raise ValueError(
            f"{where}.sync_every={warmup.sync_every} needs engine.name: vllm, because {config.engine.name} "
            "generates with the weights in training: set it to 1 or change the engine"
        )
    weighs = config.engine.name == "vllm" or warmup.has_buffer or warmup.lag > 0
    if (idle := warmup.correction_keys) and not weighs:
        raise ValueError(
            f"{where}.{next(iter(idle))} needs engine.name: vllm, a lag or a replay buffer, because "
            f"{config.engine.name} computes what the trainer computes and nothing is corrected: drop the key or change "
            "the engine"
        )
    if warmup.off_policy_mask_threshold is not None and not weighs and warmup.updates_between_generations == 1:
        raise ValueError(
            f"{where}.off_policy_mask_threshold masks nothing, because {config.engine.name} samples from the policy in "
            "training: set lag or replay.buffer, or updates_per_generation or iterations above 1, or drop the key"
        )
    if warmup.loss == "vespo" and weighs and warmup.ratio == "sampler" and not warmup.weighs_tokens:
        raise ValueError(
            f"{where}.loss: vespo takes the weights of tokens into its own, and correction is {warmup.correction}: set "
            "it to token_truncate or token_mask"
        )
    if warmup.float32_logits and "lm_head" in config.lora.target_modules:
        raise ValueError(f"{where}.float32_logits: TRL refuses it where lora.target_modules has lm_head: drop either")
    if warmup.replay is not None:
        step = warmup.replay.harvest_step
        if step and where == "warmup":
            raise ValueError(
                f"warmup.replay.harvest_step={step} is a harvest of the policies that it would train: set it to 0, or "
                "give an ablation a warm-up with replay"
            )
        require_steps(f"{where}.replay.harvest_step", step, "warmup.steps", config.warmup.steps, model)
    if warmup.reference == "sync" and config.lora.dropout > 0:
        raise ValueError(
            f"{where}.reference: sync needs lora.dropout: 0, because with {config.lora.dropout:g} the policy differs "
            "from itself as reference: change either"
        )


def check_ablation(config: Config, name: str, ablation: Ablation, model: str) -> None:
    """Refuse an ablation that a model's other sections do not allow."""
    where = f"ablations.{name}"
    dpo, steps = config.ablation_dpo(name), config.ablation_steps(name)
    if ablation.reward is not None:
        require_reward(config, f"{where}.reward", ablation.reward)
    elif ablation.has_warmup and 0 in steps:
        raise ValueError(f"{where}: at K=0 there is no warm-up to change: drop 0 from steps")
    if ablation.policies == ["grpo"] and not any(steps):
        raise ValueError(f"{where}: at K=0 no GRPO is trained: add a K to steps, or dpo to policies")
    if dpo.start == "warmup" and 0 in steps:
        raise ValueError(f"{where}: at K=0 there is no warm-up to start from: drop 0 from steps")
    if not steps:
        raise ValueError(f"{where}: warmup.steps {config.warmup.steps} of {model} has no K for it: add one")
    own = config.warmup_of(name if ablation.has_warmup else "")
    check_warmup(config, f"{where}.warmup", own, model)
    if own.advantages == "sign" and (scalar := _scalar_reward(config, ablation)):
        raise ValueError(
            f"{where}.warmup.advantages: sign is about right and wrong answers, and {scalar} is a scalar reward: set "
            "it to group, or choose a binary reward"
        )
    try:
        ablation.open_ended_of(own.completions_per_step(own.group_sizes[0]) // own.group_sizes[0])
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from None
    if ablation.prompts == "mixed" and (own.retire or own.resample or own.replay):
        raise ValueError(f"{where}.prompts: mixed: retire, resample and replay would change the proportions: drop them")
    if ablation.asks_open_ended and own.reference == "sync" and own.reference_every == "pass":
        raise ValueError(
            f"{where}.warmup.reference_every: pass is one over verifiable prompts alone: write a number of steps"
        )
    whose = "its steps" if ablation.has_warmup else "warmup.steps"
    require_steps(where, steps, whose, own.steps, model)
    require_steps(where, dpo.match_pairs_to, whose, own.steps, model)


def _scalar_reward(config: Config, ablation: Ablation) -> str | None:
    """The first of an ablation's rewards in training that is not binary, by name."""
    judges = [ablation.reward]
    judges += [config.open_ended.reward] if ablation.asks_open_ended and config.open_ended else []
    return next((name for name in judges if name in config.rewards and is_scalar(config.rewards[name])), None)


def require_reward(config: Config, where: str, name: str) -> None:
    """Refuse a reward without an entry."""
    if name not in config.rewards:
        raise ValueError(
            f"{where}: {name} is no entry of rewards ({', '.join(config.rewards) or 'none'}): add it there"
        )


def check_entry(config: Config, name: str, model: str) -> None:
    """Refuse an entry that the other sections, with a model's own settings in them, do not go with."""
    entry, where = config.regimes[name], f"regimes.{name}"
    if isinstance(entry, OnlineEntry):
        if entry.reward is not None:
            require_reward(config, f"{where}.reward", entry.reward)
        for mistake in entry.mistakes(model, config.training_set.n, config.lora.dropout):
            raise ValueError(f"{where}.{mistake}")
        if entry.start != "base":
            _check_start(config, name, entry, model)
        return
    if entry.phase == "rounds":
        try:
            entry.dpo_of(config.dpo)
        except ValueError as error:
            raise ValueError("\n".join(f"{where}.{line}" for line in str(error).splitlines())) from None
        return
    harvested = config.ablations.get(entry.harvest) or config.regimes.get(entry.harvest)
    has_harvests = harvested.has_warmup if isinstance(harvested, Ablation) else isinstance(harvested, OnlineEntry)
    if entry.harvest and not has_harvests:
        raise ValueError(
            f"{where}.harvest: {entry.harvest} is neither an ablation with a warm-up of its own nor an entry of "
            "regimes that is trained on fresh rollouts: name one, or leave the key out for the main grid's harvests"
        )
    if harvested is not None and harvested.asks_open_ended:
        raise ValueError(
            f"{where}.harvest: {entry.harvest} asks open-ended prompts, of which no harvest is drawn: drop it"
        )
    if isinstance(harvested, OnlineEntry) and harvested.auto is not None:
        raise ValueError(
            f"{where}.harvest: {entry.harvest} stops by itself: have DPO on its harvest by its own policies, or name "
            "another"
        )
    whose, there = f"steps of {entry.harvest}" if entry.harvest else "warmup.steps", harvested_steps(config, name)
    require_steps(f"{where}.steps", entry.steps, whose, there, model)
    if entry.start == "warmup" and entry.steps != "all" and 0 in entry.steps:
        raise ValueError(f"{where}.steps: at K=0 there is no warm-up to start from: drop 0 from {entry.steps}")
    if not entry_steps(config, name):
        raise ValueError(f"{where}: {whose} {there} of {model} has no K for it: add one")


def _check_start(config: Config, name: str, entry: OnlineEntry, model: str) -> None:
    """Refuse a start that is no policy on the way of another online training."""
    where, online = f"regimes.{name}", {n: e for n, e in config.regimes.items() if isinstance(e, OnlineEntry)}
    path = [name, entry.start]
    while path[-1] not in ("base", "warmup"):
        if path[-1] not in online:
            raise ValueError(
                f"{where}.start: {path[-1]} is no entry of regimes that is trained on fresh rollouts: name one, or "
                "write base or warmup"
            )
        if path[-1] in path[:-1]:
            raise ValueError(f"{where}.start: {' from '.join(path)}: start one of them from base or warmup")
        path.append(online[path[-1]].start)
    whose, steps = f"steps of {entry.start}", online[entry.start].steps if entry.start in online else []
    if entry.start in online and online[entry.start].auto is not None:
        raise ValueError(f"{where}.start: {entry.start} stops by itself, at a K that is not known: name another")
    if entry.start == "warmup":
        whose, steps = "warmup.steps", config.warmup.steps
    require_steps(f"{where}.start_step", entry.start_step, whose, steps, model)


def _check_teacher(config: Config, name: str, model: str) -> None:
    """Refuse a teacher that is no policy of the grid, or that learns from its own pupil."""
    where, entry, found = f"regimes.{name}", config.regimes[name], {arm.name: arm for arm in expanded(config)}
    if entry.teacher not in found or not found[entry.teacher].points:
        others = ", ".join(arm.name for arm in found.values() if arm.points and arm.name.partition("/")[0] != name)
        raise ValueError(f"{where}.teacher: {entry.teacher} is no policy of this grid: choose from {others}")
    if teacher_of(found, found[name]) is None:
        raise ValueError(
            f"{where}.teacher_step: {entry.teacher} has no K={entry.teacher_step} for {model}: choose from "
            f"{sorted({k for _, k in found[entry.teacher].points})}"
        )
    behind, new = set[str](), [entry.teacher]
    while new:
        arm = found[new.pop()]
        behind.add(arm.name)
        before = [arm.source, *(policy[0] for policy in (arm.start, teacher_of(found, arm)) if policy)]
        new += [other.name for other in before if other is not None and other.name not in behind]
    if name in behind:
        raise ValueError(f"{where}.teacher: {entry.teacher} is itself made from {name}: choose another")


# ----------------------------------------------------------------------------------------------------------- the sweep


def sweep_mistakes(config: Config) -> Iterator[str]:
    """What is asked of the sweep and cannot be: key and fix."""
    sweep = config.sweep
    if sweep is None:
        return
    for model, source in config.models.items():
        if isinstance(source, RecordedModel):
            yield f"sweep: {model} has recorded completions and is not trained: drop the model or the sweep"
        for name, keys in sweep.regimes.items():
            if both := sorted(set(keys) & set(source.settings.get(name, {}))):
                yield f"models.{model}.settings.{name}.{both[0]}: the sweep chooses it: drop one of them"
    n, pool = held_out(config), config.pool
    for model in config.models:
        if not n or not isinstance(pool, SyntheticProblems):
            break
        if n + (wanted := config.for_model(model).training_set.n) > pool.n:
            yield (
                f"sweep.development: {n} problems held out of the pool's {pool.n} leave fewer than the training_set.n="
                f"{wanted} of {model}: lower one of them or enlarge the pool"
            )
    if unknown := sorted(set(sweep.at) - set(sweep.regimes)):
        yield f"sweep.at.{unknown[0]}: is not swept: choose from {', '.join(sweep.regimes)}"
    found = [line for name in sweep.regimes for line in _mistakes_in_keys(config, name)]
    yield from found
    if not found:
        yield from _mistakes_in_candidates(config)


def _mistakes_in_keys(config: Config, name: str) -> Iterator[str]:
    assert config.sweep is not None
    where, lists = f"sweep.regimes.{name}", config.sweep.regimes[name]
    if name not in (known := [*SECTIONS, *config.ablations, *config.regimes]):
        yield f"{where}: is no section, ablation or entry of regimes: choose from {', '.join(known)}"
        return
    if not lists:
        yield f"{where}: name a key with the values to try"
    tuned, section = tuning_keys(type(swept_section(config, name))), section_name(config, name)
    for own, values in lists.items():
        if name in config.ablations and own in getattr(config.ablations[name], section):
            yield f"ablations.{name}.{section}.{own}: the sweep chooses it: drop one of them"
        if own not in tuned:
            yield f"{where}.{own}: no number that {name} is tuned by: choose from {', '.join(tuned)}"
        elif len(values) < 2:
            yield f"{where}.{own}: {values} leaves nothing to choose: list two values or more, or drop the key"
        elif repeated(values):
            yield f"{where}.{own}: values repeat: {values}"


def tuning_keys(section: type[Section]) -> list[str]:
    """The keys of a section that can be swept: they change how far a training goes from the same start on the same
    kind of data, and neither which files there are nor what a K counts."""
    numbers = (float, float | None)
    return [
        name
        for name, field in section.model_fields.items()
        if (field.annotation in numbers and name not in PromptMix.model_fields) or name in COUNTS
    ]


def _mistakes_in_candidates(config: Config) -> Iterator[str]:
    """Whatever may be chosen must go with the rest of the grid."""
    try:
        tried = candidates(config)
        grids = [with_candidates(config)]
        grids += [with_choices(config, {candidate.swept: dict(candidate.values)}) for candidate in tried]
    except ValueError as error:
        yield from str(error).splitlines()
        return
    for whole in grids:
        for model in config.models:
            try:
                check_model(whole.for_model(model), model)
            except ValueError as error:
                yield from str(error).splitlines()


# ------------------------------------------------------------------------------------- prompts without a right answer


def open_ended_mistakes(config: Config) -> Iterator[str]:
    """What is asked of open-ended prompts and cannot be: key and fix."""
    for name, source in config.problem_sources.items():
        if is_open_ended(source) and name not in OPEN_ENDED_SETS:
            yield f"{place_of(name)}.family: replies have no right answer: name them in open_ended, or another family"
    asking = {where: own for where, own in config.further.items() if isinstance(own, PromptMix) and own.asks_open_ended}
    for where, own in asking.items():
        if config.open_ended is None:
            yield f"{where}.prompts: there are no open-ended prompts: add the section open_ended"
        elif getattr(own, "sync_every", None) == "pass":
            yield f"{where}.sync_every: pass is one over verifiable prompts alone: write a number of updates"
    if (section := config.open_ended) is None:
        return
    for name, source in section.sources.items():
        if isinstance(source, SyntheticProblems) and not is_open_ended(source):
            yield f"{place_of(name)}.family: {source.family} has right answers: write replies"
    for where, chosen in (("reward", section.reward), ("judge", section.judged_by)):
        if chosen not in config.rewards:
            there = ", ".join(config.rewards) or "none"
            yield f"open_ended.{where}: {chosen} is no entry of rewards ({there}): add it there"
        elif reward_of(config.rewards[chosen])[0].needs_reference:
            yield f"open_ended.{where}: {chosen} looks at the right answer, and there is none: choose a reward model"
