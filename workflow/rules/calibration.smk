# Difficulty calibration: success of M0 per level, and the levels to train on (paper, 5.3 and A.3).


CALIBRATION_SHARD = "results/{model}/calibration/rollouts.shards/{shard}-of-{shards}"
CALIBRATION_COST = "results/{model}/calibration/cost.json"


rule calibrate:
    input:
        planned("calibrate", ""),
        policy="results/{model}/base/policy.json",
        pool=TRAINING_POOL,
        shards=planned("calibrate", "shards"),
        costs=planned("calibrate", "costs"),
    output:
        rollouts="results/{model}/calibration/rollouts.parquet",
        cost=CALIBRATION_COST,
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


use rule calibrate as calibrate_shard with:
    output:
        rollouts=temp(f"{CALIBRATION_SHARD}.parquet"),
        cost=temp(f"{CALIBRATION_SHARD}.cost.json"),
    log:
        "results/logs/calibrate/{model}.shards/{shard}-of-{shards}.log",
    benchmark:
        "results/benchmarks/calibrate/{model}.shards/{shard}-of-{shards}.tsv"
    message:
        "Calibrate the difficulty of every level for {wildcards.model}, shard {wildcards.shard} of {wildcards.shards}"


rule select_training_set:
    input:
        rollouts="results/{model}/calibration/rollouts.parquet",
        pool=TRAINING_POOL,
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

TEMPERATURE_SHARD = "results/{model}/calibration/t{temperature}/rollouts.shards/{shard}-of-{shards}"
TEMPERATURE_COST = "results/{model}/calibration/t{temperature}/cost.json"


use rule calibrate as calibrate_temperature with:
    input:
        planned("calibrate_temperature", ""),
        policy="results/{model}/base/policy.json",
        pool=TRAINING_POOL,
        shards=planned("calibrate_temperature", "shards"),
        costs=planned("calibrate_temperature", "costs"),
    output:
        rollouts="results/{model}/calibration/t{temperature}/rollouts.parquet",
        cost=TEMPERATURE_COST,
    log:
        "results/logs/calibrate/{model}/t{temperature}.log",
    benchmark:
        "results/benchmarks/calibrate/{model}/t{temperature}.tsv"
    params:
        settings=param("calibrate_temperature", "settings"),
        engine=param("calibrate_temperature", "engine"),
    message:
        "Calibrate the difficulty of every level for {wildcards.model} at temperature {wildcards.temperature}"


use rule calibrate_temperature as calibrate_temperature_shard with:
    output:
        rollouts=temp(f"{TEMPERATURE_SHARD}.parquet"),
        cost=temp(f"{TEMPERATURE_SHARD}.cost.json"),
    log:
        "results/logs/calibrate/{model}/t{temperature}.shards/{shard}-of-{shards}.log",
    benchmark:
        "results/benchmarks/calibrate/{model}/t{temperature}.shards/{shard}-of-{shards}.tsv"
    message:
        "Calibrate {wildcards.model} at temperature {wildcards.temperature}, "
        "shard {wildcards.shard} of {wildcards.shards}"
