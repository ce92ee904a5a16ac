# Tables and figures.


# Messages. A rule reads what its tables read (g2d.graph.catalogue).
TABLE_RULES = {
    "make_tables": "Make the tables",
    "make_factorial": "Tabulate difficulty by level and temperature",
    "make_sample_table": "Compute pass@k and maj@n",
    "make_training_tables": "Tabulate the training curves",
    "make_win_rates": "Compute win rates against M0",
}
# Params of rules that do not depend on the whole configuration.
TABLE_PARAMS = {
    "make_factorial": {"rollouts": FACTORIAL},
}


for name, what in TABLE_RULES.items():

    rule:
        name:
            name
        input:
            **(JOBS[name,].inputs if (name,) in JOBS else {}),
        output:
            **{table.name: table_file(table) for table in catalogue.tables_of_rule(CONFIG, name)},
        log:
            f"results/logs/{name}.log",
        benchmark:
            f"results/benchmarks/{name}.tsv"
        conda:
            "../../envs/g2d.yaml"
        params:
            **TABLE_PARAMS.get(name, {"config": CONFIG.identity}),
            version=VERSIONS[name],
        message:
            what
        script:
            "../scripts/make_tables.py"


rule draw_figures:
    input:
        main="results/tables/main.csv",
        harvest="results/tables/harvest.csv",
        decomposition="results/tables/decomposition.csv",
    output:
        **{
            name: in_report(f"results/figures/{name}.svg", "Figures", figure.title, figure.caption_name)
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
