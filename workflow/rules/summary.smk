# Tables and figures: Tables 1 to 4 and Figures 2 and 3 of the paper, for this grid.


rule make_tables:
    input:
        levels=expand("results/{model}/calibration/levels.csv", model=CONFIG.models),
        informativeness=[f"results/{h.folder}/informativeness.json" for h in HARVESTS],
        harvests=[f"results/{h.folder}/rollouts.parquet" for h in HARVESTS],
        evaluations=[
            f"results/{p.folder}/eval/{benchmark}.parquet" for p in POLICIES for benchmark in CONFIG.benchmarks
        ],
        evaluation_costs=[
            f"results/{p.folder}/eval/{benchmark}.cost.json" for p in POLICIES for benchmark in CONFIG.benchmarks
        ],
        sample_costs=[f"results/{place}.cost.json" for place in drawn_beside(CONFIG).values()],
        reply_costs=[f"results/{p.folder}/open-ended/cost.json" for p in POLICIES if CONFIG.open_ended],
        policies=[f"results/{p.folder}/policy.json" for p in POLICIES],
        costs=[f"results/{p.folder}/cost.json" for p in TRAINED],
        metrics=[f"results/{p.folder}/metrics.jsonl" for p in TRAINED if CONFIG.regimes and not p.selected],
        probes=[f"results/{warmup.folder}/probes.csv" for warmup in AUTO_WARMUPS],
        sweep=[
            f"results/{key.folder}/{file}"
            for _, key in CANDIDATES
            for file in ("cost.json", "eval/development.cost.json")
        ],
        of_controls=OF_CONTROLS,
        selections=[f"results/{folder}/selection.csv" for folder in CHECKPOINTS],
        checked=DEVELOPMENT_CHECKS if CHECKPOINTS else [],
    output:
        **{name: f"results/tables/{name}.csv" for name, table in TABLES.items() if table.rule == "make_tables"},
    log:
        "results/logs/make_tables.log",
    benchmark:
        "results/benchmarks/make_tables.tsv"
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    params:
        version=VERSIONS["make_tables"],
        config=CONFIG.identity,
    message:
        "Make the tables"
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
