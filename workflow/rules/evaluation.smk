# Every policy on every benchmark, one row per problem.


rule evaluate:
    input:
        policy_files,
        policy="results/{policy}/policy.json",
        benchmark="results/problems/{benchmark}.jsonl",
    output:
        rollouts="results/{policy}/eval/{benchmark}.parquet",
        cost="results/{policy}/eval/{benchmark}.cost.json",
    log:
        "results/logs/evaluate/{policy}/{benchmark}.log",
    benchmark:
        "results/benchmarks/evaluate/{policy}/{benchmark}.tsv"
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    resources:
        gpu=generating_gpus,
    params:
        version=VERSIONS["evaluate"],
        settings=settings("evaluation", "prompt"),
        engine=engine,
    message:
        "Evaluate {wildcards.policy} on {wildcards.benchmark}"
    script:
        "../scripts/evaluate.py"
