# Before training: M0, the problems, and the difficulty of each level.

# M0: its record, and its folder, with links to weights that are outside of results/. Local models and problems are no
# inputs: another path is no other file. `force_edited_inputs` compares their digests.


rule embedded_model:
    output:
        policy="results/{model}/base/policy.json",
        model=directory("results/{model}/base/model"),
    log:
        "results/logs/embedded_model/{model}.log",
    benchmark:
        "results/benchmarks/embedded_model/{model}.tsv"
    wildcard_constraints:
        model=models_from("embedded"),
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["embedded_model"],
        source=lambda w: CONFIG.models[w.model].params(without={"settings"}),
        files=embedded.digests(),
    message:
        "Copy the embedded model to {wildcards.model}"
    script:
        "../scripts/embedded_model.py"


rule pretrained_model:
    output:
        policy="results/{model}/base/policy.json",
        model=directory("results/{model}/base/model"),
    log:
        "results/logs/pretrained_model/{model}.log",
    benchmark:
        "results/benchmarks/pretrained_model/{model}.tsv"
    wildcard_constraints:
        model=models_from("local", "hub"),
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["pretrained_model"],
        source=lambda w: CONFIG.models[w.model].params(without={"settings"}),
    message:
        "Fetch the base model {wildcards.model}"
    script:
        "../scripts/pretrained_model.py"


# The training pool and the benchmarks, in one format, checked for overlap.


rule load_problems:
    output:
        problems="results/problems/{set}.jsonl",
        manifest="results/problems/{set}.manifest.json",
    log:
        "results/logs/load_problems/{set}.log",
    benchmark:
        "results/benchmarks/load_problems/{set}.tsv"
    wildcard_constraints:
        set=names(CONFIG.problem_sources),
    priority: 1
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["load_problems"],
        source=lambda w: CONFIG.problem_sources[w.set].params(without={"select_by"}),
    message:
        "Load the problems {wildcards.set}"
    script:
        "../scripts/load_problems.py"


# One leakage check per benchmark, before anything is trained. It is an input of the evaluations; as an `ancient` input
# of the calibration it would hide other changes from Snakemake.
rule check_leakage:
    input:
        pool=pool_of,
        benchmark="results/problems/{benchmark}.jsonl",
    output:
        "results/problems/{benchmark}.leakage.json",
    log:
        "results/logs/check_leakage/{benchmark}.log",
    benchmark:
        "results/benchmarks/check_leakage/{benchmark}.tsv"
    priority: 1
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["check_leakage"],
    message:
        "Check that no problem of {wildcards.benchmark} is in the training pool"
    script:
        "../scripts/check_leakage.py"


# Difficulty calibration: success of M0 per level, and the levels to train on (paper, 5.3 and A.3).


rule calibrate:
    input:
        policy="results/{model}/base/policy.json",
        model="results/{model}/base/model",
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
        runtime=run_minutes,
    params:
        version=VERSIONS["calibrate"],
        settings=lambda w: GRID.job_settings[w.model].calibration(),
        engine=engine_name,
        machine=sampling_machine("calibration"),
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
        settings=lambda w: GRID.job_settings[w.model].training_set(),
    message:
        "Choose the training levels of {wildcards.model} and draw its training set"
    script:
        "../scripts/select_training_set.py"


# Further temperatures, for the level x temperature table.


use rule calibrate as calibrate_temperature with:
    input:
        policy="results/{model}/base/policy.json",
        model="results/{model}/base/model",
        pool="results/problems/pool.jsonl",
    output:
        rollouts="results/{model}/calibration/t{temperature}/rollouts.parquet",
        cost="results/{model}/calibration/t{temperature}/cost.json",
    log:
        "results/logs/calibrate/{model}/t{temperature}.log",
    benchmark:
        "results/benchmarks/calibrate/{model}/t{temperature}.tsv"
    params:
        settings=lambda w: GRID.job_settings[w.model].calibration(w.temperature),
    message:
        "Calibrate the difficulty of every level for {wildcards.model} at temperature {wildcards.temperature}"
