# The sweep: tune every regime on development problems. The regimes' usual rules train the candidates; the trainings of
# the grid wait for the chosen settings.


if held_out(CONFIG):

    rule hold_out_development:
        input:
            pool="results/problems/pool.jsonl",
        output:
            development="results/problems/development.jsonl",
            pool="results/problems/pool.training.jsonl",
        log:
            "results/logs/hold_out_development.log",
        benchmark:
            "results/benchmarks/hold_out_development.tsv"
        conda:
            "../../envs/g2d.yaml"
        params:
            version=VERSIONS["hold_out_development"],
            n=held_out(CONFIG),
        message:
            "Hold {params.n} problems out of the pool"
        script:
            "../scripts/hold_out_development.py"


rule choose_settings:
    input:
        evaluations=planned("choose_settings", "evaluations"),
    output:
        choice="results/{model}/sweep/{swept}.json",
        candidates="results/{model}/sweep/{swept}.csv",
    log:
        "results/logs/choose_settings/{model}/{swept}.log",
    benchmark:
        "results/benchmarks/choose_settings/{model}/{swept}.tsv"
    wildcard_constraints:
        swept=names(SWEPT),
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["choose_settings"],
        section=lambda w: swept_section(CONFIG, w.swept)[0],
    message:
        "Choose the settings of {wildcards.swept} for {wildcards.model}"
    script:
        "../scripts/choose_settings.py"


# Problems held out of the pool are checked with the pool.
use rule check_leakage as check_development with:
    input:
        pool=lambda w: f"results/problems/{DEVELOPMENT_OF.get(w.benchmark, DEVELOPMENT)}.jsonl",
        benchmark="results/problems/{benchmark}.jsonl",
    output:
        "results/problems/{benchmark}.development.json",
    log:
        "results/logs/check_development/{benchmark}.log",
    benchmark:
        "results/benchmarks/check_development/{benchmark}.tsv"
    message:
        "Check that no problem of {wildcards.benchmark} is among those that choose"
