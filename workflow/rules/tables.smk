# Tables and figures.

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


rule draw_figures:
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
        "results/logs/draw_figures.log",
    benchmark:
        "results/benchmarks/draw_figures.tsv"
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["draw_figures"],
        benchmark=CONFIG.tested_benchmarks[0],
        note=CONFIG.demonstration,
    message:
        "Draw the figures"
    script:
        "../scripts/draw_figures.py"
