# Tables, figures, provenance and the page.

TABLES = all_tables.tables_of(GRID)
TITLES = {name: table.title for name, table in TABLES.items()}
FIGURES = {figure.name: figure for figure in all_tables.FIGURES}


rule make_tables:
    input:
        **{read.name: read.files(GRID) for read in all_tables.reads_of(TABLES.values()).values()},
    output:
        **{name: table_file(name) for name in TABLES},
    log:
        "results/logs/make_tables.log",
    benchmark:
        "results/benchmarks/make_tables.tsv"
    conda:
        "../../envs/g2d.yaml"
    params:
        config=CONFIG.identity,
        version=VERSIONS["make_tables"],
    message:
        "Make the tables"
    script:
        "../scripts/make_tables.py"


rule plot_figures:
    input:
        main="results/tables/main.csv",
        harvest="results/tables/harvest.csv",
        decomposition="results/tables/decomposition.csv",
    output:
        **{
            name: in_report(f"results/figures/{name}.svg", "Figures", figure.title, figure.name)
            for name, figure in FIGURES.items()
        },
    log:
        "results/logs/plot_figures.log",
    benchmark:
        "results/benchmarks/plot_figures.tsv"
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["plot_figures"],
        benchmark=CONFIG.tested_benchmarks[0],
        note=CONFIG.demonstration,
    message:
        "Plot the figures"
    script:
        "../scripts/plot_figures.py"


rule record_provenance:
    input:
        base=expand("results/{model}/base/policy.json", model=CONFIG.models),
        policies=TRAINED.files(GRID),
        metrics=TRAINING_LOGS.files(GRID),
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
        records=RECORDS.files(GRID),
        problems=expand("results/{model}/calibration/train.jsonl", model=CONFIG.models),
        pairs=SHOWN_PAIRS.files(GRID),
        rollouts=SHOWN_ROLLOUTS.files(GRID),
        questions=expand("results/problems/{name}.jsonl", name=CONFIG.benchmarks),
        answers=SHOWN_ANSWERS.files(GRID),
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
        captions=lambda _: captions(CONFIG, [*TABLES, *FIGURES]),
    message:
        "Build the report"
    script:
        "../scripts/build_report.py"
