# Train policies: a rule per regime of the catalogue, and another one if it can stop automatically. Their script calls the
# regime's `train`.

WEIGHTS, WEIGHTS_CONFIG = CONFIG.lora.files


# Online, or a stage on a harvest: every K continues the checkpoint of the K before it.
for regime in (*of_phase("online"), *of_phase("stages")):
    name = f"train_{regime.name}"
    place, logs = ("{regime}", "{regime}/") if regime in ENTRIES else (f"{{variant}}{regime.name}", "{variant}")
    folder = f"results/{{model}}/seed{{seed}}/{place}/g{{g}}/k{{k}}"

    rule:
        name:
            name
        input:
            planned(name, ""),
            problems=planned(name, "problems"),
            checkpoint=planned(name, "checkpoint"),
            start=planned(name, "start"),
            harvest=planned(name, "harvest"),
            teacher=planned(name, "teacher"),
            costs=planned(name, "costs"),
            base="results/{model}/base/policy.json",
            choice=planned(name, "choice"),
        output:
            checkpoint=directory(f"{folder}/checkpoint"),
            rollouts=f"{folder}/rollouts.parquet",
            policy=f"{folder}/policy.json",
            weights=f"{folder}/{WEIGHTS}",
            weights_config=f"{folder}/{WEIGHTS_CONFIG}",
            metrics=f"{folder}/metrics.jsonl",
            cost=f"{folder}/cost.json",
        log:
            f"results/logs/{name}/{{model}}/seed{{seed}}/{logs}g{{g}}/k{{k}}.log",
        benchmark:
            f"results/benchmarks/{name}/{{model}}/seed{{seed}}/{logs}g{{g}}/k{{k}}.tsv"
        wildcard_constraints:
            variant=variant_pattern(ABLATED_WARMUPS),
            regime=folders(regime.name),
        conda:
            "../../envs/g2d.yaml"
        threads: CONFIG.training.threads
        resources:
            gpu=gpus,
        params:
            version=VERSIONS[name],
            settings=param(name, "settings"),
        message:
            regime.message
        script:
            "../scripts/train.py"


# With automatic stopping: at most K steps.
for regime in of_phase("online"):
    name = f"train_{regime.name}_auto"
    place, logs = ("{regime}", "{regime}/") if regime in ENTRIES else (f"{AUTO}/{regime.name}", "")
    folder = f"results/{{model}}/seed{{seed}}/{place}/g{{g}}/k{{k}}"

    rule:
        name:
            name
        input:
            planned(name, ""),
            problems=planned(name, "problems"),
            start=planned(name, "start"),
            teacher=planned(name, "teacher"),
            costs=planned(name, "costs"),
            base="results/{model}/base/policy.json",
            choice=planned(name, "choice"),
        output:
            rollouts=f"{folder}/rollouts.parquet",
            probes=f"{folder}/probes.csv",
            policy=f"{folder}/policy.json",
            weights=f"{folder}/{WEIGHTS}",
            weights_config=f"{folder}/{WEIGHTS_CONFIG}",
            metrics=f"{folder}/metrics.jsonl",
            cost=f"{folder}/cost.json",
        log:
            f"results/logs/{name}/{{model}}/seed{{seed}}/{logs}g{{g}}/k{{k}}.log",
        benchmark:
            f"results/benchmarks/{name}/{{model}}/seed{{seed}}/{logs}g{{g}}/k{{k}}.tsv"
        wildcard_constraints:
            model=r"[^/]+" if regime in ENTRIES else names(sorted({warmup.model for warmup in AUTO_WARMUPS})),
            regime=folders(regime.name, stops=True),
        conda:
            "../../envs/g2d.yaml"
        threads: CONFIG.training.threads
        resources:
            gpu=gpus,
        params:
            version=VERSIONS[name],
            settings=param(name, "settings"),
        message:
            regime.auto_message
        script:
            "../scripts/train.py"


# Offline: DPO on the pairs in the harvest of pi_K.
rule train_dpo:
    input:
        planned("train_dpo", ""),
        pairs=planned("train_dpo", "pairs"),
        warmup=planned("train_dpo", "warmup"),
        matched=planned("train_dpo", "matched"),
        start=planned("train_dpo", "start"),
        costs="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/cost.json",
        base="results/{model}/base/policy.json",
        choice=planned("train_dpo", "choice"),
    output:
        policy="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/policy.json",
        weights=f"results/{{model}}/seed{{seed}}/{{variant}}{{regime}}/g{{g}}/k{{k}}/{WEIGHTS}",
        weights_config=f"results/{{model}}/seed{{seed}}/{{variant}}{{regime}}/g{{g}}/k{{k}}/{WEIGHTS_CONFIG}",
        metrics="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/metrics.jsonl",
        cost="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/cost.json",
    log:
        "results/logs/train_dpo/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/train_dpo/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}.tsv"
    wildcard_constraints:
        regime=folders("dpo"),
    conda:
        "../../envs/g2d.yaml"
    threads: CONFIG.training.threads
    resources:
        gpu=gpus,
    params:
        version=VERSIONS["train_dpo"],
        settings=param("train_dpo", "settings"),
    message:
        REGIMES["dpo"].message
    script:
        "../scripts/train.py"


