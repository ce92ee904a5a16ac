# One rule per regime of the catalogue, and one per regime that can stop automatically. All share one script, which
# calls the regime's `train`.

WEIGHTS, WEIGHTS_CONFIG = CONFIG.lora.files

for regime, stops in [*((one, False) for one in REGIMES.values()), *((one, True) for one in of_phase("online"))]:
    name, shape = f"train_{regime.name}{'_auto' if stops else ''}", training(regime, stops)
    folder = f"results/{{model}}/seed{{seed}}/{shape.folder}/g{{g}}/k{{k}}"

    rule:
        name:
            name
        input:
            planned(name, ""),
            **{one: planned(name, one) for one in shape.inputs},
            base="results/{model}/base/policy.json",
            choice=planned(name, "choice"),
        output:
            **{
                file.partition(".")[0]: f"{folder}/{file}" if "." in file else directory(f"{folder}/{file}")
                for file in shape.outputs
            },
            policy=f"{folder}/policy.json",
            weights=f"{folder}/{WEIGHTS}",
            weights_config=f"{folder}/{WEIGHTS_CONFIG}",
            metrics=f"{folder}/metrics.jsonl",
            cost=f"{folder}/cost.json",
        log:
            f"results/logs/{name}/{{model}}/seed{{seed}}/{shape.logged}g{{g}}/k{{k}}.log",
        benchmark:
            f"results/benchmarks/{name}/{{model}}/seed{{seed}}/{shape.logged}g{{g}}/k{{k}}.tsv"
        wildcard_constraints:
            **shape.constraints,
            regime=folders(regime.name, stops),
        conda:
            "../../envs/g2d.yaml"
        threads: CONFIG.training.threads
        resources:
            gpu=gpus,
        params:
            version=VERSIONS[name],
            settings=shape.settings,
        message:
            regime.auto_message if stops else regime.message
        script:
            "../scripts/train.py"
