# Tables and figures: Tables 1 to 4 and Figures 2 and 3 of the paper, for this grid.


# Message of each rule. A rule reads what its tables read (g2d.tables.catalogue).
TABLE_RULES = {
    "make_tables": "Make the tables",
    "make_factorial": "Separate the effects of level and temperature",
    "make_contamination_table": "Count the questions that are completed word for word",
    "make_sample_table": "Count what one of k samples, or most of n, get right",
    "make_training_tables": "Follow the online trainings step by step",
    "make_sweep_table": "List what the sweep has tried and chosen",
    "make_win_rates": "Count whose replies are preferred to those of M0",
}
# Params of rules that do not depend on the whole configuration.
TABLE_PARAMS = {
    "make_factorial": {"rollouts": FACTORIAL},
    "make_contamination_table": {
        "models": list(CONFIG.models),
        "benchmarks": CONFIG.continued_benchmarks,
        "fresh": [name for name in CONFIG.continued_benchmarks if is_fresh(CONFIG.benchmarks[name])],
        "share": CONTAMINATION.share,
    },
    "make_sweep_table": {},
}
# The benchmarks are checked before a table shows a selection.
CHECKED = {"make_tables": DEVELOPMENT_CHECKS if CHECKPOINTS else [], "make_sweep_table": DEVELOPMENT_CHECKS}

for name, what in TABLE_RULES.items():

    rule:
        name:
            name
        input:
            *([unpack(at_last(partial(table_inputs, rule=name)))] if LOOKS else []),
            **({} if LOOKS else table_inputs(CONFIG, name)),
            checked=CHECKED.get(name, []),
        output:
            **{table.name: f"results/tables/{table.name}.csv" for table in catalogue.tables_of_rule(CONFIG, name)},
        log:
            f"results/logs/{name}.log",
        benchmark:
            f"results/benchmarks/{name}.tsv"
        conda:
            "../../envs/g2d.yaml"
        threads: 1
        params:
            **TABLE_PARAMS.get(name, {"config": CONFIG.identity}),
            version=VERSIONS[name],
        message:
            what
        script:
            "../scripts/make_tables.py"


rule render_tables:
    input:
        **{name: f"results/tables/{name}.csv" for name in TABLES},
    output:
        **{
            name: report(
                f"results/tables/{name}.html",
                caption=f"../report/{name}.rst",
                category=category(table.chapter),
                labels={"what": table.title},
            )
            for name, table in TABLES.items()
        },
    log:
        "results/logs/render_tables.log",
    benchmark:
        "results/benchmarks/render_tables.tsv"
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    params:
        version=VERSIONS["render_tables"],
        titles=TITLES,
        note=CONFIG.demonstration,
    message:
        "Render the tables for the report"
    script:
        "../scripts/render_tables.py"


rule draw_figures:
    input:
        main="results/tables/main.csv",
        harvest="results/tables/harvest.csv",
        decomposition="results/tables/decomposition.csv",
        budgets="results/tables/budgets.csv",
    output:
        **{
            name: report(
                f"results/figures/{name}.svg",
                caption=f"../report/{figure.caption_name}.rst",
                category=category(figure.chapter),
                labels={"what": figure.title},
            )
            for name, figure in FIGURES.items()
        },
    log:
        "results/logs/draw_figures.log",
    benchmark:
        "results/benchmarks/draw_figures.tsv"
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    params:
        version=VERSIONS["draw_figures"],
        benchmark=list(CONFIG.benchmarks)[0],
        note=CONFIG.demonstration,
    message:
        "Draw the figures"
    script:
        "../scripts/draw_figures.py"
