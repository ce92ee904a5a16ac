# Stage 3: DPO on the pairs from a fresh M0, and the ablations of it.


rule train_dpo:
    input:
        plan.base_files,
        base="results/{model}/base/policy.json",
        pairs=plan.pairs_file,
        start=plan.start_files,
        warmup=plan.auto_warmup,
        matched=plan.matched_pairs,
        choice=plan.choice("dpo"),
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
        gpu=plan.training_gpus,
    params:
        version=VERSIONS["train_dpo"],
        settings=plan.dpo_settings,
    message:
        "Train {wildcards.variant}{wildcards.regime} on the pairs of {wildcards.model} at K={wildcards.k}, "
        "G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/train_dpo.py"
