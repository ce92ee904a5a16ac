# Difficulty calibration: success of M0 per level, and the levels to train on (paper, 5.3 and A.3).


rule calibrate:
    input:
        planned("calibrate", ""),
        policy="results/{model}/base/policy.json",
        pool="results/problems/pool.jsonl",
        costs=planned("calibrate", "costs"),
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
        gpu=gpus,
    params:
        version=VERSIONS["calibrate"],
        settings=param("calibrate", "settings"),
        engine=param("calibrate", "engine"),
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
        settings=param("select_training_set", "settings"),
    message:
        "Choose the training levels of {wildcards.model} and draw its training set"
    script:
        "../scripts/select_training_set.py"


# Further temperatures, for the level x temperature table.


use rule calibrate as calibrate_temperature with:
    input:
        planned("calibrate_temperature", ""),
        policy="results/{model}/base/policy.json",
        pool="results/problems/pool.jsonl",
        costs=planned("calibrate_temperature", "costs"),
    output:
        rollouts="results/{model}/calibration/t{temperature}/rollouts.parquet",
        cost="results/{model}/calibration/t{temperature}/cost.json",
    log:
        "results/logs/calibrate/{model}/t{temperature}.log",
    benchmark:
        "results/benchmarks/calibrate/{model}/t{temperature}.tsv"
    params:
        settings=param("calibrate_temperature", "settings"),
        engine=param("calibrate_temperature", "engine"),
    message:
        "Calibrate the difficulty of every level for {wildcards.model} at temperature {wildcards.temperature}"
