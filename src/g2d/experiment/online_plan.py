"""The plan of M0, generation and online phases: what of `g2d.experiment.plan` comes before a harvest is used."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from g2d.experiment import grid
from g2d.experiment.choices import Kind, choice_files, left_open
from g2d.experiment.config import Config
from g2d.experiment.sweep import with_candidates, with_choice
from g2d.experiment.wildcards import Wildcards, model_of, variant_folder, variant_of
from g2d.jobs.cost import read_cost
from g2d.jobs.files import read_json
from g2d.policies.policy import Policy, read_policy
from g2d.policies.settings import ScratchModel
from g2d.regimes.warmup import AUTO
from g2d.rewards.catalogue import reward_of, reward_params


class OnlinePlan:
    """What the jobs of a grid are made from.

    Args:
        config: the whole configuration; `self.config` has the candidates of its sweep, too.
        refused: called with the error where a record on the way cannot be read, before that is raised. Snakemake
            drops an error of an input function whose output is there, and with it all jobs that depend on it.
    """

    def __init__(self, config: Config, refused: Callable[[Exception], None] = lambda error: None) -> None:
        self.config = with_candidates(config)
        self.refused = refused
        self.for_model = lru_cache(maxsize=None)(self.config.for_model)
        self.ablation_dpo = lru_cache(maxsize=None)(lambda model, name: self.for_model(model).ablation_dpo(name))

    # ------------------------------------------------------------------------------------------------- M0, generation

    def is_scratch(self, model: str) -> bool:
        """Whether a rule trains this M0."""
        return isinstance(self.config.models[model], ScratchModel)

    def base_files(self, wildcards: Wildcards) -> list[str]:
        """The record of M0, and its weights where a rule makes them."""
        folder = f"results/{model_of(wildcards)}/base"
        weights = [f"{folder}/model/model.safetensors"] if self.is_scratch(model_of(wildcards)) else []
        return [f"{folder}/policy.json", *weights]

    def policy_files(self, wildcards: Wildcards) -> list[str]:
        """The record of the policy in a folder, its weights, and those of the M0 below it."""
        folder = f"results/{wildcards.policy}"
        own = [f"{folder}/policy.json", f"{folder}/adapter/adapter_model.safetensors"]
        return [*(own if not wildcards.policy.endswith("base") else []), *self.base_files(wildcards)]

    def settings(self, *sections: str) -> Callable[[Wildcards], dict[str, Any]]:
        """Params: the resolved sections of the configuration that a stage depends on, and nothing else."""

        def resolve(wildcards: Wildcards) -> dict[str, Any]:
            resolved = self.for_model(model_of(wildcards))
            return {section: getattr(resolved, section).params() for section in sections}

        return resolve

    def calibration_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that calibration rollouts depend on, at the temperature of the job."""
        resolved = self.for_model(wildcards.model)
        own = resolved.calibration.params(without={"levels", "window", "factorial_temperatures"})
        if hasattr(wildcards, "temperature"):
            own["temperature"] = float(wildcards.temperature)
        return {"calibration": own, "prompt": resolved.prompt.params()}

    def engine(self, wildcards: Wildcards) -> str:
        """Param: what generates; how many GPUs and how much memory it takes re-runs nothing, so the script reads it."""
        return self.for_model(model_of(wildcards)).engine.identity

    def generating_gpus(self, wildcards: Wildcards, input: Any) -> int:
        """Resource: GPUs of a job that generates with a frozen policy; merging shards takes none, nor
        does judging again, unless a reward model does."""
        chosen = self.for_model(model_of(wildcards)).engine
        if input.shards or getattr(input, "judged", []):
            return int(bool(getattr(input, "judged", [])) and self._rewarded_on_gpu(wildcards))
        return chosen.tensor_parallel_size if chosen.name == "vllm" else 1

    def shards(self, stage: str, shard: str, cost: str) -> Callable[[Wildcards], list[str]]:
        """Input: the shards that a file of rollouts is merged from, or their bills; none where one job draws it whole.
        A finished file keeps the number of shards it was made of, which its bill tells: the rows would be the same."""

        def files(wildcards: Wildcards) -> list[str]:
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

        return files

    def _read(self, read: Callable[[Path], Any], path: Path) -> Any:
        try:
            return read(path)
        except (OSError, ValueError) as error:
            self.refused(error)
            raise

    # --------------------------------------------------------------------------------------------- the online phase

    def online_entry(self, wildcards: Wildcards) -> str:
        """The entry of `regimes` with a trajectory of its own, on fresh rollouts or in rounds, that is behind a policy
        or harvest; "" if none."""
        names = (variant_of(wildcards), str(getattr(wildcards, "regime", "")))
        own = grid.online_entries(self.config) | grid.in_rounds(self.config)
        return next((name for name in names if name in own), "")

    def trajectory(self, wildcards: Wildcards) -> str:
        """Folder of the online policies that pi_K is one of, whatever K."""
        w = wildcards
        return f"results/{w.model}/seed{w.seed}/{self.online_entry(w) or f'{variant_folder(w)}grpo'}/g{w.g}"

    def warmed_up(self, wildcards: Wildcards) -> str:
        """Folder of pi_K: GRPO's at step K, or an online entry's; M0's for K=0."""
        w = wildcards
        return f"results/{w.model}/base" if w.k == "0" else f"{self.trajectory(w)}/k{w.k}"

    def warmed_up_files(self, wildcards: Wildcards) -> list[str]:
        """Record and weights of pi_K, and those of M0."""
        return [*self._warmed_up_files(wildcards), *self.base_files(wildcards)]

    def _warmed_up_files(self, wildcards: Wildcards) -> list[str]:
        folder = self.warmed_up(wildcards)
        return [] if wildcards.k == "0" else [f"{folder}/policy.json", f"{folder}/adapter/adapter_model.safetensors"]

    def warmed_up_cost(self, wildcards: Wildcards) -> str:
        """The bill behind pi_K; M0 is given, so for K=0 it is the calibration's."""
        if wildcards.k == "0":
            return f"results/{wildcards.model}/calibration/cost.json"
        return f"{self.warmed_up(wildcards)}/cost.json"

    def reward(self, wildcards: Wildcards) -> dict[str, Any]:
        """The part of the settings that says what judges a training's rollouts, or a harvest; nothing for the truth."""
        name = grid.reward_name(self.config, self.online_entry(wildcards) or variant_of(wildcards))
        return {} if name is None else {"reward": reward_params(self.config.rewards[name])}

    def _rewarded_on_gpu(self, wildcards: Wildcards) -> bool:
        name = grid.reward_name(self.config, variant_of(wildcards))
        return name is not None and reward_of(self.config.rewards[name])[0].gpu

    def harvest_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that a harvest depends on."""
        return {**self.settings("harvest", "prompt")(wildcards), **self.reward(wildcards)}

    def judged(self, wildcards: Wildcards, file: str = "rollouts.parquet") -> list[str]:
        """M0's harvest of the main grid, where this one is the same rollouts under another reward."""
        w = wildcards
        again = grid.judged_again(self.config, w.model, variant_of(w), int(w.k))
        return [f"results/{w.model}/seed{w.seed}/harvest/g{w.g}/k{w.k}/{file}"] if again else []

    def grpo_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that a warm-up to step K depends on."""
        resolved = self.for_model(wildcards.model)
        warmup = resolved.warmup_of(variant_of(wildcards))
        return {
            "warmup": left_open(
                self.config, "warmup", wildcards, warmup, warmup.trajectory(int(wildcards.k), int(wildcards.g))
            ),
            "lora": resolved.lora.params(),
            "prompt": resolved.prompt.params(),
            "engine": resolved.engine.identity,
            **self.reward(wildcards),
        }

    def online_entry_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that an online entry's training up to K depends on."""
        entry = self.config.regimes[wildcards.regime]
        own = {entry.regime: left_open(self.config, "regimes", wildcards, entry, entry.trajectory())}
        engine = self.for_model(wildcards.model).engine.identity
        more = {"engine": engine, **self.settings("lora", "prompt")(wildcards), **self.reward(wildcards)}
        return {**own, **more}

    def auto_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that a warm-up which stops by itself depends on; its probes are small harvests."""
        resolved = self.for_model(wildcards.model)
        warmup = resolved.warmup
        assert warmup.auto is not None
        return {
            "warmup": left_open(
                self.config, "warmup", wildcards, warmup, warmup.trajectory(int(wildcards.k), int(wildcards.g))
            ),
            "auto": warmup.auto.params(),
            "engine": resolved.engine.identity,
            **self.settings("harvest", "lora", "prompt")(wildcards),
        }

    def auto_entry_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that an online entry which stops by itself depends on."""
        auto = self.config.regimes[wildcards.regime].auto
        return {
            **self.online_entry_settings(wildcards),
            "auto": auto.params(),
            **self.settings("harvest")(wildcards),
        }

    def auto_warmup(self, wildcards: Wildcards) -> list[str]:
        """The record of the online phase behind a policy where that alone knows its K: it stopped by itself."""
        stops = variant_of(wildcards) == AUTO or grid.stops_by_itself(self.config, variant_of(wildcards))
        return [f"{self.warmed_up(wildcards)}/policy.json"] if stops else []

    def continued_from(self, wildcards: Wildcards) -> int | None:
        """K of the checkpoint that this K continues, None where it starts from M0.

        A finished K keeps the predecessor it really had. Every point of a chain is the same whichever checkpoint it
        was reached from, so a K that is added between two others must not make the later one stale.
        """
        record = Path(self.warmed_up(wildcards)) / "policy.json"
        if record.exists():
            finished: Policy = self._read(read_policy, record)
            of_entry = bool(self.online_entry(wildcards))
            settings = self.online_entry_settings(wildcards) if of_entry else self.grpo_settings(wildcards)
            if finished.settings == self._as_chosen("regimes" if of_entry else "warmup", settings, wildcards):
                return finished.continued_from
        group_size, k = int(wildcards.g), int(wildcards.k)
        variant = self.online_entry(wildcards) or variant_of(wildcards)
        return grid.chain_predecessor(self.config, wildcards.model, group_size, k, variant)

    def previous_checkpoint(self, wildcards: Wildcards) -> list[str]:
        """Folder of the checkpoint that this K continues, if any."""
        k = self.continued_from(wildcards)
        return [] if k is None else [f"{self.trajectory(wildcards)}/k{k}/checkpoint"]

    def previous_costs(self, wildcards: Wildcards) -> list[str]:
        """Bills of the steps before this K, of what an online entry starts from, and of the calibration."""
        before = [*self.started_from(wildcards)[:1], *self.previous_checkpoint(wildcards)]
        return [f"results/{wildcards.model}/calibration/cost.json", *(f"{Path(b).parent}/cost.json" for b in before)]

    def started_from(self, wildcards: Wildcards) -> list[str]:
        """Record and weights of the policy that an online entry starts from, which every K of it needs: it may be the
        reference, or still the generator. None where that is M0."""
        name, online = self.online_entry(wildcards), grid.online_entries(self.config)
        start = grid.start_of(self.config, wildcards.model, name, int(wildcards.seed)) if name in online else None
        folder = f"results/{start.folder}" if start else ""
        return [f"{folder}/policy.json", f"{folder}/adapter/adapter_model.safetensors"] if start else []

    def _as_chosen(self, kind: Kind, settings: dict[str, Any], wildcards: Wildcards) -> dict[str, Any]:
        """Settings with what a sweep has chosen so far."""
        for file in map(Path, choice_files(self.config, kind, wildcards)):
            if file.exists():
                settings = with_choice(settings, self._read(read_json, file))
        return settings
