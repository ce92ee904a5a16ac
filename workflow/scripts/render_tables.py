"""Rule render_tables: the tables as pages of the report."""

from pathlib import Path

from g2d.files import write_text
from g2d.pages import table_page
from g2d.stage import stage


def main(snakemake):
    with stage(snakemake):
        for name, title in snakemake.params.titles.items():
            page = table_page(Path(snakemake.input[name]), title, snakemake.params.note)
            write_text(snakemake.output[name], page)


if __name__ == "__main__":
    main(snakemake)
