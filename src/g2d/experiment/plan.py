"""The plan: from the wildcards of a job to the files and settings it depends on.

Rules name these functions as inputs and params; a job is stale when what they return changes. They know the arms of the
configuration and, where a finished job must keep what it was made from, its record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from g2d.experiment.arms import Arm, Point, arms, harvests_read, online_arm, teacher_folder, teacher_of
from g2d.experiment.keys import HarvestKey
from g2d.experiment.sections import Config
from g2d.experiment.sweep import swept_keys, with_candidates, with_choice
from g2d.jobs.cost import read_cost
from g2d.jobs.files import read_json
from g2d.policies.policy import Policy, read_policy
from g2d.policies.settings import MADE, EmbeddedModel, ScratchModel
from g2d.problems.settings import OPEN_ENDED
from g2d.regimes.catalogue import REGIMES
from g2d.regimes.run.prompts import PromptMix
from g2d.rewards.catalogue import TRUTH, ByKind, made_files, reward_of, reward_params
from g2d.rollouts.settings import Evaluation, Sampling
from g2d.settings import Section

Wildcards = Any  # of a job: anything with the attributes that a function reads (model, seed, variant, regime, k ...)
Judge = Literal["reward", "judged_by"]  # of `open_ended`: what judges replies in training, and what policies' replies


def model_of(wildcards: Wildcards) -> str:
    """The model a job belongs to: a wildcard of its own, or the first folder of a policy."""
    return str(getattr(wildcards, "model", None) or wildcards.policy.split("/")[0])


def variant_of(wildcards: Wildcards) -> str:
    """The ablation whose warm-up a job belongs to, "" for the main one, `AUTO` for the one that stops by itself."""
    return str(getattr(wildcards, "variant", "")).rstrip("/")


def arm_name(wildcards: Wildcards, regime: str) -> str:
    """The arm that a job's policy is one of; `regime` where its rule has no such wildcard."""
    return "/".join(filter(None, (variant_of(wildcards), getattr(wildcards, "regime", regime))))


def policy_folder(w: Wildcards, arm: Arm, point: tuple[Any, Any]) -> str:
    """Where a policy of an arm is, of the model and seed of a job."""
    group_size, k = point
    return f"results/{w.model}/seed{w.seed}/{arm.name}/g{group_size}/k{k}"


def harvest_folder(w: Wildcards, point: tuple[Any, Any], variant: str = "") -> str:
    """Where a harvest is, of the model and seed of a job."""
    return f"results/{HarvestKey(w.model, *point, w.seed, variant).folder}"


