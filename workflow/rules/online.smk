# Online trainings besides GRPO.


# Semi-online DPO: every K continues the checkpoint of the K before it.
use rule train_grpo as train_semi_online_dpo with:
    input:
        base_files,
        problems=prompts,
        checkpoint=checkpoint_before,
        start=start_files,
        costs=costs_before,
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
        regime=names(GRID.names_of("semi_online_dpo")),
    params:
        version=VERSIONS["train_semi_online_dpo"],
        settings=training_settings,
    message:
        "Train {wildcards.model} on fresh pairs to K={wildcards.k} ({wildcards.regime}), G={wildcards.g}, "
        "seed {wildcards.seed}"
