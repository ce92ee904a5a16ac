# Stage 3: DPO on the pairs from a fresh M0, and the ablations of it.


rule train_dpo:
    input:
        base_files,
        base="results/{model}/base/policy.json",
        pairs=pairs_file,
        start=start_files,
        warmup=auto_warmup,
        matched=matched_pairs,
        costs="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/cost.json",
    output:
        policy="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/policy.json",
        adapter="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/adapter/adapter_model.safetensors",
        adapter_config="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/adapter/adapter_config.json",
        metrics="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/metrics.jsonl",
        cost="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/cost.json",
    log:
        "results/logs/train_dpo/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_dpo/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}.tsv"
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    resources:
        gpu=1,
    params:
        version=VERSIONS["train_dpo"],
        settings=lambda w: {
            "dpo": dpo_settings(w).params(),
            "lora": for_model(w.model).lora.params(),
        },
    message:
        "Train {wildcards.variant}{wildcards.regime} on the pairs of {wildcards.model} at K={wildcards.k}, "
        "G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/train_dpo.py"
