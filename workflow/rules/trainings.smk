# The trainings: one rule for each regime of the catalogue, by what it reads. All have the same script; its job is the
# regime's own `train`.

WEIGHTS, WEIGHTS_CONFIG = CONFIG.lora.files


# Offline: on the harvest of pi_K, from a fresh M0 or from pi_K.
for regime in of_phase("offline"):
    entry = regime in ENTRIES

    rule:
        name:
            f"train_{regime.name}"
        input:
            plan.base_files,
            unpack(plan.harvested),
            base="results/{model}/base/policy.json",
            start=plan.start_files,
            choice=plan.choice(regime.configured_in),
            costs="results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/cost.json",
        output:
            policy="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/policy.json",
            weights=f"results/{{model}}/seed{{seed}}/{{variant}}{{regime}}/g{{g}}/k{{k}}/{WEIGHTS}",
            weights_config=f"results/{{model}}/seed{{seed}}/{{variant}}{{regime}}/g{{g}}/k{{k}}/{WEIGHTS_CONFIG}",
            metrics="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/metrics.jsonl",
            cost="results/{model}/seed{seed}/{variant}{regime}/g{g}/k{k}/cost.json",
        log:
            f"results/logs/train_{regime.name}/{{model}}/seed{{seed}}/{{variant}}{{regime}}/g{{g}}/k{{k}}.log",
        benchmark:
            f"results/benchmarks/train_{regime.name}/{{model}}/seed{{seed}}/{{variant}}{{regime}}/g{{g}}/k{{k}}.tsv"
        wildcard_constraints:
            regime=folders(regime.name),
        conda:
            "../../envs/g2d.yaml"
        threads: 1
        resources:
            gpu=plan.training_gpus,
        params:
            version=VERSIONS[f"train_{regime.name}"],
            settings=plan.entry_settings if entry else plan.dpo_settings,
        message:
            regime.message
        script:
            "../scripts/train.py"


# In rounds: K counts them. The harvest of a round's policy and its pairs are those of harvest.smk.
for regime in of_phase("rounds"):

    rule:
        name:
            f"train_{regime.name}"
        input:
            plan.base_files,
            base="results/{model}/base/policy.json",
            pairs=lambda w: f"{plan.harvest_of_round(w)}/pairs.jsonl",
            start=plan.round_before,
            choice=plan.choice(regime.configured_in),
            costs=lambda w: f"{plan.harvest_of_round(w)}/cost.json",
        output:
            policy="results/{model}/seed{seed}/{regime}/g{g}/k{k}/policy.json",
            weights=f"results/{{model}}/seed{{seed}}/{{regime}}/g{{g}}/k{{k}}/{WEIGHTS}",
            weights_config=f"results/{{model}}/seed{{seed}}/{{regime}}/g{{g}}/k{{k}}/{WEIGHTS_CONFIG}",
            metrics="results/{model}/seed{seed}/{regime}/g{g}/k{k}/metrics.jsonl",
            cost="results/{model}/seed{seed}/{regime}/g{g}/k{k}/cost.json",
        log:
            f"results/logs/train_{regime.name}/{{model}}/seed{{seed}}/{{regime}}/g{{g}}/k{{k}}.log",
        benchmark:
            f"results/benchmarks/train_{regime.name}/{{model}}/seed{{seed}}/{{regime}}/g{{g}}/k{{k}}.tsv"
        wildcard_constraints:
            regime=folders(regime.name),
        conda:
            "../../envs/g2d.yaml"
        threads: 1
        resources:
            gpu=plan.training_gpus,
        params:
            version=VERSIONS[f"train_{regime.name}"],
            settings=plan.dpo_settings,
        message:
            regime.message
        script:
            "../scripts/train.py"


