"""The plan of M0, generation and online phases: what of `g2d.experiment.plan` comes before a harvest is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from g2d.experiment import grid
from g2d.experiment.base_plan import BasePlan
from g2d.experiment.choices import Kind, choice_files, left_open
from g2d.experiment.entries import asked_prompts
from g2d.experiment.open_ended import reward_settings_of
from g2d.experiment.sweep import with_choice
from g2d.experiment.wildcards import Wildcards, model_of, variant_folder, variant_of
from g2d.jobs.cost import read_cost
from g2d.jobs.files import read_json
from g2d.policies.policy import Policy, read_policy
from g2d.problems.settings import OPEN_ENDED
from g2d.regimes.asked import AskedPrompts
from g2d.regimes.warmup import AUTO
from g2d.rewards.catalogue import TRUTH, made_files, reward_of, reward_params
from g2d.rollouts.settings import Sampling
from g2d.settings import Section


class OnlinePlan(BasePlan):
    """Beside M0, generation that depends on a reward, and online phases."""

    def generating_gpus(self, wildcards: Wildcards, input: Any) -> int:
        """Resource: GPUs of a job that generates with a frozen policy; merging shards takes none, nor
        does judging again, unless a reward model does."""
        chosen = self.for_model(model_of(wildcards)).engine
        if input.shards or getattr(input, "judged", []):
            return int(bool(getattr(input, "judged", [])) and self._rewarded_on_gpu(wildcards))
        return chosen.tensor_parallel_size if chosen.name == "vllm" else 1

    def training_gpus(self, wildcards: Wildcards) -> int:
        """Resource: GPUs of a training, one for each of its processes."""
        return self.for_model(wildcards.model).training.processes

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
        settings = self._judge_of(wildcards)
        return {} if settings is None else {"reward": reward_params(settings)}

    def reward_files(self, wildcards: Wildcards) -> list[str]:
        """Input: what a rule makes of the reward that judges; usually nothing."""
        settings = self._judge_of(wildcards)
        return [] if settings is None else made_files(settings)

    def _judge_of(self, wildcards: Wildcards) -> Section | None:
        owner = self.online_entry(wildcards) or variant_of(wildcards)
        asks_open_ended = asked_prompts(self.config, owner).asks_open_ended
        return reward_settings_of(self.config, grid.reward_name(self.config, owner), asks_open_ended)

    def judge_files(self, wildcards: Wildcards) -> list[str]:
        """Input: what a rule makes of the reward that replies are compared by."""
        return made_files(self._judge_of_replies)

    def reply_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The sections that replies to held-out prompts depend on, and what judges them."""
        assert self.config.open_ended is not None
        own = self.config.open_ended.params(only={*Sampling.model_fields, "seed"})
        return {
            "open_ended": own,
            "reward": reward_params(self._judge_of_replies),
            **self.settings("prompt")(wildcards),
        }

    def development_reply_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """The same of the replies that checkpoints are selected by, which are judged as in training."""
        return self.reply_settings(wildcards) | {"reward": reward_params(self._judge_in_training)}

    def training_judge_files(self, wildcards: Wildcards) -> list[str]:
        """Input: what a rule makes of the reward that judges open-ended prompts in training."""
        return made_files(self._judge_in_training)

    @property
    def _judge_in_training(self) -> Section:
        assert self.config.open_ended is not None
        judge: Section = self.config.rewards[self.config.open_ended.reward]
        return judge

    @property
    def _judge_of_replies(self) -> Section:
        assert self.config.open_ended is not None
        judge: Section = self.config.rewards[self.config.open_ended.judged_by]
        return judge

    def prompts_asked(self, wildcards: Wildcards) -> list[str]:
        """Input: the problems that an online training asks."""
        kinds = asked_prompts(self.config, self.online_entry(wildcards) or variant_of(wildcards)).prompts
        training_set = [f"results/{wildcards.model}/calibration/train.jsonl"] if kinds != "open_ended" else []
        return training_set + ([f"results/problems/{OPEN_ENDED}.jsonl"] if kinds != "verifiable" else [])

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
        prompts = asked_prompts(self.config, variant_of(wildcards)).params(only={*AskedPrompts.model_fields})
        return {
            "warmup": left_open(
                self.config, "warmup", wildcards, warmup, warmup.trajectory(int(wildcards.k), int(wildcards.g))
            ),
            "lora": resolved.lora.params(),
            "prompt": resolved.prompt.params(),
            **warmup.drawn_by(resolved.engine, resolved.lora, self._judge_of(wildcards) or TRUTH),
            **({"prompts": prompts} if prompts else {}),
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
            **warmup.drawn_by(resolved.engine, resolved.lora),
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
