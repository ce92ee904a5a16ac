# Stage 2: rollouts of the frozen pi_K, and preference pairs from them.


rule harvest_rollouts:
    input:
        policy=harvested_record,
        weights=harvested_weights,
        model="results/{model}/base/model",
        problems="results/{model}/calibration/train.jsonl",
        judged=rollouts_to_judge,
        costs=costs_of_harvested,
    output:
        rollouts="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/rollouts.parquet",
        cost="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/cost.json",
    log:
        "results/logs/harvest_rollouts/{model}/seed{seed}/{variant}g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/harvest_rollouts/{model}/seed{seed}/{variant}g{g}/k{k}.tsv"
    conda:
        "../../envs/g2d.yaml"
    resources:
        gpu=harvest_gpus,
        runtime=run_minutes,
    params:
        version=VERSIONS["harvest_rollouts"],
        settings=harvest_settings,
        engine=engine_name,
        machine=sampling_machine("harvest"),
    message:
        "Harvest rollouts of {wildcards.model} at {wildcards.variant}K={wildcards.k}, "
        "G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/harvest_rollouts.py"


rule build_pairs:
    input:
        base="results/{model}/base/policy.json",
        model="results/{model}/base/model",
        rollouts="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/rollouts.parquet",
        problems="results/{model}/calibration/train.jsonl",
    output:
        pairs="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/pairs.jsonl",
    log:
        "results/logs/build_pairs/{model}/seed{seed}/{variant}g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/build_pairs/{model}/seed{seed}/{variant}g{g}/k{k}.tsv"
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["build_pairs"],
        settings=lambda w: GRID.job_settings[w.model].pairs(),
    message:
        "Pair the rollouts of {wildcards.model} at {wildcards.variant}K={wildcards.k}, "
        "G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/build_pairs.py"