# Offline: RFT, KTO and group DPO read all rollouts, and pairs if they need them.
for regime in (one for one in of_phase("offline") if one in ENTRIES):
    name = f"train_{regime.name}"
    folder = "results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}"

    rule:
        name:
            name
        input:
            planned(name, ""),
            rollouts=planned(name, "rollouts"),
            problems=planned(name, "problems"),
            pairs=planned(name, "pairs"),
            start=planned(name, "start"),
            costs="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/cost.json",
            base="results/{model}/base/policy.json",
            choice=planned(name, "choice"),
        output:
            policy=f"{folder}/policy.json",
            weights=f"{folder}/{WEIGHTS}",
            weights_config=f"{folder}/{WEIGHTS_CONFIG}",
            metrics=f"{folder}/metrics.jsonl",
            cost=f"{folder}/cost.json",
        log:
            f"results/logs/{name}/{{model}}/seed{{seed}}/{{variant}}{{regime}}/g{{g}}/k{{k}}.log",
        benchmark:
            f"results/benchmarks/{name}/{{model}}/seed{{seed}}/{{variant}}{{regime}}/g{{g}}/k{{k}}.tsv"
        wildcard_constraints:
            regime=folders(regime.name),
        conda:
            "../../envs/g2d.yaml"
        threads: CONFIG.training.threads
        resources:
            gpu=gpus,
        params:
            version=VERSIONS[name],
            settings=param(name, "settings"),
        message:
            regime.message
        script:
            "../scripts/train.py"


# Rounds, each on the pairs of the policy before it; K counts them.
for regime in of_phase("rounds"):
    name = f"train_{regime.name}"
    folder = "results/{model}/seed{seed}/{regime}/g{g}/k{k}"

    rule:
        name:
            name
        input:
            planned(name, ""),
            pairs=planned(name, "pairs"),
            start=planned(name, "start"),
            costs=planned(name, "costs"),
            base="results/{model}/base/policy.json",
            choice=planned(name, "choice"),
        output:
            policy=f"{folder}/policy.json",
            weights=f"{folder}/{WEIGHTS}",
            weights_config=f"{folder}/{WEIGHTS_CONFIG}",
            metrics=f"{folder}/metrics.jsonl",
            cost=f"{folder}/cost.json",
        log:
            f"results/logs/{name}/{{model}}/seed{{seed}}/{{regime}}/g{{g}}/k{{k}}.log",
        benchmark:
            f"results/benchmarks/{name}/{{model}}/seed{{seed}}/{{regime}}/g{{g}}/k{{k}}.tsv"
        wildcard_constraints:
            regime=folders(regime.name),
        conda:
            "../../envs/g2d.yaml"
        threads: CONFIG.training.threads
        resources:
            gpu=gpus,
        params:
            version=VERSIONS[name],
            settings=param(name, "settings"),
        message:
            regime.message
        script:
            "../scripts/train.py"


# No training: the weights of a later K, extrapolated from two checkpoints of GRPO.
for regime in of_phase("extrapolated"):
    name = f"train_{regime.name}"
    folder = "results/{model}/seed{seed}/{regime}/g{g}/k{k}"

    rule:
        name:
            name
        input:
            planned(name, ""),
            policies=planned(name, "policies"),
            weights=planned(name, "weights"),
            costs=planned(name, "costs"),
            base="results/{model}/base/policy.json",
        output:
            policy=f"{folder}/policy.json",
            weights=f"{folder}/{WEIGHTS}",
            weights_config=f"{folder}/{WEIGHTS_CONFIG}",
            cost=f"{folder}/cost.json",
        log:
            f"results/logs/{name}/{{model}}/seed{{seed}}/{{regime}}/g{{g}}/k{{k}}.log",
        benchmark:
            f"results/benchmarks/{name}/{{model}}/seed{{seed}}/{{regime}}/g{{g}}/k{{k}}.tsv"
        wildcard_constraints:
            regime=folders(regime.name),
        conda:
            "../../envs/g2d.yaml"
        params:
            version=VERSIONS[name],
            settings=param(name, "settings"),
        message:
            regime.message
        script:
            "../scripts/train.py"
