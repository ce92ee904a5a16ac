# DPO in rounds: entries of `regimes` with `regime: iterative_dpo`. K counts rounds; the harvest of a round's policy and
# its pairs are those of harvest.smk.


rule train_iterative_dpo:
    input:
        plan.base_files,
        base="results/{model}/base/policy.json",
        pairs=lambda w: f"{plan.harvest_of_round(w)}/pairs.jsonl",
        start=plan.round_before,
        choice=plan.choice("dpo"),
        costs=lambda w: f"{plan.harvest_of_round(w)}/cost.json",
    output:
        policy="results/{model}/seed{seed}/{regime}/g{g}/k{k}/policy.json",
        adapter="results/{model}/seed{seed}/{regime}/g{g}/k{k}/adapter/adapter_model.safetensors",
        adapter_config="results/{model}/seed{seed}/{regime}/g{g}/k{k}/adapter/adapter_config.json",
        metrics="results/{model}/seed{seed}/{regime}/g{g}/k{k}/metrics.jsonl",
        cost="results/{model}/seed{seed}/{regime}/g{g}/k{k}/cost.json",
    log:
        "results/logs/train_iterative_dpo/{model}/seed{seed}/{regime}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_iterative_dpo/{model}/seed{seed}/{regime}/g{g}/k{k}.tsv"
    wildcard_constraints:
        regime=names(name for name, entry in plan.config.regimes.items() if entry.regime == "iterative_dpo"),
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    resources:
        gpu=plan.training_gpus,
    params:
        version=VERSIONS["train_iterative_dpo"],
        settings=plan.dpo_settings,
    message:
        "Train {wildcards.model} to round {wildcards.k} of DPO ({wildcards.regime}), seed {wildcards.seed}"
    script:
        "../scripts/train_iterative_dpo.py"
