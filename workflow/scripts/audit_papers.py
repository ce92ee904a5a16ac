"""Rule audit_papers: the papers' numbers recomputed from their own tables."""

from g2d.jobs.stage import stage
from g2d.tables.audit import audit
from g2d.tables.frames import write_table


def main(snakemake):
    with stage(snakemake):
        write_table(snakemake.output.table, audit())


if __name__ == "__main__":
    main(snakemake)
