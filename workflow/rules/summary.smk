# Tables and figures: Tables 1 to 4 and Figures 2 and 3 of the paper, for this grid.


rule make_tables:
    input:
        levels=expand("results/{model}/calibration/levels.csv", model=CONFIG.models),
        informativeness=[f"results/{h.folder}/informativeness.json" for h in HARVESTS],
        evaluations=[
            f"results/{p.folder}/eval/{benchmark}.parquet" for p in POLICIES for benchmark in CONFIG.benchmarks
        ],
        policies=[f"results/{p.folder}/policy.json" for p in POLICIES],
        costs=[f"results/{p.folder}/cost.json" for p in POLICIES if p.regime != "base"],
    output:
        main=report(
            "results/tables/main.csv",
            caption="../report/main.rst",
            category=category("1. Results"),
            labels={"what": "Table 1: accuracy and cost"},
        ),
        harvest=report(
            "results/tables/harvest.csv",
            caption="../report/harvest.rst",
            category=category("2. Rollouts"),
            labels={"what": "Table 2: informativeness of the harvest"},
        ),
        correlations=report(
            "results/tables/correlations.csv",
            caption="../report/correlations.rst",
            category=category("2. Rollouts"),
            labels={"what": "Table 2: correlation with accuracy"},
        ),
        ablations=report(
            "results/tables/ablations.csv",
            caption="../report/ablations.rst",
            category=category("1. Results"),
            labels={"what": "Table 3: ablations"},
        ),
        calibration=report(
            "results/tables/calibration.csv",
            caption="../report/calibration.rst",
            category=category("2. Rollouts"),
            labels={"what": "Table 4: difficulty calibration"},
        ),
        cost_table=report(
            "results/tables/cost.csv",
            caption="../report/cost.rst",
            category=category("3. Cost"),
            labels={"what": "Cost by policy and stage"},
        ),
    log:
        "results/logs/make_tables.log",
    benchmark:
        "results/benchmarks/make_tables.tsv"
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["make_tables"],
        config=CONFIG.model_dump(mode="json"),
    message:
        "Make the tables"
    script:
        "../scripts/make_tables.py"


rule draw_figures:
    input:
        main="results/tables/main.csv",
        harvest="results/tables/harvest.csv",
    output:
        accuracy=report(
            "results/figures/accuracy.svg",
            caption="../report/accuracy.rst",
            category=category("1. Results"),
            labels={"what": "Figure 2: accuracy against K"},
        ),
        informativeness=report(
            "results/figures/informativeness.svg",
            caption="../report/informativeness.rst",
            category=category("2. Rollouts"),
            labels={"what": "Figure 3: informativeness against K"},
        ),
    log:
        "results/logs/draw_figures.log",
    benchmark:
        "results/benchmarks/draw_figures.tsv"
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["draw_figures"],
        benchmark=list(CONFIG.benchmarks)[0],
        note=CONFIG.demonstration,
    message:
        "Draw the figures"
    script:
        "../scripts/draw_figures.py"
