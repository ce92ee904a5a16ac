# Contamination check: M0 continues the beginnings of questions.


CONTAMINATION = CONFIG.contamination or Contamination()


rule continue_questions:
    input:
        planned("continue_questions", ""),
        policy="results/{model}/base/policy.json",
        problems="results/problems/{benchmark}.jsonl",
        shards=[],
        costs=[],
    output:
        rollouts="results/{model}/contamination/{benchmark}/rollouts.parquet",
        cost="results/{model}/contamination/{benchmark}/cost.json",
    log:
        "results/logs/continue_questions/{model}/{benchmark}.log",
    benchmark:
        "results/benchmarks/continue_questions/{model}/{benchmark}.tsv"
    conda:
        "../../envs/g2d.yaml"
    resources:
        gpu=gpus,
    params:
        version=VERSIONS["continue_questions"],
        settings=param("continue_questions", "settings"),
        engine=param("continue_questions", "engine"),
    message:
        "Have {wildcards.model} continue the questions of {wildcards.benchmark}"
    script:
        "../scripts/continue_questions.py"
