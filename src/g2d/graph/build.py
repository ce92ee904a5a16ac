"""The table of jobs of a configuration, with one function per stage.

`Jobs.behind` selects the jobs of a target. Only `g2d.graph.finished` reads results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import chain, product
from typing import Any

from g2d.experiment import grid
from g2d.experiment.arms import Arm, Point, arms, online_arm
from g2d.experiment.config import Config
from g2d.experiment.keys import HarvestKey
from g2d.graph.finished import continued_step
from g2d.graph.job import Deferred, Files, Job, Jobs, Wildcards, job_of, key_of, model_of, problems_of
from g2d.graph.params import Params
from g2d.graph.summaries import summaries
from g2d.policies import embedded
from g2d.policies.settings import CONVERTED, MADE, model_files
from g2d.problems.settings import HELD_OUT, OPEN_ENDED, problem_files
from g2d.regimes.catalogue import REGIMES
from g2d.regimes.regime import Phase
from g2d.rewards.catalogue import reward_of
from g2d.settings.cached_method import cached_method

Param = Callable[[], Any]  # computes a param of a job when it is needed


@cached_method
def build(config: Config, after: bool = False) -> Jobs:
    """Return the table of jobs.

    Args:
        after: read finished results (`g2d.graph.finished`) on lookup; otherwise plan for an empty folder.
    """
    return Jobs(chain(_Stages(config, after).jobs(), summaries(config)))


def grid_jobs(config: Config) -> list[Job]:
    """Return the jobs of the target `all` in an empty folder."""
    return build(config).behind("all")


class _Stages:
    def __init__(self, config: Config, after: bool) -> None:
        self.config, self.after = config, after
        self.params_of = cache(partial(Params, config))

    def jobs(self) -> Iterator[Job | Deferred]:
        yield from self.problems()
        yield from map(self.base_model, self.config.models)
        yield from chain.from_iterable(map(self.calibration, self.config.models))
        yield from self.trainings("online")
        yield from self.harvests()
        yield from self.trainings("offline")
        yield from self.evaluations()
        yield from self.measurements()

    # ---------------------------------------------------------------------------------------------- problems and models

    def problems(self) -> Iterator[Job]:
        for name, source in self.config.problem_sources.items():
            made = {"problems": problems_of(name), "manifest": f"results/problems/{name}.manifest.json"}
            state = {"source": source.params(without={"select_by"})}
            yield job_of("load_problems", {"": problem_files(source)}, made, _fixed(state), set=name)
        pools = dict.fromkeys(self.config.benchmarks, problems_of("pool"))
        if self.config.open_ended:
            pools[HELD_OUT] = problems_of(OPEN_ENDED)
        for name, pool in pools.items():
            given = {"pool": pool, "benchmark": problems_of(name)}
            yield job_of("check_leakage", given, {"": f"results/problems/{name}.leakage.json"}, benchmark=name)

    def base_model(self, model: str) -> Job:
        source, folder = self.config.models[model], f"results/{model}/base"
        rule = {name: f"{name}_model" for name in MADE}.get(source.source, "pretrained_model")
        state: dict[str, Any] = {"source": source.params(without={"settings"})}
        made: dict[str, Files] = {"policy": f"{folder}/policy.json"}
        if source.source == "embedded":
            state["files"] = embedded.digests()
        if source.source in MADE:
            made["files"] = [f"{folder}/model/{name}" for name in state.get("files", CONVERTED)]
        given = {"": model_files(source)}
        return job_of(rule, given, made, _fixed(state), model=model)

    def base_files(self, model: str) -> list[str]:
        folder, made = f"results/{model}/base", self.config.models[model].source in MADE
        return [f"{folder}/policy.json", *([f"{folder}/model/model.safetensors"] if made else [])]

    def calibration(self, model: str) -> Iterator[Job]:
        folder, params = f"results/{model}/calibration", self.params_of(model)
        given: dict[str, Files] = {"": self.base_files(model), "policy": f"results/{model}/base/policy.json"}
        given["pool"] = problems_of("pool")
        yield self._generation("calibrate", given, f"{folder}/rollouts", {"model": model}, params.calibration)
        for temperature in list(grid.factorial_files(self.config, model))[1:]:
            at, wildcards = f"{folder}/t{temperature}/rollouts", {"model": model, "temperature": temperature}
            settings = partial(params.calibration, temperature)
            yield self._generation("calibrate_temperature", given, at, wildcards, settings)
        given = {"rollouts": f"{folder}/rollouts.parquet", "pool": problems_of("pool")}
        made = {"levels": f"{folder}/levels.csv", "problems": _training_set(model)}
        yield job_of("select_training_set", given, made, _stated(settings=params.training_set), model=model)

    # -------------------------------------------------------------------------------------------------------- policies

    def trainings(self, phase: Phase) -> Iterator[Job | Deferred]:
        for model, seed in product(self.config.models, self.config.seeds):
            for arm in arms(self.config, model).values():
                for point in arm.points if arm.phase == phase else ():
                    yield self.training(model, seed, arm, point)

    def training(self, model: str, seed: int, arm: Arm, point: Point) -> Job | Deferred:
        if arm.phase != "online" or arm.stops:
            return self._training(model, seed, arm, point)
        if not self.after:
            return self._training(model, seed, arm, point, arm.before(*point))
        key = key_of(*self._rule_and_wildcards(model, seed, arm, point))
        return Deferred(key, partial(self._continued, model, seed, arm, point))

    def _continued(self, model: str, seed: int, arm: Arm, point: Point) -> Iterator[Job | Deferred]:
        params = self.params_of(model)
        record, settings = f"{_policy(model, seed, arm, point)}/policy.json", partial(params.training, arm, point)
        continues = continued_step(record, settings, arm.before(*point))
        yield self._training(model, seed, arm, point, continues)
        if continues is not None:
            yield self.training(model, seed, arm, (point[0], continues))

    @staticmethod
    def _rule_and_wildcards(model: str, seed: int, arm: Arm, point: Point) -> tuple[str, dict[str, str]]:
        regime, (variant, slash, last) = REGIMES[arm.regime], arm.name.rpartition("/")
        online, wildcards = arm.phase == "online", _place(model, seed, point)
        stops = online and arm.stops
        if regime.section != "warmup":
            wildcards["regime"] = last
        if regime.section and not stops:
            wildcards["variant"] = variant + slash
        return f"train_{regime.name}{'_auto' if stops else ''}", wildcards

    def _training(self, model: str, seed: int, arm: Arm, point: Point, continues: int | None = None) -> Job:
        folder, params = _policy(model, seed, arm, point), self.params_of(model)
        read = [_harvest(model, seed, *harvest) for harvest in arm.harvests_read(point)]
        outputs: dict[str, Files] = {}
        if arm.phase == "offline":
            given = self.offline_inputs(model, seed, arm, point, read)
            warmed_up = self.warmed_up(model, seed, arm.source or arm, point)
            given["start"] = warmed_up if arm.settings.start == "warmup" else []
            given["costs"] = f"{_harvest(model, seed, arm.variant, point)}/cost.json"
        else:
            before = [] if continues is None else [_policy(model, seed, arm, (point[0], continues))]
            given = self.online_inputs(model, seed, arm, before)
            left = ("rollouts.parquet", "probes.csv") if arm.stops else ("checkpoint", "rollouts.parquet")
            outputs |= {name.partition(".")[0]: f"{folder}/{name}" for name in left}
        given |= {"": self.base_files(model), "base": f"results/{model}/base/policy.json"}
        outputs |= self.policy_outputs(folder)
        outputs |= {"metrics": f"{folder}/metrics.jsonl", "cost": f"{folder}/cost.json"}
        devices = self.config.for_model(model).training.processes
        rule, wildcards = self._rule_and_wildcards(model, seed, arm, point)
        state = _stated(settings=partial(params.training, arm, point))
        return Job(rule, Wildcards(**wildcards), given, outputs, state, arm, continues, devices)

    def online_inputs(self, model: str, seed: int, arm: Arm, before: list[str]) -> dict[str, Files]:
        starts = [] if arm.start is None else [_policy(model, seed, *arm.start)]
        bills = [f"{folder}/cost.json" for folder in (f"results/{model}/calibration", *starts, *before)]
        if arm.stops:
            return {"problems": _training_set(model), "costs": bills}
        given: dict[str, Files] = {
            "problems": self.prompts_asked(model, arm),
            "checkpoint": [f"{folder}/checkpoint" for folder in before],
            "costs": bills,
        }
        if arm.regime != "grpo":
            given["start"] = [file for folder in starts for file in self.made(folder)]
        return given

    def offline_inputs(self, model: str, seed: int, arm: Arm, point: Point, read: list[str]) -> dict[str, Files]:
        folder, *matched = read
        pairs = f"{folder}/pairs.jsonl"
        if arm.regime == "dpo":
            return {
                "pairs": pairs,
                # Its record has the K of a warm-up that stops automatically.
                "warmup": [f"{_policy(model, seed, arm.online, point)}/policy.json"] if arm.stops else [],
                "matched": [f"{other}/pairs.jsonl" for other in matched],  # cut to the smallest of these
            }
        needed = [pairs] if arm.settings.needs_pairs else []
        return {"rollouts": f"{folder}/rollouts.parquet", "problems": _training_set(model), "pairs": needed}

    def policy_outputs(self, folder: str) -> dict[str, Files]:
        weights, weights_config = self.config.lora.files
        named = {"policy": "policy.json", "weights": weights, "weights_config": weights_config}
        return {name: f"{folder}/{file}" for name, file in named.items()}

    def made(self, folder: str) -> list[str]:
        return [f"{folder}/policy.json", f"{folder}/{self.config.lora.files[0]}"]

    def warmed_up(self, model: str, seed: int, online: Arm, point: Point) -> list[str]:
        return self.made(_policy(model, seed, online, point) if point[1] else f"results/{model}/base")

    def policy_files(self, model: str, folder: str) -> list[str]:
        return [*([] if folder.endswith("/base") else self.made(folder)), *self.base_files(model)]

    def prompts_asked(self, model: str, arm: Arm) -> list[str]:
        kinds = arm.asked.prompts
        verifiable = [_training_set(model)] if kinds != "open_ended" else []
        return verifiable + ([problems_of(OPEN_ENDED)] if kinds != "verifiable" else [])

    # -------------------------------------------------------------------------------------------------------- harvests

    def harvests(self) -> Iterator[Job]:
        for key in self._harvests_read():
            folder, online = f"results/{key.folder}", online_arm(arms(self.config, key.model), key.variant)
            wildcards, given, bills = self._drawn_from(key, online)
            params, again, attributes = self.params_of(key.model), self._judges_again(key), {}
            judge = params.judge_of(online)
            given["judged"] = []
            if again:
                given["judged"], bills = [f"{again}/rollouts.parquet"], [f"{again}/cost.json"]
                attributes = {"settled": True, "devices": int(judge is not None and reward_of(judge).gpu)}
            settings = partial(params.harvest, online)
            yield self._generation(
                "harvest_rollouts", given, f"{folder}/rollouts", wildcards, settings, bills, **attributes
            )
            given = {"base": f"results/{key.model}/base/policy.json", "rollouts": f"{folder}/rollouts.parquet"}
            given["problems"] = _training_set(key.model)
            made = {"pairs": f"{folder}/pairs.jsonl", "informativeness": f"{folder}/informativeness.json"}
            yield job_of("build_pairs", given, made, _stated(settings=params.pairs), **wildcards)

    def _harvests_read(self) -> list[HarvestKey]:
        keys = grid.harvests(self.config)
        for model, seed in product(self.config.models, self.config.seeds):
            for arm in arms(self.config, model).values():
                for point in arm.points:
                    keys += [HarvestKey(model, *at, seed, variant) for variant, at in arm.harvests_read(point)]
        keys += [HarvestKey(key.model, key.group_size, 0, key.seed) for key in keys if self._judges_again(key)]
        return list(dict.fromkeys(keys))

    def _judges_again(self, key: HarvestKey) -> str | None:
        arms_of_model = arms(self.config, key.model)
        other = online_arm(arms_of_model, key.variant).reward is not None
        again = other and key.variant and key.k == 0 and 0 in arms_of_model["grpo"].settings.steps
        return _harvest(key.model, key.seed, "", (key.group_size, 0)) if again else None

    def _drawn_from(self, key: HarvestKey, online: Arm) -> tuple[dict[str, str], dict[str, Files], list[str]]:
        base, calibration = f"results/{key.model}/base", f"results/{key.model}/calibration"
        folder = _policy(key.model, key.seed, online, (key.group_size, key.k)) if key.k else base
        wildcards = _place(key.model, key.seed, (key.group_size, key.k))
        given: dict[str, Files] = {"": self.policy_files(key.model, folder), "policy": f"{folder}/policy.json"}
        given["problems"] = _training_set(key.model)
        variant = {"variant": f"{key.variant}/" if key.variant else ""}
        return wildcards | variant, given, [f"{folder if key.k else calibration}/cost.json"]

    # ----------------------------------------------------------------------------------------------------- evaluations

    def evaluations(self) -> Iterator[Job]:
        for key, name in product(grid.policies(self.config), self.config.benchmarks):
            given, stem = self._asked(key.folder, benchmark=name), f"results/{key.folder}/eval/{name}"
            wildcards = {"policy": key.folder, "benchmark": name}
            settings = partial(self.params_of(key.model).evaluation, "answers")
            yield self._generation("evaluate", given, stem, wildcards, settings)

    def measurements(self) -> Iterator[Job]:
        config = self.config
        for key, name in grid.drawn_beside(config):
            given, stem = self._asked(key.folder, benchmark=name), f"results/{key.folder}/samples/{name}"
            wildcards = {"policy": key.folder, "benchmark": name}
            settings = partial(self.params_of(key.model).evaluation, "samples")
            yield self._generation("draw_samples", given, stem, wildcards, settings)
        for key in grid.policies(config) if config.open_ended else ():
            given, stem = self._asked(key.folder, problems=HELD_OUT), f"results/{key.folder}/open-ended/rollouts"
            settings = partial(self.params_of(key.model).replies, "judged_by")
            yield self._generation("draw_replies", given, stem, {"policy": key.folder}, settings)

    # ------------------------------------------------------------------------------------------------------------ jobs

    def _asked(self, folder: str, **asked: str) -> dict[str, Files]:
        ((called, name),) = asked.items()
        return {
            "": self.policy_files(model_of({"policy": folder}), f"results/{folder}"),
            "policy": f"results/{folder}/policy.json",
            called: problems_of(name),
            "leakage": f"results/problems/{name}.leakage.json",
        }

    def _generation(
        self,
        rule: str,
        given: Mapping[str, Files],
        stem: str,
        wildcards: Mapping[str, str],
        settings: Param,
        bills: Iterable[str] = (),
        **more: Any,
    ) -> Job:
        """Return the job that writes a file of rollouts.

        Args:
            stem: its output without the suffix.
            bills: costs of the job's inputs.
        """
        model = model_of(wildcards)
        engine = self.config.for_model(model).engine
        cost = f"{stem.removesuffix('/rollouts')}{'/' if stem.endswith('/rollouts') else '.'}cost.json"
        made = {"rollouts": f"{stem}.parquet", "cost": cost}
        state = _stated(settings=settings, engine=lambda: self.params_of(model).engine)
        attributes: dict[str, Any] = {"devices": engine.tensor_parallel_size if engine.name == "vllm" else 1} | more
        return job_of(rule, {**given, "costs": [*bills]}, made, state, **attributes, **wildcards)


def _stated(**functions: Param) -> Callable[[], dict[str, Any]]:
    return lambda: {name: function() for name, function in functions.items()}


def _fixed(params: dict[str, Any]) -> Param:
    return lambda: params


def _place(model: str, seed: int | None, point: Point) -> dict[str, str]:
    return {"model": model, "seed": str(seed), "g": str(point[0]), "k": str(point[1])}


def _training_set(model: str) -> str:
    return f"results/{model}/calibration/train.jsonl"


def _policy(model: str, seed: int, arm: Arm, point: Point) -> str:
    return f"results/{model}/seed{seed}/{arm.name}/g{point[0]}/k{point[1]}"


def _harvest(model: str, seed: int, variant: str, point: Point) -> str:
    return f"results/{HarvestKey(model, *point, seed, variant).folder}"
