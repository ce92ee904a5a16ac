# Jobs to which something happens. They go through the shipped profile: `evaluate` has the resources of the real rule.

from pathlib import Path

from snakemake.exceptions import WorkflowError

from g2d.jobs.recover import require_no_orphans


include: "workflow/rules/patches.smk"


onstart:
    require_no_orphans(Path.cwd())


rule all:
    input:
        expand("results/{fault}.txt", fault=[*config["gpu"], *config["cpu"]]),


rule prepare:
    output:
        "results/prepared.txt",
    script:
        "victim.py"


rule evaluate:
    input:
        config["after"],
    output:
        "results/{fault}.txt",
    wildcard_constraints:
        fault="|".join(config["gpu"]) or "(?!)",
    resources:
        gpu=1,
    params:
        settings=config.get("settings"),
    script:
        "victim.py"


rule count:
    input:
        config["after"],
    output:
        "results/{fault}.txt",
    wildcard_constraints:
        fault="|".join(config["cpu"]) or "(?!)",
    script:
        "victim.py"


rule conclude:
    input:
        "results/{fault}.txt",
    output:
        "results/{fault}-concluded.txt",
    script:
        "victim.py"
