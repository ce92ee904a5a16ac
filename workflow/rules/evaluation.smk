# Evaluate every policy on all benchmarks in one job, because an engine takes a minute to start. The job keeps finished
# answers (docs/architecture.md).


rule evaluate:
    input:
        policy="results/{policy}/policy.json",
        weights=policy_weights,
        model=m0_of,
        benchmarks=benchmarks_in("eval"),
        leakage=leakage_in("eval"),
    output:
        answers=expand("results/{{policy}}/eval/{benchmark}.parquet", benchmark=CONFIG.benchmarks),
        costs=expand("results/{{policy}}/eval/{benchmark}.cost.json", benchmark=CONFIG.benchmarks),
    log:
        "results/logs/evaluate/{policy}.log",
    benchmark:
        "results/benchmarks/evaluate/{policy}.tsv"
    conda:
        "../../envs/g2d.yaml"
    resources:
        gpu=engine_gpus,
        runtime=run_minutes,
    params:
        version=VERSIONS["evaluate"],
        settings=lambda w: GRID.job_settings[model_of(w)].answers(),
        engine=engine_name,
        machine=sampling_machine("evaluation"),
    message:
        "Evaluate {wildcards.policy}"
    script:
        "../scripts/evaluate.py"


# Samples in addition to greedy answers, if configured.
use rule evaluate as sample_answers with:
    input:
        policy="results/{policy}/policy.json",
        weights=policy_weights,
        model=m0_of,
        benchmarks=benchmarks_in("samples"),
        leakage=leakage_in("samples"),
    output:
        answers=expand("results/{{policy}}/samples/{benchmark}.parquet", benchmark=CONFIG.benchmarks),
        costs=expand("results/{{policy}}/samples/{benchmark}.cost.json", benchmark=CONFIG.benchmarks),
    log:
        "results/logs/sample_answers/{policy}.log",
    benchmark:
        "results/benchmarks/sample_answers/{policy}.tsv"
    params:
        settings=lambda w: GRID.job_settings[model_of(w)].samples(),
    message:
        "Sample {wildcards.policy} on all benchmarks"


# Replies to held-out open-ended prompts, for win rates against M0.
rule sample_replies:
    input:
        policy="results/{policy}/policy.json",
        weights=policy_weights,
        model=m0_of,
        problems=f"results/problems/{HELD_OUT}.jsonl",
        leakage=f"results/problems/{HELD_OUT}.leakage.json",
    output:
        rollouts="results/{policy}/open-ended/rollouts.parquet",
        cost="results/{policy}/open-ended/cost.json",
    log:
        "results/logs/sample_replies/{policy}.log",
    benchmark:
        "results/benchmarks/sample_replies/{policy}.tsv"
    conda:
        "../../envs/g2d.yaml"
    resources:
        gpu=engine_gpus,
        runtime=run_minutes,
    params:
        version=VERSIONS["sample_replies"],
        settings=lambda w: GRID.job_settings[model_of(w)].replies(),
        engine=engine_name,
        machine=sampling_machine("open_ended"),
    message:
        "Have {wildcards.policy} reply to the held-out prompts"
    script:
        "../scripts/sample_replies.py"
