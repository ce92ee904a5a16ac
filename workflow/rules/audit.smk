# Published numbers, recomputed from the papers' own tables: `snakemake --cores 1 audit`. Nothing is trained for it.


rule audit_papers:
    output:
        table="results/tables/audit.csv",
    log:
        "results/logs/audit_papers.log",
    benchmark:
        "results/benchmarks/audit_papers.tsv"
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    params:
        version=VERSIONS["audit_papers"],
    message:
        "Recompute the papers' numbers from their own tables"
    script:
        "../scripts/audit_papers.py"
