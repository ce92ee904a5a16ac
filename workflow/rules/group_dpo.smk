# DPO on all pairs of the harvest: entries of `regimes` with `regime: group_dpo`.


rule train_group_dpo:
    input:
        plan.base_files,
        base="results/{model}/base/policy.json",
        rollouts="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/rollouts.parquet",
        problems="results/{model}/calibration/train.jsonl",
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
        "results/logs/train_group_dpo/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_group_dpo/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}.tsv"
    wildcard_constraints:
        regime=names(name for name, entry in plan.config.regimes.items() if entry.regime == "group_dpo"),
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    resources:
        gpu=plan.training_gpus,
    params:
        version=VERSIONS["train_group_dpo"],
        settings=plan.entry_settings,
    message:
        "Train {wildcards.model} on all pairs at K={wildcards.k} ({wildcards.variant}{wildcards.regime}), "
        "G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/train_group_dpo.py"
