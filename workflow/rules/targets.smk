# Targets for people: `snakemake calibration`, `harvest`, `tables`, or one per K, such as `snakemake k150`.

HARVESTS = grid.harvests(CONFIG)
POLICIES = grid.policies(CONFIG)
TABLES = ["main", "harvest", "correlations", "ablations", "calibration", "cost"]
FIGURES = ["accuracy", "informativeness"]


rule all:
    input:
        expand("results/tables/{table}.csv", table=TABLES),
        expand("results/figures/{figure}.svg", figure=FIGURES),


rule calibration:
    input:
        expand("results/{model}/calibration/levels.csv", model=CONFIG.models),


rule harvest:
    input:
        [f"results/{h.folder}/pairs.jsonl" for h in HARVESTS],


rule tables:
    input:
        expand("results/tables/{table}.csv", table=TABLES),


for k in sorted({h.k for h in HARVESTS} | {p.k for p in POLICIES if p.regime != "base"}):

    rule:
        name:
            f"k{k}"
        input:
            [f"results/{h.folder}/pairs.jsonl" for h in HARVESTS if h.k == k],
            [
                f"results/{p.folder}/eval/{benchmark}.parquet"
                for p in POLICIES
                for benchmark in CONFIG.benchmarks
                if p.k == k and p.regime != "base"
            ],


with_forced_jobs(workflow, {"calibration": "calibrate", "harvest": "harvest_rollouts", "tables": "make_tables"})
