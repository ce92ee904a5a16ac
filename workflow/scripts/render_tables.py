"""Rule render_tables: render the tables as pages of the report."""

from pathlib import Path

from g2d.jobs.files import write_text
from g2d.jobs.stage import stage
from g2d.tables.pages import table_page


def main(snakemake):
    with stage(snakemake):
        for name, title in snakemake.params.titles.items():
            page = table_page(Path(snakemake.input[name]), title, snakemake.params.note)
            write_text(snakemake.output[name], page)


if __name__ == "__main__":
    main(snakemake)
