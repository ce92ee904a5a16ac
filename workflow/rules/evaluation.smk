# Evaluate every policy on every benchmark: one row per problem, or per sample.


SAMPLE_SHARD = "results/{policy}/samples/{benchmark}.shards/{shard}-of-{shards}"
SAMPLE_COST = "results/{policy}/samples/{benchmark}.cost.json"
EVALUATION_SHARD = "results/{policy}/eval/{benchmark}.shards/{shard}-of-{shards}"
EVALUATION_COST = "results/{policy}/eval/{benchmark}.cost.json"


rule evaluate:
    input:
        planned("evaluate", ""),
        policy="results/{policy}/policy.json",
        benchmark="results/problems/{benchmark}.jsonl",
        leakage="results/problems/{benchmark}.leakage.json",
        shards=planned("evaluate", "shards"),
        costs=planned("evaluate", "costs"),
    output:
        rollouts="results/{policy}/eval/{benchmark}.parquet",
        cost=EVALUATION_COST,
    log:
        "results/logs/evaluate/{policy}/{benchmark}.log",
    benchmark:
        "results/benchmarks/evaluate/{policy}/{benchmark}.tsv"
    conda:
        "../../envs/g2d.yaml"
    resources:
        gpu=gpus,
    params:
        version=VERSIONS["evaluate"],
        settings=param("evaluate", "settings"),
        engine=param("evaluate", "engine"),
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


# Samples in addition to greedy answers, if configured.
use rule evaluate as draw_samples with:
    input:
        planned("draw_samples", ""),
        policy="results/{policy}/policy.json",
        benchmark="results/problems/{benchmark}.jsonl",
        leakage="results/problems/{benchmark}.leakage.json",
        shards=planned("draw_samples", "shards"),
        costs=planned("draw_samples", "costs"),
    output:
        rollouts="results/{policy}/samples/{benchmark}.parquet",
        cost=SAMPLE_COST,
    log:
        "results/logs/draw_samples/{policy}/{benchmark}.log",
    benchmark:
        "results/benchmarks/draw_samples/{policy}/{benchmark}.tsv"
    params:
        settings=param("draw_samples", "settings"),
        engine=param("draw_samples", "engine"),
    message:
        "Draw samples of {wildcards.policy} on {wildcards.benchmark}"


use rule draw_samples as draw_samples_shard with:
    output:
        rollouts=temp(f"{SAMPLE_SHARD}.parquet"),
        cost=temp(f"{SAMPLE_SHARD}.cost.json"),
    log:
        "results/logs/draw_samples/{policy}/{benchmark}.shards/{shard}-of-{shards}.log",
    benchmark:
        "results/benchmarks/draw_samples/{policy}/{benchmark}.shards/{shard}-of-{shards}.tsv"
    message:
        "Draw samples of {wildcards.policy} on {wildcards.benchmark}, shard {wildcards.shard} of {wildcards.shards}"
