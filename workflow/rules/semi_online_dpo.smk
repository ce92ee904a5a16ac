# DPO on fresh rollouts: entries of `regimes` with `regime: semi_online_dpo`. Every K continues the K before it; the
# first begins with M0 or with the policy of `start`.


rule train_semi_online_dpo:
    input:
        plan.base_files,
        base="results/{model}/base/policy.json",
        problems=plan.prompts_asked,
        reward=plan.reward_files,
        checkpoint=plan.previous_checkpoint,
        start=plan.started_from,
        choice=plan.choice("regimes"),
        costs=plan.previous_costs,
    output:
        policy="results/{model}/seed{seed}/{regime}/g{g}/k{k}/policy.json",
        adapter="results/{model}/seed{seed}/{regime}/g{g}/k{k}/adapter/adapter_model.safetensors",
        adapter_config="results/{model}/seed{seed}/{regime}/g{g}/k{k}/adapter/adapter_config.json",
        checkpoint=directory("results/{model}/seed{seed}/{regime}/g{g}/k{k}/checkpoint"),
        metrics="results/{model}/seed{seed}/{regime}/g{g}/k{k}/metrics.jsonl",
        rollouts="results/{model}/seed{seed}/{regime}/g{g}/k{k}/rollouts.parquet",
        cost="results/{model}/seed{seed}/{regime}/g{g}/k{k}/cost.json",
    log:
        "results/logs/train_semi_online_dpo/{model}/seed{seed}/{regime}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_semi_online_dpo/{model}/seed{seed}/{regime}/g{g}/k{k}.tsv"
    wildcard_constraints:
        regime=names(
            name for name, entry in plan.config.regimes.items() if entry.regime == "semi_online_dpo" and not entry.auto
        ),
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    resources:
        gpu=plan.training_gpus,
    params:
        version=VERSIONS["train_semi_online_dpo"],
        settings=plan.online_entry_settings,
    message:
        "Train {wildcards.model} on fresh pairs to K={wildcards.k} ({wildcards.regime}), "
        "G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/train_semi_online_dpo.py"


# An entry with `auto` makes as many updates as it takes, at most K.


rule train_semi_online_dpo_auto:
    input:
        plan.base_files,
        base="results/{model}/base/policy.json",
        problems="results/{model}/calibration/train.jsonl",
        start=plan.started_from,
        choice=plan.choice("regimes"),
        costs=plan.previous_costs,
    output:
        policy="results/{model}/seed{seed}/{regime}/g{g}/k{k}/policy.json",
        adapter="results/{model}/seed{seed}/{regime}/g{g}/k{k}/adapter/adapter_model.safetensors",
        adapter_config="results/{model}/seed{seed}/{regime}/g{g}/k{k}/adapter/adapter_config.json",
        metrics="results/{model}/seed{seed}/{regime}/g{g}/k{k}/metrics.jsonl",
        rollouts="results/{model}/seed{seed}/{regime}/g{g}/k{k}/rollouts.parquet",
        probes="results/{model}/seed{seed}/{regime}/g{g}/k{k}/probes.csv",
        cost="results/{model}/seed{seed}/{regime}/g{g}/k{k}/cost.json",
    log:
        "results/logs/train_semi_online_dpo_auto/{model}/seed{seed}/{regime}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_semi_online_dpo_auto/{model}/seed{seed}/{regime}/g{g}/k{k}.tsv"
    wildcard_constraints:
        regime=names(name for name in plan.config.regimes if grid.stops_by_itself(plan.config, name)),
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    resources:
        gpu=1,
    params:
        version=VERSIONS["train_semi_online_dpo_auto"],
        settings=plan.auto_entry_settings,
    message:
        "Train {wildcards.model} on fresh pairs until H and mu decline, at most to K={wildcards.k} "
        "({wildcards.regime}), G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/train_semi_online_dpo_auto.py"
