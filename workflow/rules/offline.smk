# Stage 3: trainings on a harvest, by default from a fresh copy of M0.


# DPO on the pairs in the harvest of pi_K.
rule train_dpo:
    input:
        pairs="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/pairs.jsonl",
        warmup=automatic_warmup,
        matched=matched_pairs,
        start=start_files,
        costs="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/cost.json",
        base="results/{model}/base/policy.json",
        model="results/{model}/base/model",
    output:
        policy=f"{OF_OFFLINE}/policy.json",
        weights=f"{OF_OFFLINE}/{WEIGHTS}",
        weights_config=f"{OF_OFFLINE}/{WEIGHTS_CONFIG}",
        card=f"{OF_OFFLINE}/{CARD}",
        metrics=f"{OF_OFFLINE}/metrics.jsonl",
        cost=f"{OF_OFFLINE}/cost.json",
    log:
        "results/logs/train_dpo/{model}/seed{seed}/{variant}{run}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_dpo/{model}/seed{seed}/{variant}{run}/g{g}/k{k}.tsv"
    wildcard_constraints:
        run=runs_of("dpo"),
    conda:
        "../../envs/g2d.yaml"
    threads: CONFIG.training.threads
    resources:
        gpu=1,
        runtime=run_minutes,
    params:
        version=VERSIONS["train_dpo"],
        settings=training_settings,
        machine=training_machine,
    message:
        "Train {wildcards.variant}{wildcards.run} on the pairs of {wildcards.model} at K={wildcards.k}, "
        "G={wildcards.g}, seed {wildcards.seed}"
    script:
        "../scripts/train.py"


# RFT on the right rollouts in the harvest of pi_K, or on the chosen completions of its pairs.
use rule train_dpo as train_rft with:
    input:
        rollouts="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/rollouts.parquet",
        problems="results/{model}/calibration/train.jsonl",
        pairs=chosen_pairs,
        start=start_files,
        costs="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/cost.json",
        base="results/{model}/base/policy.json",
        model="results/{model}/base/model",
    log:
        "results/logs/train_rft/{model}/seed{seed}/{variant}{run}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_rft/{model}/seed{seed}/{variant}{run}/g{g}/k{k}.tsv"
    wildcard_constraints:
        run=runs_of("rft"),
    params:
        version=VERSIONS["train_rft"],
    message:
        "Fine-tune {wildcards.model} on the right completions at K={wildcards.k} ({wildcards.run}), "
        "G={wildcards.g}, seed {wildcards.seed}"
