"""The grid: the policies, harvests and trainings of a configuration, from its arms (`g2d.experiment.arms`).

The Snakefile turns them into jobs and the tables into rows, so both agree on what exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from statistics import mean
from typing import Any

from g2d.experiment.arms import Arm, Point, all_behind, any_arms, arms, harvests_read, online_arm, teacher_of
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.experiment.race import n_seeds, whole
from g2d.experiment.sections import Ablation, Config
from g2d.experiment.sweep import Candidate, candidates, sweep_seed, with_candidates
from g2d.policies.policy import Policy
from g2d.policies.settings import EmbeddedModel, RecordedModel, ScratchModel
from g2d.regimes.run.prompts import PromptMix
from g2d.regimes.run.training import AUTO
from g2d.rewards.catalogue import TRUTH, words_of
from g2d.settings.cached_method import cached_method

FEWEST_K = 4  # beside 0, for a curve with three parameters


def is_recorded(config: Config, model: str) -> bool:
    """Whether a model is a file of recorded completions, which can be analysed but not trained."""
    return isinstance(config.models[model], RecordedModel)


def is_embedded(config: Config, model: str) -> bool:
    """Whether this M0 is the embedded model, shipped or trained here, which is too small to hold a GPU."""
    return isinstance(config.models[model], EmbeddedModel | ScratchModel)


def trained_models(config: Config) -> list[str]:
    """The models that are trained: all but recorded completions."""
    return [model for model in config.models if not is_recorded(config, model)]


# --------------------------------------------------------------------------------------------------------- policies


@cached_method
def policies(config: Config) -> list[PolicyKey]:
    """Every policy that is evaluated, M0 first, then as `ROLES` has them."""
    found = []
    for model in trained_models(config):
        found.append(PolicyKey(model, "base", 0, 0, None))
        for arm in arms(config, model).values():
            asked_for = keys(config, model, arm, arm.evaluated)
            found += [key for key in asked_for if key.seed in config.seeds[: n_seeds(config, key)]]
    return found


def evaluated_arms(config: Config) -> dict[str, Arm]:
    """Those of `any_arms` that have evaluated policies."""
    named = {key.regime for key in policies(config)}
    return {name: arm for name, arm in any_arms(config).items() if name in named}


def keys(config: Config, model: str, arm: Arm, points: Iterable[Point]) -> Iterator[PolicyKey]:
    """The policies of an arm, of all seeds."""
    return (key_of(config, model, arm, point, seed) for point in points for seed in config.seeds)


def key_of(config: Config, model: str, arm: Arm, point: Point, seed: int) -> PolicyKey:
    """One policy of an arm."""
    start, teacher = arm.online.start, teacher_of(arms(config, model), arm.online)
    is_curve = arm.name == "grpo" and point[1] < max(arm.settings.steps)
    return PolicyKey(
        *(model, arm.name, *point, seed),
        kind=arm.regime,
        role="curve" if is_curve else arm.role,
        online="grpo" if arm.online.phase == "rounds" else arm.online.regime,
        reward=other_reward(config, arm.variant),
        stops=arm.stops,
        start=None if start is None else key_of(config, model, *start, seed),
        teacher=None if teacher is None else key_of(config, model, *teacher, seed),
        selected=arm.selected,
    )


def side_by_side(config: Config) -> dict[tuple[str, str], list[PolicyKey]]:
    """The policies whose answers the page shows beside each other, by model and benchmark: the main grid's, first seed.
    A model with fewer than two of them is left out."""
    main = [key for key in policies(config) if key.role in ("base", "dpo", "auto", "grpo")]
    first = [key for key in main if key.seed in (None, config.seeds[0])]
    by_model = {model: [key for key in first if key.model == model] for model in config.models}
    return {(model, name): own for model, own in by_model.items() if len(own) > 1 for name in config.benchmarks}


def has_curves(config: Config) -> bool:
    """Whether some online training is evaluated at enough K to fit a curve (saturation.csv)."""
    found = {key.over_seeds for key in policies(config) if key.on_a_curve}
    sizes = Counter((key.model, key.regime, key.group_size) for key in found)
    return max(sizes.values(), default=0) >= FEWEST_K


@cached_method
def trainings(config: Config) -> list[PolicyKey]:
    """Every policy that is trained: those that are evaluated, then the online ones that are harvested or continued.
    After a look, those that it asks for and all that they are made from."""
    if config.reached is not None:
        needed = set(with_all_behind(config, policies(config)))
        return [key for key in trainings(whole(config)) if key in needed]
    found = [key for key in policies(config) if key.role != "base" and not key.selected]
    for roles in (("grpo", "ablation", "entry"), ("auto",)):
        for model, role in product(trained_models(config), roles):
            for arm in arms(config, model).values():
                if arm.role == role and arm.phase == "online" and not arm.selected:
                    found += keys(config, model, arm, arm.points)
    return list(dict.fromkeys(found))


def auto_warmups(config: Config) -> list[PolicyKey]:
    """Every warm-up that stops by itself; not evaluated, DPO on its harvest is."""
    return [key for key in trainings(config) if key.role == "auto" and key.trained_online]


def with_all_behind(config: Config, found: Iterable[PolicyKey]) -> list[PolicyKey]:
    """Policies, each after all that it is made from."""
    known: dict[PolicyKey, None] = {}
    for key in found:
        if key.seed is not None:
            own = arms(config, key.model)
            behind = reversed(all_behind(own, (own[key.regime], (key.group_size, key.k))))
            known |= {key_of(config, key.model, arm, point, key.seed): None for arm, point in behind}
        known[key] = None
    return list(known)


def trajectories(config: Config) -> dict[PolicyKey, list[PolicyKey]]:
    """The stops of every online training, K ascending, by the last of them, whose log has all steps up to its K; where
    every K is a training of its own (`warmup.schedule: per_k`) the last one stands alone."""
    found: dict[PolicyKey, list[PolicyKey]] = {}
    for key in trainings(config):
        if key.trained_online:
            found.setdefault(replace(key, k=0), []).append(key)
    ways = [sorted(stops, key=lambda key: key.k) for stops in found.values()]
    own = {stops[-1]: arms(config, stops[-1].model)[stops[-1].regime].settings for stops in ways}
    return {stops[-1]: stops[-1:] if getattr(own[stops[-1]], "schedule", "") == "per_k" else stops for stops in ways}


def selecting(config: Config) -> dict[str, str]:
    """By the name of a policy that is a selected checkpoint, the ablation or the online entry it belongs to."""
    return {arm.name: arm.name.partition("/")[0] for arm in any_arms(config).values() if arm.selected}


def chosen_by(config: Config, name: str) -> list[str]:
    """The kinds of development prompts that a training's checkpoints are selected by: those that it asks."""
    return online_arm(any_arms(config), name).asked.kinds


