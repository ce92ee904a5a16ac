# Stage 1: K steps of GRPO. In a chain, every K continues the checkpoint of the K before it.


rule train_grpo:
    input:
        base_files,
        base="results/{model}/base/policy.json",
        problems="results/{model}/calibration/train.jsonl",
        checkpoint=previous_checkpoint,
        costs=lambda w: ["results/{model}/calibration/cost.json", *previous_costs(w)],
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
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    resources:
        gpu=1,
    params:
        version=VERSIONS["train_grpo"],
        settings=grpo_settings,
    message:
        "Warm {wildcards.model} up to K={wildcards.k} with {wildcards.variant}GRPO, "
        "G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/train_grpo.py"
