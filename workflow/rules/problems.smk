# The training pool and the benchmarks, in one format, checked for overlap.


rule load_problems:
    input:
        problem_sources,
    output:
        problems="results/problems/{set}.jsonl",
        manifest="results/problems/{set}.manifest.json",
    log:
        "results/logs/load_problems/{set}.log",
    benchmark:
        "results/benchmarks/load_problems/{set}.tsv"
    wildcard_constraints:
        set=names(CONFIG.problem_sources),
    priority: 1
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["load_problems"],
        source=lambda w: CONFIG.problem_sources[w.set].params(without={"select_by"}),
    message:
        "Load the problems {wildcards.set}"
    script:
        "../scripts/load_problems.py"


# One leakage check per benchmark, before anything is trained. It is an input of the evaluations; as an `ancient` input
# of the calibration it would hide other changes from Snakemake.
rule check_leakage:
    input:
        pool=pool_of,
        benchmark="results/problems/{benchmark}.jsonl",
    output:
        "results/problems/{benchmark}.leakage.json",
    log:
        "results/logs/check_leakage/{benchmark}.log",
    benchmark:
        "results/benchmarks/check_leakage/{benchmark}.tsv"
    priority: 1
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["check_leakage"],
    message:
        "Check that no problem of {wildcards.benchmark} is in the training pool"
    script:
        "../scripts/check_leakage.py"
