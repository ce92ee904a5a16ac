# Stage 1: GRPO on the training set, from M0; and the other online trainings. The script of all trainings calls the
# method's `train`.

ABLATED_WARMUPS = [run.variant for run in GRID.any_runs.values() if run.role == "ablation" and run.method == "grpo"]


# GRPO: every K continues the checkpoint of the K before it.
rule train_grpo:
    input:
        problems=prompts,
        checkpoint=checkpoint_before,
        costs=costs_before,
        base="results/{model}/base/policy.json",
        model="results/{model}/base/model",
    output:
        checkpoint=directory(f"{OF_GRPO}/checkpoint"),
        rollouts=f"{OF_GRPO}/rollouts.parquet",
        policy=f"{OF_GRPO}/policy.json",
        weights=f"{OF_GRPO}/{WEIGHTS}",
        weights_config=f"{OF_GRPO}/{WEIGHTS_CONFIG}",
        card=f"{OF_GRPO}/{CARD}",
        metrics=f"{OF_GRPO}/metrics.jsonl",
        cost=f"{OF_GRPO}/cost.json",
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
        gpu=1,
        runtime=run_minutes,
    params:
        version=VERSIONS["train_grpo"],
        settings=training_settings,
        machine=training_machine,
    message:
        "Warm {wildcards.model} up to K={wildcards.k} with {wildcards.variant}GRPO, G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/train.py"


# GRPO with automatic stopping: at most K steps.
use rule train_grpo as train_grpo_auto with:
    input:
        problems="results/{model}/calibration/train.jsonl",
        costs="results/{model}/calibration/cost.json",
        base="results/{model}/base/policy.json",
        model="results/{model}/base/model",
    output:
        rollouts=f"{OF_GRPO}/rollouts.parquet",
        probes=f"{OF_GRPO}/probes.csv",
        policy=f"{OF_GRPO}/policy.json",
        weights=f"{OF_GRPO}/{WEIGHTS}",
        weights_config=f"{OF_GRPO}/{WEIGHTS_CONFIG}",
        card=f"{OF_GRPO}/{CARD}",
        metrics=f"{OF_GRPO}/metrics.jsonl",
        cost=f"{OF_GRPO}/cost.json",
    log:
        "results/logs/train_grpo_auto/{model}/seed{seed}/{variant}g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_grpo_auto/{model}/seed{seed}/{variant}g{g}/k{k}.tsv"
    wildcard_constraints:
        variant=f"{AUTO}/",
        model=names(sorted({warmup.model for warmup in GRID.automatic_warmups})),
    params:
        version=VERSIONS["train_grpo_auto"],
    message:
        "Warm {wildcards.model} up until H and mu decline, at most to K={wildcards.k}, G={wildcards.g}, "
        "seed {wildcards.seed}"


# Semi-online DPO: every K continues the checkpoint of the K before it.
use rule train_grpo as train_semi_online_dpo with:
    input:
        problems=prompts,
        checkpoint=checkpoint_before,
        start=start_files,
        costs=costs_before,
        base="results/{model}/base/policy.json",
        model="results/{model}/base/model",
    output:
        checkpoint=directory(f"{OF_ENTRY}/checkpoint"),
        rollouts=f"{OF_ENTRY}/rollouts.parquet",
        policy=f"{OF_ENTRY}/policy.json",
        weights=f"{OF_ENTRY}/{WEIGHTS}",
        weights_config=f"{OF_ENTRY}/{WEIGHTS_CONFIG}",
        card=f"{OF_ENTRY}/{CARD}",
        metrics=f"{OF_ENTRY}/metrics.jsonl",
        cost=f"{OF_ENTRY}/cost.json",
    log:
        "results/logs/train_semi_online_dpo/{model}/seed{seed}/{run}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_semi_online_dpo/{model}/seed{seed}/{run}/g{g}/k{k}.tsv"
    wildcard_constraints:
        run=runs_of("semi_online_dpo"),
    params:
        version=VERSIONS["train_semi_online_dpo"],
    message:
        "Train {wildcards.model} on fresh pairs to K={wildcards.k} ({wildcards.run}), G={wildcards.g}, "
        "seed {wildcards.seed}"
