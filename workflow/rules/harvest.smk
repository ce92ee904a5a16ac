# Stage 2: rollouts of the frozen pi_K, and preference pairs from them.


rule harvest_rollouts:
    input:
        planned("harvest_rollouts", ""),
        policy=planned("harvest_rollouts", "policy"),
        problems="results/{model}/calibration/train.jsonl",
        judged=planned("harvest_rollouts", "judged"),
        costs=planned("harvest_rollouts", "costs"),
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
        gpu=gpus,
    params:
        version=VERSIONS["harvest_rollouts"],
        settings=param("harvest_rollouts", "settings"),
        engine=param("harvest_rollouts", "engine"),
    message:
        "Harvest rollouts of {wildcards.model} at {wildcards.variant}K={wildcards.k}, "
        "G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/harvest_rollouts.py"


rule build_pairs:
    input:
        planned("build_pairs", ""),
        base="results/{model}/base/policy.json",
        rollouts="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/rollouts.parquet",
        problems="results/{model}/calibration/train.jsonl",
    output:
        pairs="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/pairs.jsonl",
        informativeness="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/informativeness.json",
    log:
        "results/logs/build_pairs/{model}/seed{seed}/{variant}g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/build_pairs/{model}/seed{seed}/{variant}g{g}/k{k}.tsv"
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["build_pairs"],
        settings=param("build_pairs", "settings"),
    message:
        "Pair the rollouts of {wildcards.model} at {wildcards.variant}K={wildcards.k}, "
        "G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/build_pairs.py"