def checkpoints(config: Config) -> dict[PolicyKey, list[PolicyKey]]:
    """By every policy that is a selected checkpoint, those that it is selected from, K ascending: all K of one
    training, which need not be evaluated themselves."""
    found = {}
    for key in policies(config):
        if key.selected:
            arm = arms(config, key.model)[key.regime]
            found[key] = [replace(key, regime=arm.online.name, k=k, selected=False) for _, k in arm.points]
    return found


def candidate_policies(config: Config) -> list[tuple[Candidate, PolicyKey]]:
    """The policies that a sweep chooses between, of every model: evaluated on its development problems alone, and no
    part of `policies`. Where there are several group sizes, they have the first one."""
    found, tried = [], with_candidates(config)
    for model in config.models:
        evaluated = [arm for arm in arms(tried, model).values() if arm.evaluated]
        for candidate in candidates(config):
            (arm,) = (arm for arm in evaluated if candidate.name in arm.name.split("/"))
            found.append((candidate, key_of(tried, model, arm, arm.evaluated[0], sweep_seed(config))))
    return found


def with_steps_taken(records: Mapping[PolicyKey, Policy]) -> list[PolicyKey]:
    """The policies with the K that tables show; where one stops by itself or is selected, every seed decides alone, and
    K is the mean of their steps, rounded."""
    taken: dict[PolicyKey, list[int]] = {}
    for key, record in records.items():
        if key.stops or key.selected:
            taken.setdefault(key.over_seeds, []).append(record.k)
    return [
        replace(key, steps_taken=round(mean(taken[key.over_seeds]))) if key.over_seeds in taken else key
        for key in records
    ]


