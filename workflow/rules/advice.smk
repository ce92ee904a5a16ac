# Advice before the grid (`snakemake advice`), from calibration and a few prompts harvested at every K.


rule draw_probe:
    input:
        planned("draw_probe", ""),
        policy=planned("draw_probe", "policy"),
        problems="results/{model}/calibration/train.jsonl",
        shards=[],
        costs=planned("draw_probe", "costs"),
    output:
        rollouts="results/{model}/seed{seed}/{variant}probe/g{g}/k{k}/rollouts.parquet",
        cost="results/{model}/seed{seed}/{variant}probe/g{g}/k{k}/cost.json",
    log:
        "results/logs/draw_probe/{model}/seed{seed}/{variant}g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/draw_probe/{model}/seed{seed}/{variant}g{g}/k{k}.tsv"
    conda:
        "../../envs/g2d.yaml"
    resources:
        gpu=gpus,
    params:
        version=VERSIONS["draw_probe"],
        prompts=CONFIG.probe.prompts,
        settings=param("draw_probe", "settings"),
        engine=param("draw_probe", "engine"),
    message:
        "Probe {wildcards.model} at {wildcards.variant}K={wildcards.k}, G={wildcards.g}, seed {wildcards.seed}, "
        "with {params.prompts} prompts"
    script:
        "../scripts/draw_probe.py"


rule advise:
    input:
        levels=expand("results/{model}/calibration/levels.csv", model=CONFIG.models),
        benchmarks=expand(
            "results/problems/{benchmark}.jsonl", benchmark=[*CONFIG.benchmarks, *([DEVELOPMENT] if SWEPT else [])]
        ),
        rollouts=[f"results/{p.probe_folder}/rollouts.parquet" for p in PROBES],
        bills=[f"results/{p.probe_folder}/cost.json" for p in PROBES],
    output:
        text="results/advice.md",
        steps="results/tables/advice.csv",
        hours="results/tables/advice_hours.csv",
    log:
        "results/logs/advise.log",
    benchmark:
        "results/benchmarks/advise.tsv"
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["advise"],
        config=CONFIG.identity,
    message:
        "Advise on levels, K and device-hours"
    script:
        "../scripts/advise.py"


rule check_advice:
    input:
        steps="results/tables/advice.csv",
        hours="results/tables/advice_hours.csv",
        probes=[f"results/{p.probe_folder}/cost.json" for p in PROBES],
        informativeness=at_last("check_advice", "informativeness"),
        evaluations=at_last("check_advice", "evaluations"),
        bills=at_last("check_advice", "bills"),
    output:
        check="results/tables/advice_check.csv",
    log:
        "results/logs/check_advice.log",
    benchmark:
        "results/benchmarks/check_advice.tsv"
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["check_advice"],
        config=CONFIG.identity,
    message:
        "Compare the advice with what the grid has shown"
    script:
        "../scripts/check_advice.py"
