# Evaluate every policy on every benchmark: one row per problem, or per sample.


rule evaluate:
    input:
        planned("evaluate", ""),
        policy="results/{policy}/policy.json",
        benchmark="results/problems/{benchmark}.jsonl",
        leakage="results/problems/{benchmark}.leakage.json",
        costs=planned("evaluate", "costs"),
    output:
        rollouts="results/{policy}/eval/{benchmark}.parquet",
        cost="results/{policy}/eval/{benchmark}.cost.json",
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


# Samples in addition to greedy answers, if configured.
use rule evaluate as draw_samples with:
    input:
        planned("draw_samples", ""),
        policy="results/{policy}/policy.json",
        benchmark="results/problems/{benchmark}.jsonl",
        leakage="results/problems/{benchmark}.leakage.json",
        costs=planned("draw_samples", "costs"),
    output:
        rollouts="results/{policy}/samples/{benchmark}.parquet",
        cost="results/{policy}/samples/{benchmark}.cost.json",
    log:
        "results/logs/draw_samples/{policy}/{benchmark}.log",
    benchmark:
        "results/benchmarks/draw_samples/{policy}/{benchmark}.tsv"
    params:
        settings=param("draw_samples", "settings"),
        engine=param("draw_samples", "engine"),
    message:
        "Draw samples of {wildcards.policy} on {wildcards.benchmark}"