# Online: every K continues the checkpoint of the K before it; the first begins with M0 or with the policy of `start`.
for regime in of_phase("online"):
    entry = regime in ENTRIES
    name = "{regime}" if entry else f"{{variant}}{regime.name}"
    logged = "{regime}/" if entry else "{variant}"

    rule:
        name:
            f"train_{regime.name}"
        input:
            plan.base_files,
            base="results/{model}/base/policy.json",
            problems=plan.prompts_asked,
            reward=plan.reward_files,
            checkpoint=plan.previous_checkpoint,
            start=plan.started_from,
            harvest=plan.replayed_harvest,
            teacher=plan.teacher,
            choice=plan.choice(regime.configured_in),
            costs=plan.previous_costs,
        output:
            policy=f"results/{{model}}/seed{{seed}}/{name}/g{{g}}/k{{k}}/policy.json",
            weights=f"results/{{model}}/seed{{seed}}/{name}/g{{g}}/k{{k}}/{WEIGHTS}",
            weights_config=f"results/{{model}}/seed{{seed}}/{name}/g{{g}}/k{{k}}/{WEIGHTS_CONFIG}",
            checkpoint=directory(f"results/{{model}}/seed{{seed}}/{name}/g{{g}}/k{{k}}/checkpoint"),
            metrics=f"results/{{model}}/seed{{seed}}/{name}/g{{g}}/k{{k}}/metrics.jsonl",
            rollouts=f"results/{{model}}/seed{{seed}}/{name}/g{{g}}/k{{k}}/rollouts.parquet",
            cost=f"results/{{model}}/seed{{seed}}/{name}/g{{g}}/k{{k}}/cost.json",
        log:
            f"results/logs/train_{regime.name}/{{model}}/seed{{seed}}/{logged}g{{g}}/k{{k}}.log",
        benchmark:
            f"results/benchmarks/train_{regime.name}/{{model}}/seed{{seed}}/{logged}g{{g}}/k{{k}}.tsv"
        wildcard_constraints:
            variant=variant_pattern(ABLATED_WARMUPS),
            regime=folders(regime.name),
        conda:
            "../../envs/g2d.yaml"
        threads: 1
        resources:
            gpu=plan.training_gpus,
        params:
            version=VERSIONS[f"train_{regime.name}"],
            settings=plan.online_entry_settings if entry else plan.grpo_settings,
        message:
            regime.message
        script:
            "../scripts/train.py"


# The same, stopping by itself: as many steps as it takes, at most K.
for regime in of_phase("online"):
    entry = regime in ENTRIES
    name = "{regime}" if entry else f"{AUTO}/{regime.name}"
    logged = "{regime}/" if entry else ""

    rule:
        name:
            f"train_{regime.name}_auto"
        input:
            plan.base_files,
            base="results/{model}/base/policy.json",
            problems="results/{model}/calibration/train.jsonl",
            start=plan.started_from,
            teacher=plan.teacher,
            choice=plan.choice(regime.configured_in),
            costs=plan.previous_costs if entry else "results/{model}/calibration/cost.json",
        output:
            policy=f"results/{{model}}/seed{{seed}}/{name}/g{{g}}/k{{k}}/policy.json",
            weights=f"results/{{model}}/seed{{seed}}/{name}/g{{g}}/k{{k}}/{WEIGHTS}",
            weights_config=f"results/{{model}}/seed{{seed}}/{name}/g{{g}}/k{{k}}/{WEIGHTS_CONFIG}",
            metrics=f"results/{{model}}/seed{{seed}}/{name}/g{{g}}/k{{k}}/metrics.jsonl",
            rollouts=f"results/{{model}}/seed{{seed}}/{name}/g{{g}}/k{{k}}/rollouts.parquet",
            probes=f"results/{{model}}/seed{{seed}}/{name}/g{{g}}/k{{k}}/probes.csv",
            cost=f"results/{{model}}/seed{{seed}}/{name}/g{{g}}/k{{k}}/cost.json",
        log:
            f"results/logs/train_{regime.name}_auto/{{model}}/seed{{seed}}/{logged}g{{g}}/k{{k}}.log",
        benchmark:
            f"results/benchmarks/train_{regime.name}_auto/{{model}}/seed{{seed}}/{logged}g{{g}}/k{{k}}.tsv"
        wildcard_constraints:
            model="[^/]+" if entry else names(sorted({warmup.model for warmup in AUTO_WARMUPS})),
            regime=folders(regime.name, True),
        conda:
            "../../envs/g2d.yaml"
        threads: 1
        resources:
            gpu=1,
        params:
            version=VERSIONS[f"train_{regime.name}_auto"],
            settings=plan.auto_entry_settings if entry else plan.auto_settings,
        message:
            regime.auto_message
        script:
            "../scripts/train.py"