# --------------------------------------------------------------------------------------------------------- harvests


def harvests(config: Config) -> list[HarvestKey]:
    """Every harvest of the main grid; recorded completions are that of M0."""
    found = [
        HarvestKey(model, g, k, seed)
        for model in config.models
        for seed in config.seeds
        for g, k in ([(0, 0)] if is_recorded(config, model) else arms(config, model)["dpo"].points)
    ]
    if config.reached is None:
        return found
    needed = set()
    for key in with_all_behind(config, trainings(config)):
        assert key.seed is not None
        own = arms(config, key.model)
        read = harvests_read(own, own[key.regime], (key.group_size, key.k))
        needed |= {HarvestKey(key.model, *point, key.seed, variant) for variant, point in read}
    return [key for key in found if key in needed or is_recorded(config, key.model)]


def probes(config: Config) -> list[HarvestKey]:
    """The harvests that are probed: the first seed's."""
    return [key for key in harvests(config) if key.seed == config.seeds[0]]


def variants(config: Config) -> list[str]:
    """Whatever has a harvest of its own beside the main grid: ablations with another warm-up, online entries of
    `regimes` whose harvest is trained on, those in rounds, and the warm-up that stops by itself, if any."""
    known = any_arms(config).values()
    found = [arm for arm in known if arm.source is None and arm.variant]
    harvested = {arm.source.name for arm in known if arm.source and not arm.selected}
    own = [arm for arm in found if arm.role == "ablation"]
    own += [arm for arm in found if arm.role == "entry" and arm.phase == "online" and arm.name in harvested]
    own += [arm for arm in found if arm.phase == "rounds" and arm.points[-1][1] > 1]
    return [arm.variant for arm in own] + [AUTO] * bool(auto_warmups(config))


def factorial_files(config: Config, model: str) -> dict[str, str]:
    """Calibration rollouts by temperature, of a model that is calibrated at several; of others, none."""
    calibration = config.for_model(model).calibration
    if is_recorded(config, model) or not calibration.factorial_temperatures:
        return {}
    folder = f"results/{model}/calibration"
    further = {f"{t:g}": f"{folder}/t{t:g}/rollouts.parquet" for t in calibration.factorial_temperatures}
    return {f"{calibration.temperature:g}": f"{folder}/rollouts.parquet", **further}


# --------------------------------------------------------------------------------------------------------- samples


def sample_files(config: Config) -> dict[tuple[PolicyKey, str], str]:
    """By policy and benchmark, the file of several answers to every problem (pass@k, maj@n): drawn beside the greedy
    ones, or the evaluation itself where that samples."""
    places = _samples(config, "samples") | _samples(config, "eval")
    return {at: f"results/{place}.parquet" for at, place in places.items()}


def drawn_beside(config: Config) -> dict[tuple[PolicyKey, str], str]:
    """By policy and benchmark, where a job of its own leaves samples and their bill: relative and without an ending."""
    return _samples(config, "samples")


def drifts(config: Config) -> dict[tuple[PolicyKey, str], str]:
    """By trained policy and benchmark, where its divergence from M0 and the bill of that are, in the same way."""
    measured = [key for key in policies(config) if key.role != "base"] if config.drift else []
    return {(key, name): f"{key.folder}/drift/{name}" for key in measured for name in config.benchmarks}


