# Provenance and the report page.


rule record_provenance:
    input:
        planned("record_provenance", ""),
        base=expand("results/{model}/base/policy.json", model=CONFIG.models),
        policies=planned("record_provenance", "policies"),
        manifests=expand("results/problems/{name}.manifest.json", name=CONFIG.problem_sources),
        bill="results/tables/cost.csv",
    output:
        "results/provenance.json",
    log:
        "results/logs/record_provenance.log",
    benchmark:
        "results/benchmarks/record_provenance.tsv"
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["record_provenance"],
        config=CONFIG.identity,
        names=list(CONFIG.problem_sources),
    message:
        "Record versions, revisions and digests"
    script:
        "../scripts/record_provenance.py"


rule build_report:
    input:
        tables=expand("results/tables/{table}.csv", table=TABLES),
        figures=expand("results/figures/{figure}.svg", figure=FIGURES),
        provenance="results/provenance.json",
        problems=expand("results/{model}/calibration/train.jsonl", model=CONFIG.models),
        pairs=planned("build_report", "pairs"),
        rollouts=planned("build_report", "rollouts"),
        questions=expand("results/problems/{name}.jsonl", name=CONFIG.benchmarks),
        answers=planned("build_report", "answers"),
    output:
        in_report("results/report/index.html", "Page", "The page: answer, tables and provenance"),
    log:
        "results/logs/build_report.log",
    benchmark:
        "results/benchmarks/build_report.tsv"
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["build_report"],
        config=CONFIG.identity,
        tables=TITLES,
        figures=list(FIGURES),
        captions=lambda _: captions(CONFIG, [*TABLES, *(figure.name for figure in FIGURES.values())]),
    message:
        "Build the report"
    script:
        "../scripts/build_report.py"
