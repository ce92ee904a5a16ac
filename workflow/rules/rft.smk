# Rejection-sampling fine-tuning on the harvest: entries of `regimes` with `regime: rft`.


rule train_rft:
    input:
        plan.base_files,
        base="results/{model}/base/policy.json",
        rollouts="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/rollouts.parquet",
        problems="results/{model}/calibration/train.jsonl",
        pairs=plan.pairs_of_entry,
        start=plan.start_files,
        choice=plan.choice("regimes"),
        costs="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/cost.json",
    output:
        policy="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/policy.json",
        adapter="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/adapter/adapter_model.safetensors",
        adapter_config="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/adapter/adapter_config.json",
        metrics="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/metrics.jsonl",
        cost="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/cost.json",
    log:
        "results/logs/train_rft/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_rft/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}.tsv"
    wildcard_constraints:
        regime=names(name for name, entry in plan.config.regimes.items() if entry.regime == "rft"),
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    resources:
        gpu=plan.training_gpus,
    params:
        version=VERSIONS["train_rft"],
        settings=plan.entry_settings,
    message:
        "Fine-tune {wildcards.model} on the right completions at K={wildcards.k} ({wildcards.variant}{wildcards.regime}), "
        "G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/train_rft.py"
