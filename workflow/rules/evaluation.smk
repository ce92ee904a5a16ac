# Every policy on every benchmark, one row per problem.


EVALUATION_SHARD = "results/{policy}/eval/{benchmark}.shards/{shard}-of-{shards}"
EVALUATION_COST = "results/{policy}/eval/{benchmark}.cost.json"


rule evaluate:
    input:
        plan.policy_files,
        policy="results/{policy}/policy.json",
        benchmark="results/problems/{benchmark}.jsonl",
        leakage="results/problems/{benchmark}.leakage.json",
        shards=plan.shards("evaluation", f"{EVALUATION_SHARD}.parquet", EVALUATION_COST),
        costs=plan.shards("evaluation", f"{EVALUATION_SHARD}.cost.json", EVALUATION_COST),
    output:
        rollouts="results/{policy}/eval/{benchmark}.parquet",
        cost=EVALUATION_COST,
    log:
        "results/logs/evaluate/{policy}/{benchmark}.log",
    benchmark:
        "results/benchmarks/evaluate/{policy}/{benchmark}.tsv"
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    resources:
        gpu=plan.generating_gpus,
    params:
        version=VERSIONS["evaluate"],
        settings=plan.settings("evaluation", "prompt"),
        engine=plan.engine,
    message:
        "Evaluate {wildcards.policy} on {wildcards.benchmark}"
    script:
        "../scripts/evaluate.py"


use rule evaluate as evaluate_shard with:
    output:
        rollouts=temp(f"{EVALUATION_SHARD}.parquet"),
        cost=temp(f"{EVALUATION_SHARD}.cost.json"),
    log:
        "results/logs/evaluate/{policy}/{benchmark}.shards/{shard}-of-{shards}.log",
    benchmark:
        "results/benchmarks/evaluate/{policy}/{benchmark}.shards/{shard}-of-{shards}.tsv"
    message:
        "Evaluate {wildcards.policy} on {wildcards.benchmark}, shard {wildcards.shard} of {wildcards.shards}"
