# Published numbers, recomputed from the papers' own tables: `snakemake --cores 1 audit`. Nothing is trained for it.


rule audit:
    output:
        table="results/tables/audit.csv",
    log:
        "results/logs/audit.log",
    benchmark:
        "results/benchmarks/audit.tsv"
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    params:
        version=VERSIONS["audit"],
    message:
        "Recompute the papers' numbers from their own tables"
    script:
        "../scripts/audit.py"
