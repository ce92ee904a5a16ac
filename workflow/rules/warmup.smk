# Stage 1: K steps of GRPO. In a chain, every K continues the checkpoint of the K before it; or as many as it takes.


rule train_grpo:
    input:
        plan.base_files,
        base="results/{model}/base/policy.json",
        problems=plan.prompts_asked,
        reward=plan.reward_files,
        checkpoint=plan.previous_checkpoint,
        choice=plan.choice("warmup"),
        costs=plan.previous_costs,
    output:
        policy="results/{model}/seed{seed}/{variant}grpo/g{g}/k{k}/policy.json",
        adapter="results/{model}/seed{seed}/{variant}grpo/g{g}/k{k}/adapter/adapter_model.safetensors",
        adapter_config="results/{model}/seed{seed}/{variant}grpo/g{g}/k{k}/adapter/adapter_config.json",
        checkpoint=directory("results/{model}/seed{seed}/{variant}grpo/g{g}/k{k}/checkpoint"),
        metrics="results/{model}/seed{seed}/{variant}grpo/g{g}/k{k}/metrics.jsonl",
        rollouts="results/{model}/seed{seed}/{variant}grpo/g{g}/k{k}/rollouts.parquet",
        cost="results/{model}/seed{seed}/{variant}grpo/g{g}/k{k}/cost.json",
    log:
        "results/logs/train_grpo/{model}/seed{seed}/{variant}g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_grpo/{model}/seed{seed}/{variant}g{g}/k{k}.tsv"
    wildcard_constraints:
        variant=variant_pattern(set(grid.variants(plan.config)) & set(plan.config.ablations)),
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    resources:
        gpu=plan.training_gpus,
    params:
        version=VERSIONS["train_grpo"],
        settings=plan.grpo_settings,
    message:
        "Warm {wildcards.model} up to K={wildcards.k} with {wildcards.variant}GRPO, "
        "G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/train_grpo.py"


rule train_grpo_auto:
    input:
        plan.base_files,
        base="results/{model}/base/policy.json",
        problems="results/{model}/calibration/train.jsonl",
        choice=plan.choice("warmup"),
        costs="results/{model}/calibration/cost.json",
    output:
        policy="results/{model}/seed{seed}/auto/grpo/g{g}/k{k}/policy.json",
        adapter="results/{model}/seed{seed}/auto/grpo/g{g}/k{k}/adapter/adapter_model.safetensors",
        adapter_config="results/{model}/seed{seed}/auto/grpo/g{g}/k{k}/adapter/adapter_config.json",
        metrics="results/{model}/seed{seed}/auto/grpo/g{g}/k{k}/metrics.jsonl",
        rollouts="results/{model}/seed{seed}/auto/grpo/g{g}/k{k}/rollouts.parquet",
        probes="results/{model}/seed{seed}/auto/grpo/g{g}/k{k}/probes.csv",
        cost="results/{model}/seed{seed}/auto/grpo/g{g}/k{k}/cost.json",
    log:
        "results/logs/train_grpo_auto/{model}/seed{seed}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_grpo_auto/{model}/seed{seed}/g{g}/k{k}.tsv"
    wildcard_constraints:
        model=names(sorted({warmup.model for warmup in AUTO_WARMUPS})),
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    resources:
        gpu=1,
    params:
        version=VERSIONS["train_grpo_auto"],
        settings=plan.auto_settings,
    message:
        "Warm {wildcards.model} up until H and mu decline, at most to K={wildcards.k}, "
        "G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/train_grpo_auto.py"
