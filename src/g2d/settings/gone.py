"""Keys, values and commands that earlier versions had, with what to do instead.

A pattern is the path of a key, with `*` for a name that the user chose, or of a value (`key=value`). Keys of `warmup`
and `dpo` are found in ablations too, and keys of all sections in `models.NAME.settings`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

GONE: dict[str, str] = {
    "contamination": "the check was removed: no model has seen generated problems, so add them as a benchmark",
    "*.seed=run": "write a number; problems with a drawn seed were removed",
    "price_per_device_hour": "money is the device-hours of cost.csv times your price",
    "warmup.replay": "experience replay was removed: use updates_per_generation or iterations for stale rollouts",
    "warmup.lag": "use updates_per_generation: rollouts are then up to that many updates old",
    "warmup.advantages": "advantages are relative to their group: drop the key",
    "warmup.positive_weight": "right and wrong answers have the same weight: drop the key",
    "warmup.negative_weight": "right and wrong answers have the same weight: drop the key",
    "warmup.correction=m2": "use correction: token_mask",
    "warmup.m2_threshold": "use correction: token_mask with correction_cap",
    "warmup.negative_veto": "drop the key, or lower epsilon_high",
    "warmup.off_policy_mask_threshold": "drop the key, or use correction: sequence_mask with vLLM",
    "warmup.top_entropy_quantile": "all tokens are trained on: drop the key",
    "warmup.loss=*spo": "use loss: grpo, dapo, dr_grpo or bnpo",
    "warmup.loss=sapo": "use loss: grpo, dapo, dr_grpo or bnpo",
    "*.resample": "prompts are no longer replaced: use retire, or mask_uniform_groups",
    "*.retire.readmit": "a retired prompt returns when all are retired: drop the key",
    "dpo.loss=ipo_sum": "use loss: ipo",
    "dpo.use_weighting": "WPO was removed: drop the key",
    "dpo.ld_alpha": "LD-DPO was removed: drop the key",
    "training.strategy": "every process has the whole model: drop the key",
    "engine.keep_alive": "an engine now ends with its job: drop the key",
    "engine.cuda_graph": "CUDA graphs of the transformers engine were removed: drop the key, or use engine.name: vllm",
    "engine.adapters=merge_bfloat16": "merging into bfloat16 was removed: use engine.adapters: merge",
    "lora.rounding": "adapters are rounded as in PEFT: drop the key, or use engine.adapters: merge with vLLM",
    "models.*.source=recorded": "recorded completions were removed: judge them with g2d verify",
    "collapse": "remove it; training.csv has the curves of entropy and length",
    "rewards.*.reward=majority": "use reward: random, format or wrong as a control",
    "frontier": "write margin: 0.05 (your value) at the top level; tests of the frontier were removed",
    "evaluation.token_budgets": "remove it; evaluate at another evaluation.max_completion_length",
    "drift": "remove it; the KL divergence from M0 is no longer measured",
    "models.*.source=scratch": "use the embedded model (source: embedded), or a folder (source: local)",
    "*.source=reasoning_gym": "write its problems to a JSONL file, with a verifier of your own (docs/verifier.md)",
    "*.family=calculation": "long calculations were removed: use arithmetic, or a JSONL file (source: local)",
    "*.family=replies": "synthetic replies were removed: name a file or data set of prompts (source: local or hub)",
    "pool.steps": "long calculations were removed: use levels",
    "benchmarks.*.steps": "long calculations were removed: use levels",
    "rewards.*.name": "rewards of installed packages were removed: write a function in a file",
    "rewards.*.reward=plugin": "rewards of installed packages were removed: write a function in a file",
    "rewards.*.settings": "rewards of installed packages were removed: write a function in a file",
    "rewards.*.reward=scratch_model": "the embedded reward model was removed: name a reward model (reward: model)",
    "regimes.*.regime=extrapolated": "list the later K in warmup.steps: extrapolated weights were far worse",
    "regimes.*.regime=staged_grpo": "write an ablation of warmup with updates_per_generation: K / number of stages",
    "regimes.*.regime=iterative_dpo": "use regime: semi_online_dpo with sync_every: pass",
    "regimes.*.regime=group_dpo": "use regime: semi_online_dpo with pairs: all",
    "regimes.*.regime=kto": "KTO was removed: use regime: rft, or TRL's KTOTrainer on the harvest",
    "regimes.*.regime=distillation": "distillation was removed: use TRL's GKDTrainer",
    "regimes.*.harvest": "an entry is trained on the main grid's harvests: write an ablation to change the warm-up",
    "regimes.*.policies": "an online entry is evaluated and not harvested: drop it",
    "regimes.*.auto": "only the warm-up stops automatically (warmup.auto)",
    "seeds.looks": "list the seeds; interim analyses were removed",
    "looks": "list the seeds; interim analyses were removed",
    "probe": "remove it; warmup.auto stops a warm-up when the harvest gets less informative",
    "sweep": "write entries or ablations with other rates, and mark a benchmark with select_by: true",
    "regimes.*.select": "mark a benchmark with select_by: true; selection.csv has the K that it would choose",
    "ablations.*.select": "mark a benchmark with select_by: true; selection.csv has the K that it would choose",
    "open_ended.development": "checkpoints are selected by a benchmark (select_by: true): drop it",
    "engine.shards": "one job generates a file; vLLM uses several GPUs with tensor_parallel_size",
    "dpo.pairs_per_prompt": "a prompt gives one pair, as in the paper: drop it",
}

COMMANDS_GONE: dict[str, str] = {
    "compare": "g2d.open returns the results of each run as frames: join them with pandas",
    "export": "give an adapter folder to lm-evaluation-harness (docs/recipes.md)",
    "power": "g2d plan prints the differences that a grid can find",
    "push": "upload a folder with `hf upload REPOSITORY FOLDER`: each adapter has its card",
    "reward-model": "name a reward model in a folder or on the Hub (reward: model)",
    "verify-run": "recompute a job with snakemake and `-R RULE` in a copy of the folder, and compare the digests",
}


def gone_sentence(path: str, value: object) -> str | None:
    """Return why a key or its value is refused, or None if no earlier version had it.

    Args:
        path: of the key in the configuration, with dots.
        value: as written by the user.
    """
    for name in _names(_in_common_section(path), value):
        for pattern, sentence in GONE.items():
            if fnmatchcase(name, pattern):
                return f"gone since 0.3: {sentence}"
    return None


def without_gone_keys(values: Mapping[str, object], path: str = "") -> dict[str, object]:
    """Return the values that an earlier version recorded, without the keys that are gone.

    Records have all keys, also keys without an effect. Values such as `regime: kto` stay, and are refused.
    """
    kept: dict[str, object] = {}
    for key, value in values.items():
        name = f"{path}.{key}" if path else str(key)
        common = _in_common_section(name)
        if any(fnmatchcase(common, pattern) for pattern in GONE if "=" not in pattern):
            continue
        if isinstance(value, Mapping):
            kept[key] = without_gone_keys(value, name)
        else:
            kept[key] = value
    return kept


def _in_common_section(path: str) -> str:
    path = re.sub(r"^models\.[^.]+\.settings\.", "", path)
    return re.sub(r"^ablations\.[^.]+\.(warmup|dpo)\b", r"\1", path)


def _names(path: str, value: object) -> Iterator[str]:
    yield path
    if isinstance(value, Mapping):
        for key in value:
            yield f"{path}.{key}"
            yield f"{path}.{key}={value[key]}"
    else:
        yield f"{path}={value}"
