# Train policies. The script of all rules calls the regime's `train`.

WEIGHTS, WEIGHTS_CONFIG = CONFIG.lora.files

WARMED_UP = "results/{model}/seed{seed}/{variant}grpo/g{g}/k{k}"
STOPPED = f"results/{{model}}/seed{{seed}}/{AUTO}/grpo/g{{g}}/k{{k}}"
OF_ENTRY = "results/{model}/seed{seed}/{regime}/g{g}/k{k}"
OF_DPO = "results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}"


# GRPO: every K continues the checkpoint of the K before it.
rule train_grpo:
    input:
        planned("train_grpo", ""),
        problems=planned("train_grpo", "problems"),
        checkpoint=planned("train_grpo", "checkpoint"),
        costs=planned("train_grpo", "costs"),
        base="results/{model}/base/policy.json",
    output:
        checkpoint=directory(f"{WARMED_UP}/checkpoint"),
        rollouts=f"{WARMED_UP}/rollouts.parquet",
        policy=f"{WARMED_UP}/policy.json",
        weights=f"{WARMED_UP}/{WEIGHTS}",
        weights_config=f"{WARMED_UP}/{WEIGHTS_CONFIG}",
        metrics=f"{WARMED_UP}/metrics.jsonl",
        cost=f"{WARMED_UP}/cost.json",
    log:
        "results/logs/train_grpo/{model}/seed{seed}/{variant}g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_grpo/{model}/seed{seed}/{variant}g{g}/k{k}.tsv"
    wildcard_constraints:
        variant=variant_pattern(ABLATED_WARMUPS),
    conda:
        "../../envs/g2d.yaml"
    threads: CONFIG.training.threads
    resources:
        gpu=gpus,
    params:
        version=VERSIONS["train_grpo"],
        settings=param("train_grpo", "settings"),
    message:
        "Warm {wildcards.model} up to K={wildcards.k} with {wildcards.variant}GRPO, G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/train.py"


# GRPO with automatic stopping: at most K steps.
use rule train_grpo as train_grpo_auto with:
    input:
        planned("train_grpo_auto", ""),
        problems=planned("train_grpo_auto", "problems"),
        costs=planned("train_grpo_auto", "costs"),
        base="results/{model}/base/policy.json",
    output:
        rollouts=f"{STOPPED}/rollouts.parquet",
        probes=f"{STOPPED}/probes.csv",
        policy=f"{STOPPED}/policy.json",
        weights=f"{STOPPED}/{WEIGHTS}",
        weights_config=f"{STOPPED}/{WEIGHTS_CONFIG}",
        metrics=f"{STOPPED}/metrics.jsonl",
        cost=f"{STOPPED}/cost.json",
    log:
        "results/logs/train_grpo_auto/{model}/seed{seed}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_grpo_auto/{model}/seed{seed}/g{g}/k{k}.tsv"
    wildcard_constraints:
        model=names(sorted({warmup.model for warmup in AUTO_WARMUPS})),
    params:
        version=VERSIONS["train_grpo_auto"],
        settings=param("train_grpo_auto", "settings"),
    message:
        "Warm {wildcards.model} up until H and mu decline, at most to K={wildcards.k}, G={wildcards.g}, "
        "seed {wildcards.seed}"


# Semi-online DPO: every K continues the checkpoint of the K before it.
use rule train_grpo as train_semi_online_dpo with:
    input:
        planned("train_semi_online_dpo", ""),
        problems=planned("train_semi_online_dpo", "problems"),
        checkpoint=planned("train_semi_online_dpo", "checkpoint"),
        start=planned("train_semi_online_dpo", "start"),
        costs=planned("train_semi_online_dpo", "costs"),
        base="results/{model}/base/policy.json",
    output:
        checkpoint=directory(f"{OF_ENTRY}/checkpoint"),
        rollouts=f"{OF_ENTRY}/rollouts.parquet",
        policy=f"{OF_ENTRY}/policy.json",
        weights=f"{OF_ENTRY}/{WEIGHTS}",
        weights_config=f"{OF_ENTRY}/{WEIGHTS_CONFIG}",
        metrics=f"{OF_ENTRY}/metrics.jsonl",
        cost=f"{OF_ENTRY}/cost.json",
    log:
        "results/logs/train_semi_online_dpo/{model}/seed{seed}/{regime}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_semi_online_dpo/{model}/seed{seed}/{regime}/g{g}/k{k}.tsv"
    wildcard_constraints:
        regime=folders("semi_online_dpo"),
    params:
        version=VERSIONS["train_semi_online_dpo"],
        settings=param("train_semi_online_dpo", "settings"),
    message:
        "Train {wildcards.model} on fresh pairs to K={wildcards.k} ({wildcards.regime}), G={wildcards.g}, "
        "seed {wildcards.seed}"


# DPO on the pairs in the harvest of pi_K.
rule train_dpo:
    input:
        planned("train_dpo", ""),
        pairs=planned("train_dpo", "pairs"),
        warmup=planned("train_dpo", "warmup"),
        matched=planned("train_dpo", "matched"),
        start=planned("train_dpo", "start"),
        costs="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/cost.json",
        base="results/{model}/base/policy.json",
    output:
        policy=f"{OF_DPO}/policy.json",
        weights=f"{OF_DPO}/{WEIGHTS}",
        weights_config=f"{OF_DPO}/{WEIGHTS_CONFIG}",
        metrics=f"{OF_DPO}/metrics.jsonl",
        cost=f"{OF_DPO}/cost.json",
    log:
        "results/logs/train_dpo/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_dpo/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}.tsv"
    wildcard_constraints:
        regime=folders("dpo"),
    conda:
        "../../envs/g2d.yaml"
    threads: CONFIG.training.threads
    resources:
        gpu=gpus,
    params:
        version=VERSIONS["train_dpo"],
        settings=param("train_dpo", "settings"),
    message:
        "Train {wildcards.variant}{wildcards.regime} on the pairs of {wildcards.model} at K={wildcards.k}, "
        "G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/train.py"


# RFT on the right rollouts in the harvest of pi_K, or on the chosen completions of its pairs.
use rule train_dpo as train_rft with:
    input:
        planned("train_rft", ""),
        rollouts=planned("train_rft", "rollouts"),
        problems=planned("train_rft", "problems"),
        pairs=planned("train_rft", "pairs"),
        start=planned("train_rft", "start"),
        costs="results/{model}/seed{seed}/harvest/g{g}/k{k}/cost.json",
        base="results/{model}/base/policy.json",
    output:
        policy=f"{OF_ENTRY}/policy.json",
        weights=f"{OF_ENTRY}/{WEIGHTS}",
        weights_config=f"{OF_ENTRY}/{WEIGHTS_CONFIG}",
        metrics=f"{OF_ENTRY}/metrics.jsonl",
        cost=f"{OF_ENTRY}/cost.json",
    log:
        "results/logs/train_rft/{model}/seed{seed}/{regime}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_rft/{model}/seed{seed}/{regime}/g{g}/k{k}.tsv"
    wildcard_constraints:
        regime=folders("rft"),
    params:
        version=VERSIONS["train_rft"],
        settings=param("train_rft", "settings"),
    message:
        "Fine-tune {wildcards.model} on the right completions at K={wildcards.k} ({wildcards.regime}), "
        "G={wildcards.g}, seed {wildcards.seed}"