def _samples(config: Config, folder: str) -> dict[tuple[PolicyKey, str], str]:
    return {
        (key, benchmark): f"{key.folder}/{folder}/{benchmark}"
        for key in policies(config)
        if (sampled := config.for_model(key.model).evaluation.sampled) is not None
        and sampled.n > 1
        and sampled.beside_greedy == (folder == "samples")
        for benchmark in config.benchmarks
    }


# --------------------------------------------------------------------------------- ablations, rewards, and controls


def ablation_changes(config: Config) -> dict[str, dict[str, Any]]:
    """By the name of an ablation's policies, the keys that it changes, with their values."""
    return {
        name: {
            **dict(_flat("warmup", arm.written.warmup)),
            **({} if arm.written.reward is None else {"reward": arm.written.reward}),
            **arm.written.params(only={*PromptMix.model_fields, "select"}),
            **(arm.written.dpo if arm.regime == "dpo" else {}),
        }
        for name, arm in evaluated_arms(config).items()
        if arm.role == "ablation"
    }


def _flat(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        at = f"{path}.{key}"
        yield from _flat(at, value) if isinstance(value, Mapping) else [(at, value)]


def other_reward(config: Config, variant: str) -> str:
    """In words, what the policies behind a variant's harvests are trained on; "" where that is the truth."""
    arm = online_arm(any_arms(config), variant)
    settings = TRUTH if arm.reward is None else config.rewards[arm.reward]
    return "" if settings == TRUTH else words_of(settings)


def controls(config: Config) -> dict[str, str]:
    """By the name of a policy that was trained on another reward than the truth, that of the policy it is a control of,
    which differs from it in nothing else."""
    found = [arm for arm in evaluated_arms(config).values() if hasattr(arm.written, "reward")]
    found.sort(key=lambda arm: arm.role != "ablation")
    twins = {arm.name: _twin(config, arm, found) for arm in found if other_reward(config, arm.variant)}
    return {name: twin for name, twin in twins.items() if twin}


def _twin(config: Config, control: Arm, others: Iterable[Arm]) -> str | None:
    own = control.written
    of_main = isinstance(own, Ablation) and not own.warmup and not own.asks_open_ended
    if of_main and (control.regime == "grpo" or not own.dpo):
        return control.regime
    same = [
        other
        for other in others
        if not other_reward(config, other.variant) and _but_for_the_reward(other.written) == _but_for_the_reward(own)
    ]
    return next((o.name for o in same if o.written is same[0].written and o.regime == control.regime), None)


def _but_for_the_reward(written: Any) -> Any:
    """What else there is to an ablation or an online entry, whatever its K."""
    if isinstance(written, Ablation):
        return written.warmup, written.dpo, written.params(only={*PromptMix.model_fields, "select"})
    return written.regime, written.select, written.trajectory()


def learnt_from(config: Config, key: PolicyKey) -> str:
    """The rollouts that a policy of an ablation or an online entry was trained on: its own, or those of its harvest."""
    if key.trained_online:
        return f"results/{key.folder}/rollouts.parquet"
    return f"results/{harvest_of(config, key).folder}/rollouts.parquet"


def harvest_of(config: Config, key: PolicyKey) -> HarvestKey:
    """The harvest that a policy is trained on."""
    assert key.seed is not None
    variant = arms(config, key.model)[key.regime].variant
    return HarvestKey(key.model, key.group_size, key.k, key.seed, variant)


def harvests_of_controls(config: Config) -> list[HarvestKey]:
    """The harvests that another reward than the truth has judged and DPO is trained on, of the first seed."""
    trained = [key for key in policies(config) if key.reward and key.kind == "dpo" and key.seed == config.seeds[0]]
    return [harvest_of(config, key) for key in trained]
