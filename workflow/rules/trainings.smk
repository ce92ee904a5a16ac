# The trainings: one rule for each regime of the catalogue, and one for each that can stop by itself. All have the same
# script; its job is the regime's own `train`.

from types import SimpleNamespace

WEIGHTS, WEIGHTS_CONFIG = CONFIG.lora.files


def training(regime, stops):
    """What a regime's rule has of its own: the folders of its policies and logs, inputs, outputs, settings, constraints."""
    entry = regime in ENTRIES
    own = SimpleNamespace(folder="{regime}", logged="{regime}/", settings=plan.dpo_settings, outputs=[], constraints={})
    if regime.phase == "offline":  # on the harvest of pi_K, from a fresh M0 or from pi_K
        own.folder, own.logged = "{variant}{regime}", "{variant}{regime}/"
        own.inputs = {
            "start": plan.start_files,
            "costs": "results/{model}/seed{seed}/{variant}harvest/g{g}/k{k}/cost.json",
        }
        own.settings = plan.entry_settings if entry else plan.dpo_settings
    elif (
        regime.phase == "rounds"
    ):  # K counts them; the harvest of a round's policy and its pairs are those of harvest.smk
        own.inputs = {
            "pairs": lambda w: f"{plan.harvest_of_round(w)}/pairs.jsonl",
            "start": plan.round_before,
            "costs": lambda w: f"{plan.harvest_of_round(w)}/cost.json",
        }
    elif not stops:  # every K continues the checkpoint of the K before it; the first begins with M0 or with `start`
        if not entry:
            own.folder, own.logged = f"{{variant}}{regime.name}", "{variant}"
        own.inputs = {
            "problems": plan.prompts_asked,
            "reward": plan.reward_files,
            "checkpoint": plan.previous_checkpoint,
            "start": plan.started_from,
            "harvest": plan.replayed_harvest,
            "teacher": plan.teacher,
            "costs": plan.previous_costs,
        }
        own.outputs, own.constraints = ["checkpoint", "rollouts.parquet"], {"variant": variant_pattern(ABLATED_WARMUPS)}
        own.settings = plan.online_entry_settings if entry else plan.grpo_settings
    else:  # as many steps as it takes, at most K
        if not entry:
            own.folder, own.logged = f"{AUTO}/{regime.name}", ""
            own.constraints = {"model": names(sorted({warmup.model for warmup in AUTO_WARMUPS}))}
        own.inputs = {
            "problems": "results/{model}/calibration/train.jsonl",
            "start": plan.started_from,
            "teacher": plan.teacher,
            "costs": plan.previous_costs if entry else "results/{model}/calibration/cost.json",
        }
        own.outputs = ["rollouts.parquet", "probes.csv"]
        own.settings = plan.auto_entry_settings if entry else plan.auto_settings
    return own


for regime, stops in [*((one, False) for one in REGIMES.values()), *((one, True) for one in of_phase("online"))]:
    name, shape = f"train_{regime.name}{'_auto' if stops else ''}", training(regime, stops)
    folder = f"results/{{model}}/seed{{seed}}/{shape.folder}/g{{g}}/k{{k}}"

    rule:
        name:
            name
        input:
            plan.base_files,
            *([unpack(plan.harvested)] if regime.phase == "offline" else []),
            **shape.inputs,
            base="results/{model}/base/policy.json",
            choice=plan.choice(regime.configured_in),
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
        threads: 1
        resources:
            gpu=plan.training_gpus,
        params:
            version=VERSIONS[name],
            settings=shape.settings,
        message:
            regime.auto_message if stops else regime.message
        script:
            "../scripts/train.py"
