# What goes on in the online trainings, whatever their regime.


rule make_training_tables:
    input:
        metrics=[f"results/{last.folder}/metrics.jsonl" for last in TRAJECTORIES],
        rollouts=[f"results/{key.folder}/rollouts.parquet" for keys in TRAJECTORIES.values() for key in keys],
    output:
        training="results/tables/training.csv",
        collapses="results/tables/collapses.csv",
    log:
        "results/logs/make_training_tables.log",
    benchmark:
        "results/benchmarks/make_training_tables.tsv"
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    params:
        version=VERSIONS["make_training_tables"],
        config=CONFIG.identity,
    message:
        "Follow the online trainings step by step"
    script:
        "../scripts/make_training_tables.py"
