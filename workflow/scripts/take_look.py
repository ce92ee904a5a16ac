"""Run an interim analysis, and estimate the cost of the next."""

from pathlib import Path

from g2d.experiment.config import load
from g2d.forecast.hours import next_cost
from g2d.jobs.files import write_json
from g2d.jobs.stage import stage
from g2d.tables.looks import take


def main(snakemake):
    with stage(snakemake):
        config, file = load(snakemake.config), Path(snakemake.output[0])
        if file.exists():
            raise FileExistsError(f"{file}: this look was taken")
        look = take(config, int(snakemake.wildcards.look))
        write_json(file, look | {"cost": next_cost(config, look)})


if __name__ == "__main__":
    main(snakemake)
