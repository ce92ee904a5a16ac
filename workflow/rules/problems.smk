# The training pool and the benchmarks, in one format, checked against each other.


rule load_problems:
    input:
        lambda w: g2d_config.problem_files(CONFIG.problem_sources[w.set]),
    output:
        problems="results/problems/{set}.jsonl",
        manifest="results/problems/{set}.manifest.json",
    log:
        "results/logs/load_problems/{set}.log",
    benchmark:
        "results/benchmarks/load_problems/{set}.tsv"
    wildcard_constraints:
        set=names(CONFIG.problem_sources),
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    params:
        version=VERSIONS["load_problems"],
        source=lambda w: CONFIG.problem_sources[w.set].model_dump(mode="json"),
    message:
        "Load the problems {wildcards.set}"
    script:
        "../scripts/load_problems.py"


rule check_leakage:
    input:
        pool="results/problems/pool.jsonl",
        benchmarks=expand("results/problems/{benchmark}.jsonl", benchmark=CONFIG.benchmarks),
    output:
        "results/problems/leakage.json",
    log:
        "results/logs/check_leakage.log",
    benchmark:
        "results/benchmarks/check_leakage.tsv"
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    params:
        version=VERSIONS["check_leakage"],
    message:
        "Check that no benchmark problem is in the training pool"
    script:
        "../scripts/check_leakage.py"
