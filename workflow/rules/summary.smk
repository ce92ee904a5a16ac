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
        policies=[f"results/{p.folder}/policy.json" for p in POLICIES],
        costs=[f"results/{p.folder}/cost.json" for p in TRAINED],
        probes=[f"results/{warmup.folder}/probes.csv" for warmup in AUTO_WARMUPS],
    output:
        **{table: f"results/tables/{table}.csv" for table in ("equal_compute", "auto") if table in TABLES},
        main="results/tables/main.csv",
        comparisons="results/tables/comparisons.csv",
        decomposition="results/tables/decomposition.csv",
        budgets="results/tables/budgets.csv",
        harvest="results/tables/harvest.csv",
        correlations="results/tables/correlations.csv",
        ablations="results/tables/ablations.csv",
        calibration="results/tables/calibration.csv",
        disputes="results/tables/disputes.csv",
        cost="results/tables/cost.csv",
        published="results/tables/published.csv",
        attempts="results/tables/attempts.csv",
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
        **{table: f"results/tables/{table}.csv" for table in TABLES},
    output:
        **{
            table: report(
                f"results/tables/{table}.html",
                caption=f"../report/{table}.rst",
                category=category(chapter),
                labels={"what": TABLES[table]},
            )
            for chapter, table in (
                ("1. Results", "equal_compute"),
                ("2. Rollouts", "auto"),
                ("2. Rollouts", "factorial"),
                ("2. Rollouts", "factorial_effects"),
                ("5. Advice", "advice"),
                ("5. Advice", "advice_levels"),
                ("5. Advice", "advice_hours"),
                ("5. Advice", "advice_check"),
            )
            if table in TABLES
        },
        main=report(
            "results/tables/main.html",
            caption="../report/main.rst",
            category=category("1. Results"),
            labels={"what": TABLES["main"]},
        ),
        comparisons=report(
            "results/tables/comparisons.html",
            caption="../report/comparisons.rst",
            category=category("1. Results"),
            labels={"what": TABLES["comparisons"]},
        ),
        decomposition=report(
            "results/tables/decomposition.html",
            caption="../report/decomposition.rst",
            category=category("1. Results"),
            labels={"what": TABLES["decomposition"]},
        ),
        budgets=report(
            "results/tables/budgets.html",
            caption="../report/budgets.rst",
            category=category("1. Results"),
            labels={"what": TABLES["budgets"]},
        ),
        ablations=report(
            "results/tables/ablations.html",
            caption="../report/ablations.rst",
            category=category("1. Results"),
            labels={"what": TABLES["ablations"]},
        ),
        harvest=report(
            "results/tables/harvest.html",
            caption="../report/harvest.rst",
            category=category("2. Rollouts"),
            labels={"what": TABLES["harvest"]},
        ),
        correlations=report(
            "results/tables/correlations.html",
            caption="../report/correlations.rst",
            category=category("2. Rollouts"),
            labels={"what": TABLES["correlations"]},
        ),
        calibration=report(
            "results/tables/calibration.html",
            caption="../report/calibration.rst",
            category=category("2. Rollouts"),
            labels={"what": TABLES["calibration"]},
        ),
        disputes=report(
            "results/tables/disputes.html",
            caption="../report/disputes.rst",
            category=category("2. Rollouts"),
            labels={"what": TABLES["disputes"]},
        ),
        cost=report(
            "results/tables/cost.html",
            caption="../report/cost.rst",
            category=category("3. Cost"),
            labels={"what": TABLES["cost"]},
        ),
        published=report(
            "results/tables/published.html",
            caption="../report/published.rst",
            category=category("4. The paper"),
            labels={"what": TABLES["published"]},
        ),
        audit=report(
            "results/tables/audit.html",
            caption="../report/audit.rst",
            category=category("4. The paper"),
            labels={"what": TABLES["audit"]},
        ),
        attempts=report(
            "results/tables/attempts.html",
            caption="../report/attempts.rst",
            category=category("3. Cost"),
            labels={"what": TABLES["attempts"]},
        ),
    log:
        "results/logs/render_tables.log",
    benchmark:
        "results/benchmarks/render_tables.tsv"
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    params:
        version=VERSIONS["render_tables"],
        titles=TABLES,
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
        gains=report(
            "results/figures/gains.svg",
            caption="../report/gains.rst",
            category=category("1. Results"),
            labels={"what": "Where a gain comes from"},
        ),
        budgets=report(
            "results/figures/budgets.svg",
            caption="../report/budgets_figure.rst",
            category=category("1. Results"),
            labels={"what": "Accuracy against the token budget"},
        ),
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
    threads: 1
    params:
        version=VERSIONS["draw_figures"],
        benchmark=list(CONFIG.benchmarks)[0],
        note=CONFIG.demonstration,
    message:
        "Draw the figures"
    script:
        "../scripts/draw_figures.py"