class Plan:
    """What the jobs of a grid are made from.

    Args:
        config: the whole configuration; `self.config` has the candidates of its sweep, too.
        refused: called with the error where a record on the way cannot be read, before that is raised. Snakemake
            drops an error of an input function whose output is there, and with it all jobs that depend on it.
    """

    def __init__(self, config: Config, refused: Callable[[Exception], None] = lambda error: None) -> None:
        self.config = with_candidates(config)
        self.refused = refused
        self.for_model = self.config.for_model

    def trained(self, wildcards: Wildcards) -> Arm:
        """The arm that a training's policy is one of."""
        return arms(self.config, wildcards.model)[arm_name(wildcards, "grpo")]

    def online(self, wildcards: Wildcards) -> Arm:
        """The training, online or in rounds, whose policies a job trains, harvests, or trains on the harvests of."""
        found = arms(self.config, wildcards.model)
        own = found.get(arm_name(wildcards, ""))
        return own if own is not None and own.phase != "offline" else online_arm(found, variant_of(wildcards))

    def is_embedded(self, model: str) -> bool:
        """Whether this M0 is the embedded model, shipped or trained here, which is too small to hold a GPU."""
        return isinstance(self.config.models[model], EmbeddedModel | ScratchModel)

    def base_files(self, wildcards: Wildcards) -> list[str]:
        """The record of M0, and its weights where a rule makes them."""
        folder = f"results/{model_of(wildcards)}/base"
        weights = (
            [f"{folder}/model/model.safetensors"] if self.config.models[model_of(wildcards)].source in MADE else []
        )
        return [f"{folder}/policy.json", *weights]

    def policy_files(self, wildcards: Wildcards) -> list[str]:
        """The record of the policy in a folder, or of pi_K, its weights, and those of the M0 below it."""
        folder = f"results/{wildcards.policy}" if hasattr(wildcards, "policy") else self.warmed_up(wildcards)
        return [*([] if folder.endswith("/base") else self.made(folder)), *self.base_files(wildcards)]

    def made(self, folder: str) -> list[str]:
        """Record and weights of the policy that a training leaves in a folder."""
        return [f"{folder}/policy.json", f"{folder}/{self.config.lora.files[0]}"]

    def settings(self, sections: Iterable[str], wildcards: Wildcards) -> dict[str, Any]:
        """The resolved sections of the configuration that a stage depends on, and nothing else."""
        resolved = self.for_model(model_of(wildcards))
        return {section: getattr(resolved, section).params() for section in sections}

    def calibration_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that calibration rollouts depend on, at the temperature of the job."""
        resolved = self.for_model(wildcards.model)
        chosen_by = {"window", "factorial_temperatures"} | ({"levels"} if resolved.calibration.only is None else set())
        own = resolved.calibration.params(without=chosen_by)
        if hasattr(wildcards, "temperature"):
            own["temperature"] = float(wildcards.temperature)
        return {"calibration": own, "prompt": resolved.prompt.params()}

    def evaluation_settings(self, part: Literal["answers", "samples"], wildcards: Wildcards) -> dict[str, Any]:
        """The sections that the answers behind an accuracy, or the samples beside them, depend on."""
        evaluation: Evaluation | None = getattr(self.for_model(model_of(wildcards)).evaluation, part)
        drawn = {} if evaluation is None else {"evaluation": evaluation.params()}
        return {**drawn, **self.settings(["prompt"], wildcards)}

    def drift_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that a policy's distance from M0 depends on."""
        assert self.config.drift is not None
        decoding = self.for_model(model_of(wildcards)).evaluation.params(only={"max_completion_length", "batch_size"})
        return {"drift": self.config.drift.params() | decoding, **self.settings(["prompt"], wildcards)}

    def engine(self, wildcards: Wildcards) -> str:
        """Param: what generates; how many GPUs and how much memory it takes re-runs nothing, so the script reads it."""
        return self.for_model(model_of(wildcards)).engine.identity

    def _read(self, read: Callable[[Path], Any], path: Path) -> Any:
        try:
            return read(path)
        except (OSError, ValueError) as error:
            self.refused(error)
            raise

    def generating_gpus(self, wildcards: Wildcards, input: Any) -> int:
        """Resource: GPUs of a job that generates; to merge shards takes none, to judge again what the reward does."""
        if getattr(input, "judged", []):
            name = self.online(wildcards).reward
            return int(name is not None and reward_of(self.config.rewards[name])[0].gpu)
        if input.shards:
            return 0
        chosen = self.for_model(model_of(wildcards)).engine
        return chosen.tensor_parallel_size if chosen.name == "vllm" else 1

    def training_gpus(self, wildcards: Wildcards) -> int:
        """Resource: GPUs of a training, one for each of its processes."""
        return self.for_model(wildcards.model).training.processes

    def shards(self, stage: str, shard: str, cost: str, wildcards: Wildcards) -> list[str]:
        """Input: the shards that a file of rollouts is merged from, or their bills; none where one job draws it whole.
        A finished file keeps the number of shards it was made of, which its bill tells: the rows would be the same."""
        if hasattr(wildcards, "shard") or (stage == "harvest" and self.judged(wildcards)):
            return []
        bill = Path(cost.format(**wildcards))
        count = getattr(self.for_model(model_of(wildcards)).engine.shards, stage)
        folder = str(Path(shard).parent).format(**wildcards)
        if bill.exists():
            ancestry = self._read(read_cost, bill).ancestry
            count = sum(record.job.startswith(f"{folder}/") for record in ancestry)
        numbers = range(1, count + 1) if count > 1 else []
        return [shard.format(**wildcards, shard=number, shards=count) for number in numbers]

    # --------------------------------------------------------------------------------------------- the online phase

    def warmed_up(self, w: Wildcards) -> str:
        """Folder of pi_K: GRPO's at step K, or an online entry's; M0's for K=0."""
        return f"results/{w.model}/base" if w.k == "0" else policy_folder(w, self.online(w), (w.g, w.k))

    def warmed_up_cost(self, wildcards: Wildcards) -> str:
        """The bill behind pi_K; M0 is given, so for K=0 it is the calibration's."""
        before = f"results/{wildcards.model}/calibration" if wildcards.k == "0" else self.warmed_up(wildcards)
        return f"{before}/cost.json"

    def reward(self, wildcards: Wildcards) -> dict[str, Any]:
        """The part of the settings that says what judges a training's rollouts, or a harvest; nothing for the truth."""
        settings = self._judge_of(wildcards)
        return {} if settings is None else {"reward": reward_params(settings)}

    def reward_files(self, wildcards: Wildcards) -> list[str]:
        """Input: what a rule makes of the reward that judges; usually nothing."""
        return made_files(self._judge_of(wildcards) or TRUTH)

    def _judge_of(self, wildcards: Wildcards) -> Section | None:
        """What judges an online training, and its harvests; None where the truth does."""
        arm = self.online(wildcards)
        own: Section | None = None if arm.reward is None else self.config.rewards[arm.reward]
        if not arm.asked.asks_open_ended:
            return own
        return ByKind(verifiable=own or TRUTH, open_ended=self._judge_of_replies("reward"))

    def judge_files(self, by: Judge, wildcards: Wildcards) -> list[str]:
        """Input: what a rule makes of the reward that judges replies."""
        return made_files(self._judge_of_replies(by))

    def reply_settings(self, by: Judge, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that replies depend on, and what judges them."""
        assert self.config.open_ended is not None
        return {
            "open_ended": self.config.open_ended.params(only={*Sampling.model_fields, "seed"}),
            "reward": reward_params(self._judge_of_replies(by)),
            **self.settings(["prompt"], wildcards),
        }

    def _judge_of_replies(self, by: Judge) -> Section:
        assert self.config.open_ended is not None
        judge: Section = self.config.rewards[getattr(self.config.open_ended, by)]
        return judge

    def prompts_asked(self, wildcards: Wildcards) -> list[str]:
        """Input: the problems that an online training asks."""
        kinds = self.online(wildcards).asked.prompts
        training_set = [f"results/{wildcards.model}/calibration/train.jsonl"] if kinds != "open_ended" else []
        return training_set + ([f"results/problems/{OPEN_ENDED}.jsonl"] if kinds != "verifiable" else [])

    def harvest_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that a harvest depends on."""
        return {**self.settings(["harvest", "prompt"], wildcards), **self.reward(wildcards)}

    def judged(self, wildcards: Wildcards, file: str = "rollouts.parquet") -> list[str]:
        """M0's harvest of the main grid, where this one is the same rollouts under another reward."""
        found = arms(self.config, wildcards.model)
        other = online_arm(found, variant_of(wildcards)).reward is not None
        again = other and wildcards.k == "0" and 0 in found["grpo"].settings.steps
        return [f"{harvest_folder(wildcards, (wildcards.g, 0))}/{file}"] if again else []

    def grpo_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that a warm-up to step K depends on."""
        resolved, arm = self.for_model(wildcards.model), self.online(wildcards)
        prompts = arm.asked.params(only={*PromptMix.model_fields})
        return {
            "warmup": self._left_open(arm, arm.settings.trajectory(int(wildcards.k), int(wildcards.g))),
            **self.settings(["lora", "prompt"], wildcards),
            **arm.settings.drawn_by(resolved.engine, resolved.lora, self._judge_of(wildcards) or TRUTH),
            **({"prompts": prompts} if prompts else {}),
            **self.reward(wildcards),
        }

    def online_entry_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that an online entry's training up to K depends on."""
        arm, engine = self.online(wildcards), self.for_model(wildcards.model).engine.identity
        own = {arm.regime: self._left_open(arm, arm.settings.trajectory())}
        return {**own, "engine": engine, **self.settings(["lora", "prompt"], wildcards), **self.reward(wildcards)}

    def auto_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that a warm-up which stops by itself depends on; its probes are small harvests."""
        resolved, arm = self.for_model(wildcards.model), self.online(wildcards)
        return {
            "warmup": self._left_open(arm, arm.settings.trajectory(int(wildcards.k), int(wildcards.g))),
            "auto": arm.settings.auto.params(),
            **arm.settings.drawn_by(resolved.engine, resolved.lora),
            **self.settings(["harvest", "lora", "prompt"], wildcards),
        }

    def auto_entry_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that an online entry which stops by itself depends on."""
        auto = self.online(wildcards).settings.auto.params()
        return {**self.online_entry_settings(wildcards), "auto": auto, **self.settings(["harvest"], wildcards)}

    def continued_from(self, wildcards: Wildcards) -> int | None:
        """K of the checkpoint that this K continues, None where it starts anew.

        A finished K keeps the predecessor it really had. Every point of a chain is the same whichever checkpoint it
        was reached from, so a K that is added between two others must not make the later one stale.
        """
        arm, record = self.online(wildcards), Path(self.warmed_up(wildcards)) / "policy.json"
        if record.exists():
            finished: Policy = self._read(read_policy, record)
            settings = (self.grpo_settings if arm.regime == "grpo" else self.online_entry_settings)(wildcards)
            for file in map(Path, self._choices(arm, wildcards)):
                settings = with_choice(settings, self._read(read_json, file)) if file.exists() else settings
            if finished.settings == settings:
                return finished.continued_from
        return arm.before(int(wildcards.g), int(wildcards.k))

    def previous_checkpoint(self, wildcards: Wildcards) -> list[str]:
        """Folder of the checkpoint that this K continues, if any."""
        k, arm = self.continued_from(wildcards), self.online(wildcards)
        return [] if k is None else [f"{policy_folder(wildcards, arm, (wildcards.g, k))}/checkpoint"]

    def previous_costs(self, wildcards: Wildcards) -> list[str]:
        """Bills of the calibration, of what a training starts from, imitates or replays, and of its smaller K."""
        before = [*self.started_from(wildcards)[:1], *self._taught_by(wildcards)[:1], *self.replayed_harvest(wildcards)]
        before += self.previous_checkpoint(wildcards)
        return [f"results/{wildcards.model}/calibration/cost.json", *(f"{Path(b).parent}/cost.json" for b in before)]

    def replayed_harvest(self, wildcards: Wildcards) -> list[str]:
        """Input: the harvest, of M0 or of the main grid's warm-up, whose successes a warm-up replays."""
        return [f"{folder}/rollouts.parquet" for folder in self._harvests_read(self.online(wildcards), wildcards)]

    def _harvests_read(self, arm: Arm, w: Wildcards) -> list[str]:
        read = harvests_read(arms(self.config, w.model), arm, (int(w.g), int(w.k)))
        return [harvest_folder(w, point, variant) for variant, point in read]

    def started_from(self, wildcards: Wildcards) -> list[str]:
        """Record and weights of the policy that an online entry starts from, which every K of it needs: it may be the
        reference, or still the generator. None where that is M0."""
        return self._files_of(self.online(wildcards).start, wildcards)

    def teacher(self, wildcards: Wildcards) -> list[str]:
        """Record of what an online entry imitates, with the weights of a policy of the grid; none without a teacher."""
        arm = self.online(wildcards)
        if isinstance(getattr(arm.settings, "teacher", None), Section):
            return [f"results/{teacher_folder(arm.owner)}/base/policy.json"]
        return self._taught_by(wildcards)

    def _taught_by(self, wildcards: Wildcards) -> list[str]:
        return self._files_of(teacher_of(arms(self.config, wildcards.model), self.online(wildcards)), wildcards)

    def _files_of(self, policy: tuple[Arm, Point] | None, wildcards: Wildcards) -> list[str]:
        return [] if policy is None else self.made(policy_folder(wildcards, *policy))

    # --------------------------------------------------------------------------------------------- the offline phase

    def several_pairs_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """What several pairs per prompt depend on: not `pairs.seed`, and younger keys where they change anything."""
        pairs = self.for_model(wildcards.model).pairs.params(without={"seed"})
        return self.settings(["prompt"], wildcards) | ({"pairs": pairs} if pairs else {})

    def offline_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """What a training on harvests depends on: its settings but for its other K, by their section or its regime."""
        arm = self.trained(wildcards)
        section = REGIMES[arm.regime].section
        own = self._left_open(arm, arm.settings.params(without={"steps", "regime", "harvest"}))
        read = ["lora"] if section else ["lora", "prompt"]
        return {section or arm.regime: own, **self.settings(read, wildcards)}

    def harvest_of_round(self, wildcards: Wildcards) -> str:
        """Folder of the harvest that a round is trained on: of M0, or of the policy of the round before."""
        return self._harvests_read(self.trained(wildcards), wildcards)[0]

    def round_before(self, wildcards: Wildcards) -> list[str]:
        """Record and weights of the policy of the round before; none of the first one's, which is M0."""
        before = int(wildcards.k) - 1
        return self.made(policy_folder(wildcards, self.trained(wildcards), (wildcards.g, before))) if before else []

    def start_files(self, wildcards: Wildcards) -> list[str]:
        """The policy to start from where it is not M0."""
        return self.made(self.warmed_up(wildcards)) if self.trained(wildcards).settings.start == "warmup" else []

    def harvested(self, wildcards: Wildcards) -> dict[str, Any]:
        """Input: what an offline training reads of the harvest of pi_K, by name."""
        arm = self.trained(wildcards)
        folder, *matched = self._harvests_read(arm, wildcards)
        regime, pairs = REGIMES[arm.regime], f"{folder}/pairs.jsonl"
        if regime.section == "dpo":
            n = arm.settings.pairs_per_prompt
            return {
                "pairs": pairs if n == 1 else f"{folder}/pairs-{n}.jsonl",
                "warmup": [f"{self.warmed_up(wildcards)}/policy.json"] if arm.stops else [],  # which alone knows its K
                "matched": [f"{other}/pairs.jsonl" for other in matched],  # to the smallest of which it is cut
            }
        if regime.consumes == "pairs":
            return {"pairs": pairs}
        return {
            "rollouts": f"{folder}/rollouts.parquet",
            "problems": f"results/{wildcards.model}/calibration/train.jsonl",
            "pairs": [pairs] if arm.settings.needs_pairs else [],
        }

    # ------------------------------------------------------------------------------------------------------ the sweep

    def choice(self, kind: Literal["warmup", "dpo", "regimes"]) -> Callable[[Wildcards], list[str]]:
        """Input: what a sweep has chosen for a training that reads a section, where something is left to it."""
        of = self.online if kind == "warmup" else self.trained
        return lambda wildcards: self._choices(of(wildcards), wildcards)

    def _choices(self, arm: Arm, wildcards: Wildcards) -> list[str]:
        """A later file fills what the one before leaves open."""
        return [f"results/{wildcards.model}/sweep/{name}.json" for name in self._left_to_sweep(arm)]

    def _left_to_sweep(self, arm: Arm) -> dict[str, set[str]]:
        """The keys of a training that a sweep chooses, by what is swept. A candidate's values are its own."""
        waits: dict[str, set[str]] = {}
        for name in arm.swept_as:
            if keys := swept_keys(self.config, name).difference(arm.own, *waits.values()):
                waits[name] = keys
        return waits

    def _left_open(self, arm: Arm, values: dict[str, Any]) -> dict[str, Any]:
        """Settings of a training without what is left to a sweep, and with what an ablation set itself, also where that
        is neutral and so no parameter of other jobs."""
        chosen_later = set().union(*self._left_to_sweep(arm).values())
        fixed = {key: value for key, value in values.items() if key not in chosen_later}
        own = arm.own & swept_keys(self.config, arm.swept_as[-1])
        return fixed | {key: getattr(arm.settings, key) for key in sorted(own)}
