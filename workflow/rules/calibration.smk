# Difficulty calibration: success of M0 per level, and the levels to train on (paper, 5.3 and A.3).


rule calibrate:
    input:
        base_files,
        policy="results/{model}/base/policy.json",
        pool="results/problems/pool.jsonl",
    output:
        rollouts="results/{model}/calibration/rollouts.parquet",
        cost="results/{model}/calibration/cost.json",
    log:
        "results/logs/calibrate/{model}.log",
    benchmark:
        "results/benchmarks/calibrate/{model}.tsv"
    conda:
        "../../envs/g2d.yaml"
    resources:
        gpu=engine_gpus,
    params:
        version=VERSIONS["calibrate"],
        settings=lambda w: GRID.fingerprints[w.model].calibration(),
        engine=engine_name,
    message:
        "Calibrate the difficulty of every level for {wildcards.model}"
    script:
        "../scripts/calibrate.py"


rule select_training_set:
    input:
        rollouts="results/{model}/calibration/rollouts.parquet",
        pool="results/problems/pool.jsonl",
    output:
        levels="results/{model}/calibration/levels.csv",
        problems="results/{model}/calibration/train.jsonl",
    log:
        "results/logs/select_training_set/{model}.log",
    benchmark:
        "results/benchmarks/select_training_set/{model}.tsv"
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["select_training_set"],
        settings=lambda w: GRID.fingerprints[w.model].training_set(),
    message:
        "Choose the training levels of {wildcards.model} and draw its training set"
    script:
        "../scripts/select_training_set.py"


# Further temperatures, for the level x temperature table.


use rule calibrate as calibrate_temperature with:
    input:
        base_files,
        policy="results/{model}/base/policy.json",
        pool="results/problems/pool.jsonl",
    output:
        rollouts="results/{model}/calibration/t{temperature}/rollouts.parquet",
        cost="results/{model}/calibration/t{temperature}/cost.json",
    log:
        "results/logs/calibrate/{model}/t{temperature}.log",
    benchmark:
        "results/benchmarks/calibrate/{model}/t{temperature}.tsv"
    params:
        settings=lambda w: GRID.fingerprints[w.model].calibration(w.temperature),
        engine=engine_name,
    message:
        "Calibrate the difficulty of every level for {wildcards.model} at temperature {wildcards.temperature}"
