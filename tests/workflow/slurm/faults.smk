# Jobs to which something happens. They go through the shipped profile: `evaluate` has the resources of the real rule.


rule all:
    input:
        expand("results/{fault}.txt", fault=config["faults"]),


rule prepare:
    output:
        "results/prepared.txt",
    script:
        "victim.py"


rule evaluate:
    input:
        "results/prepared.txt",
    output:
        "results/{fault}.txt",
    resources:
        gpu=1,
    script:
        "victim.py"
